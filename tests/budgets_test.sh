#!/bin/bash
# tests/budgets_test.sh - who gets a rail when there are few, and who gives it back.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/pair.sh
. tests/pair.sh

budget() { # CASE SETTING...
    pair "budgets.$1" eager "tests/apps/echo_server.py threads 127.0.0.1 PORT" \
        "tests/budgets.py $build/railsock PORT $1" "${@:2}"
}

budget idle RAILSOCK_IDLE=1
budget rails RAILSOCK_RAILS=2 RAILSOCK_IDLE=0
budget none RAILSOCK_RAILS=0
exit 0
