# shellcheck shell=bash
#
# tests/pair.sh - a server and a client, two python programs of ours with the library. Sourced by
# forks_test.sh and others.
# shellcheck source=tests/wait.sh
. tests/wait.sh
build=${RAILSOCK_TEST_BUILD:-build}
python=/usr/bin/python3 # not a version manager's script, which is slow and forks
work=$(mktemp -d "${TMPDIR:-/tmp}/pair.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
port=$((23000 + $$ % 6000))

# pair NAME BOARD SERVER CLIENT [SETTING...]: one case. SERVER and CLIENT are words, PORT among them
# is replaced; the settings are for the client. PAIR_SECONDS: how long it may take.
pair() {
    local name=$1 board=$2 server client pid

    port=$((port + 1))
    read -ra server <<<"${3//PORT/$port}"
    read -ra client <<<"${4//PORT/$port}"
    shift 4
    echo "run $name"
    "$build/railsock" run --board "$board" -- "$python" "${server[@]}" >"$work/server" 2>&1 &
    pid=$!
    serves $port $pid
    if env "$@" timeout -k 1 "${PAIR_SECONDS:-60}" "$build/railsock" run --board "$board" -- "$python" "${client[@]}" \
        >"$work/client" 2>&1; then
        echo "ok $name"
    else
        echo "not ok $name: $(tail -n 1 "$work/client")"
        tail -n 8 "$work/server" "$work/client" | sed 's/^/    /'
    fi
    { kill $pid; wait $pid; } 2>/dev/null
}

# at_once VARIABLE WORDS WORDS: this script twice at once, with VARIABLE so and so, each in a
# network of its own; status 1 if that cannot be had here, and nothing has run. Cases that count
# what a machine does want it for themselves.
at_once() {
    local script alone

    unshare -n true 2>/dev/null || return 1
    script=$PWD/tests/$(basename "$0")
    # shellcheck disable=SC2016 # for the inner shell
    alone=(unshare -n sh -c 'ip link set lo up && exec "$@"' sh)
    "${alone[@]}" env "$1=$3" "$script" >"$work/second" 2>&1 &
    "${alone[@]}" env "$1=$2" "$script" || echo "not ok ${0##*/}: the first part ended with status $?"
    wait $! || echo "not ok ${0##*/}: the second part ended with status $?"
    cat "$work/second"
}
