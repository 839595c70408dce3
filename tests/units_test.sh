#!/bin/bash
# tests/units_test.sh - processes that a unit of systemd has taken something from. Without netlink
# sockets (RestrictAddressFamilies=, as Debian's redis-server and memcached have it) nobody can be
# asked who owns a connection: it stays on TCP, and both ends say why. A filter that kills who calls
# io_uring_setup (SystemCallFilter=), a /proc that has nothing but processes (ProcSubset=pid), or
# not those of others (ProtectProc=), and users without names (PrivateUsers=) are no obstacle.
set -u

cd "$(dirname "$0")/.." || exit 1
railsock=$(readlink -f "${RAILSOCK_TEST_BUILD:-build}/railsock")
python=/usr/bin/python3
[ -x "$railsock" ] || { echo 'not ok units: nothing is built'; exit 1; }
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD
# Where another user can go, which the place of the tests need not be.
dir=$(mktemp -d /tmp/units_test.XXXXXX) || exit 1
trap 'rm -rf "$dir"' EXIT

# ends NAME HERE THERE CLIENT-PREFIX SERVER-PREFIX [FOLDER-OF-THE-SERVER'S]
ends() {
    local run=("$railsock" run --wire shm --) folder=${6-}
    local serve=("${folder:-${railsock%/*}}/railsock" run --wire shm -- "$python" "${folder:-$PWD/tests}/echo.py" server '{port}')

    # shellcheck disable=SC2086 # several words
    if out=$(timeout 60 $4 "${run[@]}" "$python" tests/units.py "$railsock" "$2" "$3" \
        $5 "${serve[@]}" 2>&1); then
        echo "ok units.$1"
    else
        echo "not ok units.$1: $(tail -n 1 <<<"$out")"
    fi
}
refusing="$python tests/refusing.py netlink --"
killing="$python tests/refusing.py kill:io_uring_setup --"

ends deadly_io_uring shm:none shm:none "$killing" "$killing"
ends no_netlink_there tcp:no-netlink tcp:no-netlink '' "$refusing"
ends no_netlink_here tcp:no-netlink tcp:wait-peer "$refusing" ''
if unshare -m true 2>/dev/null; then
    # shellcheck disable=SC2016 # the inner shell's
    printf '#!/bin/sh\nmount -t proc -o subset=pid proc /proc && exec "$@"\n' >"$dir/subset"
    chmod +x "$dir/subset"
    ends subset_of_proc shm:none shm:none "unshare -m $dir/subset" ''
    chmod 755 "$dir"
    cp "$railsock" "${railsock%/*}/librailsock.so" tests/echo.py "$dir"
    ends subset_and_users shm:none - "unshare -m $dir/subset" \
        "unshare -m $dir/subset setpriv --reuid=daemon --regid=daemon --clear-groups" "$dir"
    ends private_users shm:none - '' "$python tests/private_users.py daemon" "$dir"
else
    echo 'skip units.subset_of_proc: needs root'
    echo 'skip units.private_users: needs root'
fi

# ---- what railsock stat shows

run=("$railsock" run --tcp -- "$python" tests/shown.py "$railsock")
out=$("${run[@]}" sh -c "env -u LD_PRELOAD '$railsock' stat --pid \$\$ 2>/dev/null | grep -c :" 2>&1)
if [ "$out" = $'2\n2\n0' ]; then echo 'ok units.executed'; else echo "not ok units.executed: ${out//$'\n'/ }"; fi
# Two containers with one /dev/shm, whose only process is number 1 in each.
if unshare -pf --mount-proc true 2>/dev/null; then
    mkfifo "$dir/gate"
    exec {gate}<>"$dir/gate"
    exec {one}< <(exec unshare -pf --mount-proc "${run[@]}" <"$dir/gate" 2>&1 {gate}>&-)
    exec {two}< <(exec unshare -pf --mount-proc "${run[@]}" <"$dir/gate" 2>&1 {gate}>&- {one}<&-)
    read -r -u "$one" first
    read -r -u "$two" second
    exec {gate}>&- # both have said something: they go on
    out=$(echo "$first" && cat <&"$one" && echo "$second" && cat <&"$two")
    if [ "$out" = $'2\n2\n2\n2' ]; then echo 'ok units.same_number'; else echo "not ok units.same_number: ${out//$'\n'/ }"; fi
else
    echo 'skip units.same_number: needs root'
fi
