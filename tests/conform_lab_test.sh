#!/bin/bash
# tests/conform_lab_test.sh - a slice of `make conform LAB=1`: some behaviours over verbs, and
# streams between all kinds of addresses that an RDMA device may have.
cd "$(dirname "$0")/.." || exit 1
exec tests/conform/run --lab -w verbs addresses.names addresses.ends addresses.accept_gives receive.several \
    receive.reset_once options.error_is_told_once ends.a_reset_is_told \
    receive_flags.peek.recv receive_wait.waitall_interrupted.recv "$@"
