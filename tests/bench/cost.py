#!/usr/bin/python3
"""cost.py [--pairs N] [--json FILE]: what the library costs connections that stay on TCP: nanoseconds that it adds to a
call (call_turns.c), bytes of memory for each connection that is held, and the time of one that carries a single
request (many.c). Medians; the legs of a pair take turns in one run."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

BUILD = os.environ.get("RAILSOCK_TEST_BUILD", "build")

# What the project aims at: nanoseconds, bytes, times
CALL_MORE, HELD_MORE, REQUEST_RATE = 30, 256, 0.97
SOCKETS, REQUESTS, BATCHES = 10000, 3000, 400
FLOORS = (("passes the call on", ["-DFLOOR=0"]),
          ("looks the number up, counts", ["-DFLOOR=1"]),
          ("holds a reference, counts the call in flight", ["-DFLOOR=2"]),
          ("notes both for handlers that jump", ["-DFLOOR=3"]),
          ("passes the call on, after 640 bytes of code", ["-DFLOOR=0", "-DLINES=10"]))


def leg(argv, preload):
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAILSOCK_") and k != "LD_PRELOAD"}
    if preload:
        env["LD_PRELOAD"] = preload
        if argv[0].endswith("call_turns"):
            env["RAILSOCK_BOARD"] = "never"
    said = subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=300)
    return json.loads(said.stdout)


def verdict(reached):
    return "reached" if reached else "MISSED"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--json")
    args = p.parse_args()
    library = os.path.abspath(f"{BUILD}/librailsock.so")
    result = {"calls": [], "floor": [[] for _ in FLOORS], "held": {"": [], library: []}, "checked": {"": [], library: []},
              "request": {"": [], library: []}}
    with tempfile.TemporaryDirectory() as scratch:
        program = {}
        for name in ("call_turns", "many"):
            program[name] = os.path.join(scratch, name)
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-o", program[name],
                            f"tests/bench/{name}.c", "-ldl"], check=True)
        floor = [os.path.join(scratch, f"floor{n}.so") for n in range(len(FLOORS))]
        for n, path in enumerate(floor):
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-fPIC", "-shared",
                            "-fvisibility=hidden", *FLOORS[n][1], "-o", path, "tests/bench/call_floor.c", "-ldl"],
                           check=True)
        for i in range(args.pairs):
            result["calls"].append(leg([program["call_turns"], str(BATCHES)], library))
            for n, path in enumerate(floor):
                result["floor"][n].append(leg([program["call_turns"], str(BATCHES)], path))
            for preload in sorted(("", library), reverse=i % 2):
                result["request"][preload].append(leg([program["many"], "request", str(REQUESTS)], preload))
                for what in ("held", "checked"):
                    result[what][preload].append(leg([program["many"], what, str(SOCKETS // 2)], preload))
    print("connections that stay on TCP: nanoseconds that the library adds to a call of 64 bytes")
    for call in result["calls"][0]:
        more, start, end, libc = (statistics.median(run[call][k] for run in result["calls"])
                                  for k in ("more", "from", "to", "libc"))
        print(f"    {call:8} {more:6.1f} ({start:.1f}..{end:.1f}), libc's {libc:.0f}; aim at most {CALL_MORE}: "
              + verdict(more <= CALL_MORE))
    print("    the least for a read(), and for a write(), that")
    for (what, _), runs in zip(FLOORS, result["floor"]):
        least = [statistics.median(run[call]["more"] for run in runs) for call in ("read", "write")]
        print(f"        {what:44} {least[0]:6.1f} {least[1]:6.1f}")
    print(f"bytes for each of {SOCKETS} sockets, kernel's not counted")
    for of, what, words in (("held", "idle", "nothing has passed"), ("held", "used", "64 bytes have, each way"),
                            ("checked", "used", "so, and asked for SO_ERROR")):
        plain, with_it = (statistics.median(run[what] for run in result[of][k]) for k in ("", library))
        print(f"    {words:24} {with_it - plain:7.1f}; aim at most {HELD_MORE}: "
              + verdict(with_it - plain <= HELD_MORE))
    print("connect, request, answer, close; the library at both ends")
    for what in ("tenth", "median"):
        ratios = [a[what] / b[what] for a, b in zip(result["request"][""], result["request"][library])]
        plain, with_it = (statistics.median(run[what] for run in result["request"][k]) for k in ("", library))
        print(f"    {what:8} {plain / 1000:.1f} us without, {with_it / 1000:.1f} with; rate "
              f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f}) of TCP's; aim at least "
              f"{REQUEST_RATE}: " + verdict(statistics.median(ratios) >= REQUEST_RATE))
    if args.json:
        result = {k: v if isinstance(v, list) else {"tcp": v[""], "library": v[library]} for k, v in result.items()}
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
    return 0


sys.exit(main())
