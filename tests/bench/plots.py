#!/usr/bin/python3
"""plots.py JSON FOLDER: from what aims.py wrote, two kinds of plot (gnuplot's SVG): aims.svg, what each figure
reaches of what is aimed at, and one for each figure, NAME-WIRE.svg, with every run of every leg."""
import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../tools"))
import ab_html
from ab_html import quoted


def runs(r):
    legs = [("TCP", r["tcp"]), ("rail", r["rail"]), *r["limits"].items()]
    lines = ["$points << EOD"]
    for x, (label, values) in enumerate(legs, 1):
        for i, value in enumerate(values):
            # Side by side in the order of the rounds, so that a trend shows.
            lines.append(f"{x - 0.25 + 0.5 * (i + 0.5) / len(values)} {value} {int(label == 'rail')}")
    lines += ["EOD", "$medians << EOD"]
    lines += [f"{x} {statistics.median(values)}" for x, (_, values) in enumerate(legs, 1) if values]
    # One of them may be a hundred times another; none is near zero.
    seen = [v for _, values in legs for v in values]
    log = max(seen) > 20 * min(seen)
    tics = ", ".join(f"{quoted(label)} {x}" for x, (label, _) in enumerate(legs, 1))
    better = "more" if r["more_is_better"] else "less"
    return "\n".join([
        f"set terminal svg size {170 + 100 * len(legs)},320 font 'sans-serif,12' noenhanced", *lines, "EOD",
        "unset key", f"set title {quoted(f'''{r['program']}, {r['wire']}''')}",
        f"set ylabel {quoted(f'''{r['unit']} ({better} is better)''')}",
        f"set xrange [0.5:{len(legs) + 0.5}]", f"set xtics ({tics})",
        "set logscale y" if log else "set yrange [0:*]", "set grid ytics lc rgb '#dddddd'",
        "plot $points using 1:($3 == 0 ? $2 : 1/0) with points pt 7 ps 0.5 lc rgb '#888888', "
        "$points using 1:($3 == 1 ? $2 : 1/0) with points pt 7 ps 0.5 lc rgb '#2060c0', "
        "$medians using 1:2:(0.3) with xerrorbars pt 0 lw 2 lc rgb '#000000'", ""])


def reached(results):
    """Each aim as a line; at 1 it is just reached, whichever way is better."""
    rows = [(f"{r['program']}, {r['wire']}: {a['bound']} {a['times']:.3g} x {a['against']}",
             a["is"] / a["times"] if a["bound"] == "at least" else a["times"] / a["is"], a["reached"])
            for r in results for a in r["aims"] if a["is"]]
    if not rows:
        return None
    lines = ["$aims << EOD"]
    lines += [f"{value} {len(rows) - i} {int(hit)}" for i, (_, value, hit) in enumerate(rows)]
    tics = ", ".join(f"{quoted(words)} {len(rows) - i}" for i, (words, _, _) in enumerate(rows))
    return "\n".join([
        f"set terminal svg size 1100,{100 + 28 * len(rows)} font 'sans-serif,12' noenhanced", *lines, "EOD",
        "unset key", "set title 'What is reached, in parts of the aim (right of 1: reached)'",
        "set logscale x 10", f"set ytics ({tics})", f"set yrange [0.3:{len(rows) + 0.7}]",
        "set grid xtics ytics lc rgb '#dddddd'", "set arrow from 1, graph 0 to 1, graph 1 nohead lc rgb '#a00000'",
        "plot $aims using ($3 == 1 ? $1 : 1/0):2 with points pt 7 lc rgb '#2060c0', "
        "$aims using ($3 == 0 ? $1 : 1/0):2 with points pt 7 lc rgb '#a00000'", ""])


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        results = json.load(f)
    scripts = {f"{r['name']}-{r['wire']}": runs(r) for r in results if r["tcp"] and r["rail"]}
    scripts["aims"] = reached(results)
    try:
        ab_html.check()
        for name, script in scripts.items():
            if script:
                with open(os.path.join(sys.argv[2], f"{name}.svg"), "w", encoding="utf-8") as f:
                    f.write(ab_html.plot(script, name))
    except ab_html.Trouble as e:
        print(f"plots.py: {e}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
