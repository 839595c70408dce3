#!/bin/bash
# tests/lab_image_test.sh - tools/lab-image and tools/deps, with packages and tools that are made
# here: nothing is downloaded, and nothing of this machine is changed. Fifteen seconds.
# shellcheck disable=SC2016 # what stands in single quotes is another script's
set -u

cd "$(dirname "$0")/.." || exit 1
top=$PWD
dir=$(mktemp -d "${TMPDIR:-/tmp}/lab_image_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
while IFS= read -r name; do unset "$name"; done < <(compgen -v RAILSOCK_)

verdict() {
    # shellcheck disable=SC2319 # the caller's condition is what is asked; no $(...) in its words, it has a status
    if [ "$?" -eq 0 ]; then echo "ok lab-image.$1"; else echo "not ok lab-image.$1: ${2-$(cat "$dir/said" "$dir/lines")}"; fi
}

# ---- tools/deps: its policy is in the way of services only while it runs

if unshare -m true 2>/dev/null && mkdir "$dir/deps" "$dir/upper" "$dir/work" && unshare -m mount -t tmpfs none "$dir/upper" 2>/dev/null; then
    printf '#!/bin/sh\n' >"$dir/deps/dpkg-query" # nothing is installed
    # What apt-get install sees of the policy; then whoever runs it is ended.
    cat >"$dir/deps/apt-get" <<'END'
#!/bin/sh
[ "$1" = install ] || exit 0
/usr/sbin/policy-rc.d
echo "while $?"
[ -z "$END_BY" ] || kill "-$END_BY" "$PPID"
END
    chmod +x "$dir"/deps/*
    for signal in '' QUIT PIPE KILL; do
        out=$(END_BY=$signal unshare -m sh -c 'mount -t tmpfs none "$1/upper" && mkdir "$1/upper/new" "$1/upper/work" &&
            mount -t overlay -o "lowerdir=/usr/sbin,upperdir=$1/upper/new,workdir=$1/upper/work" none /usr/sbin &&
            rm -f /usr/sbin/policy-rc.d || exit 9
            (export PATH="$1/deps:$PATH"; exec "$2/tools/deps" build)
            [ ! -e /usr/sbin/policy-rc.d ] || /usr/sbin/policy-rc.d && echo "after $?"' sh "$dir" "$top" 2>&1)
        [[ $out == *'while 101'*'after 0' ]]
        verdict "deps_policy[$signal]" "$out"
    done
else
    echo 'skip lab-image.deps_policy: needs root'
fi

# ---- tools/deps: the services that it disables

# Each is of a package that is asked for, and so is looked for by that name. Of those that are
# installed here each unit that is enabled is listed, but for what Debian leaves disabled (ssh.socket,
# named-resolvconf) or what starts nothing by itself.
enabled_by() { # PACKAGE
    sed -n "s/^[^#]*deb-systemd-helper enable '\([^']*\)'.*/\1/p" "/var/lib/dpkg/info/$1.postinst" 2>/dev/null |
        grep -vx -e ssh.socket -e named-resolvconf.service -e stunnel.target
}
out=$(
    eval "$(sed '/^policy=/,$d; /^set /d' tools/deps)"
    # shellcheck disable=SC2154 # all from there
    asked=" $packages_build $packages_test $packages_lab $packages_lint $packages_bench $packages_deb $packages_apps " listed=" $services "
    asked=${asked//$'\n'/ } listed=${listed//$'\n'/ }
    for package in $(tr ' ' '\n' <<<"$listed" | sed -n 's/:.*//p' | sort -u); do
        [[ $asked == *" $package "* ]] || echo "$package is not asked for;"
        while read -r unit; do
            [[ $listed == *" $package:$unit "* || $listed == *" $package:${unit%.service} "* ]] || echo "$package: $unit;"
        done < <(enabled_by "$package")
    done
)
[ -z "$out" ]
verdict deps_services "${out//$'\n'/ }"

# ---- tools/lab-image

PATH=$PATH:/usr/sbin:/sbin
for tool in busybox cpio depmod dpkg-deb flock gzip xz; do
    command -v $tool >/dev/null || { echo "skip lab-image.image: no $tool"; exit 0; }
done
mkdir "$dir/bin"
# The modules are the first that there is.
cat >"$dir/bin/modprobe" <<'END'
#!/bin/sh
echo "builtin $6"
echo "insmod $2/lib/modules/$4/some module.ko "
END
printf '#!/bin/sh\n' >"$dir/bin/depmod"
printf '#!/bin/sh\necho "  Depends: linux-image-1.2"\n' >"$dir/bin/apt-cache"
sed -i 's/  Depends/Depends/' "$dir/bin/apt-cache"
printf '#!/bin/sh\ncp "$PACKAGE" linux-image.deb\n' >"$dir/bin/apt-get"
chmod +x "$dir"/bin/*

# image CACHE: the image of a package whose kernel is the file $dir/vmlinuz. A relative CACHE is in $dir.
image() {
    local root="$dir/root"

    rm -rf "$root"
    mkdir -p "$root/DEBIAN" "$root/boot" "$root/lib/modules/1.2"
    printf 'Package: linux-image-1.2\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: none\n' >"$root/DEBIAN/control"
    cp "$dir/vmlinuz" "$root/boot/vmlinuz-1.2"
    echo module >"$root/lib/modules/1.2/some module.ko"
    dpkg-deb -Znone -b "$root" "$dir/package.deb" >/dev/null || return 1
    (cd "$dir" && PACKAGE=$dir/package.deb PATH=$dir/bin:$PATH RAILSOCK_LAB_CACHE=$1 timeout 60 "$top/tools/lab-image") \
        >"$dir/lines" 2>"$dir/said"
}
kernel() { head -n 1 "$dir/lines"; }

# A kernel within, as far as its head tells.
{ printf '\177ELF'; head -c 31000000 /dev/zero; } >"$dir/vmlinux"
{ printf 'some code'; xz -c --check=crc32 "$dir/vmlinux"; printf size; } >"$dir/vmlinuz"
image 'a blank' && cmp -s "$(kernel)" "$dir/vmlinux"
verdict unpacked
[ "$(sed -n 2p "$dir/lines" | xargs -d '\n' gzip -dc | cpio -it --quiet | grep -c '^modules/some module.ko$')" = 1 ]
verdict blank_in_its_path
# One that is packed in another way is booted as it is; so is one whose end is missing.
printf 'something else' >"$dir/vmlinuz"
image other && cmp -s "$(kernel)" "$dir/vmlinuz"
verdict packed_otherwise
{ head -c 64000000 /dev/zero; } >>"$dir/vmlinux"
{ printf 'some code'; xz -c --check=crc32 "$dir/vmlinux" | head -c -1000; } >"$dir/vmlinuz"
image cut && cmp -s "$(kernel)" "$dir/vmlinuz"
verdict cut_off
# A host finds the modules by the path that is printed.
mkdir "$dir/elsewhere" && ln -s elsewhere "$dir/link"
image link/cache && cmp -s "$(kernel)" "$dir/vmlinuz" && [[ $(cat "$dir/lines") != *link* ]] && [ "$(grep -vc "^$(realpath "$dir")/elsewhere/cache/" "$dir/lines")" = 0 ]
verdict relative_cache
before=$(sha256sum "$dir/lines") && image "$dir/link/cache" && [ "$(sha256sum "$dir/lines")" = "$before" ]
verdict same_cache_by_its_whole_path
for unseen in /run /var/run /dev/shm; do
    image "$unseen/railsock_lab_image_test"
    [ $? -eq 1 ] && grep -q "^railsock lab: $(realpath "$unseen")/railsock_lab_image_test: .*RAILSOCK_LAB_CACHE" "$dir/said" &&
        [ ! -e "$unseen/railsock_lab_image_test" ]
    verdict "cache_that_no_host_sees[$unseen]"
    rm -rf "$unseen/railsock_lab_image_test"
done
cp /bin/true "$dir/bin/busybox"
image dynamic
[ $? -eq 1 ] && grep -q 'busybox is linked dynamically' "$dir/said"
verdict dynamic_busybox
