#!/bin/bash
# tests/apps_native_test.sh - real programs on this host: on TCP with the library loaded, over
# shared memory, and with the library on one side only. tests/apps/ has the cases.
cd "$(dirname "$0")/.." || exit 1
unshare -n true 2>/dev/null || exec tests/apps/driver.sh tcp shm one-sided:shm

# Three at once, each in a network of its own.
said=$(mktemp -d "${TMPDIR:-/tmp}/apps_native.XXXXXX") || exit 1
trap 'rm -rf "$said"' EXIT
alone() { unshare -n sh -c 'ip link set lo up && exec "$@"' sh tests/apps/driver.sh "$@"; }
status=0 others=''
for mode in tcp one-sided:shm; do
    alone $mode >"$said/$mode" 2>&1 &
    others+=" $!"
done
alone shm || status=$?
for pid in $others; do wait "$pid" || status=1; done
cat "$said"/*
exit $status
