#!/bin/bash
# tests/apps_native_test.sh - real programs on this host: on TCP with the library loaded, over
# shared memory, and with the library on one side only. tests/apps/ has the cases.
cd "$(dirname "$0")/.." || exit 1
unshare -n true 2>/dev/null || exec tests/apps/driver.sh tcp shm one-sided:shm

# Two halves at once, each in a network of its own.
half=$(mktemp "${TMPDIR:-/tmp}/apps_native.XXXXXX") || exit 1
trap 'rm -f "$half"' EXIT
alone() { unshare -n sh -c 'ip link set lo up && exec "$@"' sh tests/apps/driver.sh "$@"; }
alone tcp one-sided:shm >"$half" 2>&1 &
alone shm
status=$?
wait $! || status=1
cat "$half"
exit $status
