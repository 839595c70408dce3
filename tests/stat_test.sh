#!/bin/bash
# tests/stat_test.sh - `railsock stat` on /dev/shm: a file made here for a process made here.
# What it does with broken files is in tests/unit/stat_test.c.
set -u

cd "$(dirname "$0")/.." || exit 1
railsock=$(realpath "${RAILSOCK_TEST_BUILD:-build}")/railsock
folder=/dev/shm/railsock-$(id -u)
made=''
sleeper=''
scratch=$(mktemp -d "${TMPDIR:-/tmp}/stat_test.XXXXXX") || exit 1
[ -x "$railsock" ] || { echo "not ok stat: $railsock is not built"; exit 1; }
[ -d /dev/shm ] || { echo 'skip stat: no /dev/shm'; exit 0; }

# shellcheck disable=SC2317 # called by the trap
finish() {
    [ -z "$sleeper" ] || kill "$sleeper" 2>/dev/null
    [ -z "$made" ] || rm -f "$made"
    rm -rf "$scratch"
}
trap finish EXIT

verdict() {
    # shellcheck disable=SC2319 # the caller's condition is what is asked
    if [ "$?" -eq 0 ]; then echo "ok stat.$1"; else echo "not ok stat.$1: $2"; fi
}

sleep 1000 &
sleeper=$!
made=$folder/$sleeper
[ -d "$folder" ] || mkdir -m 700 "$folder"
# The layout of ipoib_fallback/pub.h, once more.
python3 - "$sleeper" "$made" <<'END'
import os, socket, struct, sys

pid, path = int(sys.argv[1]), sys.argv[2]
space = os.stat(f"/proc/{pid}/ns/pid").st_ino
start = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
head = struct.pack("<QIIQQ64sII", 0x6B636F736C696172, 6, pid, start, space, b'sl"eep', 1, 0)
head += bytes(16 * 8 + 8) + struct.pack("<7Q", 2, 1, 10, 20, 5, 6, 7) + bytes(8 * 64)
head += bytes(-len(head) % 64)
def addr(ip, port):
    return struct.pack("<HH16s", socket.AF_INET, port, socket.inet_aton(ip))
slot = struct.pack("<IiQQQ", 1, 5, 0, 100, 200) + addr("127.0.0.1", 7) + addr("127.0.0.2", 8)
slot += struct.pack("<HHBBBB", 0, 0, 2, 2, 1, 0)
slot += bytes(-len(slot) % 8)
rail = struct.pack("<3QII", 90, 180, 1700000000 * 10**9, 2, 0)
rail += struct.pack("<24sIIQQ", b"rxe0/1", 4096, 8192, 1500, 2500)
with open(path, "wb") as f:
    f.write(head + slot)
    f.seek(len(head) + 256 * 1024 * len(slot))
    f.write(rail)
END

out=$("$railsock" stat --json --pid "$sleeper" | python3 -c '
import json, sys
p, = json.load(sys.stdin)["processes"]
c, = p["connections"]
assert p["program"] == "sl\"eep" and p["closed"]["rail_rx"] == 6, p
print(p["pid"], c["path"], c["local"], c["peer"], c["rail_rx"], c["boarded_at"], c["where"], c["rx_ring"])' 2>&1)
[ "$out" = "$sleeper verbs 127.0.0.1:7 127.0.0.2:8 180 2023-11-14T22:13:20.000Z rxe0/1 8192" ]
verdict json "$out"
out=$("$railsock" stat | grep -E "^ *$sleeper ")
[[ $(head -n 1 <<<"$out" | tr -s ' ') == *"$sleeper sl\"eep 127.0.0.1:7 127.0.0.2:8 verbs:rxe0/1 - 100 200 90 180 2" ]]
verdict table "$out"
[[ $(tail -n 1 <<<"$out" | tr -s ' ') == *"$sleeper sl\"eep 2 closed 1 boarded - - 10 20 5 6 -" ]]
verdict table_closed "$out"
out=$("$railsock" stat --wide --pid "$sleeper" | grep -E "^ *$sleeper ")
[[ $(head -n 1 <<<"$out" | tr -s ' ') == *' 100 200 90 180 ?/4096 ?/8192 - 2us 0 2' ]]
verdict wide "$out"
out=$("$railsock" stat --rate .1 --pid "$sleeper" | grep -E "^ *$sleeper ")
[[ $(head -n 1 <<<"$out" | tr -s ' ') == *' 100 200 0 0 90 180 2' ]]
verdict rate "$out"
out=$("$railsock" stat --pid "$sleeper" | tail -n 1)
[[ $out == '1 connection: 0 tcp, 0 shm, 1 verbs; 2 closed'* ]]
verdict totals "$out"
# Which filter leaves it, and which does not.
for right in '--program sl?ee*' '--port 7' '--port 8' '--path verbs' '--path verbs --port 8'; do
    # shellcheck disable=SC2086 # words
    out=$("$railsock" stat $right) && grep -q "^ *$sleeper " <<<"$out"
    verdict "filter[$right]" "$out"
done
# A reason of those that are shown: of the closed ones nothing is known then.
out=$("$railsock" run --tcp -- /usr/bin/python3 -c '
import os, socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)) as s:
    c = socket.create_connection(s.getsockname())
    a, _ = s.accept()
    c.send(b"x")
    a.recv(1)
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    print(subprocess.run([sys.argv[1], "stat", "--port", str(s.getsockname()[1])], env=env, capture_output=True, text=True).stdout)
' "$railsock" 2>&1)
grep -qE '^ +[12] +- +mode-tcp ' <<<"$out"
verdict filter_and_closed "$out"
for wrong in '--program sl' '--port 9' '--path shm --program sl?eep' "--path shm --pid $sleeper"; do
    # shellcheck disable=SC2086 # words
    out=$("$railsock" stat $wrong 2>&1)
    [ $? -eq 1 ] && ! grep -q "^ *$sleeper " <<<"$out"
    verdict "filter_without[$wrong]" "$out"
done
out=$("$railsock" stat --prometheus --pid "$sleeper")
grep -qxF "railsock_rail_bytes_total{pid=\"$sleeper\",program=\"sl\\\"eep\",direction=\"rx\"} 186" <<<"$out"
verdict prometheus "$out"
out=$(timeout 60 python3 tests/stat_watch.py "$railsock" "$made" "$sleeper" 2>&1)
verdict watch "$out"
out=$("$railsock" stat --watch 2>&1 </dev/null); [ $? -eq 2 ] && [[ $out == *terminal* ]]
verdict watch_without_terminal "$out"
# What is wrong is said where it can be read.
if unshare -m true 2>/dev/null; then
    # shellcheck disable=SC2016 # the inner shell's
    out=$(timeout 60 python3 - "$railsock" <<'END' 2>&1
import os, pty, sys

pid, fd = pty.fork()
if pid == 0:
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev && exec "$0" stat --watch', sys.argv[1]])
said = b""
try:
    while more := os.read(fd, 4096):
        said += more
except OSError:
    pass
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1, said
assert said.endswith(b"railsock stat: /dev/shm: No such file or directory\r\n"), said
END
    )
    verdict watch_of_nothing "$out"
else
    echo 'skip stat.watch_of_nothing: needs root'
fi
# What is closed for us is closed for the program.
for closed in 0 1 2; do
    out=$(eval "exec $closed>&-; '$railsock' run sh -c '[ ! -e /proc/self/fd/$closed ] && echo closed >\"\$1\"' sh '$scratch/closed'" 2>&1)
    [ "$(cat "$scratch/closed")" = closed ]
    verdict "closed_for_the_program[$closed]" "$out"
    rm -f "$scratch/closed"
done
# The layout that came before.
cp "$made" "$made.now"
printf '\005' | dd of="$made" bs=1 seek=8 conv=notrunc status=none
out=$("$railsock" stat --pid "$sleeper" 2>&1)
[ $? -eq 1 ] && [ "$out" = "railsock stat: $made: written by another version of railsock; ignored
railsock stat: programs may be missing that could not be shown: 1 process of another version of railsock" ]
verdict another_layout "$out"
out=$("$railsock" stat --json --pid "$sleeper" 2>/dev/null)
[[ $out == *',"not_shown":"1 process of another version of railsock"}' ]]
verdict another_layout_json "$out"
mv "$made.now" "$made"
out=$("$railsock" stat --pid $$ 2>&1); [ $? -eq 1 ] && [[ $out == *"process $$ "* ]]
verdict pid_without_railsock "$out"
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    cp "$railsock" "$scratch/" && chmod 755 "$scratch"
    another() { # OPTIONS: as another user
        (cd / && setpriv --reuid 65534 --clear-groups /proc/self/fd/9 stat "$@" 9<"$scratch/railsock") 2>&1
    }
    out=$(another --pid $$)
    [ $? -eq 1 ] && [ "$out" = "railsock stat: process $$ is another user's: only he and root may" ]
    verdict pid_of_another_user "$out"
    out=$(another --port 7)
    [ $? -eq 1 ] && [ "$out" = 'railsock stat: no connection is like that; root sees all' ]
    verdict port_of_another_user "$out"
fi
number=$(cat /proc/sys/kernel/pid_max)
out=$("$railsock" stat --pid "$number" 2>&1)
[ $? -eq 1 ] && [ "$out" = "railsock stat: there is no process $number" ]
verdict pid_of_nobody "$out"
for wrong in '--pid x' '--pid 0' '--pid -1' '--pid 99999999999' '--what' 'word' \
    '--port 0' '--port 65536' '--path ip' '--rate 0' '--rate 1x' '--watch 0.01' '--json --prometheus' \
    '--rate --prometheus' '--watch 0.5 --rate 9' '--rate .05'; do
    # shellcheck disable=SC2086 # words
    out=$("$railsock" stat $wrong 2>&1); [ $? -eq 2 ] && [ -n "$out" ]
    verdict "refuses[$wrong]" "$out"
done
out=$("$railsock" stat --json 2>&1 >/dev/full); [ $? -eq 1 ] && [ -n "$out" ]
verdict full_disk "$out"
kill "$sleeper"
wait "$sleeper" 2>/dev/null
"$railsock" stat >/dev/null 2>&1
[ ! -e "$made" ]
verdict dead_process "its file is still there"
sleeper=''

if unshare -nm true 2>/dev/null; then
    out=$(unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$railsock" stat 2>&1)
    [[ $out == *'programs may be missing that could not be shown: there is no /proc'* ]]
    verdict nothing_without_proc "$out"
    alone() { # WORDS...: with a /dev/shm of its own
        # shellcheck disable=SC2016 # the inner shell's
        unshare -m sh -c 'mount -t tmpfs -o mode=1777 none /dev/shm && exec "$@"' sh "$@" 2>&1
    }
    out=$(alone "$railsock" stat) && [ "$out" = 'railsock stat: no running program has had a TCP connection under railsock' ]
    verdict nothing "$out"
    # Nor may anybody be seen who is there: who finds no room shows nothing.
    missing='programs may be missing that could not be shown: /dev/shm'
    short() { # OPTIONS OF THE MOUNT, WORDS...: with such a /dev/shm
        # shellcheck disable=SC2016
        unshare -m sh -c 'mount -t tmpfs -o "$1" none /dev/shm && [ -d "/dev/shm/railsock-$2" ] || mkdir -m 700 "/dev/shm/railsock-$2" 2>/dev/null
            shift 2; exec "$@"' sh "$1" "$(id -u)" "${@:2}" 2>&1
    }
    for options in ro size=4k; do
        why='cannot be written to'
        [ $options = ro ] || why='is full'
        out=$(short $options "$railsock" stat)
        [ "$out" = "railsock stat: no running program has had a TCP connection under railsock
railsock stat: $missing $why" ]
        verdict "nothing_where_it[$why]" "$out"
        out=$(short $options "$railsock" stat --pid $$)
        [ $? -eq 1 ] && [[ $out == *"$missing $why" ]]
        verdict "nothing_of_a_process_where_it[$why]" "$out"
        out=$(short $options "$railsock" stat --json) && [[ $out == *",\"not_shown\":\"/dev/shm $why\"}" ]]
        verdict "json_where_it[$why]" "$out"
        out=$(short $options "$railsock" stat --prometheus) && [[ $out == *"railsock stat: $missing $why"* ]]
        verdict "prometheus_where_it[$why]" "$out"
        out=$(short $options timeout 60 python3 -c '
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], ["railsock", "stat", "--watch"])
seen = b""
while b"\033[J" not in seen:
    seen += os.read(fd, 4096)
os.write(fd, b"q")
print(seen.decode())' "$railsock") && [[ $out == *"$missing $why"* ]]
        verdict "watch_where_it[$why]" "$out"
    done
    out=$(alone "$railsock" stat --json) && [[ $out == *',"not_shown":null}' ]]
    verdict json_with_room "$out"
    # Beside the sums: what was there before it was full.
    # shellcheck disable=SC2016
    out=$(unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm && "$1" run --tcp -- /usr/bin/python3 -c "
import os, socket, subprocess, sys
with socket.create_server((\"127.0.0.1\", 0)) as s, socket.create_connection(s.getsockname()) as c:
    a, _ = s.accept()
    c.send(b\"x\")
    a.recv(1)
    try:
        with open(\"/dev/shm/much\", \"wb\") as f:
            while True:
                f.write(bytes(4096))
    except OSError:
        pass
    env = {k: v for k, v in os.environ.items() if k != \"LD_PRELOAD\"}
    print(subprocess.run([sys.argv[1], \"stat\"], env=env, capture_output=True, text=True).stdout)
" "$1"' sh "$railsock" 2>&1)
    grep -A1 '^2 connections: ' <<<"$out" | grep -qxF "$missing is full"
    verdict sums_where_it_is_full "$out"
    cp "$railsock" "$scratch/" && chmod 755 "$scratch"
    out=$(cd / && alone setpriv --reuid 65534 --clear-groups "/proc/self/fd/9" stat 9<"$scratch/railsock") &&
        [ "$out" = 'railsock stat: no running program that you may see has had a TCP connection under railsock; root sees all' ]
    verdict nothing_for_a_user "$out"
else
    echo 'skip stat.nothing: needs root'
fi

# One that /proc does not show, as it may not be traced, is alive all the same.
if command -v setpriv >/dev/null && unshare -m sh -c 'mount -t proc -o hidepid=2,gid=54321 proc /proc' 2>/dev/null; then
    cat >"$scratch/hidden.py" <<'END'
import ctypes, os, struct, sys
folder, pid = f"/dev/shm/railsock-{os.getuid()}", os.getpid()
os.mkdir(folder, 0o700)
with open(f"{folder}/{pid}", "wb") as f:
    f.write(struct.pack("<QIIQQ", 0x6B636F736C696172, 6, pid, 1, os.stat("/proc/self/ns/pid").st_ino) + bytes(1000))
ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
print(pid, flush=True)
sys.stdin.read()
END
    # shellcheck disable=SC2016 # the inner shell's
    out=$(timeout 60 unshare -m sh -c 'mount -t tmpfs none /dev/shm && mount -t proc -o hidepid=2,gid=54321 proc /proc &&
        mkfifo /dev/shm/in /dev/shm/out || exit 9
        /usr/bin/python3 "$1" </dev/shm/in >/dev/shm/out &
        exec 3>/dev/shm/in
        read -r pid </dev/shm/out
        setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace sh -c "[ ! -e /proc/$pid ] && exec \"$2\" stat" >&2
        [ -e "/dev/shm/railsock-$(id -u)/$pid" ] && echo stays' sh "$scratch/hidden.py" "$railsock" 2>"$scratch/said")
    [ "$out" = stays ]
    verdict hidden_process "$out"
else
    echo 'skip stat.hidden_process: needs root'
fi

# Processes that are killed leave their files; those that come later take them away, and nobody
# else's.
cat >"$scratch/connected.py" <<'END'
import os, signal, socket, sys, time

with socket.create_server(("127.0.0.1", 0)) as server:
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
    print(os.getpid(), flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()
END
python=/usr/bin/python3
left=0 killed=()
for _ in {1..40}; do
    killed+=("$("$railsock" run -- "$python" "$scratch/connected.py" killed)")
done 2>/dev/null
for pid in "${killed[@]}"; do
    [ ! -e "$folder/$pid" ] || left=$((left + 1))
done
[ ${#killed[@]} -eq 40 ] && [ -n "${killed[39]}" ] && [ $left -lt 20 ] # a few more with others' processes of this user
verdict killed_processes "$left of 40 files are still there"

# One that was killed before it had said anything, in a folder where nobody else is; a new one may
# be just being made.
if unshare -m true 2>/dev/null; then
    cat >"$scratch/unsaid.py" <<'END'
import os, subprocess, sys, time

railsock, how, connected = sys.argv[1:]
folder = f"/dev/shm/railsock-{os.getuid()}"
os.mkdir(folder, 0o700)
numbers = iter(n for n in range(400000, 4000000) if not os.path.exists(f"/proc/{n}"))
def make(pid, size, age):
    with open(f"{folder}/{pid}", "wb") as f:
        f.truncate(size)
    os.utime(f"{folder}/{pid}", (time.time() - age,) * 2)
    return str(pid)
child = subprocess.Popen(["sleep", "1000"])
alive = make(child.pid, 0, 1000)
new = {make(next(numbers), size, 0) for size in (0, 100000)}
old = {make(next(numbers), size, 1000) for size in (0, 100, 100000)}
if how == "stat":
    subprocess.run([railsock, "stat"], check=True, stderr=subprocess.DEVNULL)
else:
    # Each program looks at eight of them.
    subprocess.run([railsock, "run", "--", sys.executable, connected, "stays"], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL)
left = set(os.listdir(folder))
child.kill()
child.wait()
assert left == new | {alive}, (left, new, old, alive)
END
    for how in stat program; do
        # shellcheck disable=SC2016 # the inner shell's
        out=$(timeout 60 unshare -m sh -c 'mount -t tmpfs none /dev/shm && exec "$@"' sh \
            "$python" "$scratch/unsaid.py" "$railsock" $how "$scratch/connected.py" 2>&1)
        verdict "killed_before_it_said_anything[$how]" "$out"
    done
else
    echo 'skip stat.killed_before_it_said_anything: needs root'
fi

# The kernel's tables are read once, whoever's connections are looked for in them.
if strace -o /dev/null true 2>/dev/null && unshare -nm true 2>/dev/null; then
    cat >"$scratch/many.py" <<'END'
import re, subprocess, sys

railsock, command, trace = sys.argv[1], sys.argv[1:2] + ["run", "--board", "never", "--", sys.executable, sys.argv[2], "stays"], sys.argv[3]
programs = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
for p in programs:
    p.stdout.readline()
def traced(*options):
    said = subprocess.run(["strace", "-o", trace, "-e", "trace=openat", railsock, "stat", *options],
                          capture_output=True, text=True, check=True).stdout
    with open(trace) as f:
        return said, re.findall(r"/net/(tcp6?)\"", f.read())
said, tables = traced()
sums, tables_of_sums = traced("--prometheus")
for p in programs:
    p.communicate()
assert sums.count('path="tcp"} 2') == 3 and not tables_of_sums, sums
assert tables.count("tcp") == 1, tables
assert len(re.findall(r"127\.0\.0\.1:\d+ +127\.0\.0\.1:\d+", said)) == 6, said
END
    # shellcheck disable=SC2016 # the inner shell's
    out=$(timeout 60 unshare -nm sh -c 'ip link set lo up && mount -t tmpfs none /dev/shm && exec "$@"' sh \
        "$python" "$scratch/many.py" "$railsock" "$scratch/connected.py" "$scratch/trace" 2>&1)
    verdict tables_once "$out"
else
    echo 'skip stat.tables_once: needs root and strace'
fi

# As many as there can be that are all about to close: no call for each of them.
if strace -o /dev/null true 2>/dev/null; then
    cat >"$scratch/closing.py" <<'END'
import os, struct, subprocess, sys

folder, start = f"/dev/shm/railsock-{os.getuid()}", int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
path, slots = f"{folder}/{os.getpid()}", 256 * 1024
head = struct.pack("<QIIQQ64sII", 0x6B636F736C696172, 6, os.getpid(), start, os.stat("/proc/self/ns/pid").st_ino, b"many", slots, 0)
head = head.ljust(struct.calcsize("<QIIQQ64sII16QII71Q"), b"\0")
slot = struct.pack("<IiQQQ20x20xHHBBBB", 1, 3, 0, 5, 5, 1, 0, 0, 0, 2, 0)
with open(path, "wb") as f:
    f.write(head.ljust(-(-len(head) // 64) * 64, b"\0") + slot.ljust(-(-len(slot) // 8) * 8, b"\0") * slots)
try:
    subprocess.run(["strace", "-c", "-o", sys.argv[2], "-e", "trace=readlink", sys.argv[1], "stat", "--pid", str(os.getpid())], check=True)
finally:
    os.unlink(path)
END
    out=$(timeout 100 "$python" "$scratch/closing.py" "$railsock" "$scratch/trace" 2>&1) &&
        [ "$(awk '$NF == "readlink" { print $4 }' "$scratch/trace")" -lt 100 ]
    verdict many_that_close "$out $(cat "$scratch/trace")"
else
    echo 'skip stat.many_that_close: needs strace'
fi

# In a namespace of its own a process has a number that is nobody's here.
number=31000
while [ -e /proc/$number ]; do number=$((number + 1)); done
if [ "$(id -u)" -eq 0 ] && unshare -pf --mount-proc sh -c "echo $((number - 1)) >/proc/sys/kernel/ns_last_pid" 2>/dev/null; then
    coproc elsewhere { exec unshare -pf --kill-child --mount-proc sh -c "echo $((number - 1)) >/proc/sys/kernel/ns_last_pid
        '$railsock' run -- '$python' '$scratch/connected.py' stays; :" 2>&1; }
    read -r -t 30 line <&"${elsewhere[0]}"
    [ "$line" = "$number" ] && [ -e "$folder/$number" ]
    verdict namespace_file "the process says: $line"
    for _ in {1..10}; do "$railsock" run -- "$python" "$scratch/connected.py" killed; done >/dev/null 2>&1
    "$railsock" stat >/dev/null 2>&1
    [ -e "$folder/$number" ]
    verdict namespace_alive 'the file of a process in another namespace was removed'
    # shellcheck disable=SC2154
    ended=$elsewhere_PID
    eval "exec ${elsewhere[1]}>&-"
    wait "$ended"
    [ ! -e "$folder/$number" ]
    verdict namespace_ended 'it has left its file'
else
    echo 'skip stat.namespace_alive: no process number can be chosen here'
fi

# What is closed while its end asks for a rail: the kernel does not know it any more, but it was
# never elsewhere.
cat >"$scratch/closed.py" <<'END'
import socket

with socket.create_server(("127.0.0.1", 0)) as server:
    for i in range(400):
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        for _ in range(4 + i % 50):
            client.send(bytes(100))
            peer.recv(100)
        client.close()
        peer.close()
END
out=$("$railsock" run --board eager --report=always -- "$python" "$scratch/closed.py" 2>&1)
[[ $out == *'800 connections'* && $out != *no-rdma-on-route* && $out != *' uid: '* ]]
verdict closed_while_asking "$out"

# Connections that came to nothing are none, and a forked child's are the child's.
cat >"$scratch/counted.py" <<'END'
import errno, os, select, socket

with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as nobody:
    nobody.bind(("127.0.0.1", 0))  # and does not listen
    for again in (False, True):
        refused = socket.socket()
        refused.setblocking(False)
        assert refused.connect_ex(nobody.getsockname()) == errno.EINPROGRESS
        select.select([], [refused], [])
        error = refused.connect_ex(nobody.getsockname()) if again else refused.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        assert error == errno.ECONNREFUSED
        refused.close()
    for _ in range(3):
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        if os.fork() == 0:
            client.close()
            peer.sendall(b"answer")
            os._exit(0)
        peer.close()
        assert client.recv(6, socket.MSG_WAITALL) == b"answer"
        os.wait()
        client.close()
END
for mode in auto tcp; do
    out=$(RAILSOCK_MODE=$mode "$railsock" run --report=always -- "$python" "$scratch/counted.py" 2>&1)
    [[ $out == *' 6 connections,'* ]]
    verdict "counted_once[$mode]" "$out"
done

# Programs that really run with the library: what only a rail can show.
port=$((22000 + $$ % 900))
exec {server}< <(exec "$railsock" run --board eager --wire shm -- "$python" tests/echo.py server $port 2>&1)
sleeper=$!
read -r -t 30 -u "$server"
coproc client { exec "$railsock" run --board eager --wire shm -- "$python" tests/echo.py client $port 30000 2>&1; }
# shellcheck disable=SC2154
read -r -t 60 line <&"${client[0]}"
[ "$line" = "done" ]
verdict live_program "$line"
out=$("$railsock" stat --json --port $port | python3 -c '
import json, sys
for p in json.load(sys.stdin)["processes"]:
    for c in p["connections"]:
        assert c["path"] == c["where"] == "shm" and c["rail_tx"], c
        for ring in "tx_ring", "rx_ring":
            assert 4096 <= c[ring] and c[ring + "_used"] == 0, c
        assert c["tx_credit"] == c["tx_ring"], c
        assert 0 < c["pause_last_ns"] <= c["pause_longest_ns"] < 60e9, c
        print(p["program"], c["role"])' 2>&1)
[ "$(sort <<<"$out" | tr '\n' ' ')" = 'python3 accepted python3 connected ' ]
verdict live_rail "$out"
# shellcheck disable=SC2154 # coproc sets it
{ kill "$client_PID" "$sleeper"; wait "$client_PID" "$sleeper"; } 2>/dev/null
sleeper=''
