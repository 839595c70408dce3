# shellcheck shell=bash
#
# tests/wait.sh - waits for what has to come about, and not for a while. Sourced by whoever waits.

# wait_until SECONDS COMMAND...: until it succeeds. On a slow host one look may take a second, so
# there is as much time again, and twice, for looking.
wait_until() {
    local tries=$(($1 * 20)) end=$((${EPOCHREALTIME/./} + $1 * 3000000))

    shift
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] && [ "${EPOCHREALTIME/./}" -lt $end ] || return 1
        sleep 0.05
    done
}

# Whether this many sockets listen on the port, at whatever addresses: one, unless said. Not found
# out by connecting: servers count connections.
listening() { # PORT [COUNT]
    local hex

    printf -v hex '%04X' "$1"
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        awk -v p=":$hex\$" -v count="${2-1}" '$2 ~ p && $4 == "0A" { n++ } END { exit n < count }'
}

# serves PORT PID: waits until this process has opened the port; status 1 if it has ended before.
serves() {
    wait_until 20 opened_or_ended "$@"
    listening "$1"
}

opened_or_ended() { # PORT PID
    listening "$1" || ended "$2"
}

ended() { # PID
    ! kill -0 "$1" 2>/dev/null
}
