#!/bin/bash
# tests/apps_lab_test.sh - the same programs between two virtual hosts, over verbs. One boot
# for all: host 1 has the servers and drives, host 2 runs a client whenever it is told to.
set -u
cd "$(dirname "$0")/.." || exit 1
railsock=${RAILSOCK_TEST_BUILD:-build}/railsock

if [ -n "${LAB_HOST-}" ]; then
    status=0
    if [ "$LAB_HOST" = 1 ]; then
        export APPS_DATA=$LAB_SCRATCH/data APPS_FILTER=$LAB_FILTER APPS_ALL=$LAB_ALL
        # shellcheck disable=SC2086 # words
        tests/apps/driver.sh $LAB_MODES || status=$?
    fi
    lab-barrier apps-done
    exit $status
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/apps_lab.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
head -c 64M /dev/urandom >"$scratch/data"
head -c 16M "$scratch/data" >"$scratch/data.part"
# The hosts get LAB_* of our environment.
export LAB_ALL=${APPS_ALL-} LAB_FILTER=${APPS_FILTER-} LAB_MODES=${APPS_MODES:-verbs one-sided:verbs}
"$railsock" lab run --hosts 2 --timeout 1300 --scratch "$scratch" -- tests/apps_lab_test.sh |
    sed -u 's/^host[12]| //'
exit "${PIPESTATUS[0]}"
