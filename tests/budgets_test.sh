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

# crowd RAILS CALLS ORDERS: a server with so many rails, and a client of it under strace.
crowd() {
    local pid lib

    lib=$(readlink -f "$build/librailsock.so")
    rm -f "$work/port"
    RAILSOCK_RAILS=$1 LD_PRELOAD=$lib RAILSOCK_BOARD=after=8 "$work/crowd" serve >"$work/port" &
    pid=$!
    wait_until 20 test -s "$work/port"
    printf '%b' "$3" |
        timeout 60 strace -f -qq -e "trace=$2" -o "$work/calls" -E "LD_PRELOAD=$lib" -E RAILSOCK_BOARD=after=8 \
            "$work/crowd" drive "$(cat "$work/port")" >"$work/said"
    { kill $pid; wait $pid; } 2>/dev/null
}

# few NAME ON LEAST MOST PATTERN: so many boarded, with so many such calls at least and at most.
few() {
    local calls

    calls=$(grep -c "$5" "$work/calls")
    if ! grep -q "\"on\": $2," "$work/said"; then
        echo "not ok budgets.$1: $(tail -n 1 "$work/said")"
    elif [ "$calls" -lt "$3" ] || [ "$calls" -gt "$4" ]; then
        echo "not ok budgets.$1: $calls times $5"
    else
        echo "ok budgets.$1"
    fi
}

first() {
    budget idle RAILSOCK_IDLE=4
    budget half RAILSOCK_IDLE=1
    budget rails RAILSOCK_RAILS=2 RAILSOCK_IDLE=0
    budget none RAILSOCK_RAILS=0
}

second() {
    budget halved RAILSOCK_IDLE=0
    budget none.memory RAILSOCK_MEMORY=64k
    budget small RAILSOCK_RING=64k RAILSOCK_MEMORY=1m RAILSOCK_IDLE=0
    budget heat RAILSOCK_RAILS=2 RAILSOCK_IDLE=0
    RAILSOCK_RAILS=2 RAILSOCK_IDLE=0 budget heat.served RAILSOCK_RAILS=1024
    crowds
}

crowds() {
    if ! strace -o /dev/null true 2>/dev/null; then
        echo 'skip budgets.many: no strace, or it may not trace'
    elif ! cc -O2 -std=gnu11 -D_GNU_SOURCE -I. -o "$work/crowd" tests/bench/crowd.c -lm; then
        echo 'not ok budgets.many: crowd.c does not build'
    else
        # A process with very many sockets does not look each of them up in /proc before one gets a
        # rail.
        crowd 1024 readlink,readlinkat 'open 500\nboard 1000\n'
        few many 500 0 0 '"socket:\['
        # Where the server has no rail, not each of its connections asks it.
        crowd 0 connect 'open 500\nboard 100\n'
        few refused 0 1 250 '"railsock\.'
    fi
}

if [ -n "${BUDGETS_PART-}" ]; then
    $BUDGETS_PART
    exit 0
fi
at_once BUDGETS_PART first second || { first; second; }
# By itself: it counts how often who has nothing to do wakes up.
budget rests
exit 0
