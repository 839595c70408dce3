# shellcheck shell=bash
#
# tests/apps/many_languages.sh - programs in languages with their own ways to sockets, both ends in
# the same; they compare what comes back. Sourced by tests/apps/many.
#
# shellcheck disable=SC2154 # variables from lib.sh

# both WORDS...: the program with `server HOST PORT`, and with `client HOST PORT`.
both() {
    server "$@" server "$ip" "$port" && both_client "$@"
}

both_client() {
    client "$@" client "$ip" "$port" || return
    grep -qx 'all came back' "$out" || fail "$(tail -n 1 "$out")"
}

node_cluster() {
    server node "$apps/http_node.js" cluster "$ip" "$port" && both_client node "$apps/http_node.js"
}

# The compiler's class files are the server's and the client's.
java_nio() {
    local flags=(-Xshare:auto -XX:TieredStopAtLevel=1 -Xmx128m)

    both java "${flags[@]}" "$apps/NioEcho.java"
}

language_apps() {
    app 'python, threads' "$python" bytes rail '' python_echo threads 4
    app 'python, asyncio' "$python" bytes rail '' python_echo asyncio 4
    app 'python, multiprocessing' "$python" bytes rail '' python_echo processes 8
    app 'perl, IO::Socket, forking' perl bytes rail '' both perl "$apps/echo_fork.pl"
    app 'ruby, TCPServer, threads' ruby bytes rail '' both ruby "$apps/echo.rb"
    app 'node, http' node bytes rail '' both node "$apps/http_node.js"
    app 'node, cluster' node bytes rail '' node_cluster
    app 'java, NIO selector' java bytes rail '' java_nio
    app 'erlang, gen_tcp' escript bytes rail '' both escript "$apps/echo.escript"
}
