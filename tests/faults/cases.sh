# shellcheck shell=bash
#
# tests/faults/cases.sh - faults under checked streams, as cases for run_case. Sourced after lib.sh.
# Each adds to $figures, one line for each try and stream that is measured:
#   NAME KIND PAUSE-MS MS-UNTIL-TCP BOARDED-AGAIN SAW
# BOARDED-AGAIN is yes, no, or new-device: only after the kernel's device had been made anew.

figures=/dev/null

# figure NAME TIME BOARDED: what the streams have noted since TIME.
figure() {
    awk -v name="$1" -v began="$2" -v boarded="$3" '
        $1 == "gap" && $3 >= began && $4 > worst[$2] { worst[$2] = $4 }
        $1 == "track" && $3 >= began && $4 == "tcp" && !($2 in tcp) { tcp[$2] = ($3 - began) * 1000 }
        END {
            n = split("p d", k, " ")
            for (i = 1; i <= n; i++)
                printf "%s %s %d %s %s nothing\n", name, k[i], worst[k[i]],
                    k[i] in tcp ? int(tcp[k[i]]) : "-", boarded
        }' "$work/server.out" >>"$figures"
}

stat_both() {
    "$railsock" stat
    on 2 "$railsock" stat
}

# On the rail again, and if they do not come there because of rxe (see `deaf`), by a new device: the
# sooner that is asked, the shorter the hold-down then is.
board_again() {
    wait_until 10 came_by rail last p d && return
    deaf || { [ -z "$why" ] && wait_until 40 came_by rail last p d; return; }
    new_devices || return
    back=new-device
    wait_until 60 came_by rail last p d
}

# BREAK is done at HOST, and after SECONDS MEND; the streams leave (`leaves`) or may (`may-leave`),
# and come back. TRIES times with the same connections: the hold-down doubles, so few.
faulty() { # NAME BREAK MEND HOST SECONDS leaves|may-leave TRIES
    local name=$1 break=$2 mend=$3 host=$4 seconds=$5 leaves=$6 tries=$7 began try back

    for ((try = 0; try < tries; try++)); do
        began=$EPOCHREALTIME
        "$break" "$host" || { fail "$break failed"; return; }
        echo "# $name: $break took $(((${EPOCHREALTIME/./} - ${began/./}) / 1000)) ms"
        sleep "$seconds"
        "$mend" "$host" || { fail "$mend failed"; return; }
        if [ "$leaves" = leaves ] && ! wait_until 30 came_by tcp "$began" p d; then
            fail 'never came to flow on TCP'
            stat_both
            return
        fi
        back=yes
        if ! board_again; then
            figure "$name" "$began" no
            fail 'did not board again'
            stat_both
            return
        fi
        figure "$name" "$began" "$back"
    done
}

faulty_streams() {
    streams_start || return
    faulty "$@" || return
    streams_end
}

# One end is killed at some moment: the other one gets what did arrive and ECONNRESET, or, had the
# stream left before, an end after every byte.
killed() { # NAME HOST
    local name=$1 file=$work/server.out began

    streams_start || return
    sleep 0.$((RANDOM % 10))$((RANDOM % 10))
    began=$EPOCHREALTIME
    if [ "$2" = 1 ]; then
        file=$shared/streams.out
        kill -KILL "$here"
        wait_until 60 gone_there streams || { fail 'the other end does not notice'; return; }
        counts_here
    else
        signal_there streams KILL
        wait_until 60 gone "$here" || { fail 'this end does not notice'; return; }
        counts_there
    fi
    after_the_end "$name" "$file" "$began"
}
gone_there() { ! kill -0 "${far[$1]}" 2>/dev/null; }

# Host 2 is cut off for good. TCP's own time-out decides; net.ipv4.tcp_retries2 makes it short.
vanished() { # NAME
    local began

    sysctl -qw net.ipv4.tcp_retries2=5
    streams_start || return
    began=$EPOCHREALTIME
    link_down 2
    wait_until 150 gone "$here" || fail 'this end hangs'
    signal_there streams KILL
    link_up 2
    sysctl -qw net.ipv4.tcp_retries2=15
    [ -z "$why" ] || return
    counts_there
    after_the_end "$1" "$work/server.out" "$began"
}

after_the_end() { # NAME FILE TIME
    local took=$(((${EPOCHREALTIME/./} - ${3/./}) / 1000))

    wait "${far[streams]}"
    prefix_only "$2" "$work/written"
    streams_right
    echo "$1 pdu $took - - $(saw "$2")" >>"$figures"
}
