#!/usr/bin/python3
"""plain.py [--pairs N]: what the library costs a program that gets no rail: nanoseconds per call on
a pipe, a file and a TCP connection to a process without the library (plain_calls.c), and that connection's
throughput. Medians of what each run found in a quiet moment; the legs of a pair take turns in one run. Each leg also counts what the connection did on a
rail, which must be nothing."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

BUILD = os.environ.get("RAILSOCK_TEST_BUILD", "build")


def leg(program, preload, log):
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAILSOCK_") and k != "LD_PRELOAD"}
    if preload:
        env.update(LD_PRELOAD=preload, RAILSOCK_LOG="info:" + log)
    said = subprocess.run([program], env=env, check=True, capture_output=True, text=True, timeout=120)
    return json.loads(said.stdout)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=5)
    args = p.parse_args()
    library = os.path.abspath(f"{BUILD}/librailsock.so")
    legs = {"": [], library: []}
    with tempfile.TemporaryDirectory() as scratch:
        program, log = os.path.join(scratch, "plain_calls"), os.path.join(scratch, "log")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-o", program,
                        "tests/bench/plain_calls.c"], check=True)
        for i in range(args.pairs):
            for preload in sorted(legs, reverse=i % 2):
                legs[preload].append(leg(program, preload, log))
        if os.path.exists(log) and "sending on" in open(log, encoding="utf-8").read():
            print("plain.py: a connection was on a rail", file=sys.stderr)
            return 1
    print("no rail: nanoseconds per call of 64 bytes, and MB/s to a process without the library")
    print(f"    {'':16} {'libc':>8} {'library':>8} {'more':>8}   {'ratio':>5} (of each pair)")
    for what in legs[""][0]:
        plain, with_it = ([run[what] for run in legs[k]] for k in ("", library))
        ratios = [b / a for a, b in zip(plain, with_it)]
        a, b = statistics.median(plain), statistics.median(with_it)
        print(f"    {what:16} {a:8.1f} {b:8.1f} {b - a:8.1f}   {statistics.median(ratios):5.3f} "
              f"({min(ratios):.3f}..{max(ratios):.3f})")
    return 0


sys.exit(main())
