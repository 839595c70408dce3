#!/bin/bash
# tests/ab_test.sh - `railsock ab`, and what it stands on, `railsock run --report`. Real programs,
# few requests; what is checked is what is told, never how fast anything was.
# shellcheck disable=SC2016 # what stands in single quotes is for another shell
set -u

cd "$(dirname "$0")/.." || exit 1
alone=${1-}
if [ "$alone" != --alone ]; then
    # Ports, and what is in /dev/shm, are then ours alone.
    for user in '' r; do # sshd needs all users
        unshare -${user}nm mount -t tmpfs tmpfs /dev/shm 2>/dev/null &&
            exec unshare -${user}nm sh -c 'ip link set lo up && mount -t tmpfs tmpfs /dev/shm && exec "$0" --alone' "$0"
    done
fi
# shellcheck source=tests/wait.sh
. tests/wait.sh
build=${RAILSOCK_TEST_BUILD:-build}
railsock=$(readlink -f "$build/railsock")
python=/usr/bin/python3
dir=$(mktemp -d "${TMPDIR:-/tmp}/ab_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)

verdict() {
    # shellcheck disable=SC2319 # the caller's condition is what is asked; no $(...) in its words, it has a status
    if [ "$?" -eq 0 ]; then echo "ok ab.$1"; else echo "not ok ab.$1: $2"; fi
}

"$python" tests/ab/unit.py

# ---- run --report

kept() { [ "$alone" != --alone ] || find /dev/shm -maxdepth 1 -name 'railsock-keep.*'; }
talk() { timeout -k 1 60 "$railsock" run "$@" 2>&1; }

# Each byte is written once and read once, and the process has both ends.
out=$(talk --tcp --report=always -- "$python" tests/ab/talk.py PLAIN)
[ $? -eq 3 ] && [[ $out == *': 2 connections, 0 boarded a rail; 0.0 % of 20000 bytes went over it'* ]] &&
    [[ $out == *'2 on TCP, mode-tcp: '* ]]
verdict report_always "$out"
out=$(talk --tcp --report -- "$python" tests/ab/talk.py PLAIN)
[ $? -eq 3 ] && [ -z "$out" ]
verdict report_of_nothing_odd "$out"
out=$(talk --board never --report -- "$python" tests/ab/talk.py OOB) &&
    [[ $out == *'1 on TCP, oob: urgent data'* ]]
verdict report_of_something_odd "$out"
{ out=$(talk --tcp --report=always -- "$python" tests/ab/talk.py KILL); status=$?; } 2>/dev/null
[ $status -eq 137 ] && [[ $out == *'of 20000 bytes'* ]]
verdict report_of_the_killed "status $status: $out"
out=$(talk --tcp --report=always -- sh -c "'$python' tests/ab/talk.py PLAIN & '$python' tests/ab/talk.py PLAIN; wait")
[[ $out == *': 4 connections, 0 boarded a rail; 0.0 % of 40000 bytes'* ]]
verdict report_of_children "$out"
talk --tcp "--report=json:$dir/sums" -- "$python" tests/ab/talk.py OOB >/dev/null
out=$("$python" -c '
import json, sys
r = json.load(open(sys.argv[1]))
assert r["connections"] == 2 and r["bytes"] in (20000, 20001) and r["rail_bytes"] == 0, r
assert r["wall_s"] > 0 and r["cpu_s"] > 0 and 2e6 < r["peak_bytes"] < 1e9, r' "$dir/sums" 2>&1)
verdict report_json "$out"
# The layout of ipoib_fallback/pub.h: three connections, of which one ended before it boarded, and
# one as it began.
out=$(talk --tcp --report=always -- "$python" -c '
import os, struct
head = struct.pack("<QIIQQ64sII", 0x6B636F736C696172, 6, 1, 1, 0, b"shown", 0, 0) + bytes(16 * 8 + 8)
head += struct.pack("<7Q", 3, 1, 10, 20, 5, 6, 7) + struct.pack("<64Q", 1, 1, *bytes(62))
with open(os.environ["RAILSOCK_KEEP"] + "/1.0", "wb") as f:
    f.write(head + bytes(-len(head) % 64))')
[[ $out == *': 3 connections, 1 boarded a rail;'*'  1 on TCP, none: it ended before it boarded'$'\n'*'  1 on TCP, new: '* ]]
verdict report_of_what_ended_before "$out"
# One that is killed leaves its folder to the next; what is still in use is left alone.
cat >"$dir/stays.py" <<'PY'
import os, select
parent = os.pidfd_open(os.getppid())
print(os.environ["RAILSOCK_KEEP"], flush=True)
select.select([parent], [], [])
PY
for next in stat 'run --tcp --report -- true'; do
    says=$dir/folder.${next%% *} # one each: the program that went before may still have its own open
    mkfifo "$says"
    "$railsock" run --tcp --report=always -- "$python" "$dir/stays.py" >"$says" 2>/dev/null &
    pid=$!
    read -r folder <"$says"
    # shellcheck disable=SC2086 # words
    "$railsock" $next >/dev/null 2>&1
    [ -d "$folder" ]
    verdict "report_in_use_stays[${next%% *}]" "$folder"
    kill -KILL $pid
    wait $pid 2>/dev/null
    # shellcheck disable=SC2086 # words
    [ -d "$folder" ] && "$railsock" $next >/dev/null 2>&1
    [ -n "$folder" ] && [ ! -d "$folder" ]
    verdict "report_of_nobody_goes[${next%% *}]" "$folder"
done
# So does one with folders in it, and one as they were without an inner one.
for inside in 'mkdir "$RAILSOCK_KEEP/x"' ': >"${RAILSOCK_KEEP%/*}/1.0"' 'mkfifo "$RAILSOCK_KEEP/1.0"'; do
    mkfifo "$dir/killed"
    "$railsock" run --tcp --report=always -- sh -c "$inside"'; echo "$RAILSOCK_KEEP"; kill -KILL $PPID' >"$dir/killed" 2>/dev/null &
    read -r folder <"$dir/killed"
    wait $! 2>/dev/null
    rm "$dir/killed"
    [ -d "$folder" ] && "$railsock" stat >/dev/null 2>&1
    [ -n "$folder" ] && [ ! -d "${folder%/*}" ]
    verdict "report_of_nobody_goes[$inside]" "$folder"
done
out=$(talk --tcp --report=always -- sh -c 'mkdir "$RAILSOCK_KEEP/x"' ; kept); [[ $out != */dev/shm/* ]]
verdict report_removes_a_folder "$out"
# What root runs may become another user, whom the folder is open to; but only who was told its name
# finds it.
other=(setpriv --reuid 65432 --regid 65432 --clear-groups)
if [ "$(id -u)" -eq 0 ] && "${other[@]}" true 2>/dev/null; then
    # tests/run gives this script a folder that nobody else may enter.
    public=$(mktemp -d /tmp/ab_test.XXXXXX)
    chmod 755 "$public"
    cp tests/ab/talk.py "$build/librailsock.so" "$public"
    out=$(RAILSOCK_LIBRARY=$public/librailsock.so talk --tcp --report=always -- "${other[@]}" "$python" "$public/talk.py" PLAIN)
    rm -r "$public"
    [[ $out == *': 2 connections, '* ]]
    verdict report_of_another_user "$out"
    out=$(talk --tcp --report=always -- sh -c "${other[*]} sh -c 'ls /dev/shm/railsock-keep.*; mkdir \${RAILSOCK_KEEP%/*}/x' && echo seen")
    [[ $out == *'ermission denied'*'ermission denied'* && $out != *seen* ]]
    verdict report_is_not_found "$out"
else
    echo 'skip ab.report_of_another_user: needs root and setpriv'
fi
mkfifo "$dir/ready"
"$railsock" run --tcp --report=always -- "$python" tests/ab/talk.py SLEEP >"$dir/ready" 2>"$dir/said" &
pid=$!
read -r word <"$dir/ready" && kill -TERM $pid
wait $pid
status=$?
out=$(cat "$dir/said")
[ "$word" = ready ] && [ $status -eq 7 ] && [[ $out == *'20000 bytes'* ]]
verdict report_passes_signals_on "status $status: $out"
out=$(talk --report -- "$dir/none"); [ $? -eq 127 ] && [[ $out == *'No such file'* ]]
verdict report_not_found "$out"
out=$(talk --report=loud -- true); [ $? -eq 2 ] && [[ $out == *'expected always or json:FILE'* ]]
verdict report_refuses "$out"
# Its file is looked at first, and keeps what it has until the end; nothing of it is the program's.
for file in "$dir/none/sums" "$dir" ''; do
    out=$(talk --report=json:"$file" -- sh -c 'echo >>"$1"' sh "$dir/ran"); status=$?
    if [ -n "$file" ]; then
        [ $status -eq 125 ] && [[ $out == "railsock run: --report=json:$file: "* ]] && [ ! -e "$dir/ran" ]
    else
        [ $status -eq 2 ] && [ ! -e "$dir/ran" ]
    fi
    verdict "report_without_its_file[${file/#"$dir"/DIR}]" "status $status: $out"
    rm -f "$dir/ran"
done
for ends in 0 3; do
    out=$(talk --report=json:/dev/full -- sh -c "exit $ends"); status=$?
    [ $status -eq $((ends ? ends : 125)) ] && [ "$out" = 'railsock run: --report=json:/dev/full: No space left on device' ]
    verdict "report_to_a_full_disk[$ends]" "status $status: $out"
done
printf '%2000s' before >"$dir/file"
out=$(talk --report=json:"$dir/file" -- sh -c 'wc -c <"$1"; ls -l /proc/self/fd' sh "$dir/file") && [[ $out == 2000* && $out != *"$dir/file"* ]] &&
    grep -q '^{"wall_s":.*}$' "$dir/file"
verdict report_file_in_between "$out"
for how in 'rm "$1"' 'mv "$1" "$1.old"; echo >"$1.new"; mv "$1.new" "$1"; rm "$1.old"'; do
    out=$(talk --report=json:"$dir/file" -- sh -c "$how" sh "$dir/file") && grep -q '^{"wall_s":.*}$' "$dir/file"
    verdict "report_file_replaced[${how%% *}]" "$out"
done
out=$(cd "$dir" && talk --report=json:- -- echo first) && [[ $out == $'first\n{"wall_s":'*'}' ]] && [ ! -e "$dir/-" ]
verdict report_to_standard_output "$out"
for to in /dev/full '&-'; do
    out=$(cd "$dir" && eval "'$railsock' run --report=json:- -- true 2>&1 >$to"); status=$?
    [ $status -eq 125 ] && [[ $out == 'railsock run: --report=json:-: '* ]]
    verdict "report_to_a_standard_output_that_is[$to]" "status $status: $out"
done
mkfifo "$dir/fifo"
cat "$dir/fifo" >"$dir/got" &
talk --report=json:"$dir/fifo" -- sleep 0.1 && wait $! && grep -q '^{"wall_s":.*}$' "$dir/got"
verdict report_to_a_fifo "it got something else"
out=$(kept); [ -z "$out" ]
verdict report_leaves_nothing "$out"

# Where a process finds no room it is not shown, though it may be on a rail.
if unshare -m true 2>/dev/null; then
    for room in size=8k size=1m,nr_inodes=4; do
        why='/dev/shm is full'
        [ $room = size=8k ] || why='/dev/shm has no inodes left'
        out=$(unshare -m sh -c 'mount -t tmpfs -o "$1" none /dev/shm && shift && exec "$@"' sh $room \
            timeout -k 1 60 "$railsock" run --report=always -- "$python" tests/ab/talk.py PLAIN 2>&1)
        [[ $out == "railsock run: warning: $why: "*'saw, or none could be shown: '"$why" ]]
        verdict "report_without_room[$room]" "$out"
        out=$(unshare -m sh -c 'mount -t tmpfs -o "$1" none /dev/shm && shift && exec "$@"' sh $room \
            timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 -- "$python" tests/ab/talk.py OOB 2>&1)
        [[ $out == *"What went over a rail is not known: $why."* && $out != *'Nothing went over'* ]]
        verdict "ab_without_room[$room]" "$out"
    done
else
    echo 'skip ab.report_without_room: needs root'
fi
out=$(sh -c 'ulimit -f 100; exec "$@"' sh timeout -k 1 60 "$railsock" run --report=always -- "$python" tests/ab/talk.py PLAIN 2>&1)
[[ $out == *'none could be shown: a file size limit is too low (ulimit -f)' ]]
verdict report_with_a_file_size_limit "$out"
out=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["not_shown"])' "$dir/sums") && [ "$out" = None ]
verdict report_json_has_all "$out"

# ---- ab

cat >"$dir/check.py" <<'PY'
import json, sys
r = json.load(sys.stdin)
assert r["pairs"] == int(sys.argv[1]) and r["failures"] == [], r["failures"]
names = [m["name"] for m in r["metrics"]]
assert names == ["GET requests", "GET p50", "GET p99", "wall time", "CPU time", "peak memory",
                 "server's CPU time", "server's peak memory"], names
assert [m["better"] for m in r["metrics"]] == ["higher"] + ["lower"] * 7
for m in r["metrics"]:
    assert len(m["tcp"]) == len(m["rail"]) == r["pairs"] and m["verdict"] == "too few pairs", m
    assert all(v >= 0 for v in m["tcp"] + m["rail"]), m
assert r["share"]["tcp"] == [0.0] * r["pairs"], r["share"]
assert all(0 <= v <= 100 for v in r["share"]["rail"]), r["share"]
assert r["orders"] == [["tcp", "rail"], ["rail", "tcp"]][:r["pairs"]], r["orders"]
PY
redis=(redis-benchmark -h '{address}' -p '{port}' -n 1000 -c 2 -t get --csv)
server='redis-server --bind {address} --port {port} --save "" --loglevel warning'
out=$(timeout -k 1 100 "$railsock" ab -n 2 --warm-up 0 --json --server "$server" -- "${redis[@]}" 2>&1) &&
    out=$("$python" "$dir/check.py" 2 2>&1 <<<"$out")
verdict pairs_with_a_server "$out"
# Without a port named: any that the server's own processes listen on.
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 --metric '(\d+) answered' \
    --server "$python -m http.server --bind 127.0.0.1 18417" \
    -- sh -c 'curl -s http://127.0.0.1:18417/ >/dev/null && echo 1 answered' 2>&1) &&
    [[ $out != *failed* ]] && [[ $(tr -s ' ' <<<"$out") == *'answered 1.00 1.00'* ]]
verdict server_without_a_port "$out"
# What sshd does with a command: a shell runs its words, joined. And ssh may leave a connection for
# the next one.
printf '#!/bin/sh\n[ "$1" = far ] || exit 9\nshift\n[ -e %s ] || { setsid sleep 985 >/dev/null 2>&1 & echo $! >%s; }\nexec sh -c "$*"\n' \
    "$dir/master" "$dir/master" >"$dir/ssh"
chmod +x "$dir/ssh"
out=$(timeout -k 1 100 "$railsock" ab -n 1 --warm-up 0 --json --ssh "$dir/ssh" --server-host far --address 127.0.0.1 \
    --server-railsock "$railsock" --server "$server" -- "${redis[@]}" 2>&1) &&
    out=$("$python" "$dir/check.py" 1 2>&1 <<<"$out")
verdict server_on_another_host "$out"
kill "$(cat "$dir/master")"
verdict leaves_what_ssh_has_left "it is gone"
# The real one, with keys of its own.
if [ -x /usr/sbin/sshd ] && [ "$(id -u)" -eq 0 ]; then
    ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key" && ssh-keygen -q -t ed25519 -N '' -f "$dir/user_key"
    cat >"$dir/sshd_config" <<END
ListenAddress 127.0.0.1:18422
HostKey $dir/host_key
AuthorizedKeysFile $dir/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
END
    echo "[127.0.0.1]:18422 $(cut -d ' ' -f 1,2 "$dir/host_key.pub")" >"$dir/known_hosts"
    mkdir -p /run/sshd
    /usr/sbin/sshd -D -e -f "$dir/sshd_config" 2>"$dir/sshd.log" &
    sshd=$!
    serves 18422 $sshd
    out=$(timeout -k 1 100 "$railsock" ab -n 1 --warm-up 0 --json \
        --ssh "ssh -F none -p 18422 -i $dir/user_key -o UserKnownHostsFile=$dir/known_hosts -o BatchMode=yes" \
        --server-host 127.0.0.1 --address 127.0.0.1 --server-railsock "$railsock" --server "$server" -- "${redis[@]}" 2>&1) &&
        out=$("$python" "$dir/check.py" 1 2>&1 <<<"$out")
    verdict server_by_sshd "$out"
    kill "$sshd"
    wait "$sshd" 2>/dev/null
else
    echo 'skip ab.server_by_sshd: needs root and sshd'
fi
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 --ssh "$dir/ssh" --server-host near --port 9 --server true \
    -- true 2>&1)
[ $? -eq 1 ] && [[ $out == *'near: no answer'* ]]
verdict no_such_host "$out"
# The address is another one in the TCP leg.
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 --address 10.0.0.1 --address-tcp 10.9.0.1 \
    --metric 'at 10\.(?P<net>[0-9]+)' -- echo at '{address}' 2>&1)
[[ $out == *'TCP: railsock run --tcp -- echo at 10.9.0.1'* && $out == *'rail: railsock run -- echo at 10.0.0.1'* ]] &&
    [[ $(tr -s ' ' <<<"$out") == *'net 9.00 0.000'* ]]
verdict address_of_the_tcp_leg "$out"
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 --metric-lower 'took (?P<took>\d+)' -- echo took 12 2>&1) &&
    [[ $(tr -s ' ' <<<"$out") == *'took 12.0 12.0 1.00 - too few pairs'* ]] &&
    [[ $out == '1 pair, abba,'*'Nothing went over a rail'*'saw no TCP connection'* ]]
verdict own_metric "$out"
echo 'int main(void) { return 0; }' >"$dir/main.c"
if cc -static -o "$dir/static" "$dir/main.c" 2>/dev/null; then
    out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 -- "$dir/static" 2>&1) &&
        [[ $out == *'Nothing went over a rail'*"$dir/static is statically linked"* ]]
    verdict unreached_program "$out"
else
    echo 'skip ab.unreached_program: no static libc'
fi
out=$(timeout -k 1 60 "$railsock" ab -n 3 -- sh -c 'echo why; exit 5' 2>&1)
[ $? -eq 1 ] && [[ $out == *'warm-up 1, tcp: sh ended with 5: why'* ]]
verdict command_fails "$out"
out=$(timeout -k 1 60 "$railsock" ab -n 3 -- false 2>&1)
[ $? -eq 1 ] && [ "$(tail -n 2 <<<"$out")" = '1 run failed; its pair is not in the figures:
  warm-up 1, tcp: false ended with 1' ]
verdict command_fails_silently "$out"
out=$(timeout -k 1 60 "$railsock" ab -n 3 --server 'sh -c "echo no luck; exit 4"' -- true 2>&1)
[ $? -eq 1 ] && [[ $out == *'the server sh ended with 4: no luck'* ]]
verdict server_fails "$out"
# One that ends by itself, and well, has served; one that ends badly has not.
cat >"$dir/serves_one.py" <<'PY'
import socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
s.accept()[0].sendall(b"served")
sys.exit(int(sys.argv[2]))
PY
for ends in 0 3; do
    out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 --server "$python $dir/serves_one.py {port} $ends" -- bash -c '
        read -r word </dev/tcp/127.0.0.1/"$1"
        while grep -qsz "^$2/serves_one.py\$" /proc/[0-9]*/cmdline; do sleep 0.02; done' bash '{port}' "$dir" 2>&1)
    if [ $? -eq $((ends != 0)) ] && [ $ends = 0 ]; then
        [[ $out == *"server's CPU time"* && $out != *failed* ]]
    else
        [[ $out == *'the server python3 ended with 3'* ]]
    fi
    verdict "server_ends_by_itself[$ends]" "$out"
done
out=$(timeout -k 1 60 "$railsock" ab -n 1 -- sh -c 'seq 100000 100099; kill -KILL $$' 2>&1)
[ $? -eq 1 ] && [[ $out == *'tcp: sh was ended by signal 9 (SIGKILL): 1000'*$'\n100099' ]]
verdict ended_by_a_signal "$out"
# One that listens before the server does is not the server.
mkfifo "$dir/listens"
"$python" -c '
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
s.accept()' >"$dir/listens" &
pid=$!
read -r port <"$dir/listens"
out=$(timeout -k 1 60 "$railsock" ab -n 1 --port "$port" --server 'sleep 60' -- true 2>&1)
[ $? -eq 1 ] && [[ $out == *"warm-up 1, tcp: port $port: another process listens there already"* ]]
verdict port_is_taken "$out"
{ kill $pid; wait $pid; } 2>/dev/null
out=$(timeout -k 1 60 "$railsock" ab -n 1 --json -- sh -c 'echo >>"$1"' sh "$dir/ran" 2>&1 >&-); status=$?
[ $status -eq 1 ] && [ "$out" = 'railsock ab: standard output is closed' ] && [ ! -e "$dir/ran" ]
verdict closed_standard_output "status $status: $out"
rm -f "$dir/ran"
# A figure that is none costs its leg, and not the others.
out=$(timeout -k 1 60 "$railsock" ab -n 2 --warm-up 0 -- sh -c '
    n=$(cat "$1" 2>/dev/null || echo 0)
    echo $((n + 1)) >"$1"
    [ "$n" = 2 ] && echo "GET: 1.2.3 requests per second" || echo "GET: 17.00 requests per second"' sh "$dir/turns" 2>&1)
[ $? -eq 1 ] && [[ $(tr -s ' ' <<<"$out") == *'GET requests 1/s 17.0 17.0'*'pair 2/2, rail: a figure as of redis_text cannot be read'* ]]
verdict figure_that_is_none "$out"
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 -- cat tests/ab/iperf3.txt 2>&1) &&
    [[ $out == *'no figure that is known, so only what it took is compared; iperf3 needs --json, other programs --metric.'* ]]
verdict no_figure "$out"
out=$("$railsock" ab -n 1 redis-benchmark -p 7 2>&1)
[ $? -eq 2 ] && [[ $out == *'error: redis-benchmark is no option; CMD stands after --' ]]
verdict command_without_dashes "$out"
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 --json --metric 'x (\w+)' -- echo x nan 2>&1)
[ $? -eq 1 ] && "$python" -c 'import json, sys; json.loads(sys.argv[1], parse_constant=sys.exit)' "$out" &&
    [[ $out == *'x (\\w+) is nan, which is no number'* ]]
verdict figure_that_is_nan "$out"
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 -- sh -c 'echo "GET: 100.0 requests per second"
    echo "GET: 200.0 requests per second"; echo >>"$1"; [ "$(wc -l <"$1")" = 1 ] || echo "SET: 5 requests per second"' sh "$dir/once" 2>&1) &&
    [[ $(tr -s ' ' <<<"$out") == *'GET requests 1/s 100 100 '*'GET requests #2 1/s 200 200 '*'some legs only, and left out: SET requests.'* ]]
verdict figures_of_one_name "$out"
# Under nohup.
out=$(timeout -k 1 60 sh -c 'trap "" HUP; echo $$ >"$1"; exec "$2" ab -n 1 --warm-up 0 -- sh -c "kill -HUP \$(cat \"$1\")"' \
    sh "$dir/pid" "$railsock" 2>&1) && [[ $out == *'wall time'* ]]
verdict ignores_what_it_was_started_to "$out"
out=$(timeout -k 1 60 sh -c 'echo $$ >"$1"; exec "$2" ab -n 1 --warm-up 0 -- sh -c "kill -HUP \$(cat \"$1\"); exec sleep 60"' \
    sh "$dir/pid" "$railsock" 2>&1)
[ $? -eq 129 ]
verdict ends_by_a_signal "$out"
# What was measured until the terminal's key is shown, with what it is of.
out=$(timeout -k 1 60 env --default-signal=INT sh -c 'echo $$ >"$1"; exec "$2" ab -n 9 --warm-up 0 -- \
    sh -c "echo >>\"$3\"; [ \$(wc -l <\"$3\") -lt 6 ] || { kill -INT \$(cat \"$1\"); exec sleep 60; }"' sh "$dir/pid" "$railsock" "$dir/until" 2>&1)
[ $? -eq 130 ] && [[ $out == '2 pairs, abba,'*'wall time '*$'\n''Interrupted: of 9 pairs only these are compared.'* ]]
verdict interrupted "$out"
out=$(timeout -k 1 60 env --default-signal=INT sh -c 'echo $$ >"$1"; exec "$2" ab -n 9 -- sh -c "kill -INT \$(cat \"$1\"); exec sleep 60"' \
    sh "$dir/pid" "$railsock" 2>&1)
[ $? -eq 130 ] && [ -z "$out" ]
verdict interrupted_before_a_pair "$out"
# A second time, while what does not listen is about to be killed.
timeout -k 1 60 env --default-signal=INT sh -c 'echo $$ >"$1/pid"; exec "$2" ab -n 1 --warm-up 0 -- \
    sh -c "trap \": >\\\"\$1/asked\\\"\" TERM; echo \$\$ \$PPID >\"\$1/stubborn\"; while :; do sleep 0.1; done" sh "$1"' sh "$dir" "$railsock" >/dev/null 2>&1 &
pid=$!
wait_until 20 test -s "$dir/stubborn"
kill -INT "$(cat "$dir/pid")"
wait_until 20 test -e "$dir/asked"
kill -INT "$(cat "$dir/pid")"
wait $pid; status=$?
# shellcheck disable=SC2046 # two
! kill -KILL $(cat "$dir/stubborn") 2>/dev/null && [ $status -eq 130 ]
verdict interrupted_twice "status $status, or something is left"
# Whatever ends it, and however late, its server goes too.
none_serves() { ! listening 18418; }
for signal in QUIT KILL; do
    out=$({ timeout -k 1 60 sh -c 'echo $$ >"$1"; exec "$2" ab -n 1 --warm-up 0 --port 18418 --server "$3 -m http.server --bind 127.0.0.1 18418" \
        -- sh -c "kill -$4 \$(cat \"$1\"); exec sleep 60"' sh "$dir/pid" "$railsock" "$python" $signal; } 2>&1)
    wait_until 20 none_serves
    verdict "leaves_no_server[$signal]" "$out"
done
none_sleeps() { ! grep -qsz "^${1-987}\$" /proc/[0-9]*/cmdline; }
# What goes into the background too, in a session of its own; but not what somebody else has there.
sleep 984 &
pid=$!
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 -- sh -c 'setsid sleep "$1" & exit 0' sh 9$$ 2>&1) && none_sleeps 9$$ && kill -0 $pid
verdict leaves_no_background "$out"
{ kill $pid; wait $pid; } 2>/dev/null
# It can be waited for by its number, as by init.
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 --timeout 20 -- \
    sh -c 'pid=$(setsid sleep 0.1 >/dev/null & echo $!); while kill -0 $pid; do sleep 0.02; done 2>/dev/null' 2>&1)
verdict background_ends "$out"
out=$(timeout -k 1 60 "$railsock" ab -n 1 --port 18420 \
    --server "redis-server --bind 127.0.0.1 --port 18420 --save '' --dir $dir --pidfile $dir/redis.pid --daemonize yes" -- sleep 1 2>&1)
[ $? -eq 1 ] && [[ $out == *'the server redis-server ended with 0, and what it has started goes on; '*'in the foreground'* ]] &&
    ! listening 18420
verdict server_in_the_background "$out"
# Also one that is ready before that shows.
out=$(timeout -k 1 60 "$railsock" ab -n 1 --port 18419 --server "sh -c 'setsid $python -m http.server --bind 127.0.0.1 18419 & sleep 0.7'" \
    -- sleep 1 2>&1)
[ $? -eq 1 ] && [[ $out == *'the server sh ended with 0, and what it has started goes on; '* ]] && ! listening 18419
verdict server_in_the_background_late "$out"
out=$(timeout -k 1 60 "$railsock" ab -n 1 --timeout 0.2 -- sh -c 'sleep 987 & sleep 987' 2>&1)
[ $? -eq 1 ] && [[ $out == *'sh still ran after 0.2 s'* ]] && wait_until 5 none_sleeps
verdict time_limit_leaves_nothing "$out"
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 --html "$dir/report.html" -- true 2>&1)
if command -v gnuplot >/dev/null; then
    [ "$(grep -c '</svg>' "$dir/report.html")" -ge 3 ] && [[ $(tail -n 1 "$dir/report.html") == '</body></html>' ]]
    verdict html "$out"
else
    [ ! -e "$dir/report.html" ] && [[ $out == *'--html needs gnuplot'* ]]
    verdict html_without_gnuplot "$out"
fi
# Words that are no UTF-8.
bytes=$(printf '\xff\xe4')
plots=()
command -v gnuplot >/dev/null && plots=(--html "$dir/bytes.html")
out=$(PYTHONIOENCODING=utf-8:strict timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 "${plots[@]}" --metric "(?:$bytes|)(?:x )(.)" \
    -- echo "x 1$bytes" 2>&1) && [[ $out == *'x 1\udcff\udce4'* && $out != *Traceback* ]] &&
    { [ ${#plots[@]} = 0 ] || { grep -q 'x 1.udcff.udce4' "$dir/bytes.html" && [[ $(tail -n 1 "$dir/bytes.html") == '</body></html>' ]]; }; }
verdict words_that_are_no_text "$out"
for file in "$dir/none/report.html" "$dir"; do
    out=$(timeout -k 1 60 "$railsock" ab -n 1 --html "$file" -- sh -c 'echo >>"$1"' sh "$dir/ran" 2>&1)
    status=$?
    if command -v gnuplot >/dev/null; then
        [ $status -eq 1 ] && [ ! -e "$dir/ran" ] && [[ $out == "railsock ab: $file: "* && $out != *Errno* ]]
        verdict "html_not_there[${file#"$dir"}]" "$out"
    fi
done
# tools/measure stands on the same parts.
mkdir "$dir/a b"
cp "$build/librailsock.so" "$railsock" "$dir/a b"
out=$(TMPDIR="$dir/a b" RAILSOCK_TEST_BUILD="$dir/a b" timeout -k 1 60 tools/measure --pairs 1 --slow --slow --out "$dir/figures" redis-1 2>&1) &&
    [ "$(grep -c '"errors": \[\]' "$dir/figures")" = 1 ] && ! compgen -G "$dir/a b/measure.*" >/dev/null
verdict measure_in_a_folder_with_a_blank "$out"
cp /bin/false "$dir/a b/railsock"
out=$(RAILSOCK_TEST_BUILD="$dir/a b" timeout -k 1 60 tools/measure --pairs 1 redis-1 2>&1)
[ $? -eq 1 ] && [ "$out" = 'measure: railsock run ended with 1' ]
verdict measure_without_railsock "$out"
for mode in tcp bogus; do
    out=$(RAILSOCK_MODE=$mode timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 -- true 2>&1)
    [ $? -eq 2 ] && [[ $out == *"RAILSOCK_MODE=$mode is set"* ]]
    verdict "refuses_tcp_in_both[$mode]" "$out"
done
# The port of a server that has it in a file, say.
out=$(timeout -k 1 60 "$railsock" ab -n 1 --warm-up 0 --port 18417 --metric '(\d+) answered' \
    --server "$python -m http.server --bind 127.0.0.1 18417" \
    -- sh -c 'curl -s "http://127.0.0.1:$1/" >/dev/null && echo 1 answered' sh '{port}' 2>&1) &&
    [[ $(tr -s ' ' <<<"$out") == *'answered 1.00 1.00'* ]]
verdict port_of_the_command_alone "$out"
# Its script: the folder is named and wrong, or not named and not where the command looks.
out=$(RAILSOCK_SHARE=$dir/none "$railsock" ab -- true 2>&1)
[ $? -eq 125 ] && [[ $out == "railsock ab: $dir/none/ab: No such file or directory; RAILSOCK_SHARE is set, but not to "* ]]
verdict share_is_wrong "$out"
mkdir "$dir/bin" && cp "$build/railsock" "$dir/bin"
out=$("$dir/bin/railsock" ab -- true 2>&1)
[ $? -eq 125 ] && [[ $out == 'railsock ab: its script ab is not found; set RAILSOCK_SHARE to its folder' ]]
verdict share_is_needed "$out"
for wrong in '' '-n 0 -- true' '-n x -- true' '--what -- true' '--metric ( -- true' '--metric no_group -- true' \
    '--server-host h -- true' '--server-host h --server x -- true' '--address-tcp 10.1.1.1 -- true' \
    '-- prog {port}' '--order baab -- true' '--port 99999999 -- true' '--port 0 -- true' '--timeout -1 -- true' \
    '--timeout nan -- true' '--warm-up -1 -- true' \
    '--metric a(.) --metric a(.) -- true' '--metric (?P<x>.) --metric-lower y(?P<x>.) -- true'; do
    # shellcheck disable=SC2086 # words
    out=$("$railsock" ab $wrong 2>&1)
    [ $? -eq 2 ] && [[ $out == *'railsock ab: error: '* ]]
    verdict "refuses[$wrong]" "$out"
done
out=$(kept); [ -z "$out" ]
verdict leaves_nothing "$out"
