#!/bin/bash
# tests/stat_test.sh - `railsock stat` on /dev/shm: a file made here for a process made here.
# What it does with broken files is in tests/unit/stat_test.c.
set -u

cd "$(dirname "$0")/.." || exit 1
railsock=$PWD/build/railsock
folder=/dev/shm/railsock-$(id -u)
made=''
sleeper=''
[ -x "$railsock" ] || { echo "not ok stat: $railsock is not built"; exit 1; }
[ -d /dev/shm ] || { echo 'skip stat: no /dev/shm'; exit 0; }

# shellcheck disable=SC2317 # called by the trap
finish() {
    [ -z "$sleeper" ] || kill "$sleeper" 2>/dev/null
    [ -z "$made" ] || rm -f "$made"
}
trap finish EXIT

verdict() {
    # shellcheck disable=SC2319 # the caller's condition is what is asked
    if [ "$?" -eq 0 ]; then echo "ok stat.$1"; else echo "not ok stat.$1: $2"; fi
}

sleep 60 &
sleeper=$!
made=$folder/$sleeper
[ -d "$folder" ] || mkdir -m 700 "$folder"
# The layout of ipoib_fallback/pub.h, once more.
python3 - "$sleeper" "$made" <<'END'
import socket, struct, sys

pid, path = int(sys.argv[1]), sys.argv[2]
start = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
head = struct.pack("<QIIQ64sII", 0x6B636F736C696172, 2, pid, start, b'sl"eep', 1, 0)
head += bytes(16 * 8 + 8) + struct.pack("<7Q", 2, 1, 10, 20, 5, 6, 7) + bytes(8 * 64)
head += bytes(-len(head) % 64)
def addr(ip, port):
    return struct.pack("<HH16s", socket.AF_INET, port, socket.inet_aton(ip))
slot = struct.pack("<Ii", 1, 5) + addr("127.0.0.1", 7) + addr("127.0.0.2", 8)
slot += struct.pack("<HHBBBB", 0, 0, 2, 2, 1, 0)
slot += bytes(-len(slot) % 8) + struct.pack("<5QII", 100, 200, 90, 180, 1700000000 * 10**9, 2, 0)
open(path, "wb").write(head + slot + bytes(-len(slot) % 8))
END

out=$("$railsock" stat --json --pid "$sleeper" | python3 -c '
import json, sys
p, = json.load(sys.stdin)["processes"]
c, = p["connections"]
assert p["program"] == "sl\"eep" and p["closed"]["rail_rx"] == 6, p
print(p["pid"], c["path"], c["local"], c["peer"], c["rail_rx"], c["boarded_at"])' 2>&1)
[ "$out" = "$sleeper verbs 127.0.0.1:7 127.0.0.2:8 180 2023-11-14T22:13:20.000Z" ]
verdict json "$out"
out=$("$railsock" stat | grep -E "^ *$sleeper ")
[[ $(head -n 1 <<<"$out" | tr -s ' ') == *"$sleeper sl\"eep 127.0.0.1:7 127.0.0.2:8 verbs - 100 200 90 180 2" ]]
verdict table "$out"
[[ $(tail -n 1 <<<"$out" | tr -s ' ') == *"$sleeper sl\"eep 2 closed 1 boarded - - 10 20 5 6 -" ]]
verdict table_closed "$out"
out=$("$railsock" stat --pid $$ 2>&1); [ $? -eq 1 ] && [[ $out == *"process $$ "* ]]
verdict pid_without_railsock "$out"
for wrong in '--pid x' '--pid 0' '--pid -1' '--pid 99999999999' '--what' 'word'; do
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
