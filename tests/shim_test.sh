#!/bin/bash
# tests/shim_test.sh - that a failing C test case fails its program, and with what words.
# Runs the cases of tests/unit/shim_test.c that fail on purpose, each in a process of its own.
set -u

program=${RAILSOCK_TEST_BUILD:-build}/plain/tests/shim_test
results=${TMPDIR:-/tmp}/results.$$
unset RAILSOCK_TEST_SEED GTEST_FILTER
trap 'rm -f "$results"' EXIT

# check CASE STATUS RESULT TEXT...: runs the case, or with $also two in one process. RESULT is a
# pattern for the last line of its results; each TEXT must be in the output.
also=
check() {
    local name=$1 want=$2 result=$3 out status text last

    shift 3
    rm -f "$results"
    out=$(RAILSOCK_TEST_RESULTS=$results "$program" --gtest_also_run_disabled_tests \
        --gtest_filter="DISABLED_bad.$name${also:+:DISABLED_bad.$also}" 2>&1)
    status=$?
    last=$(tail -n 1 "$results")
    if [ "$status" -ne "$want" ]; then
        echo "not ok shim.$name: status $status, not $want"
        return
    fi
    # shellcheck disable=SC2053 # a pattern
    if [[ $last != $result ]]; then
        echo "not ok shim.$name: reported as '$last', not '$result'"
        return
    fi
    for text in "$@"; do
        if [[ $out != *"$text"* ]]; then
            echo "not ok shim.$name: the output has no '$text'"
            printf '%s\n' "$out"
            return
        fi
    done
    if [[ $out == *'that failed went on'* || $out == *'a skip went on'* ]]; then
        echo "not ok shim.$name: it did not end where it had to"
        return
    fi
    echo "ok shim.$name"
}

bad='not ok DISABLED_bad'
check expect 1 "$bad.expect: tests/unit/shim_test.c:*: not true: 1 == 2" \
    '[  FAILED  ] DISABLED_bad.expect' 'with RAILSOCK_TEST_SEED=20240229'
check expect_goes_on 1 "$bad.expect_goes_on: *1 is 1, 2 is 2" 'went on to here'
check eq_int 1 "$bad.eq_int: *2 - 5 is -3, 7 is 7"
check eq_u64 1 "$bad.eq_u64: *18446744073709551615 (0xffffffffffffffff), 16 is 16 (0x10)"
check streq 1 "$bad.streq: *\"left\" is \"left\", none is NULL"
check memeq 1 "$bad.memeq: *differ first at offset 2 of 4: 0x63, 0x58"
check assert_ends 1 "$bad.assert_ends: *guard is 0, 1 is 1"
also=assert_ends check assert_ends_cleaned_up 1 "$bad.assert_ends_cleaned_up: *cleanups: 1"
check assert_in_thread 1 "$bad.assert_in_thread: *not true: arg != NULL" 'the case itself went on'
check skip 0 'skip DISABLED_bad.skip: no such device' '[  SKIPPED ] DISABLED_bad.skip'
check child_returns 1 "$bad.child_returns: *status 98" 'a forked child came back from its case'
# 134: SIGABRT. The name of the case that died must be on file.
check dies 134 'run DISABLED_bad.dies'

export RAILSOCK_TEST_SEED=0x10
check seed 1 "$bad.seed: *is 16 *" 'with RAILSOCK_TEST_SEED=16'
export RAILSOCK_TEST_SEED=ten
if "$program" >/dev/null 2>&1; then
    echo "not ok shim.bad_seed: a seed that is no number was taken"
else
    echo "ok shim.bad_seed"
fi
