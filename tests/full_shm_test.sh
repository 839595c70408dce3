#!/bin/bash
# tests/full_shm_test.sh - a /dev/shm that has room for what is shown of connections, but not for
# what is shown of rails: the streams stay on TCP, reason no-memory, and carry on. With one page
# more they board, also if each request for memory fails with EINTR at first, as a tmpfs of Linux
# 6.1 may for signals and for io_uring's work. A process that may have no descriptor of ours open,
# and has more connections than there is room for, lives on.
set -u

cd "$(dirname "$0")/.." || exit 1
railsock=$PWD/build/railsock
lib=$PWD/build/librailsock.so
if [ ! -x "$railsock" ] || [ ! -f "$lib" ]; then
    echo 'not ok full_shm: nothing is built'
    exit 1
fi

# with SIZE: in a network and a /dev/shm of its own.
with() {
    # shellcheck disable=SC2016 # the inner shell's
    unshare --user --map-root-user --net --mount sh -c '
        ip link set lo up && mount -t tmpfs -o size="$1" none /dev/shm &&
            RAILSOCK_MODE=auto RAILSOCK_WIRE=shm exec timeout 60 $5 env LD_PRELOAD="$2" python3 "tests/$4.py" "$3"' \
        sh "$1" "$lib" "$railsock" "${3-full_shm}" "${2-}" 2>&1
}

unshare --user --map-root-user --net --mount true 2>/dev/null ||
    { echo 'skip full_shm: no user namespaces'; exit 0; }
out=$(with 1m)
if [[ $out == 'shm:none shm:none' ]]; then echo 'ok full_shm.room'; else echo "not ok full_shm.room: $out"; fi
# Six pages: the head and 256 slots.
out=$(with 24k)
if [[ $out == 'tcp:no-memory tcp:no-memory' ]]; then
    echo 'ok full_shm.no_room'
else
    echo "not ok full_shm.no_room: $out"
fi
out=$(with 24k 'prlimit --nofile=512' full_shm_many)
if [[ $out == 150 ]]; then echo 'ok full_shm.many'; else echo "not ok full_shm.many: $out"; fi
if strace -o /dev/null true 2>/dev/null; then
    out=$(with 1m 'strace -f -o /dev/null -e inject=fallocate:error=EINTR:when=1+2')
    if [[ $out == 'shm:none shm:none' ]]; then echo 'ok full_shm.interrupted'; else echo "not ok full_shm.interrupted: $out"; fi
else
    echo 'skip full_shm.interrupted: no strace, or it may not trace'
fi
