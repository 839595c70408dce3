# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034 # what stands in single quotes is for the inner shell; variables are for who sources this
#
# tests/installed.sh - whether what is installed works from where it is. Sourced by install_test.sh
# and deb_test.sh, which set `suite` and, for each installation, `case`.
: "${suite:?}" "${case:=}"
top=$PWD
# shellcheck source=tests/wait.sh
. tests/wait.sh
build=$(readlink -f "${RAILSOCK_TEST_BUILD:-build}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/installed.XXXXXX") || exit 1
server=''
# shellcheck disable=SC2317 # called by the trap
finish() {
    [ -z "$server" ] || { kill "$server"; wait "$server"; } 2>/dev/null
    rm -rf "$dir"
}
trap finish EXIT
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
python=/usr/bin/python3
cpu=$(uname -m)-linux-gnu

# verdict NAME WORDS: reports; the condition is the status of the last command.
verdict() {
    # shellcheck disable=SC2319 # the caller's condition is what is asked; no $(...) in its words, it has a status
    if [ "$?" -eq 0 ]; then echo "ok $suite.$1"; else echo "not ok $suite.$1: $2"; fi
}

# files DIR: all that is there and is no folder.
files() {
    (cd "$1" && find . ! -type d | sort)
}

# A connection between two programs that the installed command runs: it boards.
pair() {
    local bin=$1 port out

    rm -f "$dir/report" "$dir/port" # an earlier server's would be found before this one has begun
    "$bin/railsock" run --rail -- "$python" -c '
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
s, _ = listener.accept()
while data := s.recv(65536):
    s.sendall(data)
' >"$dir/port" 2>"$dir/server" &
    server=$!
    wait_until 10 grep -q . "$dir/port"
    port=$(cat "$dir/port")
    out=$(timeout 60 "$bin/railsock" run --rail --report="json:$dir/report" -- "$python" "$top/tests/echo.py" \
        client "$port" 2000 </dev/null 2>&1)
    [ "$out" = 'done' ] && grep -qE '"boarded": *1' "$dir/report"
    is=$? words="$out, $(tail -n 1 "$dir/server"), $(tr -d '\n' <"$dir/report")"
    [ $is -eq 0 ]
    verdict "$case.boards" "$words"
    [ "$out" = 'done' ] || kill "$server" # which nobody has connected to
    wait "$server"
    server=''
}

# works ROOT BIN LIBRARY SHARE: as seen from another folder, below which nothing of the sources is.
works() {
    local root=$1 bin=$2 library=$3 share=$4 out page

    cd "$dir" || exit 1
    out=$("$bin/railsock" run -- sh -c 'echo "$LD_PRELOAD"' 2>&1)
    [ "$out" = "$library" ]
    verdict "$case.run" "$out"
    out=$("$bin/railsock" check /dev/null 2>&1)
    verdict "$case.check" "$out"
    out=$("$bin/railsock" stat 2>&1)
    verdict "$case.stat" "$out"
    # The grandparent of what ab runs is its script.
    out=$("$bin/railsock" ab -n 1 --warm-up 0 -- sh -c \
        'read -r _ _ _ parent _ <"/proc/$PPID/stat"; tr "\0" " " <"/proc/$parent/cmdline" >"$0"' "$dir/ab" 2>&1) &&
        [ "$(readlink -f "$(cut -d ' ' -f 2 "$dir/ab")")" = "$share/railsock/ab" ]
    is=$? words="$(cat "$dir/ab"), $(tail -n 3 <<<"$out" | tr '\n' '|')"
    [ $is -eq 0 ]
    verdict "$case.ab" "$words"
    # Without dirname the script ends at once, which bash says with its path.
    out=$(PATH=/nonexistent "$bin/railsock" lab image 2>&1)
    [[ $out == *"$bin/../share/railsock/lab-image: line "*dirname* ]]
    verdict "$case.lab" "$out"
    pair "$bin"
    if command -v man >/dev/null; then
        for page in "$top"/tools/man/*; do
            page=${page##*/}
            out=$(MANPATH=$share/man man -w "${page##*.}" "${page%.*}" 2>&1)
            [ "${out%.gz}" = "$share/man/man${page##*.}/$page" ]
            verdict "$case.man[$page]" "$out"
        done
    else
        echo "skip $suite.$case.man: no man"
    fi
    cmp -s "$share/bash-completion/completions/railsock" "$top/tools/completion.bash"
    verdict "$case.completion" 'not there'
    out=$("$bin/railsock" check "$share/doc/railsock/examples/railsock.conf" 2>&1) && [ -z "$out" ]
    verdict "$case.rules" "$out"
    # All that the example offers, taken at its word.
    sed 's/^#\([^ ]\)/\1/' "$share/doc/railsock/examples/railsock.conf" >"$dir/rules"
    out=$("$bin/railsock" check "$dir/rules" 2>&1) && [ "$(wc -l <<<"$out")" -gt 7 ]
    verdict "$case.rules_offered" "$out"
    out=$(grep '^Environment=LD_PRELOAD' "$share/doc/railsock/examples/service.conf")
    [ "$out" = "Environment=LD_PRELOAD=${library#"$root"}" ]
    verdict "$case.service" "$out"
    out=$(grep -rlI '@[A-Z][A-Z]*@' "$root")
    [ -z "$out" ]
    verdict "$case.places_filled_in" "$out"
    out=$(find "$root" -name '__pycache__' -o -type f -perm /022)
    [ -z "$out" ]
    verdict "$case.modes" "$out"
    cd "$top" || exit 1
}
