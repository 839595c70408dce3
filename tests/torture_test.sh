#!/bin/bash
# tests/torture_test.sh - a short slice of `make torture`: some seconds with each kind of trouble.
cd "$(dirname "$0")/.." || exit 1
SECONDS_EACH=${TORTURE_SECONDS:-4} exec tests/torture/run once
