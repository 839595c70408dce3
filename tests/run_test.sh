#!/bin/bash
# tests/run_test.sh - that tests/run counts right, and that it never takes a broken test for
# a good one. Runs it on lists and programs made here.
set -u

# shellcheck source=tests/wait.sh
. tests/wait.sh
dir=$(mktemp -d "${TMPDIR:-/tmp}/run_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
unset RAILSOCK_TEST_VARIANTS RAILSOCK_TEST_RESULTS
mkdir -p "$dir/build"

# program PATH: makes an executable of standard input.
program() {
    mkdir -p "$(dirname "$dir/$1")"
    { echo '#!/bin/bash'; cat; } >"$dir/$1"
    chmod +x "$dir/$1"
}

# check NAME STATUS LASTLINE TEXT...: runs the list in $dir/LIST, with $filter if set, and
# each TEXT must be in the output.
filter=
check() {
    local name=$1 want=$2 last=$3 out status text

    shift 3
    # shellcheck disable=SC2086 # no filter is no argument
    out=$(tests/run -l "$dir/LIST" -b "$dir/build" -g 1 $filter 2>&1)
    status=$?
    if [ "$status" -ne "$want" ] || [ "$(tail -n 1 <<<"$out")" != "$last" ]; then
        echo "not ok run.$name: status $status, not $want, or the last line is not '$last'"
        printf '%s\n' "$out" | sed 's/^/    /'
        return
    fi
    for text in "$@"; do
        if [[ $out != *"$text"* ]]; then
            echo "not ok run.$name: the output has no '$text'"
            printf '%s\n' "$out" | sed 's/^/    /'
            return
        fi
    done
    echo "ok run.$name"
}

# one_script NAME STATUS LASTLINE TEXT...: checks a list of one script, given on standard
# input; $options are its options in the list.
options=
one_script() {
    program one.sh
    echo "sh one.sh $options" >"$dir/LIST"
    check "$@"
}

one_script passes 0 '2 passed, 0 failed, 0 skipped' <<'END'
echo some words; echo ok a; echo okay; echo ok b
END
one_script fails 1 '1 passed, 1 failed, 1 skipped' 'not ok b: because' '| a clue' <<'END'
echo ok a; echo a clue; echo not ok b: because; echo skip c: no device
END
one_script fails_and_says_how 1 '40 passed, 1 failed, 0 skipped' '    not ok a: x
           < this
           > that
' <<'END'
echo not ok a: x; echo '    < this'; echo '    > that'; seq -f 'ok %g' 40
END
one_script status_without_not_ok 1 '1 passed, 1 failed, 0 skipped' 'one: exit status 3' <<'END'
echo ok a; exit 3
END
one_script status_with_not_ok 1 '0 passed, 1 failed, 0 skipped' 'not ok a: x' <<'END'
echo not ok a: x; exit 1
END
one_script says_nothing 1 '0 passed, 1 failed, 0 skipped' 'without reporting any case' <<'END'
echo all is well
END
one_script no_newline_at_the_end 1 '0 passed, 1 failed, 0 skipped' 'not ok a: x' <<'END'
printf 'not ok a: x'
END
one_script skip_is_no_pass 1 '0 passed, 0 failed, 1 skipped' 'skip a: no device' 'no test ran' <<'END'
echo skip a: no device
END
one_script whole_skip 1 '0 passed, 0 failed, 1 skipped' <<'END'
exit 77
END
one_script status_77_after_a_case 1 '1 passed, 1 failed, 0 skipped' 'exit status 77' <<'END'
echo ok a; exit 77
END
one_script killed 1 '1 passed, 1 failed, 0 skipped' 'killed by signal SEGV' <<'END'
echo ok a; kill -SEGV $$
END
one_script no_input 0 '1 passed, 0 failed, 0 skipped' <<'END'
read -r line || echo ok a
END

# The whole group ends, its members that ignore TERM as well, and nobody else's does.
pid=$dir/pid
program stubborn.sh <<END
trap '' TERM
bash -c 'trap "" TERM; echo \$\$ >$pid.child; sleep 1000' &
echo ok before
wait
sleep 1000
END
sleep 1000 &
bystander=$!
# A zombie is dead: nobody may collect it in a container.
dead() { ! grep -qs '^State:[[:space:]][^ZX]' "/proc/$(<"$1")/status"; }
# Not soon enough for what is to be there on a machine that has much else to do: then with more
# time.
for limit in 3 30; do
    echo "sh stubborn.sh limit=$limit" >"$dir/LIST"
    said=$(check time_limit 1 '1 passed, 1 failed, 0 skipped' "stubborn: still running after $limit s")
    { [ ! -s "$pid.child" ] || [[ $said == not* ]]; } || break
done
echo "$said"
if [ ! -s "$pid.child" ] || ! wait_until 10 dead "$pid.child"; then
    echo "not ok run.time_limit_ends_the_group: a child still runs"
else
    echo "ok run.time_limit_ends_the_group"
fi
if kill -0 "$bystander" 2>/dev/null; then
    echo "ok run.time_limit_spares_others"
else
    echo "not ok run.time_limit_spares_others: a process of another group is gone"
fi
kill "$bystander"

one_script left_behind 0 '1 passed, 0 failed, 0 skipped' <<END
sleep 1000 & echo \$! >$pid.left; echo ok a
END
if ! wait_until 10 dead "$pid.left"; then
    echo "not ok run.left_behind_is_ended: it still runs"
else
    echo "ok run.left_behind_is_ended"
fi

options=needs=lab one_script needs_lab 1 '0 passed, 0 failed, 1 skipped' 'railsock is not built' <<'END'
echo ok a
END
echo 'sh gone.sh' >"$dir/LIST"
check missing_script 1 '0 passed, 1 failed, 0 skipped' 'missing or not executable'
: >"$dir/LIST"
check empty_list 1 '0 passed, 0 failed, 0 skipped'
echo 'sh one.sh speed=fast' >"$dir/LIST"
check bad_option 2 "tests/run: $dir/LIST:1: speed=fast: not understood"

program first.sh <<<'echo ok first'
program second.sh <<<'echo ok second; echo ok third'
printf '%s\n' '# two' '' 'sh first.sh' 'sh second.sh' >"$dir/LIST"
check list 0 '3 passed, 0 failed, 0 skipped'
# What is beside is counted, shown at the end and judged like the others, and runs meanwhile: the
# first one waits for it.
program waits.sh <<END
. "$PWD/tests/wait.sh"
if wait_until 30 test -e "$dir/began"; then echo ok waited; else echo not ok waited: nobody began; fi
END
program aside.sh <<END
touch "$dir/began"; echo ok a; echo not ok b: because; echo skip c: why
END
mv "$dir/LIST" "$dir/LIST.kept"
printf '%s\n' 'sh waits.sh' 'sh aside.sh beside limit=9' >"$dir/LIST"
check beside 1 '2 passed, 1 failed, 1 skipped' 'not ok b: because' 'aside'
filter=aside check filter_of_what_is_beside 1 '1 passed, 1 failed, 1 skipped' 'not ok b: because'
filter=waits check filter_without_what_is_beside 0 '1 passed, 0 failed, 0 skipped'
mv "$dir/LIST.kept" "$dir/LIST"
# The slowest ten of more, of both sides, with what is said of each above; of fewer nothing.
for n in {1..13}; do program "p$n.sh" <<<'echo ok a'; done
seq -f 'sh p%g.sh' 13 | sed 's/ p[45].sh/& beside/' >"$dir/LIST"
out=$(tests/run -l "$dir/LIST" -b "$dir/build")
want=$(awk '$1 == "ok" { print $3, $2 }' <<<"$out" | sort -rn | head -n 10)
if [ "$(sed '1,/^the slowest of 13 programs:/d; $d' <<<"$out" | awk '{ print $2, $1 }')" = "$want" ]; then
    echo "ok run.slowest"
else
    echo "not ok run.slowest: not what was said above"
    printf '%s\n' "$out" | sed 's/^/    /'
fi
head -n 10 "$dir/LIST" >"$dir/LIST.ten"
if tests/run -l "$dir/LIST.ten" -b "$dir/build" | grep -q 'the slowest'; then
    echo "not ok run.slowest_of_few: shown"
else
    echo "ok run.slowest_of_few"
fi
printf '%s\n' 'sh first.sh' 'sh second.sh' >"$dir/LIST"
filter=eco check filter 0 '2 passed, 0 failed, 0 skipped'
filter=nothing check filter_of_nothing 1 '0 passed, 0 failed, 0 skipped' 'no test ran'

# Unit tests report in a file; what they print counts for nothing.
program build/plain/tests/unit_a <<'END'
echo not ok printed: no
printf '%s\n' 'run s.a' 'ok s.a' 'run s.b' 'skip s.b: why' >"$RAILSOCK_TEST_RESULTS"
END
echo 'unit unit_a' >"$dir/LIST"
check unit 0 '1 passed, 0 failed, 1 skipped' 'unit_a.plain' 'skip s.b: why'
program build/thread/tests/unit_a <<'END'
printf '%s\n' 'run s.a' 'ok s.a' 'run s.b' >"$RAILSOCK_TEST_RESULTS"
kill -ABRT $$
END
check unit_dies_in_a_case 1 '2 passed, 1 failed, 1 skipped' 'not ok s.b: killed by signal ABRT'
echo 'unit unit_a variants=plain,address' >"$dir/LIST"
check unit_variants 0 '1 passed, 0 failed, 1 skipped'
RAILSOCK_TEST_VARIANTS='plain address' \
    check unit_variant_missing 1 '1 passed, 1 failed, 1 skipped' 'unit_a.address' 'is not built'
program build/thread/tests/unit_a <<'END'
printf '%s\n' 'run s.a' 'ok s.a' 'run s.b' >"$RAILSOCK_TEST_RESULTS"
END
echo 'unit unit_a variants=thread' >"$dir/LIST"
check unit_leaves_in_a_case 1 '1 passed, 1 failed, 0 skipped' 'not ok s.b: the program ended in the'
