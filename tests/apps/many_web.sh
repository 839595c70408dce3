# shellcheck shell=bash
#
# tests/apps/many_web.sh - servers of web pages, and what stands before them. Sourced by
# tests/apps/many.
#
# shellcheck disable=SC2016 # single quotes are for the client's shell
# shellcheck disable=SC2154,SC2034 # variables from and for lib.sh

# $work/www: big, 16 MiB, and small, 3000 bytes.
www() {
    mkdir -p "$work/www" "$work/tmp"
    ln -f "$data_part" "$work/www/big"
    head -c 3000 "$data" >"$work/www/small"
    chmod 644 "$work/www"/*
}

# Small and big files in turn on one connection.
http_files() { # TIMES
    client_sh '
        url=http://'"$ip:$port"' big= all=
        for ((i = 0; i < '"$1"'; i++)); do
            big+=" $url/small $url/big"
            all+=" '"$work/www/small $work/www/big"'"
        done
        $RUN curl -sS --fail $big | cmp - <(cat $all)' || fail "curl: $(tail -n 1 "$err")"
}

# Many at once, kept open.
http_load() { # REQUESTS
    client ab -q -k -c 16 -n "$1" "http://$ip:$port/small" || return
    [ "$(grep -cE "^(Complete requests: *$1|Failed requests: *0|Non-2xx.*)\$" "$out")" = 2 ] ||
        fail "ab: $(grep -E '^(Complete|Failed|Non-2xx)' "$out" | tr '\n' ' ')"
}

# ---- nginx

# nginx_conf [LISTEN_OPTION [TEXT_OF_SERVER [TEXT_OF_HTTP]]]
nginx_conf() {
    www
    cat >"$work/nginx.conf" <<END
worker_processes 2;
pid $work/nginx.pid;
error_log $work/error.log notice;
user root;
events { worker_connections 512; }
http {
    access_log off;
    sendfile on;
    client_max_body_size 64m;
    client_body_temp_path $work/tmp/a;
    proxy_temp_path $work/tmp/b;
    fastcgi_temp_path $work/tmp/c;
    uwsgi_temp_path $work/tmp/d;
    scgi_temp_path $work/tmp/e;
    keepalive_requests 1000000;
    ${3-}
    server {
        listen $ip:$port ${1-};
        root $work/www;
        ${2-}
    }
}
END
}

nginx_foreground() {
    server nginx -g 'daemon off;' -e "$work/server.err" -p "$work" -c "$work/nginx.conf"
}

nginx_reuseport() {
    nginx_conf reuseport
    nginx_foreground && http_files 3 && http_load 5000
}

# The master is told to read its settings anew; old workers finish what they have begun. The next
# time when the new ones are there, as long as the client runs.
nginx_reload() {
    local client times=0 status

    nginx_conf
    nginx_foreground || return
    http_files 40 &
    client=$!
    while kill -0 "$client" 2>/dev/null && [ $times -lt 200 ]; do
        times=$((times + 1))
        kill -HUP "$(cat "$work/nginx.pid")"
        wait_until 10 nginx_workers $((times * 2 + 2)) || { fail 'no new workers'; break; }
    done
    wait "$client"
    status=$?
    # What the background shell found wrong is in its status only.
    [ $status -eq 0 ] || fail "the client ended with $status: $(tail -n 1 "$err")"
    [ $times -ge 2 ] || fail "it was reloaded only $times times"
}

nginx_workers() { # HOW MANY have been started by now
    [ "$(grep -c 'start worker process ' "$work/error.log")" -ge "$1" ]
}

# One nginx before another, which it keeps connections to.
nginx_proxy() {
    nginx_behind || return
    nginx_conf '' "location / { proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ''; }" \
        "upstream behind { server $ip:$behind; keepalive 8; }"
    nginx_foreground && http_files 3 && http_load 3000
}

# Starts an nginx for whom something else stands before; its port in $behind, a new one in $port.
nginx_behind() {
    nginx_conf
    mv "$work/nginx.conf" "$work/behind.conf"
    sed -i "s|$work/nginx.pid|$work/behind.pid|" "$work/behind.conf"
    server nginx -g 'daemon off;' -e "$work/behind.err" -p "$work" -c "$work/behind.conf" || return
    behind=$port
    free_port
}

# ---- php-fpm behind nginx: what is posted comes back

php_fpm() {
    local php

    php=$(php_program)
    www
    # shellcheck disable=SC2016
    echo '<?php header("Content-Type: text/plain"); readfile("php://input");' >"$work/www/back.php"
    cat >"$work/fpm.conf" <<END
[global]
error_log = $work/fpm.log
daemonize = no
[www]
user = root
group = root
listen = $ip:$port
pm = static
pm.max_children = 4
php_admin_value[post_max_size] = 64M
END
    server "$php" -R -F -n -y "$work/fpm.conf" || return
    behind=$port
    free_port
    nginx_conf '' "location ~ php\$ {
            fastcgi_pass behind;
            fastcgi_keep_conn on;
            fastcgi_param SCRIPT_FILENAME $work/www\$fastcgi_script_name;
            fastcgi_param REQUEST_METHOD \$request_method;
            fastcgi_param CONTENT_TYPE \$content_type;
            fastcgi_param CONTENT_LENGTH \$content_length;
        }" "upstream behind { server $ip:$behind; keepalive 4; }"
    nginx_foreground || return
    client_sh '
        post="-sS --fail -H Expect: -H Content-Type:application/octet-stream --data-binary"
        at=http://'"$ip:$port"'/back.php all= args=
        for i in 1 2 3 4 5 6 7 8; do
            args+=" --next $post @'"$work/www/small"' $at"
            all+=" '"$work/www/small"'"
        done
        $RUN curl $post @'"$work/www/big"' $at $args --next $post @'"$work/www/big"' $at |
            cmp - <(cat '"$work/www/big"' $all '"$work/www/big"')' || fail "curl: $(tail -n 1 "$err")"
}

php_program() {
    find /usr/sbin -name 'php-fpm*' | sort -V | tail -n 1
}

# ---- haproxy before nginx

haproxy_before() { # MODE OPTION
    nginx_behind || return
    cat >"$work/haproxy.cfg" <<END
global
    nbthread 2
    maxconn 512
defaults
    mode $1
    $2
    timeout connect 10s
    timeout client 30s
    timeout server 30s
listen web
    bind $ip:$port
    server one $ip:$behind
END
    server haproxy -db -f "$work/haproxy.cfg" && http_files 3 && http_load 3000
}

# ---- apache, lighttpd

apache_run() { # prefork|event
    local modules=/usr/lib/apache2/modules

    www
    cat >"$work/apache.conf" <<END
ServerName test
ServerRoot $work
PidFile $work/apache.pid
ErrorLog $work/error.log
DefaultRuntimeDir $work
Listen $ip:$port
LoadModule mpm_$1_module $modules/mod_mpm_$1.so
LoadModule authz_core_module $modules/mod_authz_core.so
User nobody
Group nogroup
StartServers 2
MaxRequestWorkers 50
KeepAlive On
MaxKeepAliveRequests 0
DocumentRoot $work/www
<Directory $work/www>
    Require all granted
    Options FollowSymLinks
</Directory>
END
    # At its end it sends SIGTERM to its whole process group.
    server setsid apache2 -f "$work/apache.conf" -D FOREGROUND && http_files 3 && http_load 5000
}

lighttpd_run() {
    www
    cat >"$work/lighttpd.conf" <<END
server.document-root = "$work/www"
server.bind = "$ip"
server.port = $port
server.errorlog = "$work/error.log"
server.upload-dirs = ( "$work/tmp" )
server.max-keep-alive-requests = 100000
END
    server lighttpd -D -f "$work/lighttpd.conf" && http_files 3 && http_load 5000
}

# ---- wget from python's http.server

wget_files() {
    www
    server "$python" -m http.server --protocol HTTP/1.1 -b "$ip" -d "$work/www" "$port" || return
    client_sh '
        url=http://'"$ip:$port"'
        $RUN wget -q -O - $url/small $url/big $url/small |
            cmp - <(cat '"$work/www/small $work/www/big $work/www/small"')' || fail "wget: $(tail -n 1 "$err")"
}

# ---- caches, HTTP/2, application servers, a client with eight connections

varnish_cache() {
    nginx_behind || return
    server varnishd -j none -F -a "$ip:$port" -b "$ip:$behind" -n "$work/varnish" -s malloc,64m -T none || return
    http_files 3 && http_load 5000
}

h2_files() {
    www
    server nghttpd --no-tls -a "$ip" -d "$work/www" "$port" || return
    client_sh '
        url=http://'"$ip:$port"'
        $RUN nghttp $url/big | cmp - '"$work/www/big"' || exit 10
        $RUN h2load -n 5000 -c 8 -m 10 $url/small || exit 11' || return
    grep -q 'requests: 5000 total, 5000 started, 5000 done, 5000 succeeded' "$out" || fail "$(grep requests: "$out")"
}

uwsgi_post() {
    www
    cat >"$work/app.py" <<END
def application(env, start):
    body = env['wsgi.input'].read()
    start('200 OK', [('Content-Length', str(len(body)))])
    return [body]
END
    server uwsgi_python3 --http11-socket "$ip:$port" --master --processes 2 --threads 2 --wsgi-file "$work/app.py" --die-on-term --listen 64 --post-buffering 0 || return
    client_sh '
        at=http://'"$ip:$port"'/
        for i in 1 2 3 4 5 6; do
            $RUN curl -sS --fail -H Expect: --data-binary @'"$work/www/big"' $at | cmp - '"$work/www/big"' || exit 10
            $RUN curl -sS --fail -H Expect: --data-binary @'"$work/www/small"' $at | cmp - '"$work/www/small"' || exit 11
        done'
}

# Eight connections for one file.
aria2_file() {
    nginx_conf
    nginx_foreground || return
    client_sh '
        cd '"$work"'
        $RUN aria2c -q --no-conf -x 8 -s 8 -k 1M -o got http://'"$ip:$port"'/big || exit 10
        cmp got www/big'
}

# A worker with gevent serves a connection of many only when the others have ended, on TCP as well;
# after the two seconds that are usual it would be closed for being idle.
gunicorn_run() { # WORKER
    www
    cat >"$work/app.py" <<END
def application(env, start):
    name = env['PATH_INFO'].strip('/')
    body = open('$work/www/' + name, 'rb').read()
    start('200 OK', [('Content-Length', str(len(body)))])
    return [body]
END
    cd "$work" || return
    server "$python" -m gunicorn -b "$ip:$port" -w 2 -k "$1" --keep-alive 60 --chdir "$work" \
        --worker-tmp-dir "$work" app:application
    cd "$top" || return
    http_files 3 && http_load 2000
}

web_apps() {
    # On a virtual host the file is there before a rail is.
    app 'nginx, daemon' nginx bytes "$([ "$wire" = shm ] && echo rail || echo any)" \
        'the client only: a daemon outlives its report' nginx_files on on 2
    app 'nginx, reload under load' nginx bytes rail '' nginx_reload
    app 'nginx, reuseport' nginx bytes rail '' nginx_reuseport
    app 'nginx, proxy to nginx' nginx bytes inner '' nginx_proxy
    app 'nginx, wrk' wrk result rail '' nginx_wrk
    app 'php-fpm behind nginx' "$(php_program)" bytes inner '' php_fpm
    app 'haproxy, http' haproxy bytes inner '' haproxy_before http 'option http-keep-alive'
    app 'haproxy, tcp with splice' haproxy bytes inner '' haproxy_before tcp 'option splice-auto'
    app 'apache prefork' apache2 bytes rail '' apache_run prefork
    app 'apache event' apache2 bytes rail '' apache_run event
    app 'lighttpd' lighttpd bytes rail '' lighttpd_run
    app 'curl to python http.server' curl bytes rail '' curl_upload
    app 'wget, python -m http.server' wget bytes rail '' wget_files
    app 'varnish before nginx' varnishd bytes inner '' varnish_cache
    app 'nghttpd, h2load' nghttpd bytes rail '' h2_files
    app 'uwsgi, python' uwsgi_python3 bytes any '' uwsgi_post
    app 'aria2c, nginx' aria2c bytes any '' aria2_file
    app 'gunicorn sync' gunicorn bytes any '' gunicorn_run sync
    app 'gunicorn gthread' gunicorn bytes rail '' gunicorn_run gthread
    app 'gunicorn gevent' gunicorn bytes rail '' gunicorn_run gevent
}
