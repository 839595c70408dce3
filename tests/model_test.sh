#!/bin/sh
# model_test.sh - the quick part of tests/model/run; `make model` does all of it.
exec tests/model/run quick
