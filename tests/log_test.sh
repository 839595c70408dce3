#!/bin/bash
# tests/log_test.sh - what the log says of a connection that comes, boards and ends.
set -u

cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/pair.sh
. tests/pair.sh
[ -x "$build/railsock" ] || { echo 'not ok log: nothing is built'; exit 1; }
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD

# verdict NAME: by the status of the last command; what was logged is shown if it is not 0.
verdict() {
    # shellcheck disable=SC2319 # the caller's condition is what is asked
    if [ "$?" -eq 0 ]; then
        echo "ok log.$1"
    else
        echo "not ok log.$1: not what the log should say"
        tail -n 20 "$work"/*.log | sed 's/^/    /'
    fi
}

# logged WORDS FILE...: says it at least once in each
logged() {
    local words=$1 file

    shift
    for file in "$@"; do
        grep -qsE "$words" "$work/$file.log" || return 1
    done
}

# ends SIGNAL WORDS close|stay [SETTING...]: a connection over which so many words have gone there
# and back, whose client then gets the signal. Both ends' logs: client and server.
ends() {
    local signal=$1 words=$2 how=$3 here there run=("$build/railsock" run --board eager -- "$python" tests/log_ends.py)

    shift 3
    port=$((port + 1))
    rm -f "$work"/*.log
    env RAILSOCK_LOG="info:$work/server.log" "$@" "${run[@]}" server $port >/dev/null 2>&1 &
    there=$!
    serves $port $there
    env RAILSOCK_LOG="info:$work/client.log" "$@" "${run[@]}" client $port "$words" "$how" >"$work/client" 2>&1 &
    here=$!
    wait_until 20 grep -qs 'done' "$work/client"
    [ "$how" = stay ] || wait_until 10 logged 'given back' server client
    { kill -"$signal" $here; wait $here; } 2>/dev/null
    wait_until 10 logged 'given back' server
    { kill $there; wait $there; } 2>/dev/null
}

ends TERM 300 close; logged 'sending on shm' client server
verdict boards
# Which connection a line is of, also where many programs have one file.
logged "^railsock\[[0-9]+\] [0-9.]+ python3 info: stream [0-9]+: the peer is proved: descriptor [0-9]+, 127\.0\.0\.1:$port with 127\.0\.0\.1:[0-9]+\$" server &&
    logged " python3 info: stream [0-9]+: the peer is proved: descriptor [0-9]+, 127\.0\.0\.1:[0-9]+ with 127\.0\.0\.1:$port\$" client
verdict which_connection
logged 'stream [0-9]+: shm rendezvous: agreed$' client
verdict success_is_told_as_such
! grep -qE 'fail|\(-[0-9]' "$work"/{client,server}.log
verdict an_ordinary_end_is_no_failure
# A client that is killed says no farewell: what ends is TCP.
ends KILL 300 stay
logged 'the (peer has ended the connection|connection has ended), 0 bytes of the rail are unread$' server
verdict an_end_in_words

# Whose rails are made to fail.
failed() {
    local seed

    for seed in 1 2 3 4 5 6 7 8 9 10; do
        ends TERM 5000 close RAILSOCK_TEST_SWITCH=$seed
        cat "$work"/*.log >"$work/all"
        grep -qE 'the rail is given back \(it had failed: rail-failed\)$' "$work/all" && return
    done
    return 1
}
failed
verdict a_failure_is_told_with_its_reason

# What the program itself has not read yet is no fault of a peer's.
rm -f "$work"/*.log
[ "$(RAILSOCK_MODE=rail RAILSOCK_WIRE=shm RAILSOCK_LOG=info:$work/unread.log LD_PRELOAD=$build/librailsock.so \
    timeout 60 "$build/plain/tests/preload/leave_unread")" = 'all is there' ] && logged 'leaves the rail' unread &&
    ! grep -E ' (warn|error): ' "$work/unread.log"
verdict unread_bytes_are_no_fault
