# shellcheck shell=bash
#
# tests/apps/cases.sh - the cases: one unmodified program each, the bytes checked. Sourced by
# driver.sh, after lib.sh, whose head says what a case is. Amounts are chosen so that a case
# takes about a second natively; $scale divides them on a translated machine.
#
# shellcheck disable=SC2016 # single quotes are for the client's shell
# shellcheck disable=SC2154,SC2034 # variables from and for lib.sh

# ---- how much

amount() { if [ "$scale" -eq 1 ]; then echo "$1"; else echo "$2"; fi; } # NATIVE TRANSLATED

# until_boarded AMOUNTS FUNCTION WORDS...: FUNCTION AMOUNT WORDS..., with the next amount where that
# was too little for a boarding, which a translated machine may need long for.
until_boarded() {
    local much

    for much in $1; do
        "$2" "$much" "${@:3}" || return
        ! wants_rail || some_by_rail || continue
        return 0
    done
}

# ---- redis

redis_server() {
    server redis-server --bind "$ip" --port "$port" --protected-mode no --save '' \
        --appendonly no --dir "$work" --daemonize no
}

redis_benchmark() { # REQUESTS OPTION...
    redis_server || return
    redis_requests "$@"
}

# redis-benchmark ends with 0 even when it was answered with errors, which it prints.
redis_requests() { # REQUESTS OPTION...
    client redis-benchmark -h "$ip" -p "$port" --csv -n "$@" -t set,get || return
    ! grep -qiE 'error|refused|reset' "$out" "$err" || fail "redis-benchmark: $(grep -iE 'error|refused|reset' "$out" "$err" | head -n 1)"
    grep -qE '^"GET","[0-9.]+"' "$out" || fail "no result: $(tail -n 1 "$out")"
}

# One client waits for each answer, which takes long there.
redis_1() {
    [ "$scale" -gt 1 ] || { redis_benchmark 20000 -c 1; return; }
    redis_server || return
    until_boarded '500 4000' redis_requests -c 1
}
redis_50() { redis_benchmark "$(amount 60000 2000)" -c 50; }
redis_pipeline() { redis_benchmark "${1:-$((200000 / scale))}" -c 50 -P 16; }

# The server forks, again and again, while its clients go on.
redis_bgsave() {
    local requests

    requests=$(amount 100000 7000)
    redis_server || return
    client_sh '
        . tests/wait.sh
        info() { redis-cli -h '"$ip"' -p '"$port"' info | tr -d "\r" | sed -n "s/^$1://p"; }
        more() { ended $load || { now=$(info total_commands_processed) && [ "$now" -gt $((seen + 1000)) ]; }; }
        saved() { [ "$(info rdb_bgsave_in_progress)" = 0 ]; }
        $RUN redis-benchmark -h '"$ip"' -p '"$port"' --csv -c 20 -n '"$requests"' -t get &
        load=$!
        for i in 1 2 3; do
            seen=$(info total_commands_processed)
            wait_until 30 more && wait_until 30 saved || exit 11
            redis-cli -h '"$ip"' -p '"$port"' bgsave >/dev/null || exit 10
        done
        wait $load' || return
    wait_until 10 test -s "$work/dump.rdb" || fail 'nothing was saved'
    grep -qE '^"GET","[0-9.]+"' "$out" || fail "no result: $(tail -n 1 "$out")"
}
redis_large() { redis_benchmark $((2000 / scale)) -c 8 -d 100000; }

# Binary values there and back, byte for byte; a long answer; many commands in one stream.
redis_cli() {
    redis_server || return
    client_sh '
        cli() { $RUN redis-cli -h '"$ip"' -p '"$port"' "$@"; }
        for size in '"$(amount '1 1000 100000 10000000' 1000000)"'; do
            head -c $size '"$data_part"' | cli -x set key$size >/dev/null || exit 10
            cli --raw get key$size | head -c -1 | cmp - <(head -c $size '"$data_part"') || exit 11
        done
        seq '$((20000 / scale))' | sed "s/.*/RPUSH list &/" | cli >/dev/null || exit 12
        cli --raw lrange list 0 -1 | cmp - <(seq '$((20000 / scale))') || exit 13'
}

# ---- memcached

memcached_values() {
    server memcached -u root -l "$ip" -p "$port" -U 0 -t 4 -m 256 || return
    client "${own_python[@]}" "$apps/memcached_client.py" "$ip" "$port" 8 $((200 / scale + 20)) ||
        fail "$(cat "$out")"
}

# ---- nginx

nginx_server() { # DAEMON SENDFILE
    mkdir -p "$work/tmp" "$work/www"
    ln -s "$data" "$work/www/big"
    head -c 3000 "$data" >"$work/www/small"
    cat >"$work/nginx.conf" <<END
worker_processes 2;
daemon $1;
pid $work/nginx.pid;
error_log $work/server.err;
user root;
events { worker_connections 512; }
http {
    access_log off;
    sendfile $2;
    tcp_nopush off;
    keepalive_requests 1000000;
    client_body_temp_path $work/tmp/a;
    proxy_temp_path $work/tmp/b;
    fastcgi_temp_path $work/tmp/c;
    uwsgi_temp_path $work/tmp/d;
    scgi_temp_path $work/tmp/e;
    server {
        listen $ip:$port;
        root $work/www;
    }
}
END
    nginx_start "$1"
}

nginx_start() {
    if [ "$1" = off ]; then
        server nginx -e "$work/server.err" -p "$work" -c "$work/nginx.conf"
        return
    fi
    launch "$SERVER"
    "${prefix[@]}" nginx -e "$work/server.err" -p "$work" -c "$work/nginx.conf" \
        >"$work/server.out" 2>&1 || { fail "nginx: $(tail -n 1 "$work/server.err")"; return; }
    wait_until 10 test -s "$work/nginx.pid" || { fail 'nginx wrote no pid file'; return; }
    servers=("$(cat "$work/nginx.pid")")
    wait_until 10 listening "$port" || fail 'nginx does not listen'
}

# The big file several times on one connection, between small ones.
nginx_files() { # DAEMON SENDFILE TIMES
    nginx_server "$1" "$2" || return
    client_sh '
        url=http://'"$ip:$port"' big= all=
        for ((i = 0; i < '"$3"'; i++)); do
            big+=" $url/small $url/big"
            all+=" <(head -c 3000 '"$data"') '"$data"'"
        done
        $RUN curl -sS --fail $big | cmp - <(eval cat $all)' || fail "$(tail -n 1 "$err")"
}

nginx_wrk() {
    local seconds=1

    [ -z "${LAB_HOST-}" ] || seconds=6 # until it has rails there
    nginx_server off on || return
    client wrk -t 2 -c 16 -d ${seconds}s "http://$ip:$port/small" || return
    grep -q 'Requests/sec: *[1-9]' "$out" || fail "wrk: $(tail -n 3 "$out" | tr '\n' ' ')"
    ! grep -E 'Socket errors|Non-2xx' "$out" >&2 || fail "wrk: $(grep -E 'Socket errors|Non-2xx' "$out")"
}

# ---- what runs for so many seconds

# for_longer FUNCTION WORDS...: FUNCTION SECONDS WORDS..., on a translated machine with more of them
# until something boards.
for_longer() {
    [ "$scale" -gt 1 ] || { "$1" 1 "${@:2}"; return; }
    until_boarded '4 20 100' "$@"
}

# ---- iperf3

# What was sent has arrived, all but what is under way when the time is up.
iperf3_run() {
    server iperf3 -s -B "$ip" -p "$port" || return
    for_longer iperf3_client "$@"
}

iperf3_client() { # SECONDS OPTION...
    client iperf3 -c "$ip" -p "$port" -t "$1" -J "${@:2}" || { fail "iperf3: $(grep error "$out")"; return; }
    "${own_python[@]}" - "$out" <<'END' || fail 'iperf3: what was received is not what was sent'
import json, sys
r = json.load(open(sys.argv[1]))
assert "error" not in r, r["error"]
for suffix in ("", "_bidir_reverse"):
    if "sum_sent" + suffix in r["end"]:
        sent, received = (r["end"][s + suffix]["bytes"] for s in ("sum_sent", "sum_received"))
        assert 0 < received <= sent and sent - received < max(sent / 2, 64 << 20), (sent, received)
END
}

# ---- sockperf

# By default it has room for 600,000 messages a second only, and gives up when there are more.
sockperf_pingpong() {
    server sockperf server --tcp -i "$ip" -p "$port" || return
    for_longer sockperf_client
}

sockperf_client() { # SECONDS
    local rate=()

    [ "$scale" -gt 1 ] || rate=(--mps=5000000)
    client sockperf ping-pong --tcp -i "$ip" -p "$port" -m 64 -t "$1" \
        --data-integrity "${rate[@]}" || { fail "$(grep -i error "$out")"; return; }
    grep -q 'Summary: Latency is' "$out" || fail "no result: $(tail -n 1 "$out")"
    grep -q '# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0' "$out" ||
        fail "$(grep dropped "$out")"
}

# ---- python

python_echo() { # asyncio|threads CONNECTIONS
    server "${own_python[@]}" "$apps/echo_server.py" "$1" "$ip" "$port" || return
    client "${own_python[@]}" "$apps/echo_client.py" "$ip" "$port" "$2" $((100 / scale + 20)) \
        $(((8 << 20) / scale)) || fail "$(head -n 2 "$out")"
}

# ---- curl

curl_upload() {
    server "${own_python[@]}" "$apps/http_sink.py" "$ip" "$port" || return
    client_sh '
        url=http://'"$ip:$port"'/
        # Slowly first: a busy machine may have taken all before the connection has boarded.
        $RUN curl -sS --fail --limit-rate 64M --data-binary @'"$data_part"' $url --next \
            -sS --fail --data-binary @'"$data_part"' $url --next -sS --fail $url |
            cmp - <(cat '"$data_part $data_part"'; echo 2)' || fail "$(tail -n 1 "$err")"
}

# ---- nc

size_is() {
    [ "$(stat -c %s "$1")" -ge "$2" ]
}

# With -k the server outlives the connection, so that it can be asked. A listening nc closes as
# soon as its peer has ended its direction, so the client does that only when it has everything.
nc_files() { # ANSWER SENT: how many bytes the server sends, and the client
    head -c "$1" "$data" >"$work/answer"
    server_in=$work/answer
    server nc -lkN "$ip" "$port" || return
    client_sh '
        got=$(mktemp) || exit 1
        trap "rm -f $got" EXIT
        {
            head -c '"$2 $data"'
            for ((i = 0; i < 400; i++)); do
                [ $(stat -c %s $got) -lt '"$1"' ] || break
                sleep '"$(amount 0.05 0.3)"'
            done
        } | $RUN nc -N '"$ip $port"' >$got
        cmp $got <(head -c '"$1 $data"')' || fail "to the client: $(tail -n 1 "$err")"
    wait_until 10 size_is "$work/server.out" "$2"
    cmp "$work/server.out" <(head -c "$2" "$data") >&2 || fail 'to the server: bytes differ'
}

# ---- all

# Natively all of them; between virtual hosts, where each takes ten times as long, only with
# APPS_ALL=1 those that another one is close to.
and_more() { [ "$scale" -eq 1 ] || [ -n "${APPS_ALL-}" ]; }

all_cases() {
    # Many short connections, or one that sends all that it has, may be over before a translated
    # machine has made their queue pairs. On one connection. Once it had sent three files of 64 MiB
    # before it was on the rail.
    local times=8 answer=67108864 many=10 once=1

    [ "$scale" -eq 1 ] || times=1 answer=16777216 many=any once=any
    if need redis redis-benchmark; then
        and_more && BOARD=eager run_case redis_1_client_eager 10 redis_1
        run_case redis_1_client 10 redis_1
        and_more && run_case redis_50_clients "$many" redis_50
        and_more && run_case redis_pipeline_16 "$many" redis_pipeline
        and_more && run_case redis_100_kb "$many" redis_large
        and_more && run_case redis_cli 1 redis_cli
        run_case redis_bgsave 50 redis_bgsave
    fi
    if need memcached memcached; then
        run_case memcached "$many" memcached_values
    fi
    if need nginx nginx; then
        run_case nginx_64_mib 10 nginx_files off on "$times"
        and_more && run_case nginx_daemon 10 nginx_files on off "$times"
        run_case nginx_wrk "$many" nginx_wrk
    fi
    if need iperf3 iperf3; then
        and_more && run_case iperf3 10 iperf3_run
        and_more && run_case iperf3_reverse 10 iperf3_run -R
        run_case iperf3_both_ways 10 iperf3_run --bidir
        and_more && run_case iperf3_8_streams 10 iperf3_run -P 8
    fi
    if need sockperf sockperf; then
        and_more && run_case sockperf 10 sockperf_pingpong
    fi
    and_more && run_case python_asyncio "$many" python_echo asyncio 4
    and_more && run_case python_threads "$many" python_echo threads 4
    BOARD=eager run_case python_asyncio_eager "$many" python_echo asyncio 8
    if and_more && need curl curl; then
        run_case curl_upload 10 curl_upload
    fi
    if need nc nc; then
        # A listening nc without input ends its direction at once: such a stream stays on TCP.
        and_more && run_case nc_one_way 0 nc_files 0 16777216
        and_more && run_case nc_both_ways "$once" nc_files "$answer" 16777216
    fi
}

# The smaller set with the library on one side only: plain TCP, no byte more or less.
one_sided_cases() {
    local part

    part=$(amount 16777216 4194304)
    run_case redis 0 redis_pipeline "$(amount 200000 5000)"
    and_more && run_case redis_cli 0 redis_cli
    and_more && run_case python_asyncio 0 python_echo asyncio 4
    and_more || return 0
    run_case nc_both_ways 0 nc_files "$part" "$part"
    run_case memcached 0 memcached_values
    run_case nginx_64_mib 0 nginx_files off on 1
    run_case nginx_wrk 0 nginx_wrk
    run_case iperf3 0 iperf3_run
    run_case iperf3_reverse 0 iperf3_run -R
    run_case sockperf 0 sockperf_pingpong
    run_case python_threads 0 python_echo threads 4
    run_case curl_upload 0 curl_upload
}
