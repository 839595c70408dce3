#!/bin/bash
# tests/tap_test.sh - `railsock tap`: what it writes of two programs' connection, who may, and how
# it ends.
#
#   tests/tap_test.sh [CASE...]
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${RAILSOCK_TEST_BUILD:-build}")
# Not below $TMPDIR, which is for its owner only: another user runs copies of our programs from
# here.
work=$(mktemp -d /tmp/tap.XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
[ -x "$build/railsock" ] || { echo "not ok tap: $build/railsock is not built"; exit 1; }
timeout -k 5 280 /usr/bin/python3 tests/tap/cases.py "$build/railsock" "$build/librailsock.so" "$work" "$@"
