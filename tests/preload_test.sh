#!/bin/bash
# tests/preload_test.sh - the programs of tests/preload/, run without the library and with
# it in several modes: what they print must be the same. Then a few programs that everybody
# has, and what the library exports.
#
#   mode tcp     nothing boards: what the library costs a program without a rail
#   mode auto    streams board when they have proved worth it, in the middle of a program
#   mode rail    they board at once
set -u

cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${RAILSOCK_TEST_BUILD:-build}")
lib=$build/librailsock.so
programs=$build/plain/tests/preload
dir=$(mktemp -d "${TMPDIR:-/tmp}/preload_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
[ -e "$lib" ] || { echo "not ok preload: $lib is not built"; exit 1; }
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD

# alike PROGRAM MODE: runs it plainly (once) and under the library.
alike() {
    local program=$dir/$1 plain=$dir/$1.plain out=$dir/$1.$2 status

    if [ ! -e "$plain" ] && ! timeout 300 "$program" >"$plain" 2>&1 </dev/null; then
        echo "not ok preload.$1.$2: it fails without the library"
        sed 's/^/    /' "$plain"
        return
    fi
    PAIR_WARM=1 RAILSOCK_MODE=$2 LD_PRELOAD=$lib timeout 300 "$program" >"$out" 2>&1 </dev/null
    status=$?
    if [ "$status" -eq 0 ] && cmp -s "$plain" "$out"; then
        echo "ok preload.$1.$2"
    else
        echo "not ok preload.$1.$2: status $status, or not what it prints without the library:"
        diff "$plain" "$out" | head -n 20 | sed 's/^/    /'
    fi
}

# all_modes SOURCE
all_modes() {
    local source=$1 name mode

    name=$(basename "$source" .c)
    if ! ln -s "$programs/$name" "$dir/$name" || [ ! -x "$dir/$name" ]; then
        echo "not ok preload.$name: $programs/$name is not built"
        return
    fi
    for mode in tcp auto rail; do
        alike "$name" "$mode"
    done
}

# left NAME REASON: with the library the program's streams were on rails, and left them for that.
left() {
    if RAILSOCK_MODE=rail RAILSOCK_LOG=info:$dir/$1.log PAIR_WARM=1 LD_PRELOAD=$lib \
        timeout 60 "$dir/$1" >/dev/null 2>&1 </dev/null && grep -q "leaves the rail: $2" "$dir/$1.log"; then
        echo "ok preload.$1.leaves"
    else
        echo "not ok preload.$1.leaves: no stream left its rail with reason $2"
    fi
}

# Who looks for mistakes of the program's finds none of ours, and does not stand still. Its threads
# take turns, and the progress thread may have had none when the program has come to its end.
valgrind_finds_none() { # PROGRAM
    local log=$dir/$1.valgrind boarded=

    if ! command -v valgrind >/dev/null; then
        echo "skip preload.$1.valgrind: no valgrind"
        return
    fi
    for _ in 1 2 3 4 5; do
        if ! PAIR_WARM=1 RAILSOCK_MODE=rail RAILSOCK_LOG=info:$log.log LD_PRELOAD=$lib timeout -s KILL 250 \
            valgrind --quiet --fair-sched=try --error-exitcode=9 "$dir/$1" >"$log" 2>&1 </dev/null ||
            ! cmp -s "$dir/$1.plain" "$log"; then
            echo "not ok preload.$1.valgrind: $(head -n 3 "$log")"
            return
        fi
        grep -qs 'sending on shm' "$log.log" && boarded=yes && break
    done
    [ -n "$boarded" ] && echo "ok preload.$1.valgrind" || echo "not ok preload.$1.valgrind: nothing boards"
}

# A log that goes to a file opens it for each line: its number is not met, and after a seccomp
# filter there is none.
logged() { # PROGRAM
    local of=$dir/$1

    RAILSOCK_MODE=rail RAILSOCK_LOG=debug:$of.log PAIR_WARM=1 LD_PRELOAD=$lib \
        timeout 60 "$of" >"$of.logged" 2>&1 </dev/null
    if cmp -s "$of.plain" "$of.logged" && grep -q 'sending on shm' "$of.log"; then
        echo "ok preload.$1.logged"
    else
        echo "not ok preload.$1.logged: not what it prints without the library:"
        diff "$of.plain" "$of.logged" | head -n 20 | sed 's/^/    /'
    fi
}

# Two installations' libraries in one process: the second one says so, and does nothing.
two_copies() { # PROGRAM
    local of=$dir/$1.twice

    mkdir -p "$of" && cp "$lib" "$of/librailsock.so"
    RAILSOCK_MODE=rail RAILSOCK_LOG=info:$of/log PAIR_WARM=1 \
        timeout 60 env LD_PRELOAD="$lib:$of/librailsock.so" "$dir/$1" >"$of/said" 2>&1 </dev/null
    if cmp -s "$dir/$1.plain" "$of/said" && grep -q 'sending on shm' "$of/log" &&
        grep -q "$1 warn: $lib is loaded before this one" "$of/log" && ! grep -q 'no shared-memory' "$of/log"; then
        echo "ok preload.$1.two_copies"
    else
        echo "not ok preload.$1.two_copies: $(grep -m 1 -E 'warn|error' "$of/log")"
    fi
}

# The first two segments are lost, so that both ends' meet when they are sent again.
simultaneous_open() {
    local crossing wanted got

    # shellcheck disable=SC2016 # for the inner shell
    crossing='ip link set lo up
    . tests/wait.sh
    both_lost() { nft list chain ip t c | grep -qE "counter packets ([2-9]|[1-9][0-9]+) "; }
    nft "add table ip t; add chain ip t c { type filter hook output priority 0; };
        add rule ip t c tcp flags syn counter drop" || exit 77
    (wait_until 20 both_lost; exec nft delete table ip t) &
    env ${2:+LD_PRELOAD="$2"} "$1" open; status=$?
    wait
    exit $status'
    wanted=$(timeout 60 unshare -n bash -c "$crossing" bash "$dir/crossings" '' 2>/dev/null)
    case $? in
    0)
        got=$(RAILSOCK_MODE=rail PAIR_WARM=1 timeout 60 unshare -n bash -c "$crossing" bash "$dir/crossings" "$lib" 2>&1)
        if [ "$wanted" = "$got" ]; then
            echo "ok preload.simultaneous_open"
        else
            echo "not ok preload.simultaneous_open: $got"
        fi
        ;;
    *) echo "skip preload.simultaneous_open: no network of its own, or no nft" ;;
    esac
}

# What else a program of the folder is for.
# Why there is no thread is said in words, and of a start once, however many calls ask for one.
told_once() {
    local log=$dir/no_thread.log none='the process may have no thread more'

    RAILSOCK_MODE=rail RAILSOCK_LOG=warn PAIR_WARM=1 LD_PRELOAD=$lib \
        timeout 120 "$dir/no_thread" >/dev/null 2>"$log" </dev/null
    if [ "$(grep -c "cannot be started: $none" "$log")" -eq 1 ] && grep -q "cannot go on for now: $none" "$log"; then
        echo 'ok preload.no_thread.told'
    else
        echo "not ok preload.no_thread.told: $(head -n 3 "$log")"
    fi
}

more_of() { # PROGRAM
    case $1 in
    namespaces) left namespaces namespace ;;
    seccomp)
        left seccomp seccomp
        logged seccomp
        ;;
    raw)
        left raw bypassed
        two_copies raw
        ;;
    unconnected) left unconnected fdopen ;;
    sockmap)
        if grep -q '^no BPF here' "$dir/sockmap.plain"; then
            echo "skip preload.sockmap.leaves: $(cat "$dir/sockmap.plain")"
        else
            left sockmap bypassed
        fi
        ;;
    passing | threads | no_environment) valgrind_finds_none "$1" ;;
    numbered) logged numbered ;;
    crossings) simultaneous_open ;;
    no_thread) told_once ;;
    esac
}

# They wait more than they work: twice as many at once as there are processors. First those that
# take long: they step through a call.
all_programs() {
    local source name
    local -A started=()

    for source in tests/preload/{*_anywhere,asynchronous,jumped_first,*}.c; do
        name=$(basename "$source" .c)
        [ -z "${started[$name]-}" ] || continue
        started[$name]=1
        while [ "$(jobs -rp | wc -l)" -ge $((2 * $(nproc))) ]; do wait -n; done
        { all_modes "$source"; more_of "$name"; } >"$dir/$name.said" &
    done
    wait
}
all_programs &

# same NAME COMMAND...: prints the same and ends with the same status, with nothing on stderr.
same() {
    local name=$1 want got

    shift
    want=$("$@" 2>"$dir/err.plain" </dev/null; echo "status $?")
    got=$(LD_PRELOAD=$lib timeout 60 "$@" 2>"$dir/err" </dev/null; echo "status $?")
    if [ "$want" = "$got" ] && cmp -s "$dir/err.plain" "$dir/err"; then
        echo "ok preload.$name"
    else
        echo "not ok preload.$name: '$got', not '$want'; stderr: $(head -n 3 "$dir/err")"
    fi
}

same bash bash -c true
# shellcheck disable=SC2016 # for the inner shell
same pipeline bash -c 'x=$(printf "%s\n" a b | sort -r | tr -d "\n"); echo "$x" >&2; exit 3'
if command -v python3 >/dev/null; then
    same python python3 -c 'print("words")'
    # No descriptors at all: a sleep, as old programs do it.
    same select python3 -c 'import select; print(select.select([], [], [], 0.01))'
    same subprocess python3 -c '
import subprocess, os
print(subprocess.run(["cat"], input=b"through", capture_output=True, close_fds=True))
print(os.system("exit 4"), os.popen("echo popen").read())
print(subprocess.run(["sh", "-c", "exit 5"], close_fds=False).returncode)'
    same asyncio python3 -c '
import asyncio
async def serve(r, w):
    while data := await r.read(100000):
        w.write(data)
        await w.drain()
    w.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
    for i in range(300):
        w.write(bytes([i & 255]) * 3000)
        assert await r.readexactly(3000) == bytes([i & 255]) * 3000
    w.write_eof()
    print(await r.read())
asyncio.run(main())'
fi

# A stream stays in the network namespace of its socket, whatever its process does.
if unshare -n true 2>/dev/null; then
    # shellcheck disable=SC2016 # for the inner shell
    if said=$(unshare -n sh -c 'ip link set lo up; RAILSOCK_MODE=rail LD_PRELOAD=$1 exec timeout 60 python3 \
        tests/preload/netns.py "$2"' sh "$lib" "$build/railsock" 2>&1); then
        echo 'ok preload.netns'
    else
        echo "not ok preload.netns: $said"
    fi
else
    echo 'skip preload.netns: no network of its own'
fi

# As in a pod: two programs that share the network, and nothing else. And where one of the two, or
# each, has another number for its user, as in containers without root.
alone=(unshare --pid --fork --mount --ipc --uts --user --map-root-user --mount-proc)
renumbered=(unshare --user --map-user=4711 --map-group=4711)
pod() { # NAME SERVER CLIENT: arrays' names
    local -n server=$2 client=$3
    local said

    # shellcheck disable=SC2016 # for the inner shell
    if said=$(RAILSOCK_MODE=rail unshare -n bash -c 'ip link set lo up; lib=$1; n=$2; shift 2
        timeout 60 "${@:1:n}" env LD_PRELOAD="$lib" python3 tests/preload/pod.py serve | {
            read -r port; RAILSOCK_LOG=info timeout 60 "${@:n+1}" env LD_PRELOAD="$lib" python3 tests/preload/pod.py "$port"; }' \
        bash "$lib" "${#server[@]}" "${server[@]}" "${client[@]}" 2>&1) && grep -q 'sending on shm' <<<"$said" &&
        grep -q 'receiving on shm' <<<"$said"; then
        echo "ok preload.$1"
    else
        echo "not ok preload.$1: $(tail -n 1 <<<"$said")"
    fi
}
if unshare -n "${alone[@]}" true 2>/dev/null && unshare -n "${renumbered[@]}" true 2>/dev/null; then
    # shellcheck disable=SC2034 # by its name
    here=()
    pod pod alone alone
    pod pod.server_renumbered renumbered here
    pod pod.client_renumbered here renumbered
    pod pod.both_numbered alone renumbered
else
    echo 'skip preload.pod: no namespaces'
fi

# Under a filter of its own a program stays on TCP, unless somebody has said that it allows what a
# rail needs.
filtered() { # SECCOMP COUNT
    local said

    if said=$(RAILSOCK_SECCOMP=$1 RAILSOCK_MODE=rail RAILSOCK_LOG=info:$dir/filtered.$1 LD_PRELOAD=$lib timeout 100 \
        /usr/bin/python3 tests/preload/filtered.py "$dir/filtered.$1" "$2" 2>&1); then
        echo "ok preload.filtered.$1"
    else
        echo "not ok preload.filtered.$1: $(tail -n 1 <<<"$said")"
    fi
}

filtered tcp 0
filtered rail 2

# Every name of calls.def that is defined here must be exported, and nothing else.
cc -E -P -undef -x c '-DCALL(ret, name, params, args, class)=@ name @' preload/calls.def |
    tr '@' '\n' | awk 'NF == 1 { print $1 }' | sort >"$dir/table"
nm -D --defined-only "$lib" | awk '{ print $3 }' | sort >"$dir/exports"
if cmp -s "$dir/table" "$dir/exports"; then
    echo "ok preload.exports"
else
    echo "not ok preload.exports: differs from preload/calls.def:"
    diff "$dir/table" "$dir/exports" | sed 's/^/    /'
fi

wait
cat "$dir"/*.said
