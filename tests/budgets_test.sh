#!/bin/bash
# tests/budgets_test.sh - who gets a rail when there are few, and who gives it back.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/pair.sh
. tests/pair.sh

budget() { # CASE[.WHERE] SETTING...
    pair "budgets.$1" eager "tests/apps/echo_server.py threads 127.0.0.1 PORT" \
        "tests/budgets.py $build/railsock PORT ${1%%.*}" "${@:2}"
}

budget idle RAILSOCK_IDLE=1
budget rails RAILSOCK_RAILS=2 RAILSOCK_IDLE=0
budget none RAILSOCK_RAILS=0
budget heat RAILSOCK_RAILS=2 RAILSOCK_IDLE=0
RAILSOCK_RAILS=2 RAILSOCK_IDLE=0 budget heat.served RAILSOCK_RAILS=1024

# A process with very many sockets does not look each of them up in /proc before one gets a rail.
many() {
    local preload port=0 pid lib

    lib=$(readlink -f "$build/librailsock.so")
    preload=(-E "LD_PRELOAD=$lib" -E RAILSOCK_BOARD=after=8)
    cc -O2 -std=gnu11 -D_GNU_SOURCE -I. -o "$work/crowd" tests/bench/crowd.c -lm || return 1
    LD_PRELOAD=$lib RAILSOCK_BOARD=after=8 "$work/crowd" serve >"$work/port" &
    pid=$!
    wait_until 20 test -s "$work/port"
    port=$(cat "$work/port")
    printf 'open 500\nboard 1000\n' |
        timeout 60 strace -f -qq -e trace=readlink,readlinkat -o "$work/looked" "${preload[@]}" \
            "$work/crowd" drive "$port" >"$work/said"
    { kill $pid; wait $pid; } 2>/dev/null
    if ! grep -q '"on": 500' "$work/said"; then
        echo "not ok budgets.many: $(tail -n 1 "$work/said")"
    elif grep -q '"socket:\[' "$work/looked"; then
        echo "not ok budgets.many: $(grep -c '"socket:\[' "$work/looked") times a socket was looked up"
    else
        echo 'ok budgets.many'
    fi
}
if strace -o /dev/null true 2>/dev/null; then
    many || echo 'not ok budgets.many: it does not build'
else
    echo 'skip budgets.many: no strace, or it may not trace'
fi
exit 0
