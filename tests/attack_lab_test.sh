#!/bin/bash
# tests/attack_lab_test.sh - attackers over verbs, between two virtual hosts. Host 1 has the victims
# and a rogue listener, host 2 the attackers; see attack_test.sh, and attack/attack_verbs.c for the
# lies. The hosts' parts are called by number; numbers and names of ours have no spaces.
# shellcheck disable=SC2317,SC2086
set -u
cd "$(dirname "$0")/.." || exit 1
build=${RAILSOCK_TEST_BUILD:-build} PREFIX=attack-verbs
. tests/attack/lib.sh
python='/usr/bin/python3 -SE'

if [ -z "${LAB_HOST-}" ]; then
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/attack_lab.XXXXXX") || exit 1
    trap 'rm -rf "$scratch"' EXIT
    export LAB_RAILSOCK=$build/railsock
    ${CC:-cc} -std=gnu11 -O1 -g -I. -D_GNU_SOURCE -Wall -Wextra -o "$scratch/attack" tests/attack/*.c \
        "$build"/plain/{rsock,ipoib_fallback,config}/*.o "$build"/plain/gram.o -ldl -lpthread || exit 1
    "$build/railsock" lab run --hosts 2 --timeout 800 --scratch "$scratch" -- tests/attack_lab_test.sh |
        sed -u 's/^host[12]| //'
    exit "${PIPESTATUS[0]}"
fi

export RAILSOCK=$LAB_RAILSOCK RAILSOCK_WIRE=verbs ATTACK_ROUNDS=6 ATTACK_BOARD_S=20 TALKER_ROUNDS=20
attack=$LAB_SCRATCH/attack log=$LAB_SCRATCH/log ip=10.1.0.1 guess=$'GET / HTTP/1.1\r\n'
run=("$RAILSOCK" run --board eager --)

host1() {
    local pids=''

    : >"$log"
    RAILSOCK_LOG=info:$log "${run[@]}" $python tests/apps/echo_server.py threads $ip 7000 &
    pids+=" $!"
    # A server without the library, and a stranger that offers rails for its port; another one that
    # has guessed how the stream begins.
    for port in 7001 7002 7003; do
        $python tests/apps/echo_server.py threads $ip $port &
        pids+=" $!"
    done
    "$attack" listen 7001 >"$LAB_SCRATCH/rogue.7001" &
    pids+=" $!"
    "$attack" listen 7002 "$guess" >"$LAB_SCRATCH/rogue.7002" &
    pids+=" $!"
    "$attack" early 7003 >"$LAB_SCRATCH/rogue.7003" &
    pids+=" $!"
    listens 7000 && listens 7001 && listens 7002 && listens 7003
    says "$LAB_SCRATCH/rogue.7001" listening && says "$LAB_SCRATCH/rogue.7002" listening &&
        says "$LAB_SCRATCH/rogue.7003" listening
    lab-barrier up
    lab-barrier over
    # shellcheck disable=SC2086 # process ids
    kill $pids
    wait
}

noticed() { # FIRST-LINE TEXT [ATTACKERS]
    tail -n +"$1" "$log" | grep -E "$2" >/dev/null || { [ -n "${3-}" ] && grep -q "$3" "$log.attacker"; }
}

# lie NAME WANTED [LOG [ATTACKERS]]: LOG is what the victim has to say, or the attacker's own
# library ATTACKERS.
lie() {
    local got before

    before=$(wc -l <"$log")
    : >"$log.attacker"
    got=$(RAILSOCK_LOG=info:$log.attacker timeout -k 1 120 "$attack" peer $ip 7000 "$1" 2>&1 | tail -n 1)
    # The other host's words arrive when they do.
    if [ -n "${3-}" ] && ! wait_until 10 noticed $((before + 1)) "$3" "${4-}"; then
        got+=', unnoticed'
    fi
    verdict "$1" "$got" "$2" "$log"
}

host2() {
    local broke='peer-protocol' name tuple port
    local refused='verbs: rail .*|rail-failed' told='remote access error'

    lab-barrier up
    for port in 7001 7002; do
        # Each round asks `railsock stat`, and with not-yet there are all of them.
        verdict "rogue-listener.$port.stream" "$(TALKER_ROUNDS=6 timeout 300 "${run[@]}" $python tests/attack/talker.py $ip $port \
            2>&1 | tail -n 1)" 'fine tcp (proof-failed|not-yet)'
        says "$LAB_SCRATCH/rogue.$port" refused
        verdict "rogue-listener.$port" "$(sed 1d "$LAB_SCRATCH/rogue.$port" | sort -u | tr '\n' ' ')" \
            '(refused (not-yet|proof-failed) )+'
    done
    verdict rogue-listener.early "$(timeout 120 "${run[@]}" $python tests/attack/polls.py $ip 7003 2>&1 | tail -n 1)" fine
    mkfifo /tmp/attack.in # the scratch folder is not a file system for that
    exec 8<>/tmp/attack.in
    $python tests/attack/talker.py $ip 7000 held </tmp/attack.in >"$LAB_SCRATCH/held" 8>&- &
    says "$LAB_SCRATCH/held" .
    read -ra tuple <"$LAB_SCRATCH/held"
    verdict rogue-initiator "$(asks "${tuple[@]}")" 'refused proof-failed'
    verdict rogue-initiator.knows-16-bytes "$(asks "${tuple[@]}" "$guess")" 'refused not-yet'
    exec 8>&-
    wait
    verdict rogue-initiator.stream "$(tail -n 1 "$LAB_SCRATCH/held")" fine
    for name in imm-type imm-length imm-sequence credit-ahead credit-messages \
        wait-lie; do
        lie $name left "$broke"
    done
    # Where the attacker hears of the refusal first, and leaves, the victim has nothing to say of
    # it.
    for name in key-guess beyond-the-ring read-memory other-ring; do
        lie $name left "$refused" "$told"
    done
    lie ctl-replay 'left|stays|ended'
    lie stale-epochs stays
    lie echo left "$broke"
    lie raw-bytes ended 'not a frame'
    lie none stays
    lab-barrier over
}

"host$LAB_HOST"
exit 0
