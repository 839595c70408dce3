#!/bin/bash
# tests/rules_apply_test.sh - rules that decide for two real programs, over shared memory; what the
# environment says against them; a broken file; and that a process without connections reads none.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/pair.sh
. tests/pair.sh
unset RAILSOCK_CONFIG

verdict() { # NAME GOT WANTED
    if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: $2, not $3"; fi
}

client=("$python" tests/rules.py)
server=("$python" tests/apps/echo_server.py threads 0.0.0.0)

# rules NAME CASE CLIENT SERVER [VARIABLE=VALUE...]: rules from stdin, PORT in them is replaced; the
# states of the two ends that must come about; the settings are for both.
rules() {
    local name=$1 case=$2 here=$3 there=$4 pid

    shift 4
    port=$((port + 1))
    sed "s/PORT/$port/" >"$work/conf"
    echo "run $name"
    env RAILSOCK_CONFIG="$work/conf" "$@" "$build/railsock" run -- "${server[@]}" $port >"$work/server" 2>&1 &
    pid=$!
    serves $port $pid
    if env RAILSOCK_CONFIG="$work/conf" "$@" timeout -k 1 60 "$build/railsock" run -- \
        "${client[@]}" "$build/railsock" $port "$case" "$here" "$there" >"$work/client" 2>&1; then
        echo "ok $name"
    else
        echo "not ok $name: $(tail -n 1 "$work/client")"
        tail -n 4 "$work/server" "$work/client" | sed 's/^/    /'
    fi
    { kill $pid; wait $pid; } 2>/dev/null
}

rules rules.client one tcp/rule tcp/wait-peer <<<'client to 127.0.0.0/8:PORT mode tcp'
# The same of a child that was forked for the connection.
server[2]=fork
rules rules.client-of-forked one tcp/rule tcp/wait-peer <<<'client to 127.0.0.0/8:PORT mode tcp'
server[2]=threads
rules rules.first-ones many tcp/rule tcp/wait-peer <<<'client mode tcp'
rules rules.server one tcp/no-peer-library tcp/rule <<<'use tcp server python3* 127.0.0.1:PORT'
rules rules.board one tcp/rule tcp/wait-peer <<<'client program python3* board never'
# What runs is the interpreter, by its own name.
printf '#!%s\nimport runpy, sys\nsys.path.insert(0, "tests")\nrunpy.run_path("tests/rules.py")\n' "$python" >"$work/script"
chmod +x "$work/script"
client=("$work/script")
rules rules.script one tcp/rule tcp/wait-peer <<<'client program script mode tcp'
rules rules.script-path one tcp/rule tcp/wait-peer <<<"client program $work/script mode tcp"
rules rules.interpreter one tcp/rule tcp/wait-peer <<<'client program python3* mode tcp'
# env executes it anew; its script is still known, but for one that is only somebody's first
# argument.
sed -i '1s:.*:#!/usr/bin/env python3:' "$work/script"
client=(env PATH="${python%/*}:$PATH" "$work/script")
rules rules.env-script one tcp/rule tcp/wait-peer <<<'client program script mode tcp'
rules rules.env-script-path one tcp/rule tcp/wait-peer <<<"client program $work/script mode tcp"
sed -i '1s:.*:#!/usr/bin/env -S python3 -u:' "$work/script"
rules rules.env-options one tcp/rule tcp/wait-peer <<<'client program script mode tcp'
sed '1s:.*:#!/usr/bin/env ruby:' "$work/script" >"$work/rubys"
client=("$python" "$work/rubys")
rules rules.no-env-script one shm/none shm/none <<<'client program rubys mode tcp'
client=("$python" tests/rules.py)
rules rules.others one shm/none shm/none <<'END'
use tcp client * *:1
use tcp server no-such-program *:*
client user 12345 mode tcp
client to 10.0.0.0/8:* mode tcp
client program /no/such/python3 mode tcp
END
rules rules.first-match one shm/none shm/none <<'END'
any to *:PORT board eager
any mode tcp
END
rules rules.environment one shm/none shm/none RAILSOCK_MODE=auto <<<'any mode tcp'
rules rules.environment-tcp one tcp/mode-tcp tcp/mode-tcp RAILSOCK_MODE=tcp <<<'any mode rail'
rules rules.budget two tcp/budget tcp/wait-peer <<<'client board eager rails 1'
# The port answers requests for shared memory, but not for every connection.
rules rules.wires two tcp/other-host tcp/wait-peer SECOND=127.0.0.2 <<'END'
client wire shm board eager
server to 127.0.0.2:PORT wire verbs board eager
server board eager
END
rules rules.idle idle tcp/idle tcp/peer-left <<'END'
defaults idle 0 board eager
client idle 1
END

# Who has the bytes of the stream and not the key is no peer.
(umask 077 && printf '%032x\n' 1 >"$work/one.key" && printf '%032x\n' 2 >"$work/other.key")
rules key.same one shm/none shm/none <<<'defaults board eager key one.key'
rules key.environment one shm/none shm/none RAILSOCK_KEY="$work/one.key" RAILSOCK_BOARD=eager </dev/null
rules key.differs one tcp/proof-failed tcp/proof-failed <<'END'
client board eager key one.key
server board eager key other.key
END
rules key.client-only one tcp/site-key tcp/site-key <<'END'
client board eager key one.key
server board eager
END
rules key.server-only one tcp/site-key tcp/site-key <<'END'
client board eager
server board eager key one.key
END

# They are read once there is a connection, and not again: who accepts one, and then gives up its
# user, has them.
if [ "$(id -u)" = 0 ]; then
    cat >"$work/gives_up" <<'END'
import os, socket, sys
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as at:
    s = at.accept()[0]
os.setuid(65534)
while data := s.recv(65536):
    s.sendall(data)
END
    server=("$python" "$work/gives_up") # no other user can look into that folder
    rules rules.user-given-up one tcp/no-peer-library tcp/rule <<<'server mode tcp'
    server=("$python" tests/apps/echo_server.py threads 0.0.0.0)
else
    echo 'skip rules.user-given-up: needs root'
fi
cat >"$work/connects" <<'END'
import os, socket, sys
sys.path.insert(0, "tests")
import echo_client
at = socket.create_server(("127.0.0.1", 0))
s = socket.create_connection(at.getsockname())
os.unlink(os.environ["RAILSOCK_CONFIG"])
s.sendall(b"x")
print(*(c["reason"] for p in echo_client.processes(sys.argv[1]) if p["pid"] == os.getpid() for c in p["connections"]))
END
echo run rules.read-at-connect
echo 'client mode tcp' >"$work/conf"
verdict rules.read-at-connect "$(RAILSOCK_CONFIG=$work/conf "$build/railsock" run -- "$python" -B "$work/connects" \
    "$build/railsock" 2>&1)" rule

rules rules.broken one tcp/config tcp/config <<<'client mode fast'
for end in server client; do
    verdict rules.broken.$end-says "$(sed 's/^[^:]*error: //' "$work/$end")" \
        "$work/conf:1:13: expected auto, tcp or rail, not \"fast\"; 1 error; this program stays on TCP"
done
# Who has only accepted a connection says so, too; the other end is without the library.
cat >"$work/accepts" <<'END'
import os, socket, subprocess, sys
env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
with socket.create_server(("127.0.0.1", 0)) as at:
    code = f"import socket; socket.create_connection(('127.0.0.1', {at.getsockname()[1]})).recv(1)"
    with subprocess.Popen([sys.executable, "-c", code], env=env):
        at.accept()[0].close()
END
echo run rules.broken.only-accepts
verdict rules.broken.only-accepts "$(RAILSOCK_CONFIG=$work/conf "$build/railsock" run -- "$python" "$work/accepts" 2>&1 |
    sed 's/^[^:]*error: .*expected/expected/')" \
    "expected auto, tcp or rail, not \"fast\"; 1 error; this program stays on TCP"
# It is still there: who makes no TCP connection does not open it.
echo run rules.not-read
verdict rules.not-read "$(RAILSOCK_CONFIG=$work/conf "$build/railsock" run -- "$python" -c '
import socket
a, b = socket.socketpair()
a.send(b"x")
b.recv(1)
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect(("127.0.0.1", 9))
print("quiet")' 2>&1)" quiet

mkdir -p "$work/home/.config"
echo 'client mode tcp' >"$work/home/.config/railsock.conf"
rules rules.user-file one tcp/rule tcp/wait-peer RAILSOCK_CONFIG= HOME="$work/home" </dev/null
rules rules.log one shm/none shm/none <<<"log destination file $work/log min-level 7"
verdict rules.log-file "$([ -s "$work/log" ] || echo 'nothing there'; cat "$work/server" "$work/client")" ''

# ---- the command

check() { # NAME WANTED [--as-other] ARGUMENT...
    local name=$1 wanted=$2 as=()

    shift 2
    if [ "$1" = --as-other ]; then # root reads only what is root's to read
        as=(setpriv --bounding-set='-dac_override,-dac_read_search' --inh-caps='-dac_override,-dac_read_search')
        shift
    fi
    echo "run check.$name"
    # Whatever this test's own control group leaves.
    verdict "check.$name" "$(RAILSOCK_MEMORY=512m "${as[@]}" "$build/railsock" check "$@" 2>&1; echo $?)" "$wanted"
}

cat >"$work/conf" <<'END'
# two rules
use tcp server * *:22
client program curl to 10.0.0.0/8:* { mode rail
    board after=3 }
END
normal='server to *:22 mode tcp
client program curl to 10.0.0.0/8:* mode rail board after=3
0'
check normal-form "$normal" "$work/conf"
check no-file "$work/no-such-file: it is not there
1" "$work/no-such-file"
for asked in 'server /usr/sbin/sshd 10.1.2.3:22' 'client /usr/bin/curl [::ffff:10.1.2.3]:80' \
    'server curl 10.1.2.3:80'; do
    # shellcheck disable=SC2086 # three words
    check "match.${asked// /,}" "$(
        case $asked in
        *:22) echo "$work/conf:2: server to *:22 mode tcp" ;;
        client*) echo "$work/conf:3: client program curl to 10.0.0.0/8:* mode rail board after=3" ;;
        *) echo 'no rule: the defaults' ;;
        esac
        case $asked in
        *:22) echo 'then: mode tcp wire auto board auto spin auto ring 0 rails 1024 memory 512m idle 60 stall 50' ;;
        client*) echo 'then: mode rail wire auto board after=3 spin auto ring 0 rails 1024 memory 512m idle 60 stall 50' ;;
        *) echo 'then: mode auto wire auto board auto spin auto ring 0 rails 1024 memory 512m idle 60 stall 50' ;;
        esac
        [[ $asked != *:22 ]] || echo 'so it stays on TCP: rule'
        echo 0
    )" "$work/conf" --match $asked
done
# What env makes of a script; and where that is not known.
interpreter=$(readlink -f "$python")
printf '#!/usr/bin/env python3\n' >"$work/script"
printf '#!/usr/bin/env -S python3 -X dev\n' >"$work/strange"
chmod +x "$work/script" "$work/strange"
for program in script python3 "$interpreter" "$work/script" env; do
    echo "client program $program mode tcp" >"$work/conf"
    out=$(PATH="${python%/*}:$PATH" "$build/railsock" check "$work/conf" --match client "$work/script" 10.0.0.1:80 2>&1 | tail -n 1)
    [ "$program" = env ] || out=$(grep -c '^so it stays on TCP: rule$' <<<"$out")
    verdict "check.env-script[${program##*/}]" "${out%% *}" "$([ "$program" = env ] && echo then: || echo 1)"
done
echo 'client program strange mode tcp' >"$work/conf"
check env-unknown "railsock check: warning: $work/strange: env executes the interpreter anew, and rules see only that
no rule: the defaults
then: mode auto wire auto board auto spin auto ring 0 rails 1024 memory 512m idle 60 stall 50
0" "$work/conf" --match client "$work/strange" 10.0.0.1:80
echo 'any  no' >"$work/conf"
echo '	any mode x' >>"$work/conf"
check errors "$work/conf:1:6: expected the end of the line, program, user, to, reach, { or a setting (mode, wire, board, spin, ring, rails, memory, idle, stall, tos or key), not \"no\"
    any  no
         ^
$work/conf:2:11: expected auto, tcp or rail, not \"x\"
    	any mode x
    	         ^
1" "$work/conf"
echo 'any user no-such-user' >"$work/conf"
check unknown-user "$work/conf:1: warning: no user no-such-user in /etc/passwd: the rule decides for nobody; a number stands for users that are elsewhere
any user no-such-user
0" "$work/conf"
printf 'client\nany to *:80\nclient to *:81\nserver to *:*\nany mode tcp\n' >"$work/conf"
check hidden-rules "$work/conf:3: warning: this rule never decides: $work/conf:1 is for all
$work/conf:5: warning: this rule never decides: $work/conf:1 is for all
client
any to *:80
client to *:81
server
any mode tcp
0" "$work/conf"
(umask 077 && printf '%032x\n' 7 >"$work/key")
echo 'any key "key"' >"$work/conf"
check key "any key $work/key
0" "$work/conf"
check match.key "$work/conf:1: any key $work/key
then: mode auto wire auto board auto spin auto ring 0 rails 1024 memory 512m idle 60 stall 50 key $work/key
0" "$work/conf" --match client curl 10.0.0.1:80
chmod 644 "$work/key"
check key-for-all "$work/conf:1:9: expected a file with a key: $work/key: others may read or change it
    any key \"key\"
            ^
1" "$work/conf"
if [ "$(id -u)" = 0 ]; then
    chmod 040 "$work/key"
    check key-of-others "$work/conf:1: warning: this user may not read the key $work/key: what needs it stays on TCP
any key $work/key
0" --as-other "$work/conf"
else
    echo 'skip check.key-of-others: needs root'
fi
check match-of-a-network "railsock check: 10.0.0.0/8:80: expected one address and port, like 10.1.2.3:80
2" /dev/null --match client curl 10.0.0.0/8:80
exit 0
