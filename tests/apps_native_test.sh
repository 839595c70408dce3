#!/bin/bash
# tests/apps_native_test.sh - real programs on this host: on TCP with the library loaded, over
# shared memory, and with the library on one side only. tests/apps/ has the cases.
cd "$(dirname "$0")/.." || exit 1
exec tests/apps/driver.sh tcp shm one-sided:shm
