#!/bin/bash
# tests/man_test.sh - the man pages: that they are well-formed, and say what --help,
# config/README.md and the library's own strings say (docs.py). 3 seconds.
set -u

cd "$(dirname "$0")/.." || exit 1
build=${RAILSOCK_TEST_BUILD:-build}
[ -x "$build/railsock" ] || { echo "not ok man: $build/railsock is not built"; exit 1; }

# clean NAME COMMAND...: it says nothing.
clean() {
    local name=$1 said

    shift
    said=$("$@" 2>&1)
    if [ -z "$said" ]; then
        echo "ok man.$name"
    else
        echo "not ok man.$name: $(head -n 1 <<<"$said")"
        printf '%s\n' "$said" | sed 's/^/    /'
    fi
}

# shellcheck disable=SC2317 # called by clean
formatted() { groff -ww -mdoc -Tutf8 "$1" >/dev/null; }
# As lintian calls it.
# shellcheck disable=SC2317
shown() { LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$1" >/dev/null; }
# Not every host has the pages that ours refer to.
# shellcheck disable=SC2317
linted() { mandoc -T lint -W style "$1" 2>/dev/null | grep -v 'referenced manual not found'; }

for page in tools/man/*; do
    name=${page##*/}
    for tool in groff:formatted man:shown mandoc:linted; do
        if command -v "${tool%:*}" >/dev/null; then
            clean "${tool%:*}[$name]" "${tool#*:}" "$page"
        else
            echo "skip man.${tool%:*}[$name]: not installed"
        fi
    done
    if grep -qE "^	tools/man/$name \\\\$" Makefile; then
        echo "ok man.installed[$name]"
    else
        echo "not ok man.installed[$name]: not in the Makefile's MAN_PAGES"
    fi
done
tests/docs.py "$build" || echo "not ok man.docs: docs.py ended with $?"
