#!/bin/bash
# tests/private_table_test.sh - what the kernel does with a thread that has a table of descriptors
# of its own, on which rsock/README.md founds that ours has none. Its part about RDMA is in
# identity_lab_test.sh.
set -u
cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d "${TMPDIR:-/tmp}/private_table.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
cc -std=gnu11 -O2 -D_GNU_SOURCE -Wall -Wextra -o "$dir/private_table" tests/private_table.c -lpthread -libverbs || exit 1
timeout 60 "$dir/private_table"
