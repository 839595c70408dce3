#!/bin/bash
# tests/deb_test.sh - the Debian package that `make deb` has made: lintian, what it holds and asks
# for, an installation in a folder that stands for the root, the programs in it, its removal; and a
# virtual host that has no libibverbs. `make deb-test`, some 30 seconds beside making the package.
# Needs root, or fakeroot, for dpkg.
set -u

cd "$(dirname "$0")/.." || exit 1
suite=deb
# shellcheck source=tests/installed.sh
. tests/installed.sh
mapfile -t debs < <(find "$build/deb" -name 'railsock_*.deb')
[ ${#debs[@]} -eq 1 ] || { echo "not ok deb: make deb has made ${#debs[@]} packages"; exit 1; }
deb=${debs[0]}
case=package

out=$(lintian --allow-root --fail-on error,warning "$build"/deb/railsock_*.changes 2>&1) && [ -z "$out" ]
is=$? words="$(tr '\n' '|' <<<"$out")"
[ $is -eq 0 ]
verdict lintian "$words"
out=$(dpkg-deb --ctrl-tarfile "$deb" | tar -t | grep -v '/$' | sort | xargs)
[ "$out" = './control ./md5sums' ]
verdict no_scripts "$out"
out=$(dpkg-deb --fsys-tarfile "$deb" | tar -t | grep -vE '^\./(usr/.*)?$' | xargs)
[ -z "$out" ]
verdict below_usr "$out"
out=$(dpkg-deb -f "$deb" Depends | sed 's/ ([^)]*)//g')
[ "$out" = 'libc6, libgcc-s1' ]
verdict depends "$out"
out=$(dpkg-deb -f "$deb" Recommends)
for package in libibverbs1 librdmacm1 ibverbs-providers python3; do
    [[ ", $out," == *", $package,"* ]]
    verdict "recommends[$package]" "$out"
done
out=$("$build/railsock" --version)
[ "$out" = "railsock $(dpkg-deb -f "$deb" Version)" ]
verdict version "$out"

# ---- installed
root=$dir/root
mkdir -p "$root/var/lib/dpkg"
touch "$root/var/lib/dpkg/status"
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(fakeroot)
into=("${as_root[@]}" dpkg --root="$root" --force-depends --log="$dir/dpkg.log")
case=installed
out=$("${into[@]}" -i "$deb" 2>&1)
is=$? words="$(tail -n 2 <<<"$out")"
[ $is -eq 0 ]
verdict installed.dpkg "$words"
works "$root" "$root/usr/bin" "$root/usr/lib/$cpu/railsock/librailsock.so" "$root/usr/share"
out=$("$root/usr/bin/railsock" doctor --wire shm 2>&1)
verdict installed.doctor "$out"

# ---- without libibverbs: the library loads, and says why there is no rail
case=no_verbs
out=$("$root/usr/bin/railsock" lab run --hosts 1 --timeout 200 -- \
    env PATH="$root/usr/bin:$PATH" "$top/tests/no_verbs_lab.sh" 2>&1)
is=$? words="$(tail -n 3 <<<"$out" | tr '\n' '|')"
[ $is -eq 0 ]
verdict no_verbs.lab "$words"
sed -n 's/^host1| \(\(not \)\?ok \)/\1deb./p' <<<"$out"
[ "$(grep -c '^host1| ok ' <<<"$out")" -eq 3 ]
is=$? words="$(tail -n 3 <<<"$out" | tr '\n' '|')"
[ $is -eq 0 ]
verdict no_verbs.all "$words"

case=removed
out=$("${into[@]}" -P railsock 2>&1)
is=$? words="$(tail -n 2 <<<"$out")"
[ $is -eq 0 ]
verdict removed.dpkg "$words"
out=$(files "$root" | grep -v '^\./var/lib/dpkg/')
[ -z "$out" ] && [ ! -e "$root/usr" ]
verdict removed.leaves_nothing "$out"
