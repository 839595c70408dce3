#!/bin/bash
# tests/calls_test.sh - preload/calls.def and preload/calls_left.def against libc itself: is there a
# name that neither knows, and does each symbol do on a rail what it does on TCP, and what its class
# says. Some 20 seconds.
set -u

cd "$(dirname "$0")/.." || exit 1
lib=$PWD/${RAILSOCK_TEST_BUILD:-build}/librailsock.so
[[ ${RAILSOCK_TEST_BUILD:-build} != /* ]] || lib=$RAILSOCK_TEST_BUILD/librailsock.so
dir=$(mktemp -d "${TMPDIR:-/tmp}/calls_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
[ -e "$lib" ] || { echo "not ok calls: $lib is not built"; exit 1; }
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD

# holds CASE COMMAND...: its output is shown if it fails.
holds() {
    local case=$1

    shift
    if "$@" >"$dir/said.$case" 2>&1; then
        echo "ok calls.$case"
    else
        echo "not ok calls.$case: $(head -n 1 "$dir/said.$case")"
        sed 's/^/    /' "$dir/said.$case"
    fi
}

# What libc exports is known, and no row of the tables could go without this noticing. Beside the
# rows, which mostly wait.
{
    holds exports tests/calls/exports.py
    holds every_row_counts tests/calls/exports.py --rows
} >"$dir/tables" &

if ! cc -std=gnu11 -O2 -U_FORTIFY_SOURCE -D_GNU_SOURCE= -Wall -Wextra -Wno-nonnull -Wno-unused-result \
    -Wno-deprecated-declarations -o "$dir/rows" tests/calls/*.c -lpthread; then
    echo 'not ok calls.rows: does not compile'
    wait
    cat "$dir/tables"
    exit
fi
"$dir/rows" --list >"$dir/list"
timeout 300 "$dir/rows" >"$dir/plain" 2>&1 </dev/null
want=$?
ROWS_LOG=$dir/log ROWS_NOTES=$dir/notes RAILSOCK_LOG=info:$dir/log RAILSOCK_MODE=rail LD_PRELOAD=$lib \
    timeout 300 "$dir/rows" >"$dir/rail" 2>&1 </dev/null
got=$?
if [ "$want $got" = '0 0' ] && cmp -s "$dir/plain" "$dir/rail"; then
    echo 'ok calls.rows'
else
    echo "not ok calls.rows: status $got, $want without the library, or not what it prints without:"
    diff -U 3 "$dir/plain" "$dir/rail" | head -n 40 | sed 's/^/    /'
fi
holds classes tests/calls/classes.py "$dir/notes" "$dir/list"
wait
cat "$dir/tables"
