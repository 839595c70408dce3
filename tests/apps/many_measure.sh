# shellcheck shell=bash
#
# tests/apps/many_measure.sh - programs that measure. Sourced by tests/apps/many.
#
# shellcheck disable=SC2154 # variables from lib.sh

# What the server says that it got is what the client says that it sent. CSV, where the eighth is
# bytes. With --full-duplex it frees its memory twice, on any network, if one direction ends three
# seconds after the other.
iperf2_bytes() { # OPTION...
    local much=(-n 256M)

    [ "$wire" = shm ] || much=(-t 4) # a connection may be gone before an emulated host has a rail for it
    server iperf -s -B "$ip" -p "$port" -y C || return
    client iperf -c "$ip" -p "$port" "${much[@]}" "$@" -y C || return
    wait_until 10 iperf2_told || fail "sent $(cut -d , -f 8 "$out" | tr '\n' ' '), got $(cut -d , -f 8 "$work/server.out" | tr '\n' ' ')"
}

iperf2_told() {
    cmp -s <(cut -d , -f 8 "$out" | sort) <(cut -d , -f 8 "$work/server.out" | sort)
}

# It wants one port to talk and one for the data.
nuttcp_bytes() { # OPTION...
    local control=$port

    server nuttcp -S --nofork -P "$control" || return
    free_port
    client nuttcp -P "$control" -p "$port" -n 4096 -l 65536 -fparse "$@" "$ip" || return
    grep -q '^megabytes=256.0000 ' "$out" || fail "$(head -n 1 "$out")"
}

qperf_run() {
    local control=$port

    server qperf -lp "$control" || return
    free_port
    client qperf -lp "$control" -ip "$port" -t 1 "$ip" tcp_bw tcp_lat || return
    [ "$(grep -cE '^ +(bw|latency) += +[0-9.]+ ' "$out")" = 2 ] || fail "no result: $(tr '\n' ' ' <"$out")"
}

measure_apps() {
    app 'iperf 2' iperf bytes rail '' iperf2_bytes -P 4
    app 'iperf 2, full duplex' iperf bytes rail '' iperf2_bytes --full-duplex
    app 'iperf3' iperf3 result rail '' iperf3_run
    app 'iperf3, both ways' iperf3 result rail '' iperf3_run --bidir
    app 'nuttcp' nuttcp result rail '' nuttcp_bytes
    app 'nuttcp, to the client' nuttcp result rail '' nuttcp_bytes -r
    app 'qperf tcp_bw tcp_lat' qperf result rail '' qperf_run
    app 'sockperf ping-pong' sockperf bytes rail '' sockperf_pingpong
}
