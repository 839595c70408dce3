#!/bin/bash
# tests/conform_test.sh - a slice of `make conform`: every CONFORM_STEP-th case.
cd "$(dirname "$0")/.." || exit 1
exec tests/conform/run -w "${CONFORM_WAYS:-off,rail}" -n "${CONFORM_STEP:-7}" "$@"
