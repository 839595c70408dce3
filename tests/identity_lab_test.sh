#!/bin/bash
# tests/identity_lab_test.sh - verbs and another user: what was opened under the old credentials is
# closed before they change, and connections board again under the new ones. And what a limit of
# locked memory means.
set -u
cd "$(dirname "$0")/.." || exit 1

if [ -z "${LAB_HOST-}" ]; then
    railsock=${RAILSOCK_TEST_BUILD:-build}/railsock
    "$railsock" lab run --hosts 1 --timeout 200 -- tests/identity_lab_test.sh | sed -u 's/^host1| //'
    exit "${PIPESTATUS[0]}"
fi
log=/tmp/identity.log
install -m 666 /dev/null $log # for every user
if LD_PRELOAD=$PWD/build/librailsock.so RAILSOCK_WIRE=verbs RAILSOCK_BOARD=eager RAILSOCK_LOG=info:$log \
    timeout 150 /usr/bin/python3 tests/identity_lab.py $log 2>/tmp/identity.err; then
    echo "ok identity.seteuid"
else
    echo "not ok identity.seteuid: $(tail -n 1 /tmp/identity.err)"
    tail -n 20 $log
fi
# A user who may not lock as much memory as it would take.
install -m 666 /dev/null /tmp/memlock.log
ulimit -l 1024
if LD_PRELOAD=$PWD/build/librailsock.so RAILSOCK_WIRE=verbs RAILSOCK_BOARD=eager \
    RAILSOCK_LOG=info:/tmp/memlock.log setpriv --reuid 1000 --clear-groups --inh-caps=-all \
    timeout 150 /usr/bin/python3 tests/memlock_lab.py /tmp/memlock.log 2>/tmp/memlock.err; then
    echo "ok identity.memlock"
else
    echo "not ok identity.memlock: $(tail -n 1 /tmp/memlock.err)"
    tail -n 20 /tmp/memlock.log
fi
exit 0
