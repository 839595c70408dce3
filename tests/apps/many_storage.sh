# shellcheck shell=bash
#
# tests/apps/many_storage.sh - disks and folders over the network, and programs that compute on
# several machines. Sourced by tests/apps/many.
#
# shellcheck disable=SC2016 # single quotes are for the client's shell
# shellcheck disable=SC2154,SC2034 # variables from and for lib.sh

# ---- block devices

# Four connections, many requests in flight on each.
nbd_copies() {
    server nbdkit -f -i "$ip" -p "$port" memory 16M || return
    client_sh '
        at=nbd://'"$ip:$port"'
        $RUN nbdcopy '"$data_part"' $at || exit 10
        $RUN nbdcopy $at - | cmp - '"$data_part"' || exit 11'
}

# The target's own threads for its disks tell it of their ends by signalfd or eventfd; the initiator
# is a library.
iscsi_disk() {
    local iqn=iqn.2001-04.test:disk control=3260

    cp "$data_part" "$work/disk"
    mkdir -p "$work/run"
    export TGT_IPC_SOCKET=$work/run/control
    server tgtd -f -C 0 --iscsi "portal=$ip:$port" || return
    tgtadm -C 0 --lld iscsi --mode target --op new --tid 1 -T $iqn &&
        tgtadm -C 0 --lld iscsi --mode logicalunit --op new --tid 1 --lun 1 -b "$work/disk" &&
        tgtadm -C 0 --lld iscsi --mode target --op bind --tid 1 -I ALL || { fail 'tgtadm'; return; }
    client_sh '
        at=iscsi://'"$ip:$port/$iqn"'/1
        $RUN iscsi-inq $at || exit 10
        $RUN iscsi-test-cu --dataloss -s -t SCSI.Read10 -t SCSI.Write10 -t SCSI.CompareAndWrite $at || exit 11
        $RUN iscsi-perf -t 1 -b 16 -m 8 $at || exit 12'
    # It does not end on a signal.
    tgtadm -C 0 --lld iscsi --mode target --op delete --force --tid 1 && tgtadm -C 0 --mode system --op delete
    unset TGT_IPC_SOCKET
}

# ---- folders

samba_files() {
    tree
    mkdir -p "$work"/{private,lock,state,cache,run,ncalrpc}
    chmod -R 777 "$work/tree"
    cat >"$work/smb.conf" <<END
[global]
    server role = standalone server
    map to guest = Bad User
    guest account = $(id -un)
    interfaces = $ip/8
    bind interfaces only = yes
    smb ports = $port
    private dir = $work/private
    lock directory = $work/lock
    state directory = $work/state
    cache directory = $work/cache
    pid directory = $work/run
    ncalrpc dir = $work/ncalrpc
    log file = $work/smb.log
    disable spoolss = yes
    load printers = no
[tree]
    path = $work/tree
    guest ok = yes
    read only = no
    force user = $(id -un)
END
    # At its end it sends SIGTERM to its whole process group.
    server setsid smbd -F --no-process-group -s "$work/smb.conf" || return
    client_sh '
        smb() { $RUN smbclient -N -s '"$work"'/smb.conf -p '"$port"' //'"$ip"'/tree -c "$1" </dev/null; }
        mkdir '"$work"'/here && cd '"$work"'/here || exit 9
        smb "prompt; recurse; mget *" || exit 10
        diff -r '"$work/tree $work"'/here || exit 11
        smb "put '"$data"' back" || exit 12
        cmp '"$data $work"'/tree/back || exit 13'
}

# The session's process confines itself by seccomp; each file has a connection of its own, in either
# direction.
ftp_files() {
    tree
    mkdir -p "$work/empty" "$work/tree/in"
    chmod 777 "$work/tree/in"
    chmod 555 "$work/empty"
    cat >"$work/vsftpd.conf" <<END
listen=YES
background=NO
listen_address=$ip
listen_port=$port
connect_from_port_20=NO
anonymous_enable=YES
anon_root=$work/tree
anon_upload_enable=YES
anon_other_write_enable=YES
anon_mkdir_write_enable=YES
anon_umask=022
write_enable=YES
no_anon_password=YES
ftp_username=ftp
nopriv_user=nobody
secure_chroot_dir=$work/empty
END
    server vsftpd "$work/vsftpd.conf" || return
    client_sh '
        fetch() { $RUN lftp --norc -e "set ftp:passive-mode $1; set net:max-retries 2; set cmd:fail-exit yes; open '"$ip -p $port"'; $2; exit"; }
        fetch on "mirror -P 4 / '"$work"'/here" || exit 10
        diff -r '"$work/tree $work"'/here || exit 11
        fetch off "mirror / '"$work"'/here2" || exit 12
        diff -r '"$work/tree $work"'/here2 || exit 13
        fetch on "put -O in '"$data"'" || exit 14
        cmp '"$data $work"'/tree/in/data || exit 15'
}

# ---- computing

mpi_ranks() {
    client_sh 'mpirun.openmpi --allow-run-as-root --oversubscribe --mca btl tcp,self --mca pml ob1 \
        --mca btl_tcp_if_include '"$ip"'/8 -n 4 $RUN '"$python $apps"'/mpi_all.py'
    [ "$(tail -n 1 "$out")" = 'all equal' ] || fail "$(tail -n 1 "$out")"
}

distcc_compile() {
    cat >"$work/a.c" <<END
#include <stdio.h>
#include <stdlib.h>
int main(void) { for (int i = 0; i < 10; i++) printf("%d\\n", rand()); return 0; }
END
    server distccd --no-detach --daemon --allow "$ip" --listen "$ip" --port "$port" -j 4 --log-stderr \
        --enable-tcp-insecure || return
    client_sh '
        cd '"$work"' || exit 9
        export DISTCC_HOSTS='"$ip:$port/4"' DISTCC_FALLBACK=0 DISTCC_DIR='"$work"'
        cc -O2 -c -o here.o a.c || exit 10
        for i in $(seq 20); do
            $RUN distcc cc -O2 -c -o there$i.o a.c || exit 11
            cmp here.o there$i.o || exit 12
        done'
}

storage_apps() {
    app 'nbdkit, nbdcopy' nbdkit bytes rail '' nbd_copies
    app 'tgt, libiscsi' tgtd result rail '' iscsi_disk
    app 'samba, smbclient' smbd bytes any '' samba_files
    app 'vsftpd, lftp' vsftpd bytes any '' ftp_files
    app 'open mpi' mpirun.openmpi bytes peers '' mpi_ranks
    app 'distcc' distccd bytes any '' distcc_compile
}
