#!/bin/bash
# tests/build_test.sh - flags of distributions that the library is not to be built with: neither do
# they stop the build, nor come through it. 3 seconds: a few objects.
set -u

cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d "${TMPDIR:-/tmp}/build_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT

# objects CASE VARIABLE...: what has a part in assembly, and what names the functions that
# fortifying replaces.
objects() {
    if make -s WERROR=1 BUILD="$dir/$1" "${@:2}" "$dir/$1/plain/preload/"{pl_vfork,pl_real,pl_init}.o \
        >"$dir/said" 2>&1; then
        return 0
    fi
    echo "not ok build.$1: $(grep -m 1 error "$dir/said")"
    return 1
}

# By these flags a linker that optimizes does not see what only assembly calls.
if objects lto CFLAGS='-g -O2 -flto=auto -ffat-lto-objects'; then
    if readelf -SW "$dir/lto/plain/preload/"*.o | grep -qF .gnu.lto_; then
        echo 'not ok build.lto: objects are for the linker to compile'
    else
        echo 'ok build.lto'
    fi
fi
objects fortified CPPFLAGS='-D_FORTIFY_SOURCE=2' && echo 'ok build.fortified'
objects fortified_by_cflags CFLAGS='-O2 -Wp,-D_FORTIFY_SOURCE=2' && echo 'ok build.fortified_by_cflags'
exit 0
