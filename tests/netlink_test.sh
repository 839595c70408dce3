#!/bin/bash
# tests/netlink_test.sh - a process that may have no netlink sockets (RestrictAddressFamilies of a systemd unit, as Debian's
# redis-server has) cannot ask who owns a connection. It stays on TCP, and both ends say why.
set -u

cd "$(dirname "$0")/.." || exit 1
railsock=$PWD/${RAILSOCK_TEST_BUILD:-build}/railsock
python=/usr/bin/python3
[ -x "$railsock" ] || { echo 'not ok netlink: nothing is built'; exit 1; }
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD

# reasons NAME HERE THERE CLIENT-PREFIX SERVER-PREFIX
reasons() {
    local run=("$railsock" run --)

    # shellcheck disable=SC2086 # several words
    if out=$(timeout 60 $4 "${run[@]}" "$python" tests/netlink.py "$railsock" "$2" "$3" \
        $5 "${run[@]}" "$python" tests/echo.py server '{port}' 2>&1); then
        echo "ok netlink.$1"
    else
        echo "not ok netlink.$1: $(tail -n 1 <<<"$out")"
    fi
}
refusing="$python tests/refusing.py netlink --"

reasons server no-netlink no-netlink '' "$refusing"
reasons client no-netlink wait-peer "$refusing" ''
