#!/usr/bin/python3
"""aims.py OUT FILE...: joins the results of tools/measure, says for each whether it reaches what
is aimed at, and writes all of it to OUT as JSON. The aims are those of the project's issue: rail against
TCP, against what the hardware or the device gives at most, and against rdma-core's rsockets."""
import json
import statistics
import sys

# (place, figure): against which leg, at least or at most, how many times
AIMS = {
    ("same host", "round-trip"): [("TCP", "at most", 1 / 80), ("cache line", "at most", 2)],
    ("same host", "iperf3"): [("TCP", "at least", 4), ("ring memcpy", "at least", 0.85)],
    ("same host", "redis-1"): [("TCP", "at least", 12)],
    ("same host", "redis-50"): [("TCP", "at least", 3)],
    ("same host", "redis-16"): [("TCP", "at least", 1.5)],
    ("same host", "nginx"): [("TCP", "at least", 3)],
    ("same host", "pgbench"): [("TCP", "at least", 1.3)],
    ("one lab host", "one-way"): [("ib_write_lat", "at most", 1.15), ("rstream", "at most", 0.6)],
    ("one lab host", "iperf3"): [("ib_write_bw 64 KiB", "at least", 0.95), ("rstream 64 KiB", "at least", 1.5)],
    ("one lab host", "redis-1"): [("TCP", "at least", 3)],
    ("one lab host", "redis-20"): [("TCP", "at least", 3)],
}


def spread(values, unit):
    if not values:
        return "failed"
    return f"{statistics.median(values):.4g} {unit} ({min(values):.4g}..{max(values):.4g})"


def judge(r):
    """Each aim in words, and whether it is reached; None for one without both of its figures."""
    judged = []
    for against, bound, times in AIMS.get((r["place"], r["name"]), []):
        other = r["tcp"] if against == "TCP" else r["limits"].get(against)
        gain = statistics.median(r["rail"]) / statistics.median(other) if r["rail"] and other else None
        judged.append({"against": against, "bound": bound, "times": times, "is": gain,
                       "reached": gain and (gain >= times if bound == "at least" else gain <= times)})
    return judged


results = []
for name in sys.argv[2:]:
    with open(name, encoding="utf-8") as f:
        results += json.load(f)
for r in results:
    r["aims"] = judge(r)
    print(f"{r['place']}, {r['wire']}: {r['program']}")
    for label, values in (("TCP", r["tcp"]), ("rail", r["rail"]), *r["limits"].items()):
        print(f"    {label:20} {spread(values, r['unit'])}")
    if r["share"]:
        print(f"    {'on the rail':20} {statistics.median(r['share']):.1f} %")
    for a in r["aims"]:
        bound = f"{a['against']}, aim {a['bound']} {a['times']:.3g}"
        if a["is"] is None:
            print(f"    no figure to compare with {bound}")
        else:
            print(f"    {a['is']:.3g} times {bound}: " + ("reached" if a["reached"] else "MISSED"))
    for error in r["errors"]:
        print(f"    failed: {error}")
with open(sys.argv[1], "w", encoding="utf-8") as f:
    json.dump(results, f, indent=1)
