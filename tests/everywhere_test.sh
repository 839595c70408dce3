#!/bin/bash
# tests/everywhere_test.sh - the library in every program of a host, by /etc/ld.so.preload: in a
# mount and a network namespace of its own, with a copy of /etc.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${RAILSOCK_TEST_BUILD:-build}")
railsock=$build/railsock python=/usr/bin/python3
[ -x "$railsock" ] || { echo "not ok everywhere: $railsock is not built"; exit 1; }
if [ "$(id -u)" -ne 0 ] || ! unshare -nm true 2>/dev/null; then
    echo 'skip everywhere: needs root, and namespaces'
    exit 0
fi
if [ "${1-}" != inside ]; then
    dir=$(mktemp -d "${TMPDIR:-/tmp}/everywhere_test.XXXXXX") || exit 1
    trap 'rm -rf "$dir"' EXIT
    while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
    unset LD_PRELOAD
    mkdir "$dir/etc" && cp -a /etc/. "$dir/etc/" || exit 1
    rm -f "$dir/etc/railsock.conf"
    unshare -nm "$0" inside "$dir"
    exit
fi

# ---- inside
dir=$2
. tests/wait.sh
library=/mnt/librailsock.so # where any user may read it, other than in $TMPDIR
ip link set lo up && mount --bind "$dir/etc" /etc && mount -t tmpfs -o mode=755 none /mnt &&
    cp "$build/librailsock.so" $library || exit 1
pids=''
# shellcheck disable=SC2317 # called by the trap
finish() {
    # shellcheck disable=SC2086 # process ids
    [ -z "$pids" ] || { kill $pids; wait; } 2>/dev/null
}
trap finish EXIT

verdict() { # NAME WORDS, after a condition
    # shellcheck disable=SC2319 # the caller's condition is what is asked
    if [ "$?" -eq 0 ]; then echo "ok everywhere.$1"; else echo "not ok everywhere.$1: $2"; fi
}

# What programs without a connection print and return is the same with it.
everyday=(
    "sh -c 'i=0; while [ \$i -lt 9 ]; do /bin/true; i=\$((i + 1)); done; echo \$i | cat'"
    "find /usr/lib/python3 -maxdepth 1"
    "tar -cf - -C /usr/share/doc bash"
    "awk 'BEGIN { print 6 * 7 }'"
    "perl -e 'print 6 * 7'"
    "$python -c 'import subprocess; print(subprocess.run([\"false\"]))'"
    "ls /nowhere"
    "bash -c 'kill -9 \$\$'"
)
# What it prints, as a sum, and its status.
outcome() {
    eval "timeout 60 $1" >"$dir/out" 2>&1
    echo "$? $(md5sum <"$dir/out")"
}
plainly=()
for command in "${everyday[@]}"; do plainly+=("$(outcome "$command")"); done
as_nobody=(setpriv --reuid=65534 --clear-groups env)
nobodys=$("${as_nobody[@]}" passwd -S 2>&1)

echo $library >/etc/ld.so.preload
[ "$(grep -c $library /proc/self/maps)" -gt 0 ]
verdict loaded "$(cat /proc/self/maps)"
for i in "${!everyday[@]}"; do
    out=$(outcome "${everyday[i]}")
    [ "$out" = "${plainly[i]}" ]
    verdict "everyday[${everyday[i]%% *}]" "$out, without it ${plainly[i]}"
done

# A set-user-ID program does not do what its caller's environment says: no file of root's is made.
out=$("${as_nobody[@]}" RAILSOCK_LOG=debug:/etc/by_another RAILSOCK_MODE=rail RAILSOCK_KEEP=/etc passwd -S 2>&1)
[ "$out" = "$nobodys" ] && [ ! -e /etc/by_another ]
verdict set_user_id "$out, without it $nobodys"

# path NAME PORT PATH: the connection of a server and a client that name nothing takes this path.
path() {
    local name=$1 port=$2 want=$3 server client

    "$python" tests/echo.py server "$port" >/dev/null 2>&1 &
    server=$!
    pids+=" $server"
    serves "$port" "$server"
    "$python" tests/echo.py client "$port" 3000 127.0.0.1 >"$dir/$name" 2>&1 &
    client=$!
    pids+=" $client"
    wait_until 20 grep -q 'done' "$dir/$name"
    # shellcheck disable=SC2317 # called by wait_until
    is_path() {
        "$railsock" stat --pid "$client" --json >"$dir/stat" 2>&1 && grep -q "\"path\": *\"$want\"" "$dir/stat"
    }
    wait_until 5 is_path
    verdict "$name" "$(cat "$dir/stat") $(cat "$dir/$name")"
    kill "$server" "$client"
    wait "$server" "$client" 2>/dev/null
}
path boards 7101 shm
cp $library "$dir/another.so"
LD_PRELOAD=$dir/another.so path another_copy 7102 shm
echo 'any program python3* mode tcp' >/etc/railsock.conf
path rules 7103 tcp
exit 0
