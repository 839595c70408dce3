#!/bin/bash
# tests/signals_test.sh - programs that everybody has, whose signals find them in a call on a rail: java closes
# sockets that other threads read from, python's handlers raise exceptions, iperf3 jumps out of its handler.
# tests/preload/ has the rest: interrupted.c, handlers.c, actions.c, cancel.c.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${RAILSOCK_TEST_BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/signals.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)

# says NAME TEXT COMMAND...: on a rail, prints this.
says() {
    local name=$1 want=$2 got

    shift 2
    got=$(timeout -k 1 100 "$build/railsock" run --board eager -- "$@" 2>&1 </dev/null)
    if [ "$got" = "$want" ]; then
        echo "ok signals.$name"
    else
        echo "not ok signals.$name: '$(head -c 500 <<<"$got")'"
    fi
}

if command -v javac >/dev/null && javac -d "$work" tests/signals/Closes.java; then
    says java '100 closed' java -cp "$work" Closes 100
else
    echo 'skip signals.java: no javac'
fi
says python "b'now'"$'\nTrue' /usr/bin/python3 tests/signals/python.py

# A client in the middle of a long run gets SIGINT: what it prints then is the result so far.
if command -v iperf3 >/dev/null; then
    port=$((29000 + $$ % 3000))
    "$build/railsock" run -- iperf3 -s -1 -B 127.0.0.1 -p $port >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        grep -q "$(printf ':%04X 00000000:0000 0A' $port)" /proc/net/tcp && break
        sleep 0.05
    done
    "$build/railsock" run -- iperf3 -c 127.0.0.1 -p $port -t 100 -i 0.5 --forceflush >"$work/client" 2>&1 &
    client=$!
    for _ in $(seq 600); do
        [ "$(grep -c 'Bytes' "$work/client")" -ge 2 ] && break
        sleep 0.05
    done
    kill -INT $client
    for _ in $(seq 600); do
        kill -0 $client 2>/dev/null || break
        sleep 0.05
    done
    if grep -q 'sender' "$work/client" && grep -q 'interrupt - the client has terminated' "$work/client"; then
        echo 'ok signals.iperf3'
    else
        echo "not ok signals.iperf3: $(tail -n 3 "$work/client" | tr '\n' ' ')"
    fi
    { kill $client $server; wait $client $server; } 2>/dev/null
else
    echo 'skip signals.iperf3: no iperf3'
fi
