#!/bin/bash
# tests/attack_test.sh - attackers against ordinary programs with the library: those without the TCP
# stream, those who have it and lie, proxies, hostile files. Over shared memory and TCP;
# attack_lab_test.sh does the same over verbs. What each lie is, is in attack/*.c.
#
# A lie has to end as the table below says, the victim has to say so in its log where it noticed
# anything, and afterwards to be asleep, alive, and to serve the next client on a rail.
# The parts are called by the words of a list; numbers and names of ours have no spaces.
# shellcheck disable=SC2317,SC2086
set -u
cd "$(dirname "$0")/.." || exit 1
build=${RAILSOCK_TEST_BUILD:-build} PREFIX=attack
. tests/attack/lib.sh
# They wait more than they work: two halves at once, if each can have its network.
if [ -z "${ATTACK_PARTS-}" ] && unshare -n true 2>/dev/null; then
    half=$(mktemp "${TMPDIR:-/tmp}/attack.XXXXXX") || exit 1
    trap 'rm -f "$half"' EXIT
    ATTACK_PARTS='rogues proxies data folders sanitized' "$0" "$@" >"$half" 2>&1 &
    ATTACK_PARTS=peers "$0" "$@"
    status=$?
    wait $! || status=1
    cat "$half"
    exit $status
fi
# A network of its own: ports, abstract names and users of them are the whole network's business.
if [ -z "${ATTACK_ALONE-}" ] && unshare -n true 2>/dev/null; then
    ATTACK_ALONE=1 exec unshare -n "$PWD/tests/attack_test.sh" "$@"
fi
[ -z "${ATTACK_ALONE-}" ] || ip link set lo up
work=$(mktemp -d "${TMPDIR:-/tmp}/attack.XXXXXX") || exit 1
python=/usr/bin/python3
export RAILSOCK=$build/railsock RAILSOCK_WIRE=shm
attack=$work/attack log=$work/log port=$((21000 + $$ % 1000)) pids=''
flags=(-std=gnu11 -O1 -g -I. -D_GNU_SOURCE -Wall -Wextra)
objects() { # VARIANT
    printf '%s\n' "$build/$1"/{rsock,ipoib_fallback,config}/*.o "$build/$1"/gram.o
}
# shellcheck disable=SC2046 # one word per file
${CC:-cc} "${flags[@]}" -o "$attack" tests/attack/*.c $(objects plain) -ldl -lpthread || exit 1

end_all() {
    # shellcheck disable=SC2086 # process ids
    [ -z "$pids" ] || { kill $pids; wait $pids; } 2>/dev/null
    pids=''
}
trap 'end_all; rm -rf "$work"' EXIT

start() { # COMMAND...: in the background
    "$@" <&0 & # else it would read /dev/null
    pid=$!
    pids+=" $pid"
}

victim() { # COMMAND...: with the library, on the next port, which is PORT in the command
    local words=("$@") i

    port=$((port + 1))
    for i in "${!words[@]}"; do words[i]=${words[i]/PORT/$port}; done
    : >"$log"
    RAILSOCK_LOG=info:$log start "$RAILSOCK" run --board eager -- "${words[@]}" >"$work/out" 2>&1
    victim=$pid
    listens $port
}

# Sets ran to how many ns the victim's threads have run.
runs() {
    local stat ns

    ran=0
    for stat in /proc/"$victim"/task/*/schedstat; do
        # One that has ended meanwhile has nothing to say.
        { read -r ns _ <"$stat"; } 2>/dev/null && ran=$((ran + ns))
    done
}

# Whether the victim sleeps: for a tenth of a second it has run for less than a fiftieth of that.
rests() {
    local i before

    for ((i = 0; i < 200; i++)); do
        runs
        before=$ran
        sleep 0.1
        runs
        # Less than before: a thread has ended.
        [ "$ran" -lt "$before" ] || [ $((ran - before)) -ge 2000000 ] || return 0
    done
    return 1
}

# lie KIND NAME WANTED [LOG]: LOG is an extended regular expression that the victim has to say.
lie() {
    local got honest

    : >"$log"
    got=$(timeout -k 1 90 "$attack" peer 127.0.0.1 $port "$2" 2>&1 | tail -n 1)
    if [ -n "${4-}" ] && ! grep -qE "$4" "$log"; then
        got+=', unnoticed'
    fi
    # Nothing of the sort may be left of it for others.
    honest=$(timeout -k 1 60 env -u ATTACK_UID "$attack" peer 127.0.0.1 $port none 2>&1 | tail -n 1)
    [ "$honest" = stays ] || got+=", the next client: $honest"
    rests || got+=', and the victim is not at rest'
    kill -0 "$victim" 2>/dev/null || got+=', and the victim is dead'
    if grep -qE 'Sanitizer|runtime error' "$work/out"; then
        got+=', and the sanitizer has found something'
    fi
    verdict "$1.$2" "$got" "$3" "$work/out"
}

# For whoever spoils what wakes its own side: a peer that says nothing, as TCP knows it too.
any='left|ended|hang|stays'
broke='rail failed: peer-protocol'
memory_lies() { # KIND
    lie "$1" tail-beyond left "$broke"
    lie "$1" tail-back left "$broke"
    lie "$1" tail-far left "$broke"
    lie "$1" consumed-ahead left "$broke"
    lie "$1" consumed-back left "$broke"
    # Seen by who sends a message, and a rail that has all that it needs may never send another.
    lie "$1" head-beyond 'left|stays(, unnoticed)?' "$broke"
    lie "$1" sequence left "$broke"
    lie "$1" wishes "$any"
    lie "$1" all-random "$any" 'rail failed: '
    lie "$1" holes "$any"
    lie "$1" flood stays
    lie "$1" bells stays
}

ends='\([0-9.]+:[0-9]+ with [0-9.]+:[0-9]+\)$'
foreign="are not a frame: the connection is reset $ends"
unannounced="at an announced switch are not the frame: the connection is reset $ends"
frame_lies() { # KIND
    local name

    for name in raw-bytes replay resume-{tag,nonce,epoch,version,type,noise}; do
        lie "$1" $name ended "$foreign"
    done
    lie "$1" raw-end ended 'the (peer has ended the connection|connection has ended), '
    lie "$1" resume-ahead ended 'contradicts what has arrived'
    lie "$1" resume-behind ended 'contradicts what has arrived'
    for name in switch-{tag,nonce,epoch,version,type,place,noise}; do
        lie "$1" $name ended "$unannounced"
    done
    lie "$1" stale-epochs stays
    lie "$1" announce-again stays 'announcement is refused'
    lie "$1" leave-lies left
    lie "$1" echo left 'sender leaves the rail: peer-protocol'
    lie "$1" proof left 'the rail is refused: proof-failed'
    lie "$1" proof-again left 'the rail is refused: proof-failed'
    lie "$1" no-proof left
    lie "$1" weak-proof left 'the rail is refused: not-yet'
}

# threads_are N: whether the victim comes to have no more than so many.
few_threads() {
    local tasks=(/proc/"$victim"/task/*)

    [ ${#tasks[@]} -le "$1" ]
}
threads_are() { wait_until 30 few_threads "$1" && echo gone || echo 'some are left'; }

# A user who is not the victim's, and cannot trace it.
other_user() {
    [ "$(id -u)" = 0 ] || return 1
    export ATTACK_UID=65534
}

# knocks: somebody who has no connection knocks, and another client is to be asked and answered
# meanwhile.
knocks() {
    local got

    timeout -k 1 60 env -u ATTACK_UID "$attack" peer 127.0.0.1 $port none >/dev/null 2>&1 # so that it can be asked
    kill -STOP "$victim"
    start "$attack" knock "$(id -u)" $port "$victim" >"$work/knock" 2>&1
    says "$work/knock" knocked || cat "$work/knock"
    kill -CONT "$victim"
    got=$(timeout -k 1 60 env -u ATTACK_UID "$attack" peer 127.0.0.1 $port none 2>&1 | tail -n 1)
    rests || got+=', and the victim is not at rest'
    verdict other-user.linger-knock "$got" stays "$work/out"
}

peers() {
    victim $python tests/apps/echo_server.py threads 127.0.0.1 PORT
    memory_lies threads
    frame_lies threads
    if other_user; then
        lie other-user block-bells stays
        lie other-user all-random "$any" 'rail failed: '
        lie other-user requeue ended
        verdict other-user.thread "$(threads_are 2)" gone
        # It would be a quarter of what all rails may have.
        : >"$log"
        RAILSOCK_RING=64m "$attack" peer 127.0.0.1 $port none >/dev/null 2>&1 &
        says "$log" 'wants rings of'
        { kill $! && wait $!; } 2>/dev/null
        verdict other-user.large-ring "$(grep -o 'wants rings of [0-9]*' "$log" | sort -u)" 'wants rings of 134217728'
        unset ATTACK_UID
        # One of the same user who cannot do anything else to it.
        export ATTACK_PIDNS=1
        lie other-namespace block-bells stays
        lie other-namespace requeue ended
        verdict other-namespace.thread "$(threads_are 2)" gone
        unset ATTACK_PIDNS
    else
        echo 'skip attack.other-user: only root can be another user'
    fi
    end_all
    victim $python tests/apps/echo_server.py asyncio 127.0.0.1 PORT
    memory_lies epoll
    lie epoll raw-bytes ended "$foreign"
    if other_user; then
        lie other-user.epoll linger-bells stays
        knocks
        unset ATTACK_UID
    fi
    end_all
    (umask 077 && printf '%032x\n' 7 >"$work/key")
    export RAILSOCK_KEY=$work/key
    victim $python tests/apps/echo_server.py threads 127.0.0.1 PORT
    lie key proof-without-key left 'the rail is refused: proof-failed'
    end_all
    unset RAILSOCK_KEY
    victim $python tests/attack/peek_server.py PORT
    lie peek other-bytes "$any"
    verdict peek.shown "$(sort -u "$work/out")" ''
    end_all
}

# The same with every access of the library checked.
sanitized() {
    if [ ! -e "$build/address/ipoib_fallback/rx.o" ] || [ ! -e "$build/address/rsock/shm_ring.o" ]; then
        echo 'skip attack.address: no objects for the address sanitizer; run: make tests SAN=address'
        return
    fi
    # shellcheck disable=SC2046 # one word per file
    ${CC:-cc} "${flags[@]}" -fsanitize=address,undefined -o "$work/checked" tests/attack/*.c $(objects address) \
        -ldl -lpthread || exit 1
    port=$((port + 1))
    : >"$log"
    RAILSOCK_LOG=info:$log start "$work/checked" echo $port >"$work/out" 2>&1
    victim=$pid
    listens $port
    memory_lies address
    frame_lies address
    end_all
}

# Without the TCP stream.
rogues() {
    local guess=$'GET / HTTP/1.1\r\n' talker=(tests/attack/talker.py 127.0.0.1)

    # Its server is a program without the library; the rail is offered by somebody else.
    for known in '' "$guess"; do
        port=$((port + 1))
        start $python tests/apps/echo_server.py threads 127.0.0.1 $port
        start "$attack" listen $port ${known:+"$known"} >"$work/rogue"
        listens $port && says "$work/rogue" listening
        verdict "rogue-listener.${known:+knows-16-bytes.}stream" \
            "$(timeout -k 1 60 "$RAILSOCK" run --board eager -- $python "${talker[@]}" $port 2>&1 | tail -n 1)" \
            'fine tcp .*'
        says "$work/rogue" refused || cat "$work/rogue"
        verdict "rogue-listener${known:+.knows-16-bytes}" "$(sed 1d "$work/rogue" | sort -u | tr '\n' ' ')" \
            "(refused ${known:+(not-yet|}proof-failed${known:+)} )+"
        end_all
    done
    # Whoever bears the name of another user's process gets nothing to read.
    if other_user; then
        unset ATTACK_UID
        port=$((port + 1))
        start $python tests/apps/echo_server.py threads 127.0.0.1 $port
        ATTACK_UID=65534 start "$attack" squat "$(id -u)" $port $pid >"$work/rogue"
        listens $port && says "$work/rogue" listening
        timeout -k 1 60 "$RAILSOCK" run --board eager -- $python "${talker[@]}" $port >"$work/out" 2>&1
        verdict squatted-name.stream "$(cat "$work/out")" 'fine tcp uid'
        says "$work/rogue" 'hung up' # his words come when he has a turn
        verdict squatted-name "$(sed 1d "$work/rogue" | sort -u)" 'hung up'
        end_all
    fi
    # A client without the library, and somebody who asks for a rail for its connection.
    victim $python tests/apps/echo_server.py threads 127.0.0.1 PORT
    mkfifo "$work/in"
    exec 8<>"$work/in"
    start $python "${talker[@]}" $port held <"$work/in" >"$work/held" 8>&-
    says "$work/held" .
    read -ra tuple <"$work/held"
    verdict rogue-initiator "$(asks "${tuple[@]}")" 'refused proof-failed'
    verdict rogue-initiator.knows-16-bytes "$(asks "${tuple[@]}" "$guess")" 'refused not-yet'
    if other_user; then
        unset ATTACK_UID
        verdict rogue-initiator.other-user "$(ATTACK_UID=65534 asks "${tuple[@]}")" 'refused uid'
    fi
    exec 8>&-
    says "$work/held" fine
    verdict rogue-initiator.stream "$(tail -n 1 "$work/held")" fine
    # Bad memory, for a connection of its own.
    for kind in null file unsealed shrinks grows small large zero huge; do
        verdict "memory.$kind" "$(VICTIM=$victim timeout 20 "$attack" fds $port $kind 2>&1)" \
            'refused peer-protocol|cannot be had here' "$log"
    done
    for kind in read-only sealed-for-writing; do
        verdict "memory.$kind" "$(VICTIM=$victim timeout 20 "$attack" fds $port $kind 2>&1)" \
            'refused no-memory' "$log"
    done
    end_all
}

# Both ends have the library; what lies between has not, or has it too.
proxies() {
    local talker=(tests/attack/talker.py 127.0.0.2) run=("$RAILSOCK" run --board eager --)

    victim $python tests/apps/echo_server.py threads 127.0.0.1 PORT
    # On the server's own port: its rendezvous is found, and asked for a connection that it has not.
    start $python tests/attack/proxy.py 127.0.0.2 $port 127.0.0.1 $port
    start $python tests/attack/proxy.py 127.0.0.3 $port 127.0.0.1 $port change
    start $python tests/attack/proxy.py 127.0.0.2 $((port + 500)) 127.0.0.1 $port
    start "${run[@]}" $python tests/attack/proxy.py 127.0.0.4 $port 127.0.0.1 $port
    listens $((port + 500)) && listens $port 4
    verdict proxy "$(timeout 60 "${run[@]}" $python "${talker[@]}" $port 2>&1 | tail -n 1)" 'fine tcp not-mine'
    verdict proxy.other-port "$(timeout 60 "${run[@]}" $python "${talker[@]}" $((port + 500)) 2>&1 | tail -n 1)" \
        'fine tcp no-peer-library'
    verdict proxy.changes-bytes "$(timeout 60 "${run[@]}" $python tests/attack/talker.py 127.0.0.3 $port changed 2>&1 |
        tail -n 1)" 'fine tcp not-mine'
    verdict proxy.with-library "$(TALKER_ROUNDS=100 timeout 90 "${run[@]}" $python tests/attack/talker.py 127.0.0.4 $port boards 2>&1 | tail -n 1)" \
        'fine shm .*'
    end_all
}

# Data that looks like frames is data, before, at and after switches; and a late byte is no attack.
data() {
    victim env RAILSOCK_TEST_SWITCH=3 $python tests/apps/echo_server.py threads 127.0.0.1 PORT
    verdict data-like-frames "$(RAILSOCK_TEST_SWITCH=4 timeout 60 "$RAILSOCK" run --board eager -- $python \
        tests/attack/talker.py 127.0.0.1 $port frames 2>&1 | tail -n 1)" fine
    verdict data-like-frames.log "$(grep -c 'error:' "$log")" 0 "$log"
    end_all
    victim $python tests/attack/closing.py server PORT
    verdict closed-under-a-writer "$(timeout 200 "$RAILSOCK" run --board eager -- $python tests/attack/closing.py \
        client $port 2>&1 | tail -n 1)" fine
    end_all
}

# Somebody has been there before: the folder of a user's files in /dev/shm.
folders() {
    local uid=$((64000 + $$ % 1000)) other=$work/elsewhere dir

    if [ "$(id -u)" != 0 ]; then
        echo 'skip attack.folder: only root can be another user'
        return
    fi
    dir=/dev/shm/railsock-$uid
    mkdir -m 777 "$other"
    chmod 711 "$work"
    victim $python tests/apps/echo_server.py threads 127.0.0.1 PORT
    for kind in others open symlink file; do
        rm -rf "$dir"
        case $kind in
        others) mkdir -m 777 "$dir" ;;
        open) mkdir "$dir" && chown $uid "$dir" && chmod 777 "$dir" ;;
        symlink) ln -s "$other" "$dir" ;;
        file) : >"$dir" && chmod 666 "$dir" ;;
        esac
        got=$(RAILSOCK_LOG=warn ATTACK_UID=$uid timeout -k 1 60 "$attack" peer 127.0.0.1 $port none 2>"$work/warned" |
            tail -n 1)
        grep -q 'cannot be made' "$work/warned" || got+=', without a warning'
        [ -z "$(find "$dir/" "$other" -type f 2>/dev/null)$(cat "$dir" 2>/dev/null)" ] || got+=', and has written there'
        verdict "folder.$kind" "$got" stays "$work/warned"
        rm -rf "$dir"
    done
    # One that is as it should be: kept, with nothing left in it.
    got=$(ATTACK_UID=$uid timeout -k 1 60 "$attack" peer 127.0.0.1 $port none 2>&1 | tail -n 1)
    verdict folder.own "$got $(stat -c '%u %a' "$dir") $(find "$dir" -type f | wc -l)" "stays $uid 700 0"
    rm -rf "$dir"
    end_all
}

for part in ${ATTACK_PARTS:-rogues proxies data folders peers sanitized}; do
    $part
done
exit 0
