# shellcheck shell=bash
#
# tests/apps/many_transfer.sh - programs that carry files and streams, and those that encrypt them.
# Sourced by tests/apps/many.
#
# shellcheck disable=SC2016 # single quotes are for the client's shell
# shellcheck disable=SC2154 # variables from lib.sh and many

# $work/tree: some hundred small files and the 16 MiB.
tree() {
    mkdir -p "$work/tree/small"
    ln -f "$data_part" "$work/tree/big"
    (cd "$work/tree/small" && head -c 600000 "$data" | split -b 3000 -a 3 -)
}

# ---- ssh: sshd re-executes itself for each connection

ssh_files() {
    tree
    ssh-keygen -q -t ed25519 -N '' -f "$work/host" && ssh-keygen -q -t ed25519 -N '' -f "$work/me" || return
    chmod 700 "$work"
    cat >"$work/sshd.conf" <<END
ListenAddress $ip:$port
HostKey $work/host
AuthorizedKeysFile $work/me.pub
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
END
    server "$(command -v sshd)" -D -e -f "$work/sshd.conf" || return
    client_sh '
        options="-F none -i '"$work/me"' -o BatchMode=yes -o StrictHostKeyChecking=no
            -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        me=$(id -un)@'"$ip"'
        $RUN scp -q -r -P '"$port"' $options '"$work/tree"' $me:'"$work/there"' || exit 10
        $RUN scp -q -r -P '"$port"' $options $me:'"$work/there $work/back"' || exit 11
        diff -r '"$work/tree $work/back"' || exit 12
        $RUN ssh -p '"$port"' $options $me cat <'"$work/tree/big"' | cmp - '"$work/tree/big"' || exit 13'
}

# ---- rsync, git

rsync_files() {
    tree
    cat >"$work/rsyncd.conf" <<END
use chroot = no
pid file = $work/rsyncd.pid
[tree]
path = $work/tree
[into]
path = $work/there
read only = no
END
    mkdir "$work/there"
    [ "$(id -u)" -ne 0 ] || printf '%s\n' 'uid = root' 'gid = root' | cat - "$work/rsyncd.conf" >"$work/conf"
    [ ! -f "$work/conf" ] || mv "$work/conf" "$work/rsyncd.conf"
    server rsync --daemon --no-detach --address="$ip" --port="$port" --config="$work/rsyncd.conf" || return
    client_sh '
        at=rsync://'"$ip:$port"'
        $RUN rsync -a $at/tree/ '"$work"'/here/ || exit 10
        diff -r '"$work/tree $work/here"' || exit 11
        $RUN rsync -a '"$work"'/here/ $at/into/ || exit 12
        diff -r '"$work/tree $work/there"' || exit 13
        echo more >>'"$work"'/here/small/xaaa
        head -c 100000 '"$data"' >>'"$work"'/here/big
        $RUN rsync -a '"$work"'/here/ $at/into/ || exit 14
        diff -r '"$work/here $work/there"' || exit 15'
}

# git names everything by its hash.
git_files() {
    tree
    export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$work/gitconfig
    printf '[user]\nname = a\nemail = a@b\n[safe]\ndirectory = *\n[init]\ndefaultBranch = main\n' >"$work/gitconfig"
    {
        git -C "$work/tree" init -q
        git -C "$work/tree" add .
        git -C "$work/tree" commit -q -m all
        git clone -q --bare "$work/tree" "$work/all.git"
    } || { fail 'no repository'; return; }
    server git daemon --listen="$ip" --port="$port" --base-path="$work" --export-all --enable=receive-pack \
        --reuseaddr "$work" || return
    client_sh '
        at=git://'"$ip:$port"'/all.git
        $RUN git clone -q $at '"$work/clone"' || exit 10
        cd '"$work/clone"' && git fsck --full || exit 11
        diff -r -x .git . '"$work/tree"' || exit 12
        head -c 5000000 '"$data"' >big && git commit -q -a -m less && $RUN git push -q origin HEAD || exit 13
        [ $(git rev-parse HEAD) = $(git --git-dir='"$work/all.git"' rev-parse main) ] || exit 14
        git --git-dir='"$work/all.git"' fsck --full || exit 15'
    unset GIT_CONFIG_NOSYSTEM GIT_CONFIG_GLOBAL
}

# ---- socat and ncat: a process, and a program, for each connection

# Three at once, one after another three times, through cat on the other side.
socat_exec() {
    server socat "TCP-LISTEN:$port,bind=$ip,fork,reuseaddr" EXEC:cat || return
    client_sh '
        one() { $RUN socat -t 30 - TCP:'"$ip:$port"' <'"$data_part"' | cmp - '"$data_part"'; }
        for round in 1 2 3; do
            one & a=$!
            one & b=$!
            one || exit 10
            wait $a && wait $b || exit 11
        done'
}

# ncat stands between the program and the connection. (One way only: an ncat that writes does not
# read.)
ncat_exec() {
    server ncat -l -k -e "/bin/cat $data_part" "$ip" "$port" || return
    client_sh '
        for round in 1 2 3; do
            $RUN ncat --recv-only '"$ip $port"' | cmp - '"$data_part"' || exit 10
        done'
}

# ---- TLS

certificate() {
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -days 2 -keyout "$work/key.pem" -out "$work/cert.pem" \
        >"$work/req" 2>&1 || fail "openssl req: $(tail -n 1 "$work/req")"
}

# A connection for each file.
openssl_files() {
    certificate && www || return
    cd "$work/www" || return
    server openssl s_server -accept "$ip:$port" -key "$work/key.pem" -cert "$work/cert.pem" -WWW -quiet
    cd "$top" || return
    [ -z "$why" ] || return
    client_sh '
        for i in 1 2 3; do
            for f in small big; do
                $RUN curl -sS --fail -k https://'"$ip:$port"'/$f | cmp - '"$work"'/www/$f || exit 10
            done
        done'
}

stunnel_files() {
    certificate && nginx_behind || return
    cat >"$work/stunnel.conf" <<END
foreground = yes
pid =
syslog = no
[web]
accept = $ip:$port
connect = $ip:$behind
cert = $work/cert.pem
key = $work/key.pem
END
    server stunnel4 "$work/stunnel.conf" || return
    client_sh '
        url=https://'"$ip:$port"'
        $RUN curl -sS --fail -k $url/small $url/big $url/small $url/big |
            cmp - <(cat '"$work/www/small $work/www/big $work/www/small $work/www/big"')' || fail "curl: $(tail -n 1 "$err")"
}

transfer_apps() {
    app 'scp, ssh and sshd' "$(command -v sshd || echo /usr/sbin/sshd)" bytes tcp \
        'sshd executes itself for each connection' ssh_files
    app 'rsync daemon' rsync bytes any 'both sides fork with the connection' rsync_files
    app 'git daemon, clone and push' git bytes any 'both sides execute programs on it' git_files
    app 'socat, fork and exec' socat bytes rail 'both directions fill up: back on TCP' socat_exec
    app 'ncat, exec' ncat bytes rail '' ncat_exec
    app 'nc, both ways' nc bytes "$([ "$wire" = verbs ] && echo any || echo rail)" \
        'over verbs it ends before it has boarded' nc_files 16777216 16777216
    app 'openssl s_server, curl' openssl bytes rail 'a connection for each file' openssl_files
    app 'stunnel before nginx' stunnel4 bytes inner '' stunnel_files
}
