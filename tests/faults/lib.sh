# shellcheck shell=bash
#
# tests/faults/lib.sh - how faults are made between two lab hosts, and how programs are found to be
# on a rail. Sourced on host 1 after tests/apps/lib.sh, by faults/run and faults_lab_test.sh.
#
# Each fault takes the number of the host at which it happens. None of them waits. stand_by comes
# before all others.

# on_host HOST COMMAND...: here or there. Goes by the control channel, so it works without a
# network.
on_host() {
    local host=$1

    shift
    if [ "$host" = 1 ]; then "$@"; else on "$host" "$@"; fi
}

# ---- faults

rdma_off() { on_host "$1" timeout 60 rdma link delete rxe0; }
rdma_on() { on_host "$1" rdma link add rxe0 type rxe netdev eth0; }

# The first filter makes the kernel patch ip_local_deliver, and so does the end of the last. QEMU
# 7.2 can keep a translation of it that was made just then: who comes there, in the middle of
# packets, goes no further until it is patched again. So both hosts have one from before there are
# packets.
stand_by() {
    local host

    for host in 1 2; do
        on_host $host nft 'add table ip t; add chain ip t c { type filter hook input priority 0; }' || return
    done
}

# Every RDMA packet to this host is lost, in silence.
drop_on() { on_host "$1" nft 'add rule ip t c udp dport 4791 drop'; }
drop_off() { on_host "$1" nft flush chain ip t c; }

# Those that are larger than what a set-up has, as where the one end's frames are larger than what
# there is between them.
large_on() { on_host "$1" nft 'add rule ip t c udp dport 4791 meta length > 700 drop'; }

# RDMA packets from this host meet NETEM, all others pass: a class of its own, chosen by the port.
netem_on() { # HOST NETEM...
    local host=$1

    shift
    on_host "$host" sh -c "tc qdisc add dev eth0 root handle 1: prio bands 4 &&
        tc qdisc add dev eth0 parent 1:4 handle 4: netem limit 10000 $* &&
        tc filter add dev eth0 parent 1: protocol ip u32 match ip protocol 17 0xff \
            match ip dport 4791 0xffff flowid 1:4"
}
netem_off() { on_host "$1" tc qdisc delete dev eth0 root; }
loss_1_on() { netem_on "$1" loss 1%; }
loss_10_on() { netem_on "$1" loss 10%; }
reorder_on() { netem_on "$1" delay 2ms reorder 75% 50%; }

# The address stays, IPv4's at least; established connections live on by retransmission.
link_down() { on_host "$1" ip link set eth0 down; }
link_up() { on_host "$1" ip link set eth0 up; }

# Whether nobody can set up an RDMA connection any more, asked without the library. rxe's queue pair
# for connection management goes into an error state when a message of it finds no route, as a
# request that is repeated while the link is down. The kernel (6.1) sets only its sending half right
# again: from then on that device hears nobody, until it is deleted and added.
deaf() {
    local server client

    timeout 30 ib_send_lat -R -d rxe0 -n 5 -p 18799 >/dev/null 2>&1 &
    server=$!
    wait_until 10 hears_18799 || { fail 'ib_send_lat does not listen'; return 1; }
    on 2 sh -c "timeout 15 ib_send_lat -R -d rxe0 -n 5 -p 18799 $LAB_IP_1 >/dev/null 2>&1"
    client=$?
    kill $server 2>/dev/null
    wait $server
    [ $client -ne 0 ]
}
# After that: both hosts get a new one.
new_devices() {
    local host

    for host in 1 2; do
        { rdma_off $host && rdma_on $host; } || { fail "no new device on host $host"; return 1; }
    done
    echo '# rxe heard nobody any more, ib_send_lat neither: made anew'
}
hears_18799() { rdma resource show cm_id | grep -q 'LISTEN.*:18799'; }

# ---- what a program is on

# What the open connections of this host's programs go over: "verbs", "tcp", or both.
paths() {
    "$railsock" stat --json | "${own_python[@]}" -c '
import collections, json, sys
stat = json.load(sys.stdin)
paths = collections.Counter(c["path"].partition(":")[0] for p in stat["processes"] for c in p["connections"])
print(" ".join(sorted(paths)))'
}

all_on() { [ "$(paths)" = "$1" ]; }
some_on() { [[ " $(paths) " == *" $1 "* ]]; }

# ---- checked streams: stream.c measures on this host, its other end is on host 2

# there NAME COMMAND...: starts it on host 2 with the library. Its number is in $shared/NAME.pid,
# its output in $shared/NAME.out and .err; its end can be waited for as ${far[NAME]}.
declare -A far
there() {
    local name=$1

    shift
    rm -f "$shared/$name".*
    launch "$CLIENT"
    # shellcheck disable=SC2016 # for the other shell
    on 2 "$apps/to_files" "$shared/$name.out" "$shared/$name.err" timeout -k 2 900 \
        sh -c 'echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@"' "$shared/$name.pid" \
        "${prefix[@]}" "$@" &
    far[$name]=$!
}
signal_there() { on 2 kill "-$2" "$(cat "$shared/$1.pid")"; } # NAME SIGNAL

# Since TIME, have bytes of each KIND come by WAY? With `last` for a time: was that the last way?
# Asked often, and starting a program is slow on these hosts: so in the shell itself.
came_by() { # WAY TIME|last KIND...
    local way=$1 since=$2 what kind time value
    local -A came=()

    shift 2
    while read -r what kind time value; do
        [ "$what" = track ] || continue
        if [ "$since" = last ]; then
            came[$kind]=$value
        elif [ "$value" = "$way" ] && [ "${time/./}" -ge "${since/./}" ]; then
            came[$kind]=$value
        fi
    done <"$work/server.out"
    for kind in "$@"; do [ "${came[$kind]-}" = "$way" ] || return 1; done
}

# Starts the streams and waits until what can be seen of them here has boarded (`tcp`: has begun).
streams_start() {
    local way=rail

    [ "$MODE" != tcp ] || way=tcp
    free_port
    server env STREAM_COUNTS="$work/counts" "$stream" "$port" pdu || return
    here=${servers[-1]}
    there streams env STREAM_COUNTS=/tmp/counts "$stream" "$port" pdu "$ip"
    wait_until 60 came_by $way last p d || fail "nothing has boarded: $(paths)"
}

# What the `end` lines of FILE say, in short: "ECONNRESET", "ETIMEDOUT eof".
saw() { awk '$1 == "end" { print $5 }' "$1" | sort -u | paste -sd ' '; }

# Nobody has seen a wrong byte. (A process that was killed may have been about to.)
streams_right() {
    ! grep -h '^wrong' "$work/server.out" "$shared/streams.out" >"$work/wrong" ||
        fail "wrong bytes: $(head -n 1 "$work/wrong")"
    ! grep -h 'railsock.* error:' "$work/server.err" "$shared/streams.err" >"$work/errors" ||
        fail "$(head -n 1 "$work/errors")"
}

# The orderly end: every byte has been read that was written.
streams_end() {
    kill -TERM "$here"
    wait_until 60 gone "$here" || fail 'a stream hangs'
    wait "${far[streams]}" || fail "the other end ended with $?: $(tail -n 1 "$shared/streams.err")"
    streams_right
    [ "$(cat "$work/server.out" "$shared/streams.out" | grep -c '^end .* ok ')" = 6 ] ||
        fail "the streams saw: here $(saw "$work/server.out"), there $(saw "$shared/streams.out")"
}

# After one end was killed or cut off: FILE is what the survivor said, COUNTS what the other end had
# written when it ended. What was read is a prefix of that, and all of it if it ended like a whole
# stream.
prefix_only() { # FILE COUNTS
    awk -v counts="$(tr -s ' \n' ' ' <"$2")" '
        BEGIN { split(counts, c, " "); at["p"] = 1; at["d"] = 2; at["u"] = 3 }
        $1 == "end" && $2 in at {
            n++
            written = c[at[$2]]
            # What a call had taken that did not return is not counted yet.
            if ($3 > written + 8192) print $2 ": " $3 " bytes read, " written " written"
            if ($5 == "eof" && $3 < written)
                print $2 ": ends like a whole stream after " $3 " of " written " bytes"
        }
        END { if (n != 3) print n + 0 " of 3 streams have ended" }' "$1" >"$work/prefix"
    [ ! -s "$work/prefix" ] || fail "$(head -n 1 "$work/prefix")"
}
counts_here() { od -An -v -w8 -t u8 "$work/counts" >"$work/written"; }
counts_there() {
    on 2 sh -c "od -An -v -w8 -t u8 /tmp/counts >$shared/written" && cp "$shared/written" "$work/written"
}
