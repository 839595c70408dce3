#!/usr/bin/python3
"""first.py [--pairs N] [--connections N] [--trips N]: the first round trips of connections that board at once, and of a last one with
the end of the client's half (first_trips.c), beside plain TCP in the same run."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

BUILD = os.environ.get("RAILSOCK_TEST_BUILD", "build")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--connections", type=int, default=200)
    p.add_argument("--trips", type=int, default=200)
    args = p.parse_args()
    runs = {"tcp": [], "rail": []}
    with tempfile.TemporaryDirectory() as scratch:
        program = os.path.join(scratch, "first_trips")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-I.", "-o", program,
                        "tests/bench/first_trips.c"], check=True)
        for _ in range(args.pairs):
            for name, options in (("tcp", ["--tcp"]), ("rail", ["--wire", "shm", "--board", "eager"])):
                said = subprocess.run([f"{BUILD}/railsock", "run", *options, "--", program, str(args.connections),
                                       str(args.trips)], check=True, capture_output=True, text=True, timeout=300)
                runs[name].append(json.loads(said.stdout))
    print(f"same host, shm: the first {args.trips} round trips of {args.connections} connections that board at once, us")
    print("                            median   99th percentile   longest of a run (range)")
    for what, text in (("trips", "round trip"), ("last", "with the end")):
        for name in runs:
            of = [[run[what][i] for run in runs[name]] for i in range(3)]
            print(f"    {text:17} {name:5} {statistics.median(of[0]):7.1f} {statistics.median(of[1]):17.1f} "
                  f"{statistics.median(of[2]):10.0f} ({min(of[2]):.0f}..{max(of[2]):.0f})")
    return 0


sys.exit(main())
