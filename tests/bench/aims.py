#!/usr/bin/python3
"""aims.py OUT FILE...: joins the results of tools/measure, says for each whether it reaches what
is aimed at, and writes all of it to OUT as JSON. The aims are those of the project's issue:
rail against TCP, or against perftest's raw figure on the same device."""
import json
import statistics
import sys

# (place, figure): against which leg, at least or at most, how many times
AIMS = {
    ("same host", "redis-1"): ("tcp", "at least", 6),
    ("same host", "redis-50"): ("tcp", "at least", 2),
    ("same host", "round-trip"): ("tcp", "at most", 1 / 20),
    ("same host", "iperf3"): ("tcp", "at least", 2.5),
    ("one lab host", "one-way"): ("raw", "at most", 1.6),
    ("one lab host", "iperf3-raw"): ("raw", "at least", 0.75),
    ("one lab host", "redis-1"): ("tcp", "at least", 2),
}


def spread(values, unit):
    if not values:
        return "failed"
    return f"{statistics.median(values):.4g} {unit} ({min(values):.4g}..{max(values):.4g})"


def judge(r):
    """The aim in words, and whether it is reached; None when there is nothing to judge."""
    aim = AIMS.get((r["place"], r["name"]))
    if not aim or not r["rail"] or not r[aim[0]]:
        return None
    against, bound, times = aim
    gain = statistics.median(r["rail"]) / statistics.median(r[against])
    return {"against": r["raw_program"] if against == "raw" else "TCP", "bound": bound,
            "times": times, "is": gain,
            "reached": gain >= times if bound == "at least" else gain <= times}


results = []
for name in sys.argv[2:]:
    with open(name, encoding="utf-8") as f:
        results += json.load(f)
for r in results:
    r["aim"] = judge(r)
    print(f"{r['place']}, {r['wire']}: {r['program']}")
    for leg, label in (("tcp", "TCP"), ("rail", "rail"), ("raw", r["raw_program"])):
        if label and (leg != "raw" or r["raw"]):
            print(f"    {label:20} {spread(r[leg], r['unit'])}")
    if r["share"]:
        print(f"    {'on the rail':20} {statistics.median(r['share']):.1f} %")
    if r["aim"]:
        a = r["aim"]
        print(f"    {a['is']:.3g} times {a['against']}, aim {a['bound']} {a['times']:.3g}: "
              + ("reached" if a["reached"] else "MISSED"))
    for error in r["errors"]:
        print(f"    failed: {error}")
with open(sys.argv[1], "w", encoding="utf-8") as f:
    json.dump(results, f, indent=1)
