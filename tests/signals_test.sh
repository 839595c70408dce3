#!/bin/bash
# tests/signals_test.sh - programs that everybody has, whose signals find them in a call on a rail:
# java closes sockets that other threads read from, python's handlers raise exceptions, iperf3 jumps
# out of its handler. tests/preload/ has the rest: interrupted.c, handlers.c, actions.c, cancel.c.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/wait.sh
. tests/wait.sh
build=${RAILSOCK_TEST_BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/signals.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)

boarded() { grep -qs 'sending on shm' "$work/$1.log"; }

# says NAME TEXT COMMAND...: on a rail, prints this.
says() {
    local name=$1 want=$2 got

    shift 2
    got=$(RAILSOCK_LOG=info:$work/$name.log timeout -k 1 100 "$build/railsock" run --board eager -- "$@" 2>&1 </dev/null)
    if [ "$got" = "$want" ] && boarded "$name"; then
        echo "ok signals.$name"
    else
        echo "not ok signals.$name: '$(head -c 500 <<<"$got")', $(tail -n 1 "$work/$name.log" 2>&1)"
    fi
}

if command -v javac >/dev/null && javac -d "$work" tests/signals/Closes.java; then
    says java '100 closed' java -cp "$work" Closes 100
else
    echo 'skip signals.java: no javac'
fi
says python "b'now'"$'\nTrue' /usr/bin/python3 tests/signals/python.py

told_twice() { [ "$(grep -c 'Bytes' "$work/client")" -ge 2 ]; }

# A client in the middle of a long run gets SIGINT: what it prints then is the result so far.
if command -v iperf3 >/dev/null; then
    port=$((29000 + $$ % 3000))
    "$build/railsock" run --board eager -- iperf3 -s -1 -B 127.0.0.1 -p $port >"$work/server" 2>&1 &
    server=$!
    serves $port $server
    RAILSOCK_LOG=info:$work/iperf3.log "$build/railsock" run --board eager -- \
        iperf3 -c 127.0.0.1 -p $port -t 100 -i 0.5 --forceflush >"$work/client" 2>&1 &
    client=$!
    wait_until 30 told_twice
    kill -INT $client
    wait_until 30 ended $client
    if grep -q 'sender' "$work/client" && grep -q 'interrupt - the client has terminated' "$work/client" &&
        boarded iperf3; then
        echo 'ok signals.iperf3'
    else
        echo "not ok signals.iperf3: $(tail -q -n 3 "$work/client" "$work/iperf3.log" 2>&1 | tr '\n' ' ')"
    fi
    { kill $client $server; wait $client $server; } 2>/dev/null
else
    echo 'skip signals.iperf3: no iperf3'
fi
