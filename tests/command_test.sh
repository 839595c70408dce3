#!/bin/bash
# tests/command_test.sh - `railsock run`: what the program gets, and what is said when the
# library cannot reach it. Uses a library made here, so that it needs none of the real one.
# shellcheck disable=SC2016 # what stands in single quotes is for the inner shell
set -u

cd "$(dirname "$0")/.." || exit 1
railsock=$(realpath "${RAILSOCK_TEST_BUILD:-build}")/railsock
dir=$(mktemp -d "${TMPDIR:-/tmp}/command_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
[ -x "$railsock" ] || { echo "not ok command: $railsock is not built"; exit 1; }
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD

# verdict NAME WORDS: reports; the condition is the status of the last command.
verdict() {
    # shellcheck disable=SC2319 # the caller's condition is what is asked
    if [ "$?" -eq 0 ]; then echo "ok command.$1"; else echo "not ok command.$1: $2"; fi
}

echo 'int railsock_command_test;' >"$dir/lib.c"
cc -shared -fPIC -Wl,-soname,librailsock.so -o "$dir/one.so" "$dir/lib.c" && cp "$dir/one.so" "$dir/other.so" || exit 1
export RAILSOCK_LIBRARY=$dir/one.so

out=$("$railsock" --help) && [[ $out == *run* && $out == *stat* && $out == *doctor* && $out == *lab* ]]
verdict help "railsock --help: $out"
[[ $("$railsock" --version) =~ ^railsock\ [0-9.]+$ ]]
verdict version "wrong form"
out=$("$railsock" nonsense 2>&1); [ $? -eq 2 ] && [[ $out == *'no command nonsense'* ]]
verdict unknown_command "$out"
for c in run stat tap check ab doctor lab 'lab run'; do
    for help in --help -h; do
        # shellcheck disable=SC2086 # words
        out=$("$railsock" $c $help 2>/dev/null) && [[ $out == "usage: railsock ${c% *}"* ]]
        verdict "help_${c}[$help]" "$out"
    done
    # shellcheck disable=SC2086
    out=$("$railsock" $c --unknown 2>&1); [ $? -eq 2 ] && [[ $out == *"railsock $c: "*--unknown* ]]
    verdict "unknown_option_$c" "$out"
done
# Wherever it stands, and as a command.
for words in 'check tests/LIST --help' 'check -h x' 'check --match client p 1.2.3.4:5 --help' 'lab image --help' 'help check' 'help lab'; do
    # shellcheck disable=SC2086 # words
    out=$("$railsock" $words 2>/dev/null) && [[ $out == 'usage: railsock '[cl]* ]]
    verdict "help[$words]" "$out"
done
out=$("$railsock" help) && [ "$out" = "$("$railsock" --help)" ]
verdict 'help[help]' "$out"
out=$("$railsock" help me 2>&1); [ $? -eq 2 ] && [[ $out == 'railsock: there is no command me'* ]]
verdict 'help[help me]' "$out"
# Who has mistyped something is not shown everything.
for words in 'stat x' 'stat --what' 'tap --what' 'check --what' 'check a b' 'doctor --what' 'doctor a b' 'lab run' 'lab what' 'run' 'run --what'; do
    # shellcheck disable=SC2086 # words
    out=$("$railsock" $words 2>&1); [ $? -eq 2 ] && [ "$(wc -l <<<"$out")" -eq 2 ] &&
        [ "$(tail -n 1 <<<"$out")" = "Try \`railsock ${words%% *} --help\`." ]
    verdict "short[$words]" "$out"
done
# Help that nobody can read is no success.
for c in '' run stat tap check ab doctor lab 'lab run'; do
    for to in /dev/full '&-'; do
        # shellcheck disable=SC2086 # words
        out=$(eval "exec '$railsock' $c --help 2>&1 >$to"); status=$?
        [ $status -eq 1 ] && [[ $out == "railsock${c:+ ${c% run}}: "* ]]
        verdict "help_not_written[$c >$to]" "status $status: $out"
    done
done
out=$("$railsock" --version 2>&1 >/dev/full); [ $? -eq 1 ] && [ -n "$out" ]
verdict version_not_written "$out"
# says_wrong WORDS COMMAND...: wrong usage, and what is wrong with it.
says_wrong() {
    local words=$1
    shift
    out=$("$railsock" "$@" 2>&1); [ $? -eq 2 ] && [[ $out == "railsock $words"* ]]
    verdict "says_wrong[$*]" "$out"
}
says_wrong 'stat: --port 70000: expected a number from 1 to 65535' stat --port 70000
says_wrong 'stat: unexpected argument: x' stat x
says_wrong 'check: unexpected argument: b' check a b
says_wrong 'check: an empty word: expected a file' check ''
says_wrong 'check: -: expected a file: rules are not read from a pipe' check -
says_wrong 'check: --match any: expected server or client, PROGRAM and ADDRESS:PORT' check --match any p 1.2.3.4:5
says_wrong 'check: --match client: expected server or client, PROGRAM and ADDRESS:PORT' check --match client p
says_wrong 'check: --match: expected server or client' check --match
says_wrong 'check: --match is there twice' check --match client p 1.2.3.4:5 --match client p 1.2.3.4:5
says_wrong 'check: --user needs --match' check --user root
says_wrong 'check: --user: expected a user' check --match client p 1.2.3.4:5 --user
says_wrong 'tap: [::1]:3: expected at most two ADDRESS:PORT' tap -o - 1.2.3.4:1 1.2.3.4:2 '[::1]:3'
says_wrong 'tap: 2: expected one process, and 1 was named before' tap -o - 1 2
says_wrong 'doctor: unexpected argument: b' doctor a b
says_wrong 'doctor: host:0: expected a port from 1 to 65535' doctor host:0
says_wrong 'doctor: 127.0.0.1:: expected HOST:PORT' doctor 127.0.0.1:
says_wrong 'doctor: host:http: expected HOST:PORT' doctor host:http
says_wrong 'doctor: host:99999: expected a port from 1 to 65535' doctor host:99999
says_wrong 'doctor: 127.0.0.1: expected ADDRESS:PORT: it is an address without a port' doctor 127.0.0.1
says_wrong 'doctor: ::1: expected [ADDRESS]:PORT: it is an address without a port' doctor ::1
says_wrong 'check: unexpected argument: b' check -- a b
says_wrong 'check: unexpected argument: -x' check -x
says_wrong 'lab: --hosts 9: expected a number from 1 to 4' lab run --hosts 9 -- true
says_wrong 'lab: --device wlan: expected rxe, siw or none' lab run --device wlan -- true

out=$("$railsock" run -- sh -c 'echo "$LD_PRELOAD|${RAILSOCK_MODE-unset}"')
[ "$out" = "$dir/one.so|unset" ]
verdict preload "$out"
out=$(LD_PRELOAD="$dir/other.so" "$railsock" run -- sh -c 'echo "$LD_PRELOAD"')
[ "$out" = "$dir/one.so:$dir/other.so" ]
verdict preload_keeps_others "$out"
out=$("$railsock" run -- "$railsock" run -- sh -c 'echo "$LD_PRELOAD"')
[ "$out" = "$dir/one.so" ]
verdict preload_once "$out"
out=$(LD_PRELOAD="$dir/x.so:/other/one.so $dir/y.so" "$railsock" run -- sh -c 'echo "$LD_PRELOAD"' 2>/dev/null)
[ "$out" = "$dir/one.so:$dir/x.so:$dir/y.so" ]
verdict preload_no_other_of_ours "$out"
# A script has its own name in rules, and its interpreter's; and a user, however long the list of
# them is.
printf '#!/bin/sh\n' >"$dir/daemon"
chmod +x "$dir/daemon"
for pattern in daemon "$dir/daemon" "$(basename "$(readlink -f /bin/sh)")"; do
    printf 'client program %s mode tcp\n' "$pattern" >"$dir/rules"
    out=$("$railsock" check "$dir/rules" --match client "$dir/daemon" 127.0.0.1:80) && [[ $out == *'stays on TCP: rule' ]]
    verdict "check_script[${pattern#"$dir"}]" "$out"
done
# As others have it: what follows is a file's name.
printf 'client mode tcp\n' | tee "$dir/-x" >"$dir/--match"
for file in "$dir/-x" -x --match; do
    out=$(cd "$dir" && "$railsock" check -- "$file") && [ "$out" = 'client mode tcp' ]
    verdict "check_after_dashes[${file#"$dir"}]" "$out"
done
out=$("$railsock" check --match client nginx 127.0.0.1:80 -- "$dir/-x") && [[ $out == *'stays on TCP: rule' ]]
verdict check_options_before_dashes "$out"
# A rule's own budget, or the process's, that leaves no rail.
keeps() { # NAME LINE RULES...: the last line of what is said of a client's connection
    local name=$1 line=$2
    shift 2
    printf '%s\n' "$@" >"$dir/rules"
    out=$("$railsock" check "$dir/rules" --match client nginx 127.0.0.1:80) && [ "$(tail -n 1 <<<"$out")" = "$line" ]
    verdict "check_budget[$name]" "$out"
}
keeps rails 'so it stays on TCP: budget (rails 0)' 'any rails 0'
keeps defaults 'so it stays on TCP: budget (rails 0)' 'any rails 5' 'defaults rails 0'
keeps memory 'so it stays on TCP: budget (memory 1m, and the two rings of a rail take 2m)' 'any ring 1m memory 1m'
echo 'any ring 1m memory 2m' >"$dir/rules"
out=$("$railsock" check "$dir/rules" --match client nginx 127.0.0.1:80) && [[ $out != *'stays on TCP'* ]]
verdict 'check_budget[enough]' "$out"
# What a user has for himself is not another's.
mkdir "$dir/home"
echo 'client mode tcp' >"$dir/home/railsock.conf"
own() { XDG_CONFIG_HOME=$dir/home "$railsock" check --match client nginx 127.0.0.1:80 "$@"; }
out=$(own) && [[ $out == "$dir/home/railsock.conf:1: client mode tcp"* ]]
verdict check_own_file "$out"
out=$(own --user "$(id -u)") && [[ $out == "$dir/home/railsock.conf:1: client mode tcp"* ]]
verdict check_own_file_by_name "$out"
out=$(own --user 54321) && [[ $out != *"$dir/home"* && $out == *"that user's own file, if there is one, is not looked at, nor is yours"* ]]
verdict check_of_another_user "$out"
if unshare -m true 2>/dev/null; then
    # What is strange about the system's file is said.
    strange() { # WORDS COMMAND: with an /etc in which COMMAND has made one
        out=$(unshare -m sh -c 'cp -P /etc/passwd /etc/ld.so.cache "$1" && mount --bind "$1" /etc && eval "$2" && "$3" check && "$3" doctor --wire shm' \
            sh "$dir/etc" "$2" "$railsock" 2>&1)
        [[ $out == *"railsock check: warning: $1"* && $out == *"note  rules "*"$1"* ]]
        verdict "check_system_file[$1]" "$out"
        rm -f "$dir/etc/railsock.conf"
    }
    mkdir "$dir/etc"
    strange '/etc/railsock.conf: it is a link to what is not there' 'ln -s nowhere /etc/railsock.conf'
    strange '/etc/railsock.conf: anybody may change it' 'echo "client spin 7" >/etc/railsock.conf; chmod 666 /etc/railsock.conf'
    strange '/etc/railsock.conf: it belongs to user 54321' 'echo "client spin 7" >/etc/railsock.conf; chown 54321 /etc/railsock.conf'
    { seq 100000 180000 | sed 's/.*/user&:x:&:1::\/:\/bin\/sh/' && printf 'last:x:777:1::/:/bin/sh'; } >"$dir/passwd"
    for user in user100000 user140000 last; do
        printf 'client user %s mode tcp\n' "$user" >"$dir/rules"
        out=$(unshare -m sh -c 'mount --bind "$1" /etc/passwd && exec "$2" check "$3" --match client /bin/true 127.0.0.1:80 --user "$4"' \
            sh "$dir/passwd" "$railsock" "$dir/rules" "$user" 2>&1) && [[ $out == *'stays on TCP: rule' ]]
        verdict "check_long_passwd[$user]" "$out"
    done
else
    echo 'skip command.check_long_passwd: needs root'
fi
# Each signal once, whether it is sent to it alone or to its group.
if python=/usr/bin/python3 && [ -x "$python" ]; then
    want=$("$python" tests/signalled.py "$python" tests/signalled.py)
    out=$(timeout 60 "$python" tests/signalled.py "$railsock" run --tcp --report -- "$python" tests/signalled.py 2>/dev/null)
    [ -n "$want" ] && [ "$out" = "$want" ]
    verdict report_passes_signals_on "$out"
fi

# Processes of another version are missing in the sums, and it is said how many.
shown='printf "railsock\7\0\0\0" >"$RAILSOCK_KEEP/$$.0"'
out=$("$railsock" run --report=json:- -- sh -c "$shown") && [[ $out == *',"not_shown":"1 process of another version of railsock"}' ]]
verdict report_of_another_version "$out"
out=$("$railsock" run --report=always -- sh -c "$shown" 2>&1) &&
    [ "$out" = 'railsock: sh made no TCP connection that the library saw, or none could be shown: 1 process of another version of railsock' ]
verdict report_of_another_version_in_words "$out"
# What cannot be written is told before COMMAND runs.
out=$("$railsock" run --report=json:- -- sh -c 'echo ran >&2' 2>&1 >&-)
[ $? -eq 125 ] && [ "$out" = 'railsock run: --report=json:-: Bad file descriptor' ]
verdict report_without_output "$out"

# Where there can be no report the program runs all the same, as itself.
if unshare -m true 2>/dev/null; then
    without_room() { # OPTION: a program that says here and ends with 41
        unshare -m sh -c 'mount -t tmpfs -o ro none /dev/shm && exec "$@"' sh \
            "$railsock" run "$1" -- sh -c 'echo here; exit 41' 2>&1
    }
    for report in --report --report=always; do
        out=$(without_room $report)
        [ $? -eq 41 ] && [[ $out == 'railsock run: warning: /dev/shm/'*'Read-only file system: there will be no report'*here ]]
        verdict "no_report[$report]" "$out"
    done
    # JSON is written all the same, over what was there.
    echo '{"old": 1}' >"$dir/json"
    out=$(without_room --report="json:$dir/json")
    [ $? -eq 41 ] && [[ $out == 'railsock run: warning: '*'the report will lack all processes'*here ]] &&
        [[ $(cat "$dir/json") == '{"wall_s":'*'"connections":0,'*'"not_shown":"/dev/shm cannot be written to"}' ]]
    verdict no_report_as_json "$out, $(cat "$dir/json")"
    out=$(without_room --report="json:$dir/none/json")
    [ $? -eq 125 ] && [ "$out" = "railsock run: --report=json:$dir/none/json: No such file or directory" ]
    verdict no_report_and_no_file "$out"
else
    echo 'skip command.no_report: needs root'
fi

# `railsock lab` with a QEMU that only says something and ends.
mkdir "$dir/lab"
printf '#!/bin/sh\nprintf "none\\nnone\\nnone\\n"\n' >"$dir/lab/lab-image"
cat >"$dir/lab/qemu-system-x86_64" <<'END'
#!/bin/bash
kill -HUP $PPID
[[ $* =~ id=out,fd=([0-9]+) ]] && { echo hello; cat; } >&"${BASH_REMATCH[1]}" <&"${BASH_REMATCH[1]}"
END
chmod +x "$dir/lab/lab-image" "$dir/lab/qemu-system-x86_64"
lab() {
    RAILSOCK_SHARE=$dir/lab PATH=$dir/lab:$PATH timeout 60 sh -c 'trap "$1" HUP; exec "$2" lab run --hosts 1 -- true >/dev/full' \
        sh "$1" "$railsock" 2>&1
}
out=$(lab -)
[ $? -eq 129 ]
verdict lab_hangup "$out"
out=$(lab '')
[ $? -eq 125 ] && [[ $out == *'the output cannot be written: No space left on device'* ]]
verdict lab_under_nohup_to_a_full_disk "$out"
mkdir "$dir/fake"
timeout 200 /usr/bin/python3 tests/lab_fake.py "$railsock" "$dir/fake"
verdict lab_with_played_hosts "status $?"

out=$("$railsock" run --rail --wire shm --board after=64k --spin 5 --ring 1m --log "info:$dir/log" \
    -- sh -c 'echo $RAILSOCK_MODE $RAILSOCK_WIRE $RAILSOCK_BOARD $RAILSOCK_SPIN $RAILSOCK_RING $RAILSOCK_LOG')
[ "$out" = "rail shm after=64k 5 1m info:$dir/log" ]
verdict settings "$out"
# The log of what COMMAND starts elsewhere is the same.
out=$(cd "$dir" && "$railsock" run --log info:a/rail.log -- sh -c 'echo $RAILSOCK_LOG')
[ "$out" = "info:$dir/a/rail.log" ]
verdict log_where_it_was_started "$out"
out=$("$railsock" tap -o - --pid $$ 2>&1 >&-); [ $? -eq 1 ] && [ "$out" = 'railsock tap: -o -: Bad file descriptor' ]
verdict tap_without_output "$out"
# It is rounded up, as the words for a wrong one say.
for ring in 1:4k 3k:4k 5k:8k 64m:64m 0:0; do
    printf 'any ring %s\n' "${ring%:*}" >"$dir/rules"
    out=$("$railsock" check "$dir/rules") && [ "$out" = "any ring ${ring#*:}" ]
    verdict "ring_is_rounded[$ring]" "$out"
done
out=$("$railsock" run --ring 65m true 2>&1)
[[ $out == "railsock run: --ring 65m: expected bytes (rounded up to a power of two, 4k to 64m), or 0 for the wire's own"* ]]
verdict ring_is_rounded_says_it "$out"
out=$(RAILSOCK_SPIN=7 RAILSOCK_MODE=rail "$railsock" run --tcp sh -c 'echo $RAILSOCK_SPIN $RAILSOCK_MODE')
[ "$out" = '7 tcp' ]
verdict settings_over_environment "$out"
# A profile gives way to an option and to the environment; of several the last counts.
show='echo $RAILSOCK_BOARD,$RAILSOCK_SPIN,$RAILSOCK_IDLE,$RAILSOCK_RING,$RAILSOCK_STALL,$RAILSOCK_RAILS,$RAILSOCK_MEMORY'
profile() {
    local name=$1 want=$2
    shift 2
    out=$("$@" 2>&1); [ "$out" = "$want" ]
    verdict "profile_$name" "$out"
}
profile latency eager,200,0,,,, "$railsock" run --profile latency sh -c "$show"
profile throughput ,,,1m,500,, "$railsock" run --profile throughput sh -c "$show"
profile frugal after=1m,0,5,64k,,64,16m "$railsock" run --profile frugal sh -c "$show"
profile two after=1m,0,5,64k,500,64,16m "$railsock" run --profile throughput,frugal sh -c "$show"
profile two_again eager,200,0,64k,,64,16m "$railsock" run --profile frugal --profile latency sh -c "$show"
profile below_options eager,3,0,,,, "$railsock" run --spin 3 --profile latency sh -c "$show"
profile below_the_environment eager,,9,,,, env RAILSOCK_IDLE=9 RAILSOCK_SPIN= \
    "$railsock" run --profile latency sh -c "unset RAILSOCK_SPIN; $show"
profile below_rail ,0,5,64k,,64,16m "$railsock" run --rail --profile frugal sh -c "$show"
out=$(RAILSOCK_SPIN='' "$railsock" run --profile latency sh -c "$show"); [ "$out" = eager,200,0,,,, ]
verdict profile_over_an_empty_variable "$out"
# Each value in the table is one that the library understands.
for name in latency throughput frugal; do
    out=$(RAILSOCK_LIBRARY='' "$railsock" run --profile $name true 2>&1)
    [[ $out != *expected* ]]
    verdict "profile_is_understood[$name]" "$out"
done
# Options of the program are the program's.
out=$("$railsock" run sh -c 'echo "$0 $*"' --tcp --help)
[ "$out" = '--tcp --help' ]
verdict options_of_the_program "$out"

for wrong in '--wire tcp' '--board sometimes' '--spin 20us' '--ring 1g' '--log loud' '--tcp --rail' \
    '--unknown' '' '--profile fast' '--profile latency,' '--profile' '--report=soon'; do
    # shellcheck disable=SC2086 # words
    out=$("$railsock" run $wrong ${wrong:+true} 2>&1)
    [ $? -eq 2 ] && [ -n "$out" ]
    verdict "refuses[$wrong]" "status $?, $out"
done

"$railsock" run -- sh -c 'exit 41'; [ $? -eq 41 ]
verdict exit_status "not the program's"
"$railsock" run -- sh -c 'echo $$' >"$dir/pid" &
pid=$!
wait $pid
out=$(cat "$dir/pid"); [ "$out" = $pid ]
verdict same_pid "$out is not $pid"
# In a pipe, so that the shell does not announce the death.
{ "$railsock" run -- sh -c 'kill -TERM $$' | cat; status=${PIPESTATUS[0]}; } 2>/dev/null
[ "$status" -eq 143 ]
verdict signal "status $status"
out=$("$railsock" run -- "$dir/none" 2>&1); [ $? -eq 127 ] && [[ $out == *'No such file'* ]]
verdict not_found "$out"
mkdir "$dir/path"
: >"$dir/path/plain"
out=$(PATH=$dir/path:$PATH "$railsock" run -- plain 2>&1); [ $? -eq 126 ] && [[ $out == 'railsock run: plain: Permission denied' ]]
verdict not_executable_in_path "$out"
# What shells run themselves.
printf 'echo here\n' >"$dir/path/text"
: >"$dir/path/empty"
printf '\177ELF\0\0' >"$dir/path/binary"
printf '\177ELF' >"$dir/path/cut"
printf '#!%s\n' "$dir/none" >"$dir/path/orphan"
chmod +x "$dir"/path/{text,empty,binary,cut,orphan}
for report in --wire=auto --report; do
    for file in text empty; do
        out=$("$railsock" run $report -- "$dir/path/$file" 2>&1); status=$?
        [ $status -eq 126 ] && [[ $out == "railsock run: $dir/path/$file: Exec format error: it has no #! line"*": railsock run sh $dir/path/$file" ]]
        verdict "no_first_line[$file $report]" "status $status: $out"
    done
    out=$(PATH=$dir/path:$PATH "$railsock" run $report -- text 2>&1); status=$?
    [ $status -eq 126 ] && [[ $out == 'railsock run: text: Exec '*": railsock run sh $dir/path/text" ]]
    verdict "no_first_line_in_path[$report]" "status $status: $out"
    out=$("$railsock" run $report -- "$dir/path/binary" 2>&1); status=$?
    [ $status -eq 126 ] && [ "$out" = "railsock run: $dir/path/binary: Exec format error" ]
    verdict "no_format_of_ours[$report]" "status $status: $out"
    out=$("$railsock" run $report -- "$dir/path/cut" 2>&1); status=$?
    [ $status -eq 126 ] && [ "$out" = "railsock run: $dir/path/cut: Exec format error" ]
    verdict "cut_off[$report]" "status $status: $out"
    out=$("$railsock" run $report -- "$dir/path/orphan" 2>&1); status=$?
    [ $status -eq 127 ] && [ "$out" = "railsock run: $dir/path/orphan: its interpreter $dir/none: No such file or directory" ]
    verdict "no_interpreter[$report]" "status $status: $out"
done
out=$("$railsock" run -- no-such-command 2>&1); [ $? -eq 127 ] && [[ $out == *'No such file'* ]]
verdict not_in_path "$out"
out=$("$railsock" run -- "$dir" 2>&1); [ $? -eq 126 ] && [[ $out == *'ermission denied'* ]]
verdict not_executable "$out"

out=$(RAILSOCK_LIBRARY=$dir/none.so "$railsock" run true 2>&1)
[ $? -eq 125 ] && [[ $out == *RAILSOCK_LIBRARY=*none.so* ]]
verdict no_library "$out"
cc -c -o "$dir/one.o" "$dir/lib.c"
cc -shared -fPIC -Wl,-soname,librailsock.so.2 -o "$dir/second.so" "$dir/lib.c"
cc -shared -fPIC -o "$dir/nameless.so" "$dir/lib.c"
for file in /etc/passwd "$dir/one.o" /dev/null/x "$dir/second.so" "$dir/nameless.so" "$dir"; do
    out=$(RAILSOCK_LIBRARY=$file "$railsock" run -- sh -c 'echo it runs' 2>&1)
    [ $? -eq 125 ] && [[ $out == *RAILSOCK_LIBRARY=*"$file"* && $out != *'it runs'* ]]
    verdict "no_library[${file##*/}]" "$out"
done
[ "$out" = "railsock run: RAILSOCK_LIBRARY=$dir: not a file" ]
verdict no_library_but_a_folder "$out"
out=$(RAILSOCK_LIBRARY=$dir/second.so "$railsock" run true 2>&1)
[ "$out" = "railsock run: RAILSOCK_LIBRARY=$dir/second.so: it is another library than librailsock.so" ]
verdict no_library_of_ours "$out"
multiarch=lib/$(uname -m)-linux-gnu/railsock
mkdir -p "$dir/bin" "$dir/lib/railsock" "$dir/lib64/railsock" "$dir/$multiarch" "$dir/a b"
cp "$railsock" "$dir/bin/"
if [ -e "$(cat "${railsock%/*}/plain/library_place")" ]; then
    echo 'skip command.no_library_anywhere: one is installed'
else
    out=$(RAILSOCK_LIBRARY='' "$dir/bin/railsock" run true 2>&1)
    [ $? -eq 125 ] && [[ $out == *'librailsock.so is not in'* ]]
    verdict no_library_anywhere "$out"
fi
if unshare -m true 2>/dev/null; then
    out=$(RAILSOCK_LIBRARY='' unshare -m sh -c 'umount -l /proc && exec "$1" run sh -c "echo \$LD_PRELOAD"' sh "$railsock" 2>&1)
    [ "$out" = "${railsock%/*}/librailsock.so" ]
    verdict own_library_without_proc "$out"
else
    echo 'skip command.own_library_without_proc: needs root'
fi
place=$(cat "${railsock%/*}/plain/library_place")
if unshare -m true 2>/dev/null && [[ $place == /usr/local/* && $railsock != /usr/local/* ]]; then
    out=$(RAILSOCK_LIBRARY='' unshare -m sh -c 'mount -t tmpfs none /usr/local && mkdir -p "${1%/*}" &&
        cp "$2" "$1" && umount -l /proc && exec "$3" run sh -c "echo \$LD_PRELOAD"' sh "$place" "$dir/one.so" "$dir/bin/railsock" 2>&1)
    [ "$out" = "$place" ]
    verdict library_without_proc "$out"
else
    echo 'skip command.library_without_proc: needs root, and a library that belongs below /usr/local'
fi
for place in lib lib64/railsock "$multiarch" lib/railsock bin; do
    cp "$dir/one.so" "$dir/$place/librailsock.so"
    # The places are tried from the last here to the first.
    out=$(RAILSOCK_LIBRARY='' "$dir/bin/railsock" run -- sh -c 'echo $LD_PRELOAD' 2>&1)
    [ "$out" = "$(readlink -f "$dir/$place/librailsock.so")" ]
    verdict "library_in[$place]" "$out"
done
cp "$dir/one.so" "$dir/a b/one.so"
out=$(RAILSOCK_LIBRARY="$dir/a b/one.so" "$railsock" run true 2>&1)
[ $? -eq 125 ] && [[ $out == *space* ]]
verdict library_with_a_space "$out"

# Programs that the library cannot reach.
warns() {
    local name=$1 words=$2
    shift 2
    out=$("$railsock" run -- "$@" 2>&1 >/dev/null)
    if [[ $out == "railsock run: warning: "*"$words"* ]]; then
        echo "ok command.warns_$name"
    else
        echo "not ok command.warns_$name: $out"
    fi
    out=$("$railsock" run --rail -- "$@" 2>&1 >/dev/null)
    [ $? -eq 125 ] && [[ $out == "railsock run: "*"$words"*"; --rail is not possible" && $out != *'it runs'* ]]
    verdict "refuses_$name" "$out"
}
out=$("$railsock" run -- cat /dev/null 2>&1); [ -z "$out" ]
verdict warns_nothing "$out"

cat >"$dir/main.c" <<'END'
#ifdef GO
__attribute__((section(".note.go.buildid"), used, aligned(4))) static const struct {
    int namesz, descsz, type;
    char name[4], desc[4];
} note = {4, 4, 4, "Go\0", "abc"};
#endif
int main(void) { return 0; }
END
if cc -static -o "$dir/static" "$dir/main.c" 2>/dev/null; then
    warns static 'statically linked: LD_PRELOAD has no effect' "$dir/static"
    printf '#!%s\n' "$dir/static" >"$dir/script"
    chmod +x "$dir/script"
    warns static_interpreter "$dir/script is run by $dir/static, which is statically linked" "$dir/script"
    printf '#!/usr/bin/env -S A=b %s sh\n' "$dir/static" >"$dir/script"
    warns static_interpreter_by_env_with_words "run by $dir/static, which is statically linked" "$dir/script"
    printf '#!/usr/bin/env -S static\n' >"$dir/script"
    (PATH=$dir:$PATH; warns static_in_path 'statically linked' static
        warns static_interpreter_by_env "run by $dir/static, which is statically linked" "$dir/script")
else
    echo 'skip command.warns_static: no static libc'
fi
if cc -DGO -o "$dir/go" "$dir/main.c" 2>/dev/null; then
    warns go 'a Go program' "$dir/go"
else
    echo 'skip command.warns_go: cannot be built'
fi
# A sanitizer's library wants to be the first.
if cc -fsanitize=address -o "$dir/asan" "$dir/main.c" 2>/dev/null; then
    out=$(env -u LD_PRELOAD "$railsock" run -- "$dir/asan" 2>&1) && [ -z "$out" ]
    verdict asan "$out"
    printf '#!%s\n' "$dir/asan" >"$dir/asan_script"
    chmod +x "$dir/asan_script"
    out=$(env -u LD_PRELOAD "$railsock" run -- "$dir/asan_script" 2>&1) && [ -z "$out" ]
    verdict asan_interpreter "$out"
else
    echo 'skip command.asan: no AddressSanitizer'
fi
cp /bin/true "$dir/narrow"
cc -Wl,--dynamic-linker="/lib/ld-musl-$(uname -m).so.1" -o "$dir/musl" "$dir/main.c" && warns musl 'built for musl' "$dir/musl"
printf '\001' | dd of="$dir/narrow" bs=1 seek=4 conv=notrunc status=none
warns 32_bit 'a 32-bit program' "$dir/narrow"
if [ "$(id -u)" -eq 0 ]; then
    cp /bin/true "$dir/setuid"
    chown 65534 "$dir/setuid"
    chmod 4755 "$dir/setuid"
    warns setuid 'set-user-ID' "$dir/setuid"
else
    echo 'skip command.warns_setuid: needs root'
fi
# Whatever the file holds, looking at it does no harm.
for size in 1 5 63 64 120; do
    head -c "$size" /bin/true >"$dir/short"
    chmod +x "$dir/short"
    "$railsock" run -- "$dir/short" >/dev/null 2>&1
    [ $? -lt 128 ]
    verdict "short_file[$size]" "crashed"
done
