#!/bin/bash
# tests/lab_selftest.sh - whether `railsock lab` itself does what tests rely on.
#
# Prints a line for each case: ok NAME, not ok NAME: why, skip NAME: why. Most cases look
# at the output of one lab, since a boot takes seconds. Tests nothing of railsock's data
# path. RAILSOCK names another command than build/railsock.
#
# shellcheck disable=SC2317 # most functions are called by case_is or by a trap
set -u

top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/wait.sh
. "$top/tests/wait.sh"
railsock=${RAILSOCK:-$top/build/railsock}
dir=$(mktemp -d "${TMPDIR:-/tmp}/lab-selftest.XXXXXX") || exit 2
# The labs' own temporary directories; none may be left in it.
mkdir "$dir/tmp"
export TMPDIR=$dir/tmp
failed=0
lab=0

finish() {
    [ "$lab" -eq 0 ] || kill -KILL "$lab" 2>/dev/null
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

skip_all() {
    echo "skip lab: $1"
    exit 0
}

# case_is NAME WHY COMMAND...: the case succeeds if COMMAND does.
case_is() {
    local name=$1 why=$2

    shift 2
    if "$@"; then
        echo "ok $name"
    else
        echo "not ok $name: $why"
        failed=1
    fi
}

# The output with this name, as indented comment, so that a failure can be understood.
show() {
    echo "# $1:"
    sed 's/^/#   /' "$dir/$1.out" "$dir/$1.err"
}

# run_lab NAME ARGUMENT...: NAME.out, NAME.err, and $status.
run_lab() {
    local name=$1

    shift
    "$railsock" lab run "$@" >"$dir/$name.out" 2>"$dir/$name.err"
    status=$?
}

has() { grep -qxF -- "$2" "$dir/$1"; }
has_not() { ! grep -q -- "$2" "$dir/$1"; }
has_like() { grep -qE -- "$2" "$dir/$1"; }
is() { [ "$1" = "$2" ]; }

# Whether all these processes are gone; zombies are, somebody else has to collect them.
gone() {
    local pid state=

    for pid in "$@"; do
        state+=$(sed 's/^.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null | tr -d ZX)
    done
    [ -z "$state" ]
}

# Sets children to those of lab $1 that are QEMU; whether there are $2 of them.
find_children() {
    local pid

    children=()
    while read -r pid; do
        [[ $(readlink "/proc/$pid/exe" 2>/dev/null) != *qemu* ]] || children+=("$pid")
    done < <(cat /proc/[0-9]*/stat 2>/dev/null |
        awk -v lab="$1" '{ pid = $1; sub(/^.*\) /, ""); if ($2 == lab) print pid }')
    [ ${#children[@]} -ge "$2" ]
}

# What the hosts of the first lab run.
cat >"$dir/three.sh" <<'GUEST'
fail() { echo "FAIL $*"; }
echo "host is $LAB_HOST of $LAB_HOSTS, $(hostname), in $PWD"
echo 'to stderr' >&2
echo 'opened again' >/dev/stderr
printf '%s\n' "value: $LAB_SELFTEST"
for n in 1 2 3; do
    ping -c 2 -i 0.2 -w 10 -q "lab$n" >/dev/null && echo "ping $n"
done
ping -c 2 -i 0.2 -w 10 -q "$LAB_IP6_1" >/dev/null && echo 'ping v6'
ping -c 1 -w 5 -M do -s 8900 -q lab1 >/dev/null && echo 'ping jumbo'
for stat in /proc/[0-9]*/stat; do
    read -r _ name _ <"$stat"
    [ "$name" != '(perl)' ] || [[ $(readlink "${stat%stat}"fd/*) != *socket:* ]] || echo 'stamps kept'
done
echo "by $LAB_HOST" >"$LAB_SCRATCH/file.$LAB_HOST"
lab-barrier files || fail barrier
cat "$LAB_SCRATCH/file.$((LAB_HOST % 3 + 1))"
for i in 1 2 3; do lab-barrier again || fail again; done
# Who has been ended does not count; the others would be let go, and host 1 wait for them in vain.
if [ "$LAB_HOST" = 1 ]; then
    lab-barrier ended &
    until [ -p "/run/lab/wait.$!" ]; do sleep 0.05; done
    kill $!
    wait $!
fi
lab-barrier left
lab-barrier ended || fail ended
if [ "$LAB_HOST" = 1 ]; then
    rping -s -C 3 -a "$LAB_IP_1" >/dev/null 2>&1 &
    ibv_rc_pingpong -e -g 1 -d rxe0 -n 20 >/dev/null &
    . ./wait.sh
    hears_rping() { rdma resource show cm_id | grep -q 'LISTEN.*:7174'; }
    wait_until 20 hears_rping || fail rping
    wait_until 20 listening 18515 || fail pingpong
    on 2 sh -c 'echo "asked $1"; exit 9' sh 'a b'
    echo "on: $?"
fi
lab-barrier servers
if [ "$LAB_HOST" = 2 ]; then
    rping -c -C 3 -a "$LAB_IP_1" >/dev/null 2>&1 && echo 'rping done'
    ibv_rc_pingpong -e -g 1 -d rxe0 -n 20 lab1 >/dev/null && echo 'pingpong done'
fi
[ "$LAB_HOST" != 1 ] || echo $PPID >"$LAB_SCRATCH/command" # who tells the lab of our end
sh -c 'iptables -A INPUT -p udp --dport 4791 -j DROP && iptables -F &&
    tc qdisc add dev eth0 root netem delay 1ms && tc qdisc del dev eth0 root' && echo 'filters'
lab-barrier results
if [ "$LAB_HOST" = 1 ]; then
    (trap 'echo "server told to end"; exit' TERM; while :; do sleep 0.05; done) &
    exit 3
fi
if [ "$LAB_HOST" = 2 ]; then
    on 1 sh -c 'while kill -0 "$1"; do sleep 0.05; done 2>/dev/null' sh "$(cat "$LAB_SCRATCH/command")"
    lab-barrier nobody
    echo "barrier without host 1: $?"
    exit 5
fi
seq 20000 | sed 's/^/n /'
printf 'no newline'
kill -KILL $$
GUEST

cp "$top/tests/wait.sh" "$dir" || exit 1

[ -x "$railsock" ] || skip_all "$railsock is not built"
command -v qemu-system-x86_64 >/dev/null || skip_all 'no qemu-system-x86_64; run: tools/deps lab'
"$railsock" lab image >"$dir/image.out" 2>"$dir/image.err" ||
    skip_all "no image: $(tail -n 1 "$dir/image.err")"

# ---- three hosts with rxe

cd "$dir" || exit 2
LAB_SELFTEST="it's \"\$x\" *" run_lab three --hosts 3 --timeout 400 --scratch "$dir/scratch" \
    -- bash "$dir/three.sh"
bad=$failed
case_is status-worst "status $status, not 137" is "$status" 137
case_is prefix-stdout 'a line is missing' has three.out "host2| host is 2 of 3, lab2, in $dir"
case_is prefix-stderr 'a line is missing' has three.err 'host1| to stderr'
case_is stderr-reopened 'a line is missing' has three.err 'host1| opened again'
case_is no-line-without-prefix 'there is one' is "$(grep -cv '^host[123]| ' three.out)" 0
case_is environment-quoted 'the value changed' has three.out "host3| value: it's \"\$x\" *"
case_is long-output-complete 'lines are missing' \
    is "$(grep -c '^host3| n [0-9]*$' three.out)" 20000
case_is last-line-without-newline 'it is missing' has three.out 'host3| no newline'
case_is ping-all 'some host does not reach another' is "$(grep -c '| ping [123]$' three.out)" 9
case_is ping-v6 'no answer' has three.out 'host3| ping v6'
case_is ping-jumbo 'no answer' has three.out 'host3| ping jumbo'
case_is stamps-kept 'nobody keeps the time stamps on' is "$(grep -c '| stamps kept$' three.out)" 3
case_is rping 'failed over rxe' has three.out 'host2| rping done'
case_is rc-pingpong 'failed over rxe' has three.out 'host2| pingpong done'
case_is filters 'iptables or tc failed' is "$(grep -c '| filters$' three.out)" 3
case_is barrier 'failed' has_not three.out 'FAIL'
case_is scratch-seen-by-others 'not what another wrote' has three.out 'host3| by 1'
case_is scratch-comes-back 'a file is missing' is "$(cat scratch/file.*)" $'by 1\nby 2\nby 3'
case_is on-runs 'the other host did not say so' has three.out 'host2| asked a b'
case_is on-status 'not the status' has three.out 'host1| on: 9'
case_is barrier-after-end 'not status 1' has three.out 'host2| barrier without host 1: 1'
case_is others-live-until-end 'not ended in order' has three.out 'host1| server told to end'
[ "$failed" -eq "$bad" ] || show three

# ---- what is not there, on this host and on another: beside the next ones

# shellcheck disable=SC2016 # the hosts'
{
    run_lab nothing --hosts 2 --device none -- sh -c 'lab-barrier up; [ "$LAB_HOST" = 2 ] || on 2 no-such-other; lab-barrier end'
    run_lab nobody --hosts 1 --device none -- no-such
    echo "$status" >nobody.status
} &
not_there=$!

# ---- one host: no device, time limit

bad=$failed
# A host that is translated may not have come so far in the time that one needs.
for limit in 2 15; do
    run_lab none --hosts 1 --device none --timeout $limit -- \
        sh -c 'ls /sys/class/infiniband /dev/infiniband 2>&1; echo here; sleep 100'
    ! has none.out 'host1| here' || break
done
case_is timeout-status "status $status, not 124" is "$status" 124
case_is timeout-told 'not said' has none.err "railsock lab: host 1: no end after $limit s"
case_is timeout-keeps-output 'the output is missing' has none.out 'host1| here'
case_is device-none 'there is a device' has_not none.out 'rxe0\|uverbs'
[ "$failed" -eq "$bad" ] || show none

# ---- one host: panic

bad=$failed
mkdir "$dir/panic.seen"
{ wait_until 60 grep -qs 'before' "$dir/panic.out" && : >"$dir/panic.seen/it"; } &
# shellcheck disable=SC2016 # the host's
run_lab panic --hosts 1 --device none --timeout 200 --scratch "$dir/panic.seen" -- \
    sh -c 'echo before; until [ -e "$LAB_SCRATCH/it" ]; do sleep 0.05; done; echo c >/proc/sysrq-trigger; sleep 10'
wait $!
case_is panic-status "status $status, not 125" is "$status" 125
case_is panic-told 'not said' has panic.err 'railsock lab: host 1: kernel panic'
case_is panic-console 'the console is not shown' has_like panic.err '^host1 console\| .*Kernel panic'
case_is panic-keeps-output 'the output is missing' has panic.out 'host1| before'
[ "$failed" -eq "$bad" ] || show panic

# ---- one host: it stands still while it boots

bad=$failed
RAILSOCK_TEST_BOOT_S=3 "$railsock" lab run --hosts 1 --device none -- echo here >still.out 2>still.err &
lab=$!
wait_until 10 find_children "$lab" 1 && kill -STOP "${children[0]}"
wait "$lab"
status=$?
lab=0
case_is still-status "status $status" is "$status" 0
case_is still-told 'not said' has still.err 'railsock lab: host 1: did not boot'
case_is still-again 'not said' has still.err 'railsock lab: starting the hosts once more'
case_is still-runs 'no output' has still.out 'host1| here'
case_is still-leaves-nothing "${children[*]} is left" wait_until 10 gone "${children[@]}"
[ "$failed" -eq "$bad" ] || show still

wait "$not_there"
bad=$failed
case_is command-not-found-status "status $(cat nobody.status)" is "$(cat nobody.status)" 127
case_is command-not-found 'not said' has nobody.err 'host1| railsock lab: no-such: not found'
case_is other-command-not-found 'not said' has nothing.err 'host2| railsock lab: no-such-other: not found'
[ "$failed" -eq "$bad" ] || show nothing

# ---- ends by signals

bad=$failed
"$railsock" lab run --hosts 1 --device none -- sh -c 'echo up; sleep 100' >term.out 2>term.err &
lab=$!
wait_until 60 grep -q up term.out
case_is sigterm-had-host 'no host was started' wait_until 10 find_children "$lab" 1
# Twice, as timeout(1) does, which ends both its child and its group.
kill -TERM "$lab"
kill -TERM "$lab" 2>/dev/null
wait "$lab" 2>/dev/null
status=$?
case_is sigterm-status "status $status, not 143" is "$status" 143
case_is sigterm-leaves-nothing "of ${children[*]} one is left" wait_until 10 gone "${children[@]}"
case_is temporary-removed "left: $(ls tmp)" is "$(ls tmp)" ''
[ "$failed" -eq "$bad" ] || show term

"$railsock" lab run --hosts 2 -- true >kill.out 2>kill.err &
lab=$!
case_is sigkill-had-hosts 'no hosts were started' wait_until 10 find_children "$lab" 2
kill -KILL "$lab"
wait "$lab" 2>/dev/null
case_is sigkill-leaves-nothing "of ${children[*]} one is left" wait_until 10 gone "${children[@]}"
lab=0

# ---- output that is read late: what a server prints when it is told to end

cat >late.sh <<'GUEST'
seq 48000 >/tmp/numbers
(trap ': >"$LAB_SCRATCH/told"; cat /tmp/numbers; printf end; exit' TERM
: >"$LAB_SCRATCH/up"; while :; do sleep 0.05; done) &
until [ -e "$LAB_SCRATCH/up" ]; do sleep 0.05; done
GUEST
mkdir late.seen
bad=$failed
# More than this machine takes meanwhile, so that the host still has some.
"$railsock" lab run --hosts 1 --device none --scratch "$dir/late.seen" -- bash late.sh 2>late.err | {
    wait_until 120 test -e late.seen/told
    sleep 8
    cat >late.out
}
status=${PIPESTATUS[0]}
case_is late-status "status $status" is "$status" 0
case_is late-complete 'lines are missing' is "$(grep -c '^host1| [0-9]*$' late.out)" 48000
case_is late-last-line 'it is missing' has late.out 'host1| end'
case_is late-is-no-failure 'something is said' has_not late.err '^railsock lab:'
[ "$failed" -eq "$bad" ] || tail -n 20 late.err | sed 's/^/#   /'

# ---- refusals

run_lab siw --device siw -- true
case_is siw-refused "status $status, not 2" is "$status" 2
case_is siw-reason 'no reason given' has_like siw.err 'siw: not built yet'
run_lab hosts --hosts 5 -- true
case_is hosts-refused "status $status, not 2" is "$status" 2
run_lab file --scratch /etc/passwd -- true
case_is file-as-scratch-refused "status $status: $(cat file.err)" is "$status $(cat file.err)" \
    '125 railsock lab: /etc/passwd: Not a directory'
exit $failed
