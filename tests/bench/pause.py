#!/usr/bin/python3
"""pause.py [--pairs N] [--wire shm|verbs] [--address IP] [--place TEXT]: what a planned change of track costs
a 64-byte ping-pong (switch_pause.c), in round trips of plain TCP in the same run, and how many changes a
second there were. The changes come from RAILSOCK_TEST_SWITCH, which also lets rails fail now and then.
On a lab host, --host N: the server is on that one."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

BUILD = os.environ.get("RAILSOCK_TEST_BUILD", "build")

AIM = 10  # TCP round trips, median
PORT = "7950"


def leg(args, program, options, seed=None):
    env = dict(os.environ)
    if args.address:
        env["BENCH_ADDRESS"] = args.address
    if seed:
        env["RAILSOCK_TEST_SWITCH"] = str(seed)
    run = [f"{BUILD}/railsock", "run", *options, "--", program]
    server, there = None, []
    if args.host:
        server = subprocess.Popen(["on", args.host, "env", f"RAILSOCK_TEST_SWITCH={seed or 0}", *run, "serve", PORT])
        there = [os.environ["LAB_IP_" + args.host], PORT]
    said = subprocess.run([*run, str(args.seconds), *there], env=env, check=True, capture_output=True, text=True,
                          timeout=args.seconds + 60)
    if server and server.wait(timeout=60) != 0:
        sys.exit("the server failed")
    return json.loads(said.stdout)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--wire", default="shm")
    p.add_argument("--address")
    p.add_argument("--place", default="same host")
    p.add_argument("--host")
    p.add_argument("--seconds", type=int, default=3)
    args = p.parse_args()
    medians, worst, rates, tcp = [], [], [], []
    with tempfile.TemporaryDirectory(dir=os.environ.get("LAB_SCRATCH")) as scratch:
        program = os.path.join(scratch, "switch_pause")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-I.", "-o", program,
                        "tests/bench/switch_pause.c"], check=True)
        for seed in range(1, args.pairs + 1):
            plain = leg(args, program, ["--tcp"])
            rail = leg(args, program, ["--wire", args.wire, "--board", "eager"], seed)
            if not rail["changed"]:
                print(f"{args.place}, {args.wire}: a run without a change of track", file=sys.stderr)
                continue
            tcp.append(plain["quiet"])
            medians.append(rail["median"] / plain["quiet"])
            worst.append(rail["worst"])
            rates.append(rail["switches"] / rail["seconds"])
    if not medians:
        return 1
    is_ = statistics.median(medians)
    print(f"{args.place}, {args.wire}: 64-byte ping-pong, a round trip in which the stream changes track")
    print(f"    median               {is_:.3g} TCP round trips of {statistics.median(tcp) / 1000:.4g} us "
          f"({min(medians):.3g}..{max(medians):.3g})")
    print(f"    longest of each run  {statistics.median(worst) / 1e6:.3g} ms ({min(worst) / 1e6:.3g}..{max(worst) / 1e6:.3g})")
    print(f"    changes per second   {statistics.median(rates):.0f} ({min(rates):.0f}..{max(rates):.0f})")
    print(f"    aim: median at most {AIM} TCP round trips: {'reached' if is_ <= AIM else 'MISSED'}")
    return 0


sys.exit(main())
