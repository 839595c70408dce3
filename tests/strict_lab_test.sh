#!/bin/bash
# tests/strict_lab_test.sh - a host that promises no more memory than it has (vm.overcommit_memory
# 2) has promised all of it when streams first fill their rings, over shared memory: nobody is
# killed by a page that is not there.
set -u
cd "$(dirname "$0")/.." || exit 1

if [ -z "${LAB_HOST-}" ]; then
    railsock=${RAILSOCK_TEST_BUILD:-build}/railsock
    export LAB_RAILSOCK=$railsock
    "$railsock" lab run --hosts 1 --device none --timeout 400 -- tests/strict_lab_test.sh | sed -u 's/^host1| //'
    exit "${PIPESTATUS[0]}"
fi
# shellcheck source=tests/wait.sh
. tests/wait.sh
python=(/usr/bin/python3 -SE) port=7000
export RAILSOCK_MODE=rail

echo "run strict-lab.rings"
echo 900000 >/proc/sys/vm/overcommit_kbytes
echo 2 >/proc/sys/vm/overcommit_memory
"$LAB_RAILSOCK" run -- "${python[@]}" tests/apps/echo_server.py threads 127.0.0.1 $port &
server=$!
serves $port $server
mkfifo /tmp/go
RAILSOCK_LOG=info:/tmp/log "$LAB_RAILSOCK" run -- "${python[@]}" tests/strict.py $port </tmp/go >/tmp/client 2>&1 &
client=$!
exec 9>/tmp/go
wait_until 30 grep -q boarded /tmp/client
promised=$(awk '/^Committed_AS/ { print $2 }' /proc/meminfo)
echo $((promised + 200)) >/proc/sys/vm/overcommit_kbytes
echo go >&9
wait $client
status=$?
echo 0 >/proc/sys/vm/overcommit_memory
on_rails=$(grep -c 'sending on shm' /tmp/log)
if [ $status -eq 0 ] && [ "$on_rails" -ge 8 ] && kill $server; then
    echo "ok strict-lab.rings"
else
    echo "not ok strict-lab.rings: status $status, $on_rails streams on rails: $(tail -n 1 /tmp/client)"
fi
exit 0
