#!/bin/bash
# tests/no_verbs_lab.sh - a host that has an RDMA device, and no libibverbs. In a virtual host,
# whose files it removes; with the railsock that is in PATH. Called by deb_test.sh and, with
# `short`, by identity_lab_test.sh.
set -u
[ -n "${LAB_HOST-}" ] || { echo "$0: for a virtual host" >&2; exit 2; }
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/wait.sh
. tests/wait.sh
python=(/usr/bin/python3 -SE)
port=7100
ulimit -l unlimited
rm /usr/lib/*/libibverbs.so.1* || exit 1

short=${1-}
out=$(railsock doctor --wire verbs 2>&1)
if grep -q '^FAIL  libraries' <<<"$out"; then
    echo 'ok no_verbs.doctor'
else
    echo "not ok no_verbs.doctor: $(tr '\n' '|' <<<"$out")"
fi

# For echoes, whose words it uses.
# shellcheck disable=SC2317 # called by wait_until
shown_or_dead() {
    seen=$(railsock stat --pid "$client" 2>&1 | tr -s ' ')
    grep -qE "$line" <<<"$seen" || ended "$client"
}

# echoes NAME ADDRESS WIRE LINE: the client's bytes come back, and a line of railsock stat about it
# comes to match LINE.
echoes() {
    local name=$1 address=$2 wire=$3 line=$4 server client seen=''

    port=$((port + 1))
    rm -f /tmp/seen
    railsock run --rail --wire "$wire" -- "${python[@]}" tests/apps/echo_server.py threads "$address" $port &
    server=$!
    serves $port $server
    railsock run --rail --wire "$wire" -- "${python[@]}" -c '
import os, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
n = 0
while n < 100 or not os.path.exists("/tmp/seen"):
    s.sendall(bytes([n % 256]) * 100)
    got = b""
    while len(got) < 100:
        got += s.recv(100)
    assert got == bytes([n % 256]) * 100
    n += 1
' "$address" $port 2>/tmp/client &
    client=$!
    wait_until 30 shown_or_dead
    touch /tmp/seen
    if wait $client && grep -qE "$line" <<<"$seen"; then
        echo "ok no_verbs.$name"
    else
        echo "not ok no_verbs.$name: $(tail -n 1 /tmp/client) $(tr '\n' '|' <<<"$seen")"
    fi
    { kill $server; wait $server; } 2>/dev/null
}

echoes stays_on_tcp "$LAB_IP_1" verbs ' tcp no-verbs '
[ "$short" = short ] || echoes boards_over_shm 127.0.0.1 auto ' shm - '
exit 0
