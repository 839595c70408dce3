#!/bin/bash
# tests/absent_test.sh - a process without a TCP connection, as if the library were not there: the
# same system calls after start-up, and nothing started, mapped or opened. What it costs in time is
# `make bench`. Some 10 seconds.
set -u

cd "$(dirname "$0")/.." || exit 1
lib=$(readlink -f "${RAILSOCK_TEST_BUILD:-build}/librailsock.so")
dir=$(mktemp -d "${TMPDIR:-/tmp}/absent_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
[ -e "$lib" ] || { echo 'not ok absent: librailsock.so is not built'; exit 1; }
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)
unset LD_PRELOAD
# Not a version manager's script.
python=/usr/bin/python3
# The compiler's own files: strace shows their names, which must be of one kind.
export TMPDIR=/tmp

# calls NAME COMMAND...
calls() {
    local name=$1 said

    shift
    said=$(tests/absent/trace.py "$lib" "$dir" -- "$@" 2>&1)
    case $? in
    0) echo "ok absent.calls.$name" ;;
    77) echo "skip absent.calls.$name: no strace, or it may not trace" ;;
    *)
        echo "not ok absent.calls.$name: $(head -n 1 <<<"$said" | cut -c 1-200)"
        printf '%s\n' "$said" | sed 's/^/    /'
        ;;
    esac
}

calls bash bash -c true
calls pipeline bash -c '(exit 3); echo words | cat'
calls ls ls -l preload
calls python "$python" -c 1
echo 'int main(void) { return 0; }' >"$dir/small.c"
calls gcc gcc -O1 -o /dev/null "$dir/small.c"

want=$("$python" tests/absent/quiet.py 2>&1; echo "status $?")
got=$(RAILSOCK_MODE=rail RAILSOCK_LOG=debug:$dir/log LD_PRELOAD=$lib "$python" tests/absent/quiet.py 2>&1; echo "status $?")
if [ "${want##*$'\n'}" != 'status 0' ]; then
    echo 'not ok absent.quiet: it fails without the library:'
    printf '%s\n' "$want" | sed 's/^/    /'
elif [ "$want" = "$got" ]; then
    echo 'ok absent.quiet'
else
    echo 'not ok absent.quiet: the process has something that it has not without the library:'
    diff <(echo "$want") <(echo "$got") | sed 's/^/    /'
fi
if [ -s "$dir/log" ]; then
    echo "not ok absent.silent: $(head -n 1 "$dir/log")"
else
    echo 'ok absent.silent'
fi
