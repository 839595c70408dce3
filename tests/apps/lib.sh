# shellcheck shell=bash
#
# tests/apps/lib.sh - what the tests with real programs share. Sourced by driver.sh.
#
# A case is a function that starts servers and clients and calls `fail` when bytes or results
# are wrong. It reads
#   MODE     tcp, shm or verbs: how programs with the library run
#   SERVER, CLIENT   on or off: whether that side has the library
#   BOARD    a boarding policy, or empty for the default one
#   REPORTS  a folder in which each started program leaves its `railsock run --report`, or empty
# and nothing of it knows whether the client runs here or, in a lab with two hosts, on the other
# one.
#
# Afterwards the server's own `railsock stat` is asked how many bytes went over the rail
# (run_case), or the reports are (many.sh).

# shellcheck disable=SC2034 # used by the cases
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/wait.sh
. "$top/tests/wait.sh"
apps=$top/tests/apps
railsock=${RAILSOCK_TEST_BUILD:-$top/build}/railsock
python=/usr/bin/python3 # not a version manager's script, which is slow and forks
own_python=("$python" -SE) # for scripts that need no package: without a look for those it starts in a third of the time
MODE=tcp SERVER=on CLIENT=on BOARD='' REPORTS=''
scale=1 # by how much there is less of everything on a virtual host; set by driver.sh

if [ -n "${LAB_HOST-}" ]; then
    ip=$LAB_IP_1 shared=$LAB_SCRATCH limit=400
else
    ip=127.0.0.1 shared='' limit=300
fi

# What a client of this case may take, given what its case asks for.
data=''    # 64 MiB of random bytes, data_part: the first 16 MiB
base=$(mktemp -d "${TMPDIR:-/tmp}/apps.XXXXXX") || exit 1
shared=${shared:-$base}
servers=() # pids that this case has to end
why=''

# ---- for cases

fail() {
    [ -n "$why" ] || why=$*
    return 1
}

# The words before a program: launch on|off.
launch() {
    prefix=()
    [ "$1" = on ] || return 0
    prefix=("$railsock" run)
    [ -z "$REPORTS" ] || prefix=("$apps/reported" "$REPORTS" "$railsock" run)
    case $MODE in
    tcp) prefix+=(--tcp) ;;
    *) prefix+=(--wire "$MODE") ;;
    esac
    [ -z "$BOARD" ] || prefix+=(--board "$BOARD")
    prefix+=(--)
}

# A port that nobody uses now.
next_port=$((20000 + $$ % 8000))
free_port() {
    local hex

    while :; do
        next_port=$((next_port + 1))
        printf -v hex ':%04X ' "$next_port"
        grep -qF "$hex" /proc/net/tcp /proc/net/tcp6 2>/dev/null || break
    done
    port=$next_port
}

# server COMMAND...: starts it in the background and waits until $port is open. Input from
# $server_in, output in $work/server.out and .err.
server_in=/dev/null
server() {
    local pid

    launch "$SERVER"
    "${prefix[@]}" "$@" <"$server_in" >"$work/server.out" 2>"$work/server.err" &
    pid=$!
    servers+=("$pid")
    serves "$port" "$pid" || fail "the server does not listen: $(tail -n 2 "$work/server.err" | tr '\n' ' ')"
}

# client COMMAND...: runs it on the client's side; output in $out and $err (files).
client() {
    launch "$CLIENT"
    on_client "${prefix[@]}" "$@"
}

# client_sh TEXT: the same with a line for bash, in which $RUN stands before the program.
client_sh() {
    launch "$CLIENT"
    on_client env RUN="${prefix[*]}" bash -c "set -o pipefail; $1"
}

on_client() {
    local status

    if [ "${LAB_HOSTS-1}" -gt 1 ]; then
        on 2 "$apps/to_files" "$out" "$err" timeout -k 2 "$limit" "$@"
    else
        "$apps/to_files" "$out" "$err" timeout -k 2 "$limit" "$@"
    fi
    status=$?
    [ $status -ne 124 ] || fail "the client still ran after $limit s"
    [ $status -eq 0 ] || fail "the client ended with $status: $(tail -n 2 "$err" "$out" | tr '\n' ' ')"
    return $status
}

# ---- running a case

descendants() { # PID...: them and all processes below them
    ps -e -o pid=,ppid= | awk -v roots="$*" '
        { parent[$1] = $2 }
        END {
            n = split(roots, r, " ")
            for (i = 1; i <= n; i++) want[r[i]] = 1
            for (p in parent) {
                for (q = p; q in parent && !(q in want); q = parent[q]);
                if (q in want) print p
            }
        }'
}

gone() { # PID: no such process, or a zombie
    local stat

    read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
    [[ ${stat##*) } == Z* ]]
}

all_gone() {
    local pid

    for pid in "$@"; do gone "$pid" || return 1; done
}

# Ends this case's servers and whatever they have started. Says so when they do not end.
stop_servers() {
    local all

    [ ${#servers[@]} -gt 0 ] || return 0
    mapfile -t all < <(descendants "${servers[@]}")
    kill -TERM "${servers[@]}" 2>/dev/null
    if ! wait_until 10 all_gone "${all[@]}"; then
        kill -KILL "${all[@]}" 2>/dev/null
        fail 'the server did not end on SIGTERM'
    fi
    wait "${servers[@]}" 2>/dev/null
    servers=()
}

# Of the bytes that the servers have moved, the per cent that went over the rail, in $share. $1 is
# the least that is accepted; 0 demands none at all, `any` judges nothing, - does not even ask.
judge_share() {
    local result bytes reasons

    share=''
    { [ "$SERVER" = on ] && [ "$1" != - ]; } || return 0
    result=$("$railsock" stat --json | "${own_python[@]}" "$top/tools/share.py" "${servers[@]}") ||
        { [ "$1" = any ] || fail "railsock stat shows nothing of the server: $result"; return; }
    read -r share bytes reasons <<<"$result"
    [ "$1" != any ] || return 0
    if [ "$1" = 0 ]; then
        [ "$share" = 0.0 ] || fail "$share % of $bytes bytes went over a rail, none should have"
    else
        awk -v s="$share" -v m="$1" 'BEGIN { exit !(s >= m) }' ||
            fail "only $share % of $bytes bytes went over the rail, not $1 (on TCP: ${reasons:-none})"
    fi
}

# Whether a rail is to be had in this case.
wants_rail() { [ "$SERVER$CLIENT" = onon ] && [ "$MODE" != tcp ]; }

some_by_rail() {
    local share

    read -r share _ < <("$railsock" stat --json | "${own_python[@]}" "$top/tools/share.py" "${servers[@]}") &&
        [[ $share != 0.0 && $share != no ]]
}

# run_case NAME SHARE FUNCTION [ARGUMENT...]: SHARE is the least share of the rail that a rail mode
# must reach when both sides have the library; - where the server has ended before anybody asks.
run_case() {
    local name=$1 least=$2 label=$MODE start=${EPOCHREALTIME/./} took

    shift 2
    case $SERVER$CLIENT in
    onoff) label=$MODE.server-only ;;
    offon) label=$MODE.client-only ;;
    esac
    [ -z "$BOARD" ] || label+=.$BOARD
    name=$label.$name
    [[ $name == *"${APPS_FILTER-}"* ]] || return 0
    echo "run $name"
    [ "$least" = - ] || wants_rail || least=0
    # In translated code a boarding takes a good part of a second, and a case a few seconds.
    # How soon a stream boards is a matter of time, which no test judges: it must board at all.
    [ "$scale" -eq 1 ] || [[ $least = any || $least = - || $least = 0 ]] || least=0.1
    why='' servers=() server_in=/dev/null
    work=$(mktemp -d "$base/XXXXXX")
    out=$shared/client.out err=$shared/client.err
    free_port
    "$@" || fail "${FUNCNAME[0]}: $1 failed"
    share=''
    [ -n "$why" ] || judge_share "$least"
    stop_servers
    if [ -z "$why" ]; then
        took=$(((${EPOCHREALTIME/./} - start) / 100000))
        echo "ok $name  # ${share:+share $share %, }$((took / 10)).$((took % 10)) s"
        rm -rf "$work"
    else
        echo "not ok $name: $why"
        # What it left helps whoever looks; the end of it is enough in the log.
        tail -n 4 "$work"/server.err "$err" 2>/dev/null | sed 's/^/    /'
    fi
}

skip_case() { # NAME WHY
    echo "skip $MODE.$1: $2"
}

need() { # NAME PROGRAM: whether it is there; else the case NAME is skipped
    command -v "$2" >/dev/null || { skip_case "$1" "$2 is not installed"; return 1; }
}

# shellcheck disable=SC2317 # called by the trap
finish() {
    why=ended
    stop_servers
    rm -rf "$base"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
