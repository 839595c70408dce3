#!/bin/bash
# tests/apps/driver.sh MODE... - runs the cases with the library on both sides, for each MODE (tcp,
# shm or verbs); a MODE one-sided:MODE runs the smaller set with one side only, in both roles; plain
# runs all without the library, to try the cases themselves. Natively both sides are here; on a lab
# host the clients run on host 2.
#
#   APPS_FILTER=TEXT   only cases whose name contains TEXT
#   APPS_DATA=FILE     random bytes, 64 MiB, which both sides can read; else made here
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/apps/lib.sh
. tests/apps/lib.sh
# shellcheck source=tests/apps/cases.sh
. tests/apps/cases.sh
unset LD_PRELOAD

if [ "$*" != plain ] && [ ! -f "$(dirname "$railsock")/librailsock.so" ]; then
    echo "skip apps: $(dirname "$railsock")/librailsock.so is not built"
    exit 0
fi
scale=1
[ -z "${LAB_HOST-}" ] || scale=10
data=${APPS_DATA-}
if [ -z "$data" ]; then
    data=$base/data
    head -c 64M /dev/urandom >"$data"
fi
data_part=$data.part
[ -f "$data_part" ] || head -c 16M "$data" >"$data_part"

for mode in "$@"; do
    MODE=${mode#one-sided:}
    case $mode in
    plain)
        SERVER=off CLIENT=off
        all_cases
        ;;
    one-sided:*)
        SERVER=on CLIENT=off
        one_sided_cases
        SERVER=off CLIENT=on
        one_sided_cases
        ;;
    *)
        SERVER=on CLIENT=on
        all_cases
        ;;
    esac
done
exit 0
