#!/bin/bash
# tests/forks_test.sh - streams on a rail and processes that multiply: who goes on where, with
# every byte checked. forks/server.py forks, forks/client.py tells it when and looks at the paths.
# ahead_late takes a minute, and is in make torture, with PAIR_SECONDS=100.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/pair.sh
. tests/pair.sh

first='idle before_boarding child grandchild grandchild_first heir orphan heir_of_a_rail orphan_of_a_rail unread ahead
    ahead_looking ahead_stdio ahead_parent'
second='ahead_part ahead_other ahead_closed ahead_grandchild ahead_program ahead_later ahead_killed ahead_exits ahead_reset
    ahead_full execute many_children given_back sibling no_leak'
[ -n "${FORKS_CASES-}" ] || ! at_once FORKS_CASES "$first" "$second" || exit 0

for case in ${FORKS_CASES:-$first $second}; do
    board=eager
    # There nothing boards, and no progress thread runs.
    [ "$case" != no_leak ] || board=after=100000
    # The parent is killed first, and a stream on a rail would end with it.
    [ "$case" != orphan ] || board=after=50
    pair "forks.$case" "$board" "tests/forks/server.py PORT" "tests/forks/client.py $build/railsock PORT $case"
done
exit 0
