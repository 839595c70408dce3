#!/bin/bash
# tests/faults_lab_test.sh - what goes wrong between two hosts, with unmodified programs. Host 1
# has the servers, clients run on host 2, one boot for all.
#
# First peers that can never have a rail: whoever connects, accepts or exchanges bytes must not wait
# for RDMA. Then rails that fail under redis-benchmark, which must not notice. Then a slice of what
# faults/run does (`make lab-faults`). APPS_ALL=1: also the cases that another one is close to.
set -u
cd "$(dirname "$0")/.." || exit 1

if [ -z "${LAB_HOST-}" ]; then
    railsock=${RAILSOCK_TEST_BUILD:-build}/railsock
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/faults_lab.XXXXXX") || exit 1
    trap 'rm -rf "$scratch"' EXIT
    export LAB_FILTER=${APPS_FILTER-} LAB_ALL=${APPS_ALL-}
    ${CC:-cc} -std=gnu11 -O2 -g -D_GNU_SOURCE -o "$scratch/torture" tests/torture/torture.c -lpthread || exit 1
    ${CC:-cc} -std=gnu11 -O2 -g -D_GNU_SOURCE -o "$scratch/stream" tests/faults/stream.c -lpthread || exit 1
    ${CC:-cc} -std=gnu11 -O2 -g -D_GNU_SOURCE -shared -fPIC -o "$scratch/old_kernel.so" tests/faults/old_kernel.c -ldl || exit 1
    "$railsock" lab run --hosts 2 --timeout 1300 --scratch "$scratch" -- tests/faults_lab_test.sh |
        sed -u 's/^host[12]| //'
    exit "${PIPESTATUS[0]}"
fi
if [ "$LAB_HOST" != 1 ]; then
    lab-barrier faults-done
    exit 0
fi

# shellcheck source=tests/apps/lib.sh
. tests/apps/lib.sh
# shellcheck source=tests/faults/lib.sh
. tests/faults/lib.sh
# shellcheck source=tests/faults/cases.sh
. tests/faults/cases.sh
MODE=verbs APPS_FILTER=$LAB_FILTER
stream=$LAB_SCRATCH/stream
unset LD_PRELOAD
stand_by || echo 'not ok verbs.stand_by'

# ---- peers without a rail

# A wait for RDMA is there each time; a pause of a busy machine as long as that one is not there
# three times.
never_waits() { # BREAK MEND HOST: nothing ever boards, nobody ever waits
    local try

    "$1" "$3" || { fail "$1 failed"; return; }
    for try in 1 2 3; do
        why='' servers=()
        free_port
        server "${own_python[@]}" "$apps/echo_server.py" threads "$ip" "$port" &&
            client "${own_python[@]}" "$apps/connect_times.py" "$ip" "$port" 6 20
        echo "# $(head -n 1 "$out")"
        { [ -n "$why" ] && [ "$try" -lt 3 ]; } || break
        stop_servers
    done
    "$2" "$3" || fail "$2 failed"
}

# ---- rails that fail

# A path that carries small packets only: a rendezvous, credit and what goes before the first byte
# are some. No byte goes there, and who has found that out, several times, tells the other streams
# of its process: after each failure but the first, for which all asked at once, none of them asks
# again for as long as the log says.
small_packets() { # HOST
    large_on "$1" || { fail 'large_on failed'; return; }
    free_port
    server env STREAM_COUNTS="$work/counts" RAILSOCK_LOG=info "$stream" "$port" pdu || return
    here=${servers[-1]}
    rm -f "$shared/small.log"
    there streams env STREAM_COUNTS=/tmp/counts RAILSOCK_LOG=info:"$shared/small.log" "$stream" "$port" pdu "$ip"
    wait_until 120 failed_often || fail "after 120 s: $(tail -n 3 "$shared/small.log" | tr '\n' '|')"
    streams_end
    drop_off "$1" || fail 'drop_off failed'
    # Not even to be left at once.
    ! grep -hE '(sending|receiving) on rxe' "$work/server.err" "$shared/small.log" >"$work/boarded" ||
        fail "$(head -n 1 "$work/boarded")"
    awk '/its rail has not lasted/ { n++; until = n > 1 ? $2 + $(NF - 1) : 0 }
        /verbs rendezvous: / && $2 < until { print $0 }' "$shared/small.log" >"$work/early"
    [ ! -s "$work/early" ] || fail "asked too early: $(head -n 1 "$work/early")"
}
failed_often() { [ -e "$shared/small.log" ] && [ "$(grep -c 'its rail has not lasted' "$shared/small.log")" -ge 3 ]; }

# Where an adapter's own time holds, the library's is shorter: the streams are on TCP long before
# rxe's 15 s are over (wait_until may take three times as long as it is told).
old_kernel() {
    local both began

    both=$LAB_SCRATCH/old_kernel.so:$(realpath "$(dirname "$railsock")")/librailsock.so
    free_port
    server env LD_PRELOAD="$both" STREAM_COUNTS="$work/counts" RAILSOCK_LOG=info "$stream" "$port" pdu || return
    here=${servers[-1]}
    there streams env LD_PRELOAD="$both" STREAM_COUNTS=/tmp/counts RAILSOCK_LOG=info "$stream" "$port" pdu "$ip"
    wait_until 60 came_by rail last p d || { fail "nothing has boarded: $(paths)"; return; }
    [ "$(cat "$work/server.err" "$shared/streams.err" | grep -c 'is to repeat cannot be set: error 38')" = 2 ] ||
        fail 'the kernel is not as old as it should be'
    began=$EPOCHREALTIME
    drop_on 2 || fail 'drop_on failed'
    wait_until 4 came_by tcp "$began" p d || fail 'not on TCP in 12 s'
    grep -h 'sent is acknowledged' "$work/server.err" "$shared/streams.err" | sed 's/^/# /'
    drop_off 2 || fail 'drop_off failed'
    streams_end
}

# Starts redis-benchmark on the other host with more to do than it is given time for, and waits
# until it has boarded.
benchmark_boards() {
    server redis-server --bind "$ip" --port "$port" --protected-mode no --save '' \
        --appendonly no --dir "$work" --daemonize no || return
    BOARD=eager there benchmark redis-benchmark -h "$ip" -p "$port" --csv -c 2 -n 10000000 -t get -d 200
    wait_until 60 all_on verbs || { fail "nothing has boarded: $(paths)"; return; }
}

# Its two connections have been used in the last two seconds. Who asks has one as well.
both_served() {
    redis-cli -h "$ip" -p "$port" client list >"$work/clients" &&
        [ "$(grep -cE ' idle=[01] .* cmd=get ' "$work/clients")" = 2 ]
}

# It has gone on after all that was done to it, and ends because it is told to.
benchmark_ends() {
    local status

    sleep 3
    wait_until 60 both_served || fail "a connection hangs: $(cut -d ' ' -f 2,6- "$work/clients" | tr '\n' '|')"
    signal_there benchmark TERM
    wait "${far[benchmark]}"
    status=$?
    cat "$shared"/benchmark.{out,err} >"$work/benchmark"
    [ $status -eq 143 ] || { fail "redis-benchmark ended with $status: $(tail -n 2 "$work/benchmark" | tr '\n' ' ')"; return; }
    ! grep -qiE 'error|refused|reset' "$work/benchmark" || fail "redis-benchmark: $(grep -iE 'error|refused|reset' "$work/benchmark" | head -n 1)"
}

fails_under_benchmark() { # BREAK MEND HOST
    benchmark_boards || return
    "$1" "$3" || fail "$1 failed"
    wait_until 30 all_on tcp || fail "still on $(paths)"
    benchmark_ends
    "$2" "$3" || fail "$2 failed"
}

# The client, which asks for rails, has found that there is no device for one.
found_none() { on 2 sh -c "'$railsock' stat --json | grep -q '\"no-rdma-on-route\"'"; }

comes_back() { # HOST: the same connections, after the device has come back
    benchmark_boards || return
    rdma_off "$1" || fail 'rdma link delete failed'
    wait_until 30 all_on tcp || fail "still on $(paths)"
    [ "$1" = 1 ] || wait_until 30 found_none || fail 'the client does not look for a device'
    rdma_on "$1"
    wait_until 60 some_on verbs || fail "did not board again: $(paths)"
    benchmark_ends
}

# One after another under the same streams.
several_faults() {
    streams_start || return
    faulty loss loss_10_on netem_off 2 3 may-leave 1
    [ -n "$why" ] || faulty link_down link_down link_up 2 1 leaves 1
    streams_end
}

# Streams that are made to change track at random moments, on both hosts, until it has happened some
# times. With pace, and this seed, the first two of a round are short, while the client opens its
# device, and the third carries megabytes both ways, slowly, so that there is time for it: where one
# direction has ended the other one stays on TCP. Each round has a client that opens its device
# anew, which takes a busy translated machine longer than a short round: so they become longer. If
# two were in vain, a device may hear nobody any more, which is the kernel's (see `deaf`): then
# there are new ones; and in the next one both ends say what they are on.
torture() { # SEED
    local seconds rounds=0 look='' switches=0

    server env TORTURE_PACE=60 RAILSOCK_TEST_SWITCH="$1" "$LAB_SCRATCH/torture" "$1" 0 "$port" server || return
    for seconds in 10 20 40 80 160; do
        rounds=$((rounds + 1))
        if [ $rounds = 3 ] && [ "$switches" = 0 ]; then
            ! deaf || new_devices
            [ -z "$why" ] || return
            { wait_until 60 runs_there && sleep $((seconds / 4)) && stat_both | sed 's/^/# /'; } &
            look=$!
        fi
        client env TORTURE_AT_ONCE=1 TORTURE_PACE=60 RAILSOCK_TEST_SWITCH="$1" "$LAB_SCRATCH/torture" "$1" "$seconds" "$port" "$ip" ||
            { fail "$(head -n 1 "$out")"; return; }
        [ -z "$look" ] || { wait "$look"; look=''; }
        switches=$("$railsock" stat --json | "${own_python[@]}" -c '
import json, sys
print(sum(c["switches"] for p in json.load(sys.stdin)["processes"]
          for c in [p["closed"], *p["connections"]]))')
        echo "# $switches switches of the server, $seconds s: $(tail -n 1 "$out")"
        [ "$switches" -lt 4 ] || break
    done
    [ "$switches" -ge 4 ] || fail "only $switches switches in $rounds rounds of up to $seconds s; on TCP: $(tcp_reasons)"
    ! grep -h 'railsock.* error:' "$work/server.err" "$err" >"$work/errors" ||
        fail "$(head -n 1 "$work/errors")"
}
runs_there() { on 2 sh -c "'$railsock' stat --json | grep -q torture"; }

# Why the server's connections were, or are, not on a rail: "REASON: COUNT, ...".
tcp_reasons() {
    "$railsock" stat --json | "${own_python[@]}" "$top/tools/share.py" "${servers[@]}" | cut -d ' ' -f 3-
}

# ---- what `railsock doctor` on host 2 says of the server

doctor_says() { # STATUS LINE: one line is like this
    local status try

    for try in 1 2 3 4 5; do
        on 2 "$apps/to_files" "$shared/doctor" "$shared/doctor.err" timeout 60 "$railsock" doctor --wire verbs "$ip:$port"
        status=$?
        tr -s ' ' <"$shared/doctor" >"$work/doctor.lines"
        # The server is asked as soon as the kernel has the connection, which may be before it has
        # accepted it.
        { [ "$try" -lt 5 ] && grep -q ' not-mine: ' "$work/doctor.lines"; } || break
    done
    { [ $status -eq "$1" ] && grep -qE "$2" "$work/doctor.lines"; } ||
        fail "doctor, status $status: $(tr '\n' '|' <"$work/doctor.lines")"
}

doctors() {
    server "${own_python[@]}" "$apps/echo_server.py" threads "$ip" "$port" || return
    doctor_says 1 '^FAIL rendezvous .*the host answers over RDMA, but nobody for this port'
    # It boards in the middle of words, and there are more of them than it takes.
    there talker "${own_python[@]}" tests/echo.py client "$port" 100000 "$ip"
    wait_until 60 some_on verbs || { fail "nothing has boarded: $(paths)"; return; }
    doctor_says 0 '^ok rendezvous .* the server.s railsock has the connection'
    grep -q '^ok same host .* no: another host' "$work/doctor.lines" || fail "$(cat "$work/doctor.lines")"
    grep -q '^ok device .* rxe0/1$' "$work/doctor.lines" || fail "$(cat "$work/doctor.lines")"
    sed 's/^/# /' "$shared/doctor"
    "$railsock" stat --wide | sed 's/^/# /'
    drop_on 2
    doctor_says 1 '^FAIL rendezvous .* rendezvous-timeout: '
    drop_off 2
    signal_there talker TERM
}

BOARD=eager run_case doctor any doctors
[ -z "$LAB_ALL" ] || BOARD=eager run_case nobody_waits.packets_to_the_client_dropped 0 never_waits drop_on drop_off 2
BOARD=eager run_case nobody_waits.packets_to_the_server_dropped 0 never_waits drop_on drop_off 1
BOARD=eager run_case nobody_waits.client_without_rdma 0 never_waits rdma_off rdma_on 2
BOARD=eager run_case nobody_waits.server_without_rdma 0 never_waits rdma_off rdma_on 1
BOARD=eager CLIENT=off run_case nobody_waits 0 never_waits true true 2
BOARD=eager SERVER=off run_case nobody_waits 0 never_waits true true 2
BOARD=eager run_case small_packets_to_the_server any small_packets 1
[ -z "$LAB_ALL" ] || BOARD=eager run_case small_packets_to_the_client any small_packets 2
BOARD=eager run_case old_kernel any old_kernel
run_case packets_dropped 1 fails_under_benchmark drop_on drop_off 2
[ -z "$LAB_ALL" ] || run_case boards_again.server 1 comes_back 1
run_case boards_again.client 1 comes_back 2
[ -z "$LAB_ALL" ] || BOARD=eager run_case several_faults any several_faults
BOARD=eager run_case killed any killed killed 2
BOARD=eager run_case torture any torture 4
lab-barrier faults-done
