#!/bin/bash
# tests/identity_lab_test.sh - verbs and another user: what was opened under the old credentials is
# closed before they change, and connections board again under the new ones. Also a program that
# asks again and again whether something has come, a server of several processes, threads that are
# cancelled, and what limits of locked memory and of the address space mean. At last a host without
# libibverbs.
set -u
cd "$(dirname "$0")/.." || exit 1

if [ -z "${LAB_HOST-}" ]; then
    railsock=${RAILSOCK_TEST_BUILD:-build}/railsock
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/identity_lab.XXXXXX") || exit 1
    trap 'rm -rf "$scratch"' EXIT
    flags=(-std=gnu11 -O2 -D_GNU_SOURCE)
    { ${CC:-cc} "${flags[@]}" -o "$scratch/private_table" tests/private_table.c -lpthread -libverbs &&
        ${CC:-cc} "${flags[@]}" -o "$scratch/cancelled" tests/lab/cancelled.c -lpthread; } || exit 1
    "$railsock" lab run --hosts 1 --timeout 800 --scratch "$scratch" -- tests/identity_lab_test.sh | sed -u 's/^host1| //'
    exit "${PIPESTATUS[0]}"
fi
# `railsock doctor`: a host with RDMA, and what can be wrong with it.
says() { # NAME STATUS LINE COMMAND...: COMMAND ends so, and one line of it is like this
    local name=$1 status=$2 line=$3 got

    shift 3
    timeout 60 "$@" 2>&1 | tr -s ' ' >/tmp/doctor
    got=${PIPESTATUS[0]}
    if [ "$got" -eq "$status" ] && grep -qE "$line" /tmp/doctor; then
        echo "ok identity.doctor_$name"
    else
        echo "not ok identity.doctor_$name: status $got: $(tr '\n' '|' </tmp/doctor)"
    fi
}
doctor="$PWD/build/railsock doctor"
# shellcheck disable=SC2086 # words
says host 0 '^this host is ready$' $doctor
for line in '^ok devices rxe0$' '^ok ports rxe0/1 ACTIVE, LinkUp$' '^ok link layer rxe0/1 Ethernet \(RoCE\)$' \
    '^ok gids rxe0/1 has [0-9]+ by addresses of eth0: ' '^ok mtu rxe0/1 4096, of 4096 bytes$' \
    '^ok permissions /dev/infiniband/rdma_cm, /dev/infiniband/uverbs0$' '^ok rdma_cm can listen' \
    '^ok registering 150 KiB on rxe0$'; do
    grep -qE "$line" /tmp/doctor || echo "not ok identity.doctor_host[$line]: $(tr '\n' '|' </tmp/doctor)"
done
says no_room 1 '^FAIL registering not on rxe0: ' setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock sh -c \
    "ulimit -l 64; exec $doctor --wire verbs"
chmod 600 /dev/infiniband/rdma_cm
says permissions 1 '^FAIL permissions /dev/infiniband/rdma_cm: Permission denied' setpriv --reuid 1000 --clear-groups \
    --inh-caps=-all sh -c "exec $doctor --wire verbs"
chmod 666 /dev/infiniband/rdma_cm
ip link set eth0 down
# shellcheck disable=SC2086 # words
says link_down 1 '^FAIL ports rxe0/1 DOWN' $doctor --wire verbs
ip link set eth0 up

# Where cores go to a program, `railsock run --report` leaves none beside that of what it has run. With
# core_pipe_limit nobody has ended before that program has.
# shellcheck disable=SC2016 # that program's
printf '#!/bin/sh\necho "$1" >>/tmp/cores\nexec cat >/dev/null\n' >/tmp/core && chmod +x /tmp/core
echo 16 >/proc/sys/kernel/core_pipe_limit
echo '|/tmp/core %e' >/proc/sys/kernel/core_pattern
timeout 60 build/railsock run --tcp --report -- sh -c 'kill -SEGV $$' 2>/tmp/core.err
status=$?
echo core >/proc/sys/kernel/core_pattern
if [ "$status $(cat /tmp/cores)" = '139 sh' ]; then
    echo 'ok identity.one_core'
else
    echo "not ok identity.one_core: status $status: $(tr '\n' ' ' </tmp/cores) $(tail -n 1 /tmp/core.err)"
fi

# program NAME SCRIPT COMMAND...: the script over verbs, under this command; it says on stderr what
# is wrong.
program() {
    local name=$1 script=$2 log=/tmp/$1.log

    shift 2
    install -m 666 /dev/null "$log" # for every user
    if LD_PRELOAD=$PWD/build/librailsock.so RAILSOCK_WIRE=verbs RAILSOCK_BOARD=eager RAILSOCK_LOG=info:$log \
        "$@" timeout 300 /usr/bin/python3 -SE "tests/$script" "$log" 2>"/tmp/$name.err" && [ ! -s "/tmp/$name.err" ]; then
        echo "ok identity.$name"
    else
        echo "not ok identity.$name: $(tail -n 1 "/tmp/$name.err")"
        tail -n 20 "$log"
    fi
}
program seteuid identity_lab.py
# What is opened in a thread with a table of descriptors of its own is of no use to the others:
# rsock/README.md.
timeout 60 "$LAB_SCRATCH/private_table" rdma
program ask_again ask_again_lab.py
program workers workers_lab.py
PAIR_WARM=1 RAILSOCK_MODE=rail RAILSOCK_WIRE=verbs RAILSOCK_LOG=info:/tmp/cancelled.log LD_PRELOAD=$PWD/build/librailsock.so \
    timeout 120 "$LAB_SCRATCH/cancelled" "$LAB_IP_1" && grep -q 'receiving on rxe0/1' /tmp/cancelled.log &&
    echo "ok identity.cancelled" || echo "not ok identity.cancelled: status $?: $(tail -n 1 /tmp/cancelled.log)"
# Programs that use RDMA themselves, and that only could.
cc -std=gnu11 -O2 -D_GNU_SOURCE -o /tmp/own_rdma tests/lab/own_rdma.c -lrdmacm -libverbs || echo 'not ok identity.own_rdma: cc'
for how in uses linked; do
    : >/tmp/own_rdma.$how
    if RAILSOCK_BOARD=eager RAILSOCK_WIRE=verbs RAILSOCK_LOG=info:/tmp/own_rdma.$how LD_PRELOAD=$PWD/build/librailsock.so \
        timeout 120 /tmp/own_rdma $how "$LAB_IP_1" /tmp/own_rdma.$how 2>/tmp/own_rdma.err; then
        echo "ok identity.own_rdma_$how"
    else
        echo "not ok identity.own_rdma_$how: status $?: $(tail -n 1 /tmp/own_rdma.err) $(tail -n 1 /tmp/own_rdma.$how)"
    fi
done
# Where libibverbs would complain: nothing on stderr.
mv /etc/libibverbs.d /etc/libibverbs.away
REASON_LOGGED='/etc/libibverbs.d cannot be read' program no_drivers quiet_lab.py
mv /etc/libibverbs.away /etc/libibverbs.d
(ulimit -l 32 && REASON_LOGGED='locked memory has no room' program little_memlock quiet_lab.py \
    setpriv --reuid 1000 --clear-groups --inh-caps=-all)
# A user who may not lock as much memory as it would take.
ulimit -l 1024
program memlock memlock_lab.py setpriv --reuid 1000 --clear-groups --inh-caps=-all
# A process whose address space has no room for the RDMA libraries.
program address_space address_space_lab.py
# The last: nothing has verbs afterwards.
PATH=$PWD/build:$PATH tests/no_verbs_lab.sh short
exit 0
