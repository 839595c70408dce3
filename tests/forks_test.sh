#!/bin/bash
# tests/forks_test.sh - streams on a rail and processes that multiply: who goes on where, with
# every byte checked. forks/server.py forks, forks/client.py tells it when and looks at the paths.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${RAILSOCK_TEST_BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/forks.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
python=/usr/bin/python3
port=$((26000 + $$ % 3000))

run() { # CASE
    local case=$1 board=eager server

    # There nothing boards, and no progress thread runs.
    [ "$case" != no_leak ] || board=after=100000

    echo "run forks.$case"
    port=$((port + 1))
    "$build/railsock" run --board "$board" -- "$python" tests/forks/server.py $port \
        >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        grep -q "$(printf ':%04X 00000000:0000 0A' $port)" /proc/net/tcp && break
        sleep 0.05
    done
    if timeout -k 1 40 "$build/railsock" run --board "$board" -- "$python" tests/forks/client.py \
        "$build/railsock" $port "$case" >"$work/client" 2>&1; then
        echo "ok forks.$case"
    else
        echo "not ok forks.$case: $(tail -n 1 "$work/client")"
        tail -n 3 "$work/server" "$work/client" | sed 's/^/    /'
    fi
    { kill $server; wait $server; } 2>/dev/null
}

for case in ${FORKS_CASES:-idle before_boarding child grandchild grandchild_first heir orphan heir_of_a_rail \
    orphan_of_a_rail execute many_children no_leak}; do
    run "$case"
done
exit 0
