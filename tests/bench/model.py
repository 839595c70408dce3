#!/usr/bin/python3
"""model.py [--pairs N] [--wire shm|verbs] [--address IP] [--place TEXT] [--json FILE]: what a message costs as
a + b x bytes, on TCP and on a rail in turn: one way (sockperf's ping-pong) and back to back (iperf3, blocks of
so many bytes). The line is fitted to the medians by least squares of the relative errors; beside it stands the
largest of these. On shm also where the 64-byte message's time goes, by shm_pingpong."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("RAILSOCK_TEST_BUILD", "build"))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tools"))
import ab_metrics
from ab_legs import Failure, Leg, Server, free_port

RAILSOCK = os.path.join(BUILD, "railsock")
ONE_WAY = (64, 256, 1024, 4096, 16384, 65000)
BACK_TO_BACK = (256, 1024, 4096, 16384, 65536, 131072)


def ran(kind, wire, server, port, client):
    options = ["--wire", wire, "--board", "eager"]
    host = Server(RAILSOCK, kind, options, server, port)
    try:
        leg = Leg(RAILSOCK, kind, options, client)
        try:
            status = leg.wait(60)
            if status:
                raise Failure(f"{leg.name} ended with {status}: {leg.text()[-200:]}")
            found = ab_metrics.read(leg.text())
            if not found:
                raise Failure(f"no figure in what {leg.name} said: {leg.text()[-200:]}")
            return found[0].value
        finally:
            leg.close()
    finally:
        host.close()


def one_way(kind, args, size):
    port = free_port()
    at = ["--tcp", "-i", args.address, "-p", str(port)]
    us = ran(kind, args.wire, ["sockperf", "server", *at], port,
             ["sockperf", "ping-pong", *at, "-m", str(size), "-t", str(args.seconds),
              *([] if args.wire == "verbs" else ["--mps=5000000"])])
    return us * 1000


def back_to_back(kind, args, size):
    port = free_port()
    rate = ran(kind, args.wire, ["iperf3", "-s", "-B", args.address, "-p", str(port)], port,
               ["iperf3", "-c", args.address, "-p", str(port), "-t", str(args.seconds), "-l", str(size), "-J"])
    return size / rate * 1000  # MB/s: ns for each block


def fit(points):
    """a, b and the largest relative error of a + b x for {x: y}."""
    w = {x: 1 / y**2 for x, y in points.items()}
    s, sx, sy = sum(w.values()), sum(w[x] * x for x in w), sum(w[x] * points[x] for x in w)
    sxx, sxy = sum(w[x] * x * x for x in w), sum(w[x] * x * points[x] for x in w)
    b = (s * sxy - sx * sy) / (s * sxx - sx * sx)
    a = (sy - b * sx) / s
    return a, b, max(abs(a + b * x - y) / y for x, y in points.items())


def stages(message):
    """Of a 64-byte message one way, message ns in all, by the wire's own bench."""
    said = subprocess.run([os.path.join(BUILD, "plain/tests/shm_pingpong")], check=True, capture_output=True,
                          text=True, timeout=300).stdout
    data, rail = (float(re.search(rf"^round trip, {what} +([0-9]+) ns", said, re.M).group(1)) / 2
                  for what in ("line and data", "rail, 64 bytes"))
    return {"two cache lines to the other processor, cursor and data": data,
            "the rings: cursors, credits, checks": rail - data,
            "calls: libc's entry, descriptor, ways to sleep; the program": message - rail}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--wire", default="shm", choices=["shm", "verbs"])
    p.add_argument("--address", default="127.0.0.1")
    p.add_argument("--place", default="same host")
    p.add_argument("--seconds", type=int, default=1)
    p.add_argument("--json")
    args = p.parse_args()
    result = {"place": args.place, "wire": args.wire}
    for name, program, sizes in (("one way", one_way, ONE_WAY), ("back to back", back_to_back, BACK_TO_BACK)):
        taken = {kind: {size: [] for size in sizes} for kind in ("tcp", "rail")}
        for _ in range(args.pairs):
            for size in sizes:
                for kind in ("tcp", "rail"):
                    try:
                        taken[kind][size].append(program(kind, args, size))
                    except (Failure, ValueError, LookupError) as e:
                        print(f"model.py: {name}, {size} bytes, {kind}: {e}", file=sys.stderr)
        result[name] = {}
        for kind in ("tcp", "rail"):
            points = {x: statistics.median(y) for x, y in taken[kind].items() if y}
            if len(points) < 3:
                return 1
            a, b, off = fit(points)
            result[name][kind] = {"a": a, "b": b, "off": off, "points": points}
            print(f"{args.place}, {args.wire if kind == 'rail' else 'tcp'}, {name}: {a:.0f} ns + {b:.3f} ns x bytes "
                  f"({1 / b:.2f} GB/s), off by up to {off * 100:.0f} %")
            print("    " + ", ".join(f"{x} B {y:.0f} ns" for x, y in points.items()))
    if args.wire == "shm":
        result["stages"] = stages(result["one way"]["rail"]["points"][64])
        print("of 64 bytes one way on shm")
        for what, ns in result["stages"].items():
            print(f"    {ns:5.0f} ns  {what}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
    return 0


sys.exit(main())
