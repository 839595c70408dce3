# shellcheck shell=bash
#
# tests/apps/many_unreached.sh - programs that LD_PRELOAD does not reach: they run unharmed on TCP,
# and `railsock run` says why. Sourced by tests/apps/many.
#
# shellcheck disable=SC2016 # single quotes are for the client's shell
# shellcheck disable=SC2154 # variables from lib.sh and many

# said TEXT: whether run has said so, on each side that has the library.
said() {
    [ "$SERVER" = off ] || grep -q "$1" "$work/server.err" || fail 'railsock run does not say that of the server'
    [ "$CLIENT" = off ] || grep -q "$1" "$err" || fail 'railsock run does not say that of the client'
}

static_c() {
    [ -x "$base/echo_static" ] || "${CC:-cc}" -O2 -static -o "$base/echo_static" "$apps/echo_static.c" ||
        { fail 'no static program'; return; }
    both "$base/echo_static" && said 'statically linked'
}

static_busybox() {
    www
    server busybox httpd -f -p "$ip:$port" -h "$work/www" || return
    client_sh '
        for f in small big small; do
            $RUN busybox wget -q -O - http://'"$ip:$port"'/$f | cmp - '"$work"'/www/$f || exit 10
        done' && said 'statically linked'
}

go_rclone() {
    www
    server rclone serve http "$work/www" --config '' --addr "$ip:$port" || return
    client_sh '
        for f in small big small; do
            $RUN rclone --config "" cat --http-url http://'"$ip:$port"' :http:$f | cmp - '"$work"'/www/$f || exit 10
        done' && said 'Go'
}

unreached_apps() {
    app 'a static program in C' "${CC:-cc}" bytes tcp 'statically linked' static_c
    app 'busybox httpd and wget' busybox bytes tcp 'statically linked' static_busybox
    app 'rclone, in Go' rclone bytes tcp 'Go makes system calls itself' go_rclone
}
