# shellcheck shell=bash
#
# tests/apps/many_services.sh - directories, names, mail, remote calls, and what stands before data
# bases. Sourced by tests/apps/many.
#
# shellcheck disable=SC2016 # single quotes are for the client's shell
# shellcheck disable=SC2154,SC2034 # variables from and for lib.sh

pgbouncer_bench() {
    local behind

    postgres_server || return
    behind=$port
    free_port
    cat >"$work/bouncer.ini" <<END
[databases]
postgres = host=$ip port=$behind
[pgbouncer]
listen_addr = $ip
listen_port = $port
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 100
END
    sed -i 's/^postgres = .*/& user=boss/' "$work/bouncer.ini"
    server "${as_user[@]}" pgbouncer "$work/bouncer.ini" || return
    client_sh '
        to="-h '"$ip"' -U boss"
        $RUN '"$pgbin"'/pgbench -q -i -s 1 $to -p '"$behind"' postgres || exit 10
        $RUN '"$pgbin"'/pgbench -c 8 -j 2 -t 200 $to -p '"$port"' postgres || exit 11
        $RUN '"$pgbin"'/psql -At $to -p '"$port"' postgres -c "select count(*) from pgbench_history"' || return
    [ "$(tail -n 1 "$out")" = 1600 ] || fail "$(tail -n 1 "$out") transactions"
}

nutcracker_bench() {
    local behind

    redis_server || return
    behind=$port
    free_port
    cat >"$work/nut.yml" <<END
pool:
  listen: $ip:$port
  hash: fnv1a_64
  redis: true
  distribution: ketama
  timeout: 10000
  servers:
   - $ip:$behind:1
END
    server nutcracker -c "$work/nut.yml" -s $((port + 1000)) -a "$ip" || return
    client redis-benchmark -h "$ip" -p "$port" --csv -c 20 -n 30000 -t set,get
    ! grep -qiE 'error|refused|reset' "$out" "$err" || fail "redis-benchmark: $(grep -iE 'error|refused|reset' "$out" "$err" | head -n 1)"
    grep -qE '^"GET","[0-9.]+"' "$out" || fail "no result: $(tail -n 1 "$out")"
}

redis_cluster() {
    local ports=() i

    for i in 1 2 3; do
        mkdir -p "$work/n$i"
        ports+=("$ip:$port")
        server redis-server --bind "$ip" --port "$port" --protected-mode no --save '' --appendonly no --dir "$work/n$i" \
            --cluster-enabled yes --cluster-port $((port + 100)) || return
        [ $i = 3 ] || free_port
    done
    redis-cli --cluster create "${ports[@]}" --cluster-yes >"$work/create" 2>&1 || { fail "$(tail -n 1 "$work/create")"; return; }
    wait_until 20 cluster_ok || { fail 'the cluster is not ready'; return; }
    client_sh '
        $RUN redis-benchmark -h '"$ip"' -p '"$port"' --cluster --csv -c 12 -n 60000 -t set,get || exit 10
        cli() { $RUN redis-cli -c -h '"$ip"' -p '"$port"' "$@"; }
        for i in 1 2 3 4 5 6; do
            head -c 1000000 '"$data_part"' | cli -x set key$i >/dev/null || exit 11
            cli --raw get key$i | head -c -1 | cmp - <(head -c 1000000 '"$data_part"') || exit 12
        done'
}

cluster_ok() {
    redis-cli -h "$ip" -p "$port" cluster info | grep -q cluster_state:ok
}

slapd_tree() {
    mkdir -p "$work/db"
    cat >"$work/slapd.conf" <<END
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
pidfile $work/slapd.pid
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
maxsize 104857600
suffix "dc=test"
rootdn "cn=boss,dc=test"
rootpw secret
directory $work/db
sizelimit unlimited
END
    server slapd -d 0 -h "ldap://$ip:$port" -f "$work/slapd.conf" || return
    client_sh '
        at="-x -H ldap://'"$ip:$port"'"
        { printf "dn: dc=test\nobjectClass: dcObject\nobjectClass: organization\no: test\n\n"
          for i in $(seq 2000); do printf "dn: cn=u$i,dc=test\nobjectClass: inetOrgPerson\nsn: $((i * 7))\n\n"; done
        } | $RUN ldapadd $at -D cn=boss,dc=test -w secret >/dev/null || exit 10
        $RUN ldapsearch $at -LLL -b dc=test "(sn=*)" sn | sed -n "s/^sn: //p" | sort -n | cmp - <(seq 7 7 14000) || exit 11'
}

# Questions over TCP, and a zone that is transferred.
named_zone() {
    {
        echo '$TTL 300'
        echo '@ IN SOA ns.test. a.test. 1 300 300 300 300'
        echo '@ IN NS ns.test.'
        echo "ns IN A $ip"
        for i in $(seq 20000); do echo "h$i IN A 10.$((i >> 16)).$(((i >> 8) & 255)).$((i & 255))"; done
    } >"$work/zone"
    cat >"$work/named.conf" <<END
options {
    directory "$work";
    pid-file "$work/named.pid";
    session-keyfile "$work/session.key";
    listen-on port $port { $ip; };
    listen-on-v6 { none; };
    recursion no;
    allow-transfer { any; };
    dnssec-validation no;
};
zone test { type master; file "$work/zone"; };
controls { };
END
    chmod 777 "$work"
    server named -u root -g -c "$work/named.conf" || return
    wait_until 10 grep -q ' running$' "$work/server.err" || { fail 'named has not loaded its zone'; return; }
    client_sh '
        ask() { $RUN dig +tcp -p '"$port"' @'"$ip"' "$@"; }
        ask test axfr | awk "\$1 ~ /^h[0-9]/ && \$4 == \"A\" { print \$1, \$5 }" | sort | cmp - \
            <(awk "/^h[0-9]/ { print \$1 \".test.\", \$4 }" '"$work"'/zone | sort) || exit 10
        for i in $(seq 200); do echo h$i.test A; done >'"$work"'/questions
        ask +keepopen +short -f '"$work"'/questions | cmp - <(awk "/^h[0-9]/ { print \$4 }" '"$work"'/zone | head -n 200) || exit 11'
}

grpc_messages() {
    server "$python" "$apps/grpc_echo.py" server "$ip:$port" || return
    client "$python" "$apps/grpc_echo.py" client "$ip:$port"
}

zeromq_sums() {
    server "$python" "$apps/zmq_sums.py" server "$ip" "$port" || return
    client "$python" "$apps/zmq_sums.py" client "$ip" "$port"
}

zookeeper_nodes() {
    local cp

    cp=$(printf '%s:' /usr/share/java/{zookeeper,slf4j-api,slf4j-nop,log4j-1.2,netty-all,netty-handler,netty-transport,netty-common,netty-buffer,commons-cli,jline2,snappy-java,dropwizard-metrics-core}*.jar)
    mkdir -p "$work/zk"
    cat >"$work/zoo.cfg" <<END
tickTime=2000
dataDir=$work/zk
clientPort=$port
clientPortAddress=$ip
admin.enableServer=false
END
    server java -cp "$cp" org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/zoo.cfg" || return
    client "$python" "$apps/zk.py" "$ip:$port"
}

# One process takes the connection and passes it on to another one when the user is known.
dovecot_mails() {
    cat >"$work/dovecot.conf" <<END
base_dir = $work/run
state_dir = $work/run
log_path = $work/dovecot.log
protocols = imap
listen = $ip
ssl = no
disable_plaintext_auth = no
default_internal_user = nobody
default_internal_group = nogroup
default_login_user = daemon
first_valid_uid = 0
mail_location = maildir:$work/home/mail
service imap-login {
    inet_listener imap {
        port = $port
    }
    inet_listener imaps {
        port = 0
    }
    chroot =
}
passdb {
    driver = static
    args = nopassword=y
}
userdb {
    driver = static
    args = uid=$(id -u nobody) gid=$(id -g nobody) home=$work/home
}
END
    mkdir -m 777 "$work/home"
    server dovecot -F -c "$work/dovecot.conf" || return
    client "$python" "$apps/imap.py" "$ip" "$port"
}

service_apps() {
    app 'dovecot, imaplib' dovecot bytes any 'the server clears the environment of its processes' dovecot_mails
    app 'pgbouncer, pgbench' pgbouncer result inner '' pgbouncer_bench
    app 'nutcracker, redis' nutcracker result inner '' nutcracker_bench
    app 'redis cluster' redis-server bytes inner '' redis_cluster
    app 'openldap' slapd bytes rail '' slapd_tree
    app 'bind, tcp' named bytes any '' named_zone
    app 'grpc, python' "$python" bytes rail '' grpc_messages
    app 'zeromq, python' "$python" bytes rail '' zeromq_sums
    app 'zookeeper, python' /usr/share/zookeeper/bin/zkServer.sh result rail '' zookeeper_nodes
}
