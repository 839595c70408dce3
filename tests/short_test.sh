#!/bin/bash
# tests/short_test.sh - what a connection costs that ends before a rail is worth it, or stays on
# TCP: no system call of the library's own. And what that rests on: which numbers are taken for TCP
# without asking (short/numbers.c), that addresses which the library does not know are found by
# `railsock stat`. What it costs in time is `make bench`. Some 10 seconds.
set -u

cd "$(dirname "$0")/.." || exit 1
# A process's first connection looks at what others show in /dev/shm: here are no others.
own=(unshare -m)
[ "$(id -u)" -eq 0 ] || own=(unshare -Um --map-current-user --keep-caps)
own+=(sh -c 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec "$@"' sh)
if [ -z "${SHORT_ALONE-}" ] && "${own[@]}" true 2>/dev/null; then
    SHORT_ALONE=yes exec "${own[@]}" "tests/${0##*/}"
fi
lib=$(readlink -f "${RAILSOCK_TEST_BUILD:-build}/librailsock.so")
railsock=$(realpath "${RAILSOCK_TEST_BUILD:-build}")/railsock
dir=$(mktemp -d "${TMPDIR:-/tmp}/short_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
[ -e "$lib" ] || { echo 'not ok short: librailsock.so is not built'; exit 1; }
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD

for source in tests/bench/many.c tests/short/numbers.c tests/short/shapes.c; do
    cc -O2 -std=gnu11 -D_GNU_SOURCE -I. -o "$dir/$(basename "$source" .c)" "$source" || exit 1
done

# counted N LIBRARY PROGRAM...: strace's sums of N connections, client and server: "name calls",
# sorted.
counted() {
    local n=$1 with=$2

    shift 2
    strace -f -c -o "$dir/sums" -E LD_PRELOAD="$with" "$dir/$1" "${@:2}" "$n" >"$dir/said" 2>&1 || return 1
    awk '$NF != "total" && $4 ~ /^[0-9]+$/ { print $NF, $4 }' "$dir/sums" | sort
}

# The calls of 100 connections: what 120 make more than 20. Either process may look whether the
# other is alive, once.
of_hundred() {
    counted 120 "$@" >"$dir/many.calls" && counted 20 "$@" >"$dir/few.calls" || return 1
    join -a 1 -e 0 -o 0,1.2,2.2 "$dir/many.calls" "$dir/few.calls" | awk '{ more = $2 - $3 } more && !($1 == "kill" && more * more <= 4) { print $1, more }'
}

# none_more NAME PROGRAM...: its connections make no other system calls with the library.
none_more() {
    local name=$1

    shift
    if of_hundred '' "$@" >"$dir/tcp" && of_hundred "$lib" "$@" >"$dir/with" &&
        grep -qx 'connect 100' "$dir/tcp" &&
        cmp -s "$dir/tcp" "$dir/with"; then
        echo "ok short.$name"
    else
        echo "not ok short.$name: a connection makes other system calls than without the library:"
        diff "$dir/tcp" "$dir/with" | sed 's/^/    /'
    fi
}

# about NAME N CALLS SHAPE: of connections that are worth a rail by their calls, but too short for
# one, a hundred make so many of these calls, and some more: the first asks for a rail, and each
# second one end looks whether it can be asked.
about() {
    local made

    made=$(of_hundred "$lib" shapes "$4" | awk -v calls="^($3)\$" '$1 ~ calls { n += $2 } END { print n + 0 }')
    if [ "$made" -ge $(($2 - 50)) ] && [ "$made" -le $(($2 + 40)) ]; then
        echo "ok short.$1"
    else
        echo "not ok short.$1: a hundred connections make $made of $3"
    fi
}

if strace -o /dev/null true 2>/dev/null; then
    none_more calls many request
    none_more ends shapes ends
    none_more epoll shapes epoll
    about one_address 200 'getsockname|getpeername' calls
    about not_taken_out 200 epoll_ctl long
    export RAILSOCK_MODE=tcp
    for shape in ends calls epoll long; do
        none_more "tcp.$shape" shapes "$shape"
    done
    unset RAILSOCK_MODE
    export RAILSOCK_BOARD=never
    none_more never.calls shapes calls
    unset RAILSOCK_BOARD
else
    echo 'skip short.calls: no strace, or it may not trace'
fi

RAILSOCK_BOARD=after=8 LD_PRELOAD=$lib timeout 100 "$dir/numbers" 2>&1 || echo "not ok short.numbers: status $?"

# Memory of the process's for each of 10,000 sockets, of which none has had a rail: 254 bytes with
# the library; at most 256.
if [ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 12000 ]; then
    ulimit -Sn 12000
    said=$(LD_PRELOAD=$lib timeout 100 "$dir/many" held 5000 2>&1)
    if grep -qE '^\{"idle": ([0-9]{1,2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.' <<<"$said"; then
        echo 'ok short.held'
    else
        echo "not ok short.held: $said"
    fi
else
    echo 'skip short.held: fewer than 12000 descriptors'
fi

# shown FAMILY HOST NAMED: of a connection that nothing has passed, the addresses that stat shows
# are the kernel's.
shown() {
    local said

    # shellcheck disable=SC2016 # python's
    if said=$(LD_PRELOAD=$lib timeout 60 /usr/bin/python3 tests/short/shown.py "$railsock" "$2" 2>&1); then
        echo "ok short.stat.$1"
    elif [ $? -eq 77 ]; then
        echo "skip short.stat.$1: $said"
    else
        echo "not ok short.stat.$1: $(tail -n 1 <<<"$said")"
    fi
}
shown ipv4 127.0.0.1
shown ipv6 ::1
shown mapped ::ffff:127.0.0.1
