#!/bin/bash
# tests/budgets_test.sh - who gets a rail when there are few, and who gives it back.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${RAILSOCK_TEST_BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/budgets.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
python=/usr/bin/python3
port=$((23000 + $$ % 3000))

run() { # CASE SETTING...: the setting holds for the client
    local case=$1 server

    shift
    echo "run budgets.$case"
    port=$((port + 1))
    "$build/railsock" run --board eager -- "$python" tests/apps/echo_server.py \
        threads 127.0.0.1 $port >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        grep -q "$(printf ':%04X 00000000:0000 0A' $port)" /proc/net/tcp && break
        sleep 0.05
    done
    if env "$@" timeout -k 1 60 "$build/railsock" run --board eager -- "$python" tests/budgets.py \
        "$build/railsock" $port "$case" >"$work/client" 2>&1; then
        echo "ok budgets.$case"
    else
        echo "not ok budgets.$case: $(tail -n 1 "$work/client")"
        tail -n 4 "$work/server" "$work/client" | sed 's/^/    /'
    fi
    { kill $server; wait $server; } 2>/dev/null
}

run idle RAILSOCK_IDLE=1
run rails RAILSOCK_RAILS=2 RAILSOCK_IDLE=0
run none RAILSOCK_RAILS=0
exit 0
