#!/bin/bash
# tests/conform_test.sh - a slice of `make conform`: every CONFORM_STEP-th case; while streams
# board, what once was lost there; and some random walks.
cd "$(dirname "$0")/.." || exit 1
set -o pipefail
status=0
tests/conform/run -w "${CONFORM_WAYS:-off,rail}" -n "${CONFORM_STEP:-7}" "$@" || status=1
tests/conform/run -w race epoll_once one_shot both_ends_in_one two_writes_are_one_stream.recv \
    two_writes_are_one_stream.readv | sed 's/ conform\./&race./' || status=1
# Random walks, always the same ones.
tests/conform/run -w off,rail,race walks | sed 's/ conform\./&walked./' || status=1
tests/conform/run -w rail receive.reset_after_data.recvmmsg | sed 's/ conform\./&rail./' || status=1
exit $status
