# shellcheck shell=bash
#
# tests/apps/many_data.sh - databases, caches and a message broker. Sourced by tests/apps/many.
#
# shellcheck disable=SC2016 # single quotes are for the client's shell
# shellcheck disable=SC2154,SC2034 # variables from and for lib.sh and many

# ---- redis: a replica gets what the master is given, before and after it has come

redis_replica() {
    local master

    server redis-server --bind "$ip" --port "$port" --protected-mode no --save '' --dir "$work" \
        --enable-debug-command yes --repl-diskless-sync-delay 0 || return
    master=$port
    mkdir "$work/replica"
    redis_fill "$master" 20000 || return
    free_port
    server redis-server --bind "$ip" --port "$port" --protected-mode no --save '' --dir "$work/replica" \
        --enable-debug-command yes --replicaof "$ip" "$master" || return
    wait_until 10 redis_says "$port" 'info replication' master_link_status:up || { fail 'the replica has no link'; return; }
    redis_fill "$master" 100000 || return
    wait_until 10 redis_alike "$master" "$port" || fail 'the replica is not what the master is'
}

redis_bgsave_less() {
    local scale=2

    redis_bgsave
}

redis_fill() { # PORT KEYS: SIZE and what the values are differ
    client redis-benchmark -h "$ip" -p "$1" --csv -c 20 -n 20000 -r "$2" -d $(($2 / 200)) -t set || return
    grep -qE '^"SET","[0-9.]+"' "$out" || fail "no result: $(tail -n 1 "$out")"
}

redis_says() { # PORT COMMAND TEXT
    # shellcheck disable=SC2086 # words
    redis-cli -h "$ip" -p "$1" $2 | grep -q "$3"
}

redis_alike() {
    local digest

    digest=$(redis-cli -h "$ip" -p "$1" debug digest)
    [[ $digest =~ ^[0-9a-f]{40}$ && $digest != 0000* ]] && redis_says "$2" 'debug digest' "^$digest$"
}

# ---- postgres

# One new cluster for all legs; each has its copy.
postgres_server() {
    if [ ! -d "$base/pgdata" ]; then
        install -d -m 700 "$base/pgdata" && chown "$(stat -c %u "$work")" "$base/pgdata"
        (cd / && "${as_user[@]}" "$pgbin/initdb" -D "$base/pgdata" --no-sync -A trust -U boss --locale=C -E UTF8) \
            >"$work/initdb" 2>&1 || { fail "initdb: $(tail -n 1 "$work/initdb")"; return; }
    fi
    cp -a "$base/pgdata" "$work/pgdata"
    printf 'host all all %s/32 trust\n' "$ip" >>"$work/pgdata/pg_hba.conf"
    cd "$work" || return # not a folder that the other user may not enter
    server "${as_user[@]}" "$pgbin/postgres" -D "$work/pgdata" -h "$ip" -p "$port" -k '' -c fsync=off
    cd "$top" || return
    wait_until 10 "$pgbin/pg_isready" -q -h "$ip" -p "$port" || fail "postgres is not ready: $(tail -n 1 "$work/server.err")"
}

# Each transaction adds the same amount to three tables and to the history.
postgres_pgbench() {
    postgres_server || return
    client_sh '
        to="-h '"$ip -p $port"' -U boss"
        $RUN '"$pgbin"'/pgbench -q -i -s 1 $to postgres || exit 10
        $RUN '"$pgbin"'/pgbench -c 8 -j 2 -t 200 $to postgres || exit 11
        $RUN '"$pgbin"'/pgbench -c 4 -j 2 -t 400 -n -S -M prepared $to postgres || exit 12
        $RUN '"$pgbin"'/psql -At $to postgres -c "
            select a = b and b = t and t = h and n = 1600
            from (select sum(abalance) as a from pgbench_accounts) w, (select sum(bbalance) as b from pgbench_branches) x,
                 (select sum(tbalance) as t from pgbench_tellers) y,
                 (select sum(delta) as h, count(*) as n from pgbench_history) z"' || return
    [ "$(tail -n 1 "$out")" = t ] || fail "the tables do not agree: $(tail -n 1 "$out")"
    [ "$(grep -c 'number of failed transactions: 0 ' "$out")" = 2 ] || fail "$(grep failed "$out" | tr '\n' ' ')"
}

postgres_copy() {
    postgres_server || return
    client_sh '
        rows() { seq 300000 | awk "{ print \$1 \"\t\" \$1 * 7 % 1000003 \" of the rows\" }"; }
        sql() { $RUN '"$pgbin"'/psql -q -h '"$ip -p $port"' -U boss postgres -c "$1"; }
        sql "create table t(i int, s text)" || exit 10
        rows | sql "copy t from stdin" || exit 11
        sql "copy t to stdout" | cmp - <(rows) || exit 12'
}

# ---- mariadb

mariadb_server() { # OPTION...
    if [ ! -d "$base/maria" ]; then
        install -d -m 700 "$base/maria" && chown "$(stat -c %u "$work")" "$base/maria"
        (cd / && "${as_user[@]}" mariadb-install-db --no-defaults --datadir="$base/maria" \
            --auth-root-authentication-method=normal --skip-test-db) >"$work/install" 2>&1 ||
            { fail "mariadb-install-db: $(tail -n 1 "$work/install")"; return; }
    fi
    cp -a "$base/maria" "$work/maria"
    printf '%s\n' "create user boss@'%';" "grant all on *.* to boss@'%';" 'create database d;' >"$work/init.sql"
    server "${as_user[@]}" mariadbd --no-defaults --datadir="$work/maria" --bind-address="$ip" --port="$port" \
        --socket="$work/socket" --pid-file="$work/pid" --init-file="$work/init.sql" --skip-name-resolve \
        --innodb-flush-log-at-trx-commit=0 "$@" || return
    wait_until 10 mariadb-admin --no-defaults -h "$ip" -P "$port" -u boss --protocol=tcp ping >"$work/ping" 2>&1 ||
        fail "mariadb is not ready: $(tail -n 1 "$work/server.err")"
}

mariadb_load() { # OPTION...
    mariadb_server "$@" || return
    client_sh '
        to="--no-defaults -h '"$ip -P $port"' -u boss --protocol=tcp"
        $RUN mariadb-slap $to --concurrency=8 --auto-generate-sql --auto-generate-sql-load-type=mixed \
            --number-of-queries=4000 || exit 10
        rows() { seq 100000 | awk "{ print \$1 \"\t\" \$1 * 7 % 1000003 \" of the rows\" }"; }
        { echo "create table t(i int primary key, s varchar(40));"
          rows | awk -F "\t" "NR % 500 == 1 { printf \"%sinsert into t values\", (NR == 1 ? \"\" : \";\n\") }
              { printf \"%s(%s, \x27%s\x27)\", (NR % 500 == 1 ? \"\" : \",\"), \$1, \$2 } END { print \";\" }"
        } | $RUN mariadb $to d || exit 11
        $RUN mariadb $to -N -B --quick d -e "select * from t order by i" | cmp - <(rows) || exit 12' || return
    grep -q 'Average number of seconds' "$out" || fail "mariadb-slap: $(tail -n 1 "$out")"
}

mariadb_ring_for_files() {
    RAILSOCK_IO_URING=files mariadb_load "$@"
}

# ---- mosquitto

# The subscription is there before anything is published, so no message may be missing.
mosquitto_messages() {
    printf 'listener %s %s\nallow_anonymous true\nmax_queued_messages 0\nuser root\n' "$port" "$ip" >"$work/conf"
    server mosquitto -c "$work/conf" || return
    client_sh '
        at="-h '"$ip -p $port"' -q 1"
        lines() { seq 20000 | sed "s/\$/ is a message/"; }
        $RUN mosquitto_sub $at -c -i me -t lines -t file -E || exit 10
        lines | $RUN mosquitto_pub $at -t lines -l &
        $RUN mosquitto_sub $at -c -i me -t lines -C 20000 | cmp - <(lines) || exit 11
        wait $! || exit 12
        head -c 5000000 '"$data"' >'"$work"'/sent
        $RUN mosquitto_pub $at -t file -f '"$work"'/sent || exit 13
        $RUN mosquitto_sub $at -c -i me -t file -N -C 1 | cmp - '"$work"'/sent || exit 14'
}

data_apps() {
    app 'redis, 50 clients, pipeline' redis-server result rail '' redis_pipeline
    app 'redis, values of 10 MB' redis-server bytes rail 'a connection for each value: the short ones stay on TCP' redis_cli
    app 'redis, BGSAVE under load' redis-server result rail '' redis_bgsave_less
    app 'redis, replication' redis-server bytes inner '' redis_replica
    app 'memcached, 4 threads' memcached bytes rail '' memcached_values
    # Beside the client's programs, which have links in /usr/bin, there are several versions.
    pgbin=$(find /usr/lib/postgresql -name postgres -type f 2>/dev/null | sort -V | tail -n 1)
    pgbin=${pgbin%/*}
    app 'postgres, pgbench' "${pgbin:-postgresql}/postgres" result rail '' postgres_pgbench
    app 'postgres, COPY' "${pgbin:-postgresql}/postgres" bytes rail '' postgres_copy
    app 'mariadb' mariadbd bytes tcp 'uses io_uring for its files' mariadb_load
    app 'mariadb, RAILSOCK_IO_URING=files' mariadbd bytes rail '' mariadb_ring_for_files
    app 'mariadb, --innodb-use-native-aio=0' mariadbd bytes rail '' mariadb_load --innodb-use-native-aio=0
    app 'mosquitto' mosquitto bytes rail 'few long connections: a publisher sends, and goes' mosquitto_messages
}
