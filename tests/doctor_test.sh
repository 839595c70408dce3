#!/bin/bash
# tests/doctor_test.sh - `railsock doctor` on this host, on programs and on peers here: what is in
# order, and each failure that can be made without harm. With RDMA: identity_lab_test.sh and
# faults_lab_test.sh.
set -u

cd "$(dirname "$0")/.." || exit 1
railsock=$(realpath "${RAILSOCK_TEST_BUILD:-build}")/railsock
python=/usr/bin/python3
dir=$(mktemp -d "${TMPDIR:-/tmp}/doctor_test.XXXXXX") || exit 1
pids=''
[ -x "$railsock" ] || { echo "not ok doctor: $railsock is not built"; exit 1; }
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD

# shellcheck disable=SC2317 # called by the trap
finish() {
    # shellcheck disable=SC2086 # process ids
    [ -z "$pids" ] || { kill $pids; wait; } 2>/dev/null
    rm -rf "$dir"
}
trap finish EXIT

verdict() {
    # shellcheck disable=SC2319 # the caller's condition is what is asked; no $(...) in its words, it has a status
    if [ "$?" -eq 0 ]; then echo "ok doctor.$1"; else echo "not ok doctor.$1: $2"; fi
}

# says NAME STATUS LINE COMMAND...: COMMAND ends with STATUS, and one line of what it prints matches
# LINE, a regular expression, blanks being one. After a line that begins with FAIL there is what to
# do. $late: what it says where another process has not been given the time to show something; then
# it is asked again.
late=
says() {
    local name=$1 status=$2 line=$3 got tries=5

    shift 3
    while :; do
        timeout 60 "$@" >"$dir/out" 2>&1
        got=$?
        tr -s ' ' <"$dir/out" >"$dir/lines"
        tries=$((tries - 1))
        { [ -n "$late" ] && [ $tries -gt 0 ] && grep -qE "$late" "$dir/lines"; } || break
    done
    [ $got -eq "$status" ] && grep -qE "$line" "$dir/lines" &&
        { [[ $line != ^FAIL* ]] || grep -E -A1 "$line" "$dir/lines" | tail -n 1 | grep -qE '^ -> .'; }
    is=$? words="status $got: $(tr '\n' '|' <"$dir/lines")"
    [ $is -eq 0 ]
    verdict "$name" "$words"
}

# ---- this host; RDMA is the lab's

says host 0 '^this host is ready$' "$railsock" doctor --wire shm
says host_kernel 0 '^ok kernel Linux ' "$railsock" doctor --wire shm
says host_memfd 0 '^ok memfd ' "$railsock" doctor --wire shm
says host_sock_diag 0 '^ok sock_diag ' "$railsock" doctor --wire shm
[ "$(grep -cE '^(skip|ok) (ports|rdma_cm|memlock)' "$dir/lines")" -eq 0 ]
is=$? words="it looks at RDMA: $(cat "$dir/lines")"
[ $is -eq 0 ]
verdict only_one_wire "$words"
# A checkout may be its user's alone, which is noted.
says installed 0 '^(ok|note) installed .*/librailsock.so(;|$)' "$railsock" doctor --wire shm
says no_library 1 '^FAIL installed RAILSOCK_LIBRARY=' env RAILSOCK_LIBRARY="$dir/none" "$railsock" doctor --wire shm
says no_scripts 0 '^note installed .* script ab is missing' env RAILSOCK_SHARE="$dir" "$railsock" doctor --wire shm
cp "${railsock%/*}/librailsock.so" "$dir/"
says private 0 "^note installed .* cannot load it: $dir is not" env RAILSOCK_LIBRARY="$dir/librailsock.so" \
    "$railsock" doctor --wire shm

# Rules; of the system there are none that this test may make.
rules() { # NAME STATUS LINE TEXT: with these
    printf '%b' "$4" >"$dir/rules"
    says "rules_$1" "$2" "$3" env RAILSOCK_CONFIG="$dir/rules" "$railsock" doctor --wire shm
}
rules two 0 "^ok rules 2 in $dir/rules$" 'any to *:80 mode tcp\nclient\n'
rules wrong 1 "^FAIL rules $dir/rules:2:1: expected .* \(2 errors\); programs" 'client\nx\ny\n'
rules only 0 '^note rules 1 in .* stay on TCP' 'defaults mode tcp\nclient to *:80 mode auto\n'
echo client | tee "$dir/rules.1" >"$dir/rules.2"
rules with_includes 0 "^ok rules 3 in $dir/rules, $dir/rules.1, $dir/rules.2$" 'include rules.[1-9]\nclient\n'
says rules_not_there 1 "^FAIL rules $dir/none: it is not there \(1 error\)" env RAILSOCK_CONFIG="$dir/none" \
    "$railsock" doctor --wire shm
says rules_not_read 1 '^skip rules not read' env RAILSOCK_MODE=tcp "$railsock" doctor --wire shm
[ -e /etc/railsock.conf ] || says rules_none 0 "^ok rules none, .* nor $dir/.config/railsock.conf$" \
    env -u XDG_CONFIG_HOME HOME="$dir" "$railsock" doctor --wire shm
# As a user has it who is not root.
barred=(setpriv --bounding-set='-dac_override,-dac_read_search' --inh-caps='-dac_override,-dac_read_search'
    env -u XDG_CONFIG_HOME HOME="$dir")
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    mkdir -m 0 "$dir/.config"
    says rules_left_out 0 "^note rules (none|[1-9]).*; left out if it is there, as this user may not read it: $dir/.config/railsock.conf$" \
        "${barred[@]}" "$railsock" doctor --wire shm
    says rules_left_out_of_check 0 "^$dir/.config/railsock.conf: warning: this user may not see whether it is there: it is left out$" \
        "${barred[@]}" "$railsock" check
    chmod 700 "$dir/.config"
    (umask 777 && : >"$dir/.config/railsock.conf")
    says rules_seen_and_left_out 0 "; left out, as this user may not read it: $dir/.config/railsock.conf$" \
        "${barred[@]}" "$railsock" doctor --wire shm
    says rules_seen_and_left_out_of_check 0 "^$dir/.config/railsock.conf: warning: this user may not read it: it is left out$" \
        "${barred[@]}" "$railsock" check
    rm -r "$dir/.config"
else
    echo 'skip doctor.rules_left_out: needs root'
fi
(umask 077 && printf '%032x\n' 7 >"$dir/key")
rules key_not_there 1 "^FAIL rules $dir/rules:1:14: expected a file with a key: $dir/no.key: it is not there \(1 error\)" \
    'defaults key no.key\n'
[ -e /etc/railsock.conf ] || says key_of_the_environment 0 "^ok rules none; .* the site key $dir/key$" \
    env -u XDG_CONFIG_HOME HOME="$dir" RAILSOCK_KEY="$dir/key" "$railsock" doctor --wire shm
says key_of_the_environment_not_there 1 '^FAIL rules RAILSOCK_KEY: expected a file with a key: /no/key: ' \
    env RAILSOCK_KEY=/no/key "$railsock" doctor --wire shm
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chmod 040 "$dir/key"
    echo 'defaults key key' >"$dir/rules"
    says key_not_readable 1 "^FAIL rules this user may not read the site key $dir/key: connections stay on TCP" \
        setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search \
        env RAILSOCK_CONFIG="$dir/rules" "$railsock" doctor --wire shm
else
    echo 'skip doctor.key_not_readable: needs root'
fi
says wrong_setting 1 '^FAIL settings RAILSOCK_SPIN=abc: expected microseconds' env RAILSOCK_SPIN=abc "$railsock" doctor --wire shm
says wrong_settings 1 '^FAIL settings RAILSOCK_SPIN=abc: expected .*; RAILSOCK_WIRE=x: expected .*; nobody reads RAILSOCK_BORAD$' \
    env RAILSOCK_SPIN=abc RAILSOCK_BORAD=eager RAILSOCK_WIRE=x "$railsock" doctor --wire shm
says wrong_mode 1 '^FAIL settings RAILSOCK_MODE=TCP: expected auto, tcp or rail' env RAILSOCK_MODE=TCP "$railsock" doctor --wire shm
says unknown_setting 0 '^note settings wire shm, .*; nobody reads RAILSOCK_MEM$' env RAILSOCK_MEM=1m RAILSOCK_SPIN='' RAILSOCK_SHARE= \
    "$railsock" doctor --wire shm
says tests_own 0 "^note settings wire shm, .*; RAILSOCK_TEST_RNR0 is for railsock's own tests: unset it$" \
    env RAILSOCK_TEST_RNR0=1 "$railsock" doctor --wire shm
says tests_own_that_is_wrong 1 '^FAIL settings RAILSOCK_TEST_SWITCH=x: ' env RAILSOCK_TEST_SWITCH=x "$railsock" doctor --wire shm
# Budgets that leave no rail.
says no_rails 1 '^FAIL settings RAILSOCK_RAILS: rails 0: every connection stays on TCP$' env RAILSOCK_RAILS=0 "$railsock" doctor --wire shm
says no_memory 1 '^FAIL settings RAILSOCK_MEMORY: memory 1, and the two rings of a rail take 512k: every' \
    env RAILSOCK_MEMORY=1 "$railsock" doctor --wire shm
says no_memory_for_the_ring 1 '^FAIL settings RAILSOCK_MEMORY: memory 16m, and the two rings of a rail take 128m: every' \
    env RAILSOCK_RING=64m RAILSOCK_MEMORY=16m "$railsock" doctor --wire shm
[[ $(tail -n 1 "$dir/lines") == 'not ready: 1 of '* ]]
is=$? words="$(cat "$dir/lines")"
[ $is -eq 0 ]
verdict no_memory_is_one_failure "$words"
says enough_memory 0 '^ok settings ' env RAILSOCK_RING=64m RAILSOCK_MEMORY=128m "$railsock" doctor --wire shm
rules no_rails 1 "^FAIL rules every connection stays on TCP: $dir/rules:1: rails 0$" 'any rails 0\n'
rules no_memory 1 "^FAIL rules every connection stays on TCP: where no rule says otherwise: memory 8k, and .* take 512k$" \
    'defaults memory 8k\nany to *:80 mode tcp\n'
rules all_on_tcp 1 "^FAIL rules every connection stays on TCP: $dir/rules:2: a rule" 'server mode tcp\nclient mode tcp\nany\n'
rules servers_alone 0 '^ok rules 1 in ' 'client mode tcp\n'
rules one_with_rails 0 '^ok rules 2 in ' 'any program nginx\nany rails 0\n'
rules of_another_user 1 "^FAIL rules every connection stays on TCP: $dir/rules:2: rails 0$" 'any user 54321\nany rails 0\n'
printf 'defaults ring 4k\n' >"$dir/rules"
says memory_for_a_small_ring 0 '^this host is ready$' \
    env RAILSOCK_CONFIG="$dir/rules" RAILSOCK_MEMORY=100k "$railsock" doctor --wire shm
says mode_tcp 1 '^FAIL settings .*RAILSOCK_MODE=tcp' env RAILSOCK_MODE=tcp "$railsock" doctor --wire shm
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    # One process of a user who may have one.
    alone=(setpriv --reuid=54329 --clear-groups --inh-caps=-all prlimit --nproc=1 "$railsock" doctor --wire shm)
    says no_threads 1 '^FAIL threads none can be started: ' "${alone[@]}"
    says memfd_not_tried 1 '^skip memfd not tried: no process ' "${alone[@]}"
else
    echo 'skip doctor.no_threads: needs root'
fi
says threads 0 '^ok threads ' "$railsock" doctor --wire shm
says processors 0 '^(ok|note) processors [1-9]' "$railsock" doctor --wire shm
if unshare -m true 2>/dev/null && [ -e /sys/devices/system/cpu/online ]; then
    says one_processor 0 '^note processors 1: no wait spins' unshare -m sh -c \
        "echo 0 >'$dir/online' && mount --bind '$dir/online' /sys/devices/system/cpu/online
            exec '$railsock' doctor --wire shm"
else
    echo 'skip doctor.one_processor: needs a mount namespace'
fi
says descriptors 1 '^FAIL descriptors .* 639; rails need 640' sh -c "ulimit -n 639; exec '$railsock' doctor --wire shm"
says enough_descriptors 0 '^ok descriptors .* 640;' sh -c "ulimit -n 640; exec '$railsock' doctor --wire shm"
# What follows from that is no failure of its own.
says descriptors_alone 1 '^skip sock_diag ' sh -c "ulimit -n 100; exec '$railsock' doctor --wire shm"
says seccomp 0 '^note seccomp ' "$python" tests/refusing.py -- "$railsock" doctor --wire shm
for io_uring in io_uring_setup kill:io_uring_setup; do
    says "io_uring[$io_uring]" 0 '^note io_uring not used under a seccomp filter' \
        "$python" tests/refusing.py $io_uring -- "$railsock" doctor --wire shm
done
says no_memfd 1 '^FAIL memfd no sealed memory' "$python" tests/refusing.py memfd_create -- "$railsock" doctor --wire shm
says deadly_memfd 1 '^FAIL memfd memfd_create kills who calls it' \
    "$python" tests/refusing.py kill:memfd_create -- "$railsock" doctor --wire shm
says no_netlink 1 '^FAIL sock_diag the kernel cannot be asked' "$python" tests/refusing.py netlink -- "$railsock" doctor --wire shm
says no_unix 1 '^FAIL names no sockets of AF_UNIX' "$python" tests/refusing.py unix -- "$railsock" doctor --wire shm
if unshare -nm true 2>/dev/null; then
    says no_loopback 1 '^FAIL sock_diag no TCP connection' unshare -n "$railsock" doctor --wire shm
    if [ "$(nproc)" -gt 1 ]; then
        # As in a control group whose cpu.stat has these lines, in either version.
        limited() {
            echo "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/cpu &&
                printf '$1' | tee /sys/fs/cgroup/cpu.stat >/sys/fs/cgroup/cpu/cpu.stat
                exec '$railsock' doctor --wire shm"
        }
        says no_cpu_limit 0 '^ok processors [0-9]*$' unshare -m sh -c "$(limited 'nr_periods 0\n')"
        says cpu_limit 0 '^ok processors [0-9]*, with a CPU limit that has held nothing back' unshare -m \
            sh -c "$(limited 'nr_periods 9\nthrottled_usec 0\nthrottled_time 0\n')"
        says cpu_limit_felt 0 '^note processors [0-9]*, and a CPU limit that has held .* back for [1-9]' \
            unshare -m sh -c "$(limited 'nr_periods 9\nthrottled_usec 7000000\nthrottled_time 7000000000\n')"
    else
        echo 'skip doctor.cpu_limit: needs two processors'
    fi
    says no_proc 1 '^FAIL names ' unshare -m sh -c "mount -t tmpfs none /proc; exec '$railsock' doctor --wire shm"
    says no_proc_is_no_kernel 1 '^skip seccomp /proc cannot be read' \
        unshare -m sh -c "mount -t tmpfs none /proc; exec '$railsock' doctor --wire shm"
    # The command's own folder is found all the same.
    says no_proc_installed 1 "^(ok|note) installed ${railsock%/*}/librailsock.so" \
        unshare -m sh -c "mount -t tmpfs none /proc; exec '$railsock' doctor --wire shm"
    # The kernel itself is not to be strict over a test.
    echo 2 >"$dir/overcommit_memory"
    says no_overcommit 0 "^note memfd .*vm.overcommit_memory is 2: .* only between processes of one user$" unshare -m sh -c \
        "mount --bind '$dir/overcommit_memory' /proc/sys/vm/overcommit_memory && exec '$railsock' doctor --wire shm"
    # An InfiniBand port has a GID by itself, which librdmacm does not find it by.
    says no_ipoib 1 '^FAIL link layer made0/1 InfiniBand, without an IPoIB interface' unshare -m sh -c \
        "mount -t tmpfs none /sys/class && d=/sys/class/infiniband/made0 && mkdir -p \$d/ports/1 && echo '1: CA' >\$d/node_type &&
            echo '4: ACTIVE' >\$d/ports/1/state && echo InfiniBand >\$d/ports/1/link_layer && exec '$railsock' doctor --wire verbs"
    says no_tmpfs 0 '^note /dev/shm is not a tmpfs' unshare -m sh -c \
        "mount -t ramfs none /dev/shm; exec '$railsock' doctor --wire shm"
    says no_inodes 0 '^note /dev/shm tmpfs, 2 inodes free: .* stat shows nothing' unshare -m sh -c \
        "mount -t tmpfs -o size=0,nr_inodes=3 none /dev/shm; exec '$railsock' doctor --wire shm"
    says no_room 1 '^FAIL /dev/shm tmpfs, 0 MiB free: programs that stat shows get no rails' unshare -m sh -c \
        "mount -t tmpfs -o size=4k none /dev/shm; exec '$railsock' doctor --wire shm"
    says any_room 0 '^ok /dev/shm tmpfs, without a limit' unshare -m sh -c \
        "mount -t tmpfs -o size=0 none /dev/shm; exec '$railsock' doctor --wire shm"
    # Rails work then, and stat shows nothing.
    says read_only 0 '^note /dev/shm Read-only file system: .*shows nothing.* mount -o remount,rw /dev/shm' unshare -m sh -c \
        "mount -t tmpfs -o ro none /dev/shm; exec '$railsock' doctor --wire shm"
    says not_there 0 '^note /dev/shm ' unshare -m sh -c "mount -t tmpfs none /dev; exec '$railsock' doctor --wire shm"
    says folder_of_another 0 '^note /dev/shm .*is not a folder of mode 700' unshare -m sh -c \
        "mount -t tmpfs none /dev/shm; mkdir -m 755 /dev/shm/railsock-\$(id -u); exec '$railsock' doctor --wire shm"
else
    echo 'skip doctor.no_loopback: needs root'
fi
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
    echo 'skip doctor.no_device: there is one'
else
    says no_device 1 '^FAIL devices no RDMA device' "$railsock" doctor
    says not_looked_at 1 '^skip rdma_cm no RDMA device' "$railsock" doctor --wire verbs
fi
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    memlock() { # NAME KIB LINE
        says "$1" 1 "$3" setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock \
            sh -c "ulimit -l $2; exec '$railsock' doctor --wire verbs"
    }
    memlock memlock 64 '^FAIL memlock 64 KiB: room for 0 rails'
    unshare -r true 2>/dev/null &&
        says memlock_of_a_user_namespace 1 '^FAIL memlock 64 KiB: room for 0 rails' unshare -r sh -c \
            "ulimit -l 64; exec '$railsock' doctor --wire verbs"
    memlock memlock_of_bulk 8192 '^ok memlock 8192 KiB: room for 40 rails over RDMA in a process, 26 if the adapter.s queues count as mlx5.s do, or 2 of bulk streams'
else
    echo 'skip doctor.memlock: needs root'
fi
out=$("$railsock" doctor --json | "$python" -c '
import json, sys
d = json.load(sys.stdin)
assert d["of"] == "host" and d["ready"] == (d["failed"] == 0) and d["told"], d
for c in d["checks"]:
    assert c["says"] and (c["verdict"] != "fail" or c["advice"]), c
    assert c["verdict"] in ("ok", "note", "fail", "skip") and c["microseconds"] >= 0, c
assert d["failed"] == sum(c["verdict"] == "fail" for c in d["checks"]), d
print("fine")' 2>&1)
[ "$out" = fine ]
verdict json "$out"
for wrong in '--wire tcp' '--what' 'a b'; do
    # shellcheck disable=SC2086 # words
    out=$("$railsock" doctor $wrong 2>&1); [ $? -eq 2 ] && [ -n "$out" ]
    verdict "refuses[$wrong]" "$out"
done
out=$("$railsock" doctor --wire shm 2>&1 >/dev/full); [ $? -eq 1 ] && [ -n "$out" ]
verdict full_disk "$out"

# Who has seen enough is told nothing.
out=$("$python" -c '
import os, signal, subprocess, sys
r, w = os.pipe()
os.close(r)
end = subprocess.run([sys.argv[1], "doctor", "--wire", "shm"], stdout=w, stderr=subprocess.PIPE)
assert end.returncode == -signal.SIGPIPE and not end.stderr, end' "$railsock" 2>&1)
verdict broken_pipe "$out"

# ---- programs

says program 0 '^the library can reach it$' "$railsock" doctor cat
printf '#! /bin/sh -e\n' >"$dir/good"
chmod +x "$dir/good"
says program_script 0 '^ok interpreter a script; /bin/sh runs it' "$railsock" doctor "$dir/good"
says program_not_there 1 '^FAIL found .*none: No such file' "$railsock" doctor "$dir/none"
says program_not_in_path 1 '^FAIL found .*is not in PATH' "$railsock" doctor no-such-program-here
says program_directory 1 "^FAIL found $dir is a directory$" "$railsock" doctor "$dir"
says program_root 1 '^FAIL found / is a directory$' "$railsock" doctor /
says program_or_peer 1 '^ -> .*a peer is HOST:PORT' "$railsock" doctor no-such-host-here
says program_number 1 '^FAIL found 999999999 is not in PATH' "$railsock" doctor 999999999
grep -q -- 'railsock stat --pid' "$dir/out"
is=$? words="$(cat "$dir/out")"
[ $is -eq 0 ]
verdict program_number_of_a_process "$words"
says program_not_executable 1 '^FAIL found .*ermission denied' "$railsock" doctor tests/LIST
printf 'echo no first line\n' >"$dir/text"
printf '#!%s/none\n' "$dir" >"$dir/lost"
printf '#!%s/static -x\n' "$dir" >"$dir/script"
chmod +x "$dir"/*
says program_text 1 '^FAIL interpreter .*neither a program nor a script' "$railsock" doctor "$dir/text"
printf '#!/usr/bin/env no-such-program-here\n' >"$dir/by_env"
chmod +x "$dir/by_env"
says program_lost_interpreter_by_env 1 '^FAIL interpreter no-such-program-here: No such file' "$railsock" doctor "$dir/by_env"
says program_lost_interpreter 1 '^FAIL interpreter .*/none: No such file' "$railsock" doctor "$dir/lost"
echo 'int main(void) { return 0; }' >"$dir/main.c"
if cc -static -o "$dir/static" "$dir/main.c" 2>/dev/null; then
    says program_static 1 '^FAIL dynamic statically linked' "$railsock" doctor "$dir/static"
    printf '#!/usr/bin/env static\n' >"$dir/by_env"
    chmod +x "$dir/by_env"
    says program_static_interpreter_by_env 1 '^FAIL dynamic statically linked' env PATH="$dir:$PATH" "$railsock" doctor "$dir/by_env"
    # Whatever else the line has: what of it is env's own, and what the program's.
    for line in "-S $dir/static sh" '-S static sh -e' '-Sstatic -x' '-S -i A=b static sh' '-iS C= static x' '-S -u HOME static x' \
        '-vS -uHOME  -C / static a=b' '--split-string=static x' '-S A=0 static sh'; do
        printf '#!/usr/bin/env %s\n' "$line" >"$dir/by_env"
        says "program_by_env[${line/"$dir"/DIR}]" 1 '^FAIL dynamic statically linked' env PATH="$dir:$PATH" "$railsock" doctor "$dir/by_env"
    done
    # Not understood, so nothing is said of it.
    # shellcheck disable=SC2016 # env's
    for line in '-S "static" sh' '-S PATH=/x static' '-S --what static' '-S $A static' ''; do
        printf '#!/usr/bin/env %s\n' "$line" >"$dir/by_env"
        says "program_by_env_somehow[$line]" 0 '^ok dynamic ' env PATH="$dir:$PATH" "$railsock" doctor "$dir/by_env"
    done
    says program_static_interpreter 1 '^FAIL dynamic statically linked' "$railsock" doctor "$dir/script"
else
    echo 'skip doctor.program_static: no static libc'
fi
cc -Wl,--dynamic-linker="/lib/ld-musl-$(uname -m).so.1" -o "$dir/musl" "$dir/main.c" &&
    says program_musl 1 '^FAIL libc ' "$railsock" doctor "$dir/musl"
cp /bin/true "$dir/narrow"
printf '\001' | dd of="$dir/narrow" bs=1 seek=4 conv=notrunc status=none
says program_32_bit 1 '^FAIL machine a 32-bit program' "$railsock" doctor "$dir/narrow"
cp /bin/true "$dir/foreign"
printf '\001' | dd of="$dir/foreign" bs=1 seek=18 conv=notrunc status=none
says program_foreign 1 '^FAIL machine built for another machine' "$railsock" doctor "$dir/foreign"
if [ "$(id -u)" -eq 0 ]; then
    cp /bin/true "$dir/setuid"
    chown 65534 "$dir/setuid"
    chmod 4755 "$dir/setuid"
    says program_setuid 1 '^FAIL rights set-user-ID' "$railsock" doctor "$dir/setuid"
else
    echo 'skip doctor.program_setuid: needs root'
fi

# ---- peers on this host

port=$((21000 + $$ % 100 * 10))
# serve PORT COMMAND...: a server, once it listens. Its number is in $served.
serve() {
    exec {server}< <(exec "$@" 2>&1)
    served=$!
    pids="$pids $served"
    read -r -t 30 -u "$server"
}
serve "$railsock" run --board eager --wire shm -- "$python" tests/echo.py server $port
late='^note (server .*no process of user|same host .*has not accepted)'
says peer 0 "^ok server [0-9.]+ ms python3, process $served, runs with railsock" "$railsock" doctor --wire shm 127.0.0.1:$port
says peer_by_name 0 '^ok resolve ' "$railsock" doctor --wire shm localhost:$port
says peer_before_any_rail 0 '^ok shm .*nobody answers for the port yet' "$railsock" doctor --wire shm 127.0.0.1:$port
coproc client { exec "$railsock" run --board eager --wire shm -- "$python" tests/echo.py client $port 2000; }
# shellcheck disable=SC2154 # coproc sets it
read -r -t 60 -u "${client[0]}"
says peer_with_a_rail 0 '^ok shm .*the server.s railsock has the connection' "$railsock" doctor --wire shm 127.0.0.1:$port
# shellcheck disable=SC2154
pids="$pids $client_PID"
late=
# Who asks does not see what the server shows, as in another container; but it answers.
if unshare -m true 2>/dev/null; then
    says peer_that_is_not_seen 0 '^note server .*no process of user' unshare -m sh -c \
        "mount -t tmpfs none /dev/shm; exec '$railsock' doctor --wire shm 127.0.0.1:$port"
    grep -q '^ok shm .*the server.s railsock has the connection' "$dir/lines"
    is=$? words="$(cat "$dir/lines")"
    [ $is -eq 0 ]
    verdict peer_that_is_not_seen_answers "$words"
else
    echo 'skip doctor.peer_that_is_not_seen: needs root'
fi
peer_rules() { # NAME STATUS LINE TEXT: with these
    printf '%b' "$4" >"$dir/rules"
    says "peer_rules_$1" "$2" "$3" env RAILSOCK_CONFIG="$dir/rules" "$railsock" doctor 127.0.0.1:$port
}
peer_rules none 0 '^ok rule .*the defaults: none is for it' 'client to *:1 mode tcp\n'
peer_rules tcp 1 "^FAIL rule .*$dir/rules:2: connections there stay on TCP" "log min-level warn\nclient to *:$port mode tcp\n"
peer_rules no_rails 1 "^FAIL rule .*$dir/rules:1: connections there stay on TCP: rails 0$" 'client rails 0\n'
peer_rules but_for_some 0 "^note rule .*$dir/rules:2: .*, but for programs that a rule names" 'client program x mode auto\nclient mode tcp\n'
peer_rules wire 1 '^FAIL (rdma|device) ' "client to *:$port wire verbs\n"
peer_rules wrong 1 "^FAIL rule .*$dir/rules:1:1: expected " 'x\n'
says peer_auto 0 '^skip rdma within one host' "$railsock" doctor 127.0.0.1:$port
says peer_loopback_is_no_rdma 1 '^FAIL (rdma|device) ' "$railsock" doctor --wire verbs 127.0.0.1:$port
serve "$railsock" run --tcp -- "$python" tests/echo.py server $((port + 1))
late='^note (server .*no process of user|same host .*has not accepted)'
says peer_on_tcp 1 '^FAIL server .*was told to use TCP' "$railsock" doctor --wire shm 127.0.0.1:$((port + 1))
# What is to be run says that nothing boards.
for own in MODE=tcp BOARD=never MODE=bogus; do
    says "peer_own[$own]" 1 "^FAIL rule .* RAILSOCK_$own: " env "RAILSOCK_$own" "$railsock" doctor --wire shm 127.0.0.1:$port
    [ "$(grep -c '^skip shm' "$dir/lines")" -eq 1 ]
    is=$? words="$(cat "$dir/lines")"
    [ $is -eq 0 ]
    verdict "peer_own_stops[$own]" "$words"
done
# A server that says so of the connection itself, or of those that it has had: of this one it is not
# known before bytes have passed.
cat >"$dir/epoll.py" <<'END'
import asyncio, sys
async def serve(r, w):
    while d := await r.read(65536):
        w.write(d)
async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    print("listening", flush=True)
    await s.serve_forever()
asyncio.run(main())
END
serve "$railsock" run --tcp -- "$python" "$dir/epoll.py" $((port + 5))
says peer_epoll_on_tcp 1 '^FAIL server .*(epoll|mode-tcp): ' "$railsock" doctor --wire shm 127.0.0.1:$((port + 5))
serve sh -c "ulimit -n 300; exec '$railsock' run -- '$python' '$dir/epoll.py' $((port + 6))"
says peer_without_descriptors 1 '^FAIL server .*fd-limit: ' "$railsock" doctor --wire shm 127.0.0.1:$((port + 6))
echo 'server mode tcp' >"$dir/server.rules"
echo x >"$dir/wrong.rules"
for why in rule config; do
    [ $why = rule ] && rules=$dir/server.rules || rules=$dir/wrong.rules
    serve env RAILSOCK_CONFIG="$rules" "$railsock" run -- "$python" tests/echo.py server $((port + 7))
    timeout 60 "$railsock" run -- "$python" tests/echo.py client $((port + 7)) 2000 </dev/null >"$dir/client" 2>&1
    says "peer_with[$why]" 0 "^note server .*has kept connections on TCP: $why: " "$railsock" doctor --wire shm 127.0.0.1:$((port + 7))
    [ "$(tail -n 1 "$dir/lines")" = 'nothing failed, but whether connections there can board cannot be told' ] &&
        "$railsock" doctor --json --wire shm 127.0.0.1:$((port + 7)) | grep -q '"ready":true,"told":false}$'
    is=$? words="$(cat "$dir/lines" "$dir/client")"
    [ $is -eq 0 ]
    verdict "peer_with_is_not_told[$why]" "$words"
    kill "$served"
    wait "$served" 2>/dev/null
done
# Its connections are not its child's alone at first, and board all the same.
cat >"$dir/forking.py" <<'END'
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while d := self.request.recv(65536):
            self.request.sendall(d)
with socketserver.ForkingTCPServer(("127.0.0.1", int(sys.argv[1])), Echo) as s:
    print("listening", flush=True)
    s.serve_forever()
END
serve "$railsock" run -- "$python" "$dir/forking.py" $((port + 8))
says peer_that_forks 0 '^ok server .*runs with railsock' "$railsock" doctor --wire shm 127.0.0.1:$((port + 8))
late=
# Without the library; it hears one connection, nothing over it, and its end.
serve "$python" -c '
import socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
c, _ = s.accept()
print("got", c.recv(100), flush=True)
s.settimeout(1)
try:
    s.accept()
    print("another", flush=True)
except TimeoutError:
    print("no other", flush=True)
' $((port + 2))
says peer_without 1 '^FAIL shm .*nobody answers for this port' "$railsock" doctor --wire shm 127.0.0.1:$((port + 2))
grep -q '^note server .*no process of user' "$dir/lines"
is=$? words="$(cat "$dir/lines")"
[ $is -eq 0 ]
verdict peer_without_is_noted "$words"
read -r -t 30 -u "$server" got && read -r -t 30 -u "$server" other
[ "$got $other" = "got b'' no other" ]
verdict peer_undisturbed "$got $other"
serve "$python" -c '
import signal, socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
signal.pause()' $((port + 3))
says peer_that_does_not_accept 0 '^note same host .*has not accepted' "$railsock" doctor --wire shm 127.0.0.1:$((port + 3))
[ "$(grep -cE '^(note shm .*cannot be told|nothing failed, but )' "$dir/lines")" -eq 2 ]
is=$? words="$(cat "$dir/lines")"
[ $is -eq 0 ]
verdict peer_that_does_not_accept_is_not_told "$words"
says peer_refused 1 '^FAIL connect .*refused' "$railsock" doctor 127.0.0.1:$((port + 4))
says peer_unknown 1 '^FAIL resolve ' env RES_OPTIONS='timeout:1 attempts:1' "$railsock" doctor nosuch.invalid:80
