#!/bin/bash
# tests/rules_lab_test.sh - rules for rails over verbs: an address map that takes loopback
# connections to the device of a virtual host. With RULES_HOSTS=2 (make lab-rules) also a map and a
# service type between two hosts with a second network on the same interface: TCP goes by the one,
# RDMA by the other, which packet filters count.
set -u
cd "$(dirname "$0")/.." || exit 1

if [ -z "${LAB_HOST-}" ]; then
    railsock=${RAILSOCK_TEST_BUILD:-build}/railsock
    export LAB_RAILSOCK=$railsock
    "$railsock" lab run --hosts "${RULES_HOSTS:-1}" --timeout 600 -- tests/rules_lab_test.sh | sed -u 's/^host[12]| //'
    exit "${PIPESTATUS[0]}"
fi
# shellcheck source=tests/wait.sh
. tests/wait.sh
python=(/usr/bin/python3 -SE)
map='reach 10.1.0.0/24 at 10.9.0.0/24'

serve() { # ADDRESS PORT RULES
    echo "$3" >"/tmp/rules.$2"
    RAILSOCK_CONFIG="/tmp/rules.$2" "$LAB_RAILSOCK" run -- "${python[@]}" tests/apps/echo_server.py threads "$1" "$2" &
    serves "$2" $!
}

ask() { # NAME ADDRESS PORT CLIENT SERVER RULES
    echo "run rules-lab.$1"
    echo "$6" >/tmp/rules.client
    if ADDRESS=$2 RAILSOCK_CONFIG=/tmp/rules.client timeout 60 "$LAB_RAILSOCK" run -- "${python[@]}" tests/rules.py \
        "$LAB_RAILSOCK" "$3" one "$4" "$5" >/tmp/client 2>&1; then
        echo "ok rules-lab.$1"
    else
        echo "not ok rules-lab.$1: $(tail -n 1 /tmp/client)"
    fi
}

# RoCE packets that have come over the second network: of the type 104, and others; and over the
# first.
count() {
    nft 'add table ip t; add chain ip t c { type filter hook input priority 0; };
         add rule ip t c udp dport 4791 ip saddr 10.9.0.0/24 ip daddr 10.9.0.0/24 ip dscp 26 counter accept;
         add rule ip t c udp dport 4791 ip saddr 10.9.0.0/24 ip daddr 10.9.0.0/24 counter accept;
         add rule ip t c udp dport 4791 counter'
}

# A few without the type were seen on a busy machine, among a hundred; data has it.
counted() { # NAME
    local typed others outside

    read -r typed others outside <<<"$(nft list chain ip t c |
        sed -n 's/.*counter packets \([0-9]*\) .*/\1/p' | tr '\n' ' ')"
    if [ "$typed" -ge 50 ] && [ $((others * 5)) -le "$typed" ] && [ "$outside" = 0 ]; then
        echo "ok rules-lab.$1"
    else
        echo "not ok rules-lab.$1: $typed packets of the type, $others others, $outside elsewhere"
    fi
}

loopback() {
    ask map.loopback 127.0.0.1 7002 verbs/none verbs/none \
        'client wire verbs board eager reach 127.0.0.1/32 at 10.1.0.1/32'
    ask no-map.loopback 127.0.0.1 7002 tcp/no-rdma-on-route tcp/wait-peer 'client wire verbs board eager'
}

keys() {
    local reach='reach 127.0.0.1/32 at 10.1.0.1/32'

    (umask 077 && printf '%032x\n' 1 >/tmp/one.key && printf '%032x\n' 2 >/tmp/other.key)
    serve 127.0.0.1 7003 "server wire verbs board eager key one.key $reach"
    ask key.same 127.0.0.1 7003 verbs/none verbs/none "client wire verbs board eager key one.key $reach"
    ask key.differs 127.0.0.1 7003 tcp/proof-failed tcp/proof-failed \
        "client wire verbs board eager key other.key $reach"
    ask key.server-only 127.0.0.1 7003 tcp/site-key tcp/site-key "client wire verbs board eager $reach"
}

if [ "$LAB_HOST" = 1 ]; then
    serve 127.0.0.1 7002 "server wire verbs board eager reach 127.0.0.1/32 at 10.1.0.1/32"
    loopback
    keys
fi
# shellcheck disable=SC2153 # the lab sets it
if [ "$LAB_HOSTS" = 2 ]; then
    ip address add "10.9.0.$LAB_HOST/24" dev eth0
    count
    if [ "$LAB_HOST" = 1 ]; then
        serve 10.1.0.1 7000 "server wire verbs board eager $map"
        serve 10.1.0.1 7001 'server wire verbs board eager'
    fi
    lab-barrier up
    if [ "$LAB_HOST" = 2 ]; then
        ask map 10.1.0.1 7000 verbs/none - "client wire verbs board eager tos 104 $map"
        counted map.answers
    fi
    lab-barrier mapped
    if [ "$LAB_HOST" = 1 ]; then
        counted map.requests
    else
        ask map.of-one-end 10.1.0.1 7001 tcp/proof-failed - "client wire verbs board eager $map"
    fi
    lab-barrier asked
fi
# shellcheck disable=SC2046 # process ids
[ "$LAB_HOST" = 2 ] || kill $(jobs -p)
exit 0
