#!/bin/bash
# tests/verbs_test.sh - the verbs wire by itself, between two virtual hosts and between two
# processes of one. tests/lab/verbs_wire_*.c are the program; one boot for all cases.
#
# Lines that start with # show latency and bandwidth, with VERBS_MEASURE=1 beside perftest's and
# measured twice, in turn on host 1. They are for people: the machine below has too few cores for a
# limit to hold.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/wait.sh
. tests/wait.sh
build=$(realpath "${RAILSOCK_TEST_BUILD:-build}")
overwritten=glibc.malloc.perturb=165:glibc.malloc.tcache_count=0

# Runs cases as a client; prefixes their names.
client() { # PREFIX TO PORT CASE...
    local prefix=$1 to=$2 port=$3 status

    shift 3
    timeout -k 1 400 "$LAB_SCRATCH/verbs_wire_test" "${mode-client}" "10.1.0.$LAB_HOST" "$to" "$port" "$@" 2>&1 |
        sed -u "s/^\(ok\|not ok\|skip\) /&$prefix/"
    status=${PIPESTATUS[0]}
    case $status in
    0 | 1 | 77) ;; # it has said itself what there was to say
    124) echo "not ok ${prefix}cases: hang" ;;
    *) echo "not ok ${prefix}cases: status $status" ;;
    esac
}

server() { # PORT
    "$LAB_SCRATCH/verbs_wire_test" server "$1" >>"$LAB_SCRATCH/server.$1" 2>&1 &
    servers="${servers-} $!"
}

# The third column from perftest's table: typical latency, or average bandwidth.
perftest() { # PROGRAM OPTION...
    "$@" -d rxe0 -F >/dev/null 2>&1 &
    serves 18515 $!
    "$@" -d rxe0 -F 10.1.0.1 2>/dev/null | awk -v lat="${1#ib_write_}" '
        /^ *[0-9]+ +[0-9]+ +[0-9.]+/ { print lat == "lat" ? $5 : $4 }'
    wait $!
}

measure() {
    client perf- 10.1.0.1 7000 latency bandwidth bandwidth-1m
    [ -n "$LAB_MEASURE" ] || return
    # shellcheck disable=SC2034 # only counts
    for i in 1 2; do
        [ $i = 1 ] || client perf- 10.1.0.1 7000 latency bandwidth bandwidth-1m
        echo "# ib_write_lat 64 bytes: $(perftest ib_write_lat -s 64 -n 2000) us one way"
        echo "# ib_write_bw 65536 bytes: $(perftest ib_write_bw -s 65536 -n 400) MB/s"
    done
}

# A program of tests/preload over verbs, beside what it has printed on this machine without the
# library.
alike() { # NAME
    local of=$LAB_SCRATCH/$1

    PAIR_ADDRESS=$LAB_IP_1 PAIR_WARM=1 RAILSOCK_MODE=rail RAILSOCK_WIRE=verbs RAILSOCK_LOG=info:$of.log \
        LD_PRELOAD=$build/librailsock.so timeout 100 "$of" >"$of.verbs" 2>&1
    if cmp -s "$of.plain" "$of.verbs" && grep -q 'sending on rxe' "$of.log"; then
        echo "ok preload.$1"
    else
        echo "not ok preload.$1: not what it prints without the library, or not on a rail:"
        diff "$of.plain" "$of.verbs" | head -n 20 | sed 's/^/# /'
    fi
}

host1() {
    # A message without a posted receive must never be sent; this server and its peer would fail.
    # What is freed is overwritten.
    RAILSOCK_TEST_RNR0=1 GLIBC_TUNABLES=$overwritten server 7001
    server 7000
    lab-barrier servers-up
    lab-barrier remote-done
    measure
    alike writable
    alike crawls
    alike outq
    alike processes
    mode=both client both- 10.1.0.1 7002 one-byte duplex limit reboard
    client local- 10.1.0.1 7000 one-byte duplex wrap limit late-wait fork killed unplug plug again
    # shellcheck disable=SC2086 # process ids
    kill $servers
    cat "$LAB_SCRATCH"/server.*
}

host2() {
    lab-barrier servers-up
    export RAILSOCK_TEST_RNR0=1
    client '' 10.1.0.1 7001 one-byte bulk stall duplex wrap sleepy limit late-wait ctl-flood own-shard away \
        freeze quiet reboard fork not-yet nobody loopback killed
    GLIBC_TUNABLES=$overwritten client '' 10.1.0.1 7001 unwanted one-byte
    VERBS_EPOLL=1 client epoll- 10.1.0.1 7001 duplex
    client '' 10.1.0.1 7001 half-written lost-credit
    client '' 10.1.0.1 7001 last-words # its adapter stays as it is then
    client '' 10.1.0.1 7001 unplug
    lab-barrier remote-done
}

case ${LAB_HOST-} in
1) host1 ;;
2) host2 ;;
esac
[ -z "${LAB_HOST-}" ] || exit 0

dir=$(mktemp -d "${TMPDIR:-/tmp}/verbs.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
${CC:-cc} -std=gnu11 -O2 -g -I. -D_GNU_SOURCE -Wall -Wextra -o "$dir/verbs_wire_test" \
    tests/lab/verbs_wire_*.c "$build"/plain/rsock/*.o "$build"/plain/config/{env,log,reason,values}.o \
    -ldl -lpthread || exit 1
for program in writable crawls outq processes; do
    cp "$build/plain/tests/preload/$program" "$dir" || exit 1
    timeout 100 "$dir/$program" >"$dir/$program.plain" 2>&1
done
export LAB_MEASURE=${VERBS_MEASURE-}
"$build/railsock" lab run --hosts 2 --timeout 800 --scratch "$dir" -- tests/verbs_test.sh |
    sed -u 's/^host[12]| //'
exit "${PIPESTATUS[0]}"
