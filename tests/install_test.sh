#!/bin/bash
# tests/install_test.sh - `make install` and `make uninstall`: what is installed works from where it
# is, without the sources, and goes without a trace. 3 seconds.
# shellcheck disable=SC2016 # what stands in single quotes is no variable of ours
set -u

cd "$(dirname "$0")/.." || exit 1
suite=install
# shellcheck source=tests/installed.sh
. tests/installed.sh
[ -x "$build/railsock" ] || { echo "not ok install: $build/railsock is not built"; exit 1; }

# makes TARGET VARIABLE...: what is built is taken as it is (-o), as its flags are the caller's.
makes() {
    make -s -o all "$1" BUILD="$build" "${@:2}" >"$dir/make" 2>&1
    is=$? words="$(tail -n 1 "$dir/make")"
    [ $is -eq 0 ]
    verdict "$case.$1" "$words"
}

# gone ROOT DIR...: no file, and none of our folders.
gone() {
    local root=$1 out

    out=$(files "$root"; for d in "${@:2}"; do [ ! -e "$d" ] || echo "$d"; done)
    [ -z "$out" ]
    is=$? words="$(xargs <<<"$out")"
    [ $is -eq 0 ]
    verdict "$case.leaves_nothing" "$words"
}

# As the Debian package has it, in a folder that stands for the root.
case=staged
root=$dir/root
args=(DESTDIR="$root" PREFIX=/usr LIBDIR="/usr/lib/$cpu")
makes install "${args[@]}"
works "$root" "$root/usr/bin" "$root/usr/lib/$cpu/railsock/librailsock.so" "$root/usr/share"
files "$root" >"$dir/files"
makes install "${args[@]}"
files "$root" | cmp -s - "$dir/files"
verdict $case.again 'another installation above it has other files'
makes uninstall "${args[@]}"
gone "$root" "$root/usr/share/railsock" "$root/usr/lib/$cpu/railsock" "$root/usr/share/doc/railsock" \
    "$root/usr/share/bash-completion" "$root"/usr/share/man/man{1,5,7}

# In a prefix of one's own, which has a folder "tools" above it, as a checkout has; the command
# takes its own.
case=prefix
root=$dir/tree/own
mkdir -p "$dir/tree/tools"
printf '#!/bin/sh\necho another one\n' | tee "$dir/tree/tools/ab" >"$dir/tree/tools/lab-image"
chmod +x "$dir"/tree/tools/*
makes install PREFIX="$root"
works "$root" "$root/bin" "$root/lib/railsock/librailsock.so" "$root/share" | grep -v 'service\|^ok.*man\['
[ "$(grep -c "^Environment=LD_PRELOAD=$root/lib/railsock/librailsock.so$" "$root/share/doc/railsock/examples/service.conf")" = 1 ]
verdict $case.service 'not the library'
grep -q "^#ExecPaths=$root/lib/railsock/librailsock.so$" "$root/share/doc/railsock/examples/service.conf"
verdict $case.exec_paths 'not the library'
cmp -s README.md "$root/share/doc/railsock/README.md"
verdict $case.readme 'not there'
# What is not ours stays, and the folder that holds it.
echo mine >"$root/share/railsock/mine"
makes uninstall PREFIX="$root"
[ "$(files "$root")" = ./share/railsock/mine ]
is=$? words="$(files "$root" | xargs)"
[ $is -eq 0 ]
verdict $case.leaves_others "$words"
rm "$root/share/railsock/mine"
makes uninstall PREFIX="$root"
gone "$root" "$root/share/railsock" "$root/lib/railsock"

# A library that is not below the prefix: what is told apart from the rest is the one file, built
# here with that place.
root=$dir/elsewhere
object=$build/plain/tools/library.o
out=$(make -n -W tools/library.c BUILD="$build" LIBDIR="$root" V=1 "$object" 2>&1)
grep -qF -- "-DLIBRARY_INSTALLED='\"$root/railsock/librailsock.so\"'" <<<"$out"
is=$? words="$(tail -n 1 <<<"$out")"
[ $is -eq 0 ]
verdict libdir_is_compiled_in "$words"
cat >"$dir/find.c" <<'END'
#include "tools/library.h"
#include <stdio.h>
int main(void)
{
    char path[PATH_MAX], why[PATH_MAX];
    return puts(library_find(path, why, sizeof(why)) ? path : why) < 0;
}
END
cc -I. -D_GNU_SOURCE= -DLIBRARY_INSTALLED="\"$root/railsock/librailsock.so\"" -o "$dir/find" "$dir/find.c" \
    tools/library.c tools/elf_look.c config/script.c
out=$("$dir/find")
[[ $out == *"nor is it $root/railsock/librailsock.so; build it"* ]]
verdict libdir_not_there "$out"
mkdir -p "$root/railsock"
cp "$build/librailsock.so" "$root/railsock/"
out=$("$dir/find")
[ "$out" = "$(readlink -f "$root/railsock/librailsock.so")" ]
verdict libdir "$out"

# What the library is linked to: everything else is opened when it is wanted.
out=$(readelf -d "$build/librailsock.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | xargs)
[ "$out" = 'ld-linux-x86-64.so.2 libc.so.6 libgcc_s.so.1' ] || [ "$out" = 'libc.so.6 libgcc_s.so.1' ] ||
    [ "$out" = 'ld-linux-aarch64.so.1 libc.so.6 libgcc_s.so.1' ]
verdict linked "$out"
if command -v systemd-analyze >/dev/null; then
    { printf '[Service]\nExecStart=/bin/true\n'; sed 's|@LIBRARY@|/usr/lib/railsock/librailsock.so|' tools/examples/service.conf; } \
        >"$dir/x.service"
    out=$(systemd-analyze verify --man=no "$dir/x.service" 2>&1 | grep -F x.service)
    [ -z "$out" ]
    verdict unit "$out"
    sed -i 's/^#\([A-Z][A-Za-z]*=\)/\1/' "$dir/x.service"
    out=$(systemd-analyze verify --man=no "$dir/x.service" 2>&1 | grep -F x.service)
    [ -z "$out" ]
    verdict unit_offered "$out"
    [ "$(grep -v '^#' tools/examples/service.conf | xargs)" = '[Service] Environment=LD_PRELOAD=@LIBRARY@' ]
    verdict unit_sets_nothing_else 'it sets what some units have better'
else
    echo 'skip install.unit: no systemd'
fi

# The Debian package (`make deb`), as far as it can be told without making it.
out=$(sed -n '1s/.*(\(.*\)).*/\1/p' tools/debian/changelog)
[ "railsock $out" = "$("$build/railsock" --version)" ]
verdict package_version "$out"
depends=$(sed -n 's/^Depends: //p' tools/debian/control)
[ "$depends" = '${misc:Depends}, ${shlibs:Depends}' ]
verdict package_depends "$depends"
opened=$(grep -oh 'dlopen("[^"]*"' rsock/*.c | cut -d '"' -f 2 | sort -u)
recommended=$(sed -n 's/^Recommends: //p' tools/debian/control)
for soname in $opened; do
    [[ ", $recommended," == *", ${soname%%.so.*}${soname##*.so.},"* ]]
    verdict "package_recommends[$soname]" "$recommended"
done
[ "$(wc -w <<<"$opened")" -ge 2 ]
verdict package_recommends "$opened"

# What is built elsewhere is what is run, and a list of words is no place for a blank.
case=build
for target in demo bench torture lab-faults lab-rules; do
    out=$(make -n BUILD=/else/where "$target" 2>&1)
    grep -qE "RAILSOCK_TEST_BUILD=/else/where (exec )?(tools/demo|tests/)" <<<"$out"
    verdict "$case.elsewhere[$target]" 'it is not told where'
done
for script in tools/demo tests/bench/figures; do
    out=$(RAILSOCK_TEST_BUILD=/else/where $script 2>&1)
    [ $? -eq 1 ] && [[ $out == *'/else/where/railsock is not built'* ]]
    verdict "$case.of_elsewhere[$script]" "$out"
done
for variable in PREFIX LIBDIR; do
    out=$(make -n "$variable=/a b" install 2>&1)
    [ $? -eq 2 ] && [[ $out == *"$variable=/a b"*'without a blank'* ]]
    verdict "$case.blank[$variable]" "$out"
done
