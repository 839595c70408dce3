"""ab_html - the comparison as one HTML file that needs no other; the plots are gnuplot's SVG."""
import html
import os
import re
import shutil
import subprocess
import time

import ab_show

HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>railsock ab</title><style>
body { font: 15px/1.45 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child, td:last-child, th:last-child { text-align: left }
pre { background: #f4f4f4; padding: .8em; overflow-x: auto; white-space: pre-wrap }
.plots { display: flex; flex-wrap: wrap } .remark { color: #a00 }
</style></head><body>
"""


class Trouble(Exception):
    pass


def check():
    if not shutil.which("gnuplot"):
        raise Trouble("--html needs gnuplot; on Debian: apt-get install gnuplot-nox")


def check_file(path):
    """OSError if it cannot be written, before anything has run for it. What is there stays until then."""
    new = not os.path.lexists(path)
    with open(path, "ab"):
        pass
    if new:
        os.unlink(path)


def plot(script, name):
    """The SVG element that gnuplot makes of a script; name tells its ids from other plots'."""
    run = subprocess.run(["gnuplot"], input=script, capture_output=True, encoding="utf-8", errors="backslashreplace",
                         check=False)
    at = run.stdout.find("<svg")
    if run.returncode or at < 0:
        raise Trouble(f"gnuplot failed: {run.stderr.strip()[-300:]}")
    return re.sub(r"""(\bid=['"]|['"(]#)(gnuplot_canvas|gp\w+|textbox|greybox)""", rf"\1{name}_\2",
                  run.stdout[at:])


def quoted(text):
    return '"' + re.sub(r'["\\\n`]', " ", text) + '"'


def spread(metric, index):
    """Each value of each leg as a point, with its median."""
    lines = ["$points << EOD"]
    for x, leg in ((1, "tcp"), (2, "rail")):
        values = metric[leg]
        for i, value in enumerate(values):
            # Side by side in the order of the pairs, so that a trend shows.
            lines.append(f"{x - 0.25 + 0.5 * (i + 0.5) / len(values)} {value} {x}")
    lines += ["EOD", "$medians << EOD", f"1 {metric['median_tcp']}", f"2 {metric['median_rail']}", "EOD"]
    unit = f", {metric['unit']}" if metric["unit"] else ""
    better = "more" if metric["better"] == "higher" else "less"
    return "\n".join([
        f"set terminal svg size 330,300 font 'sans-serif,12' noenhanced name 'spread{index}'", *lines,
        "unset key", f"set title {quoted(metric['name'] + unit + ' (' + better + ' is better)')}",
        "set xrange [0.5:2.5]", "set xtics ('TCP' 1, 'rail' 2)", "set yrange [0:*]",
        "set grid ytics lc rgb '#dddddd'",
        "plot $points using 1:($3 == 1 ? $2 : 1/0) with points pt 7 ps 0.5 lc rgb '#888888', "
        "$points using 1:($3 == 2 ? $2 : 1/0) with points pt 7 ps 0.5 lc rgb '#2060c0', "
        "$medians using 1:2:(0.3) with xerrorbars pt 0 lw 2 lc rgb '#000000'", ""])


def ratios(metrics):
    rows = [m for m in metrics if m["ratio"] and m["interval"]]
    if not rows:
        return None
    lines = ["$ratios << EOD"]
    for i, m in enumerate(rows):
        low, high = m["interval"]
        lines.append(f"{m['ratio']} {len(rows) - i} {low} {high}")
    tics = ", ".join(f"{quoted(m['name'])} {len(rows) - i}" for i, m in enumerate(rows))
    return "\n".join([
        f"set terminal svg size 660,{100 + 28 * len(rows)} font 'sans-serif,12' noenhanced name 'ratios'",
        *lines, "EOD", "unset key",
        "set title 'Ratio and 95 % interval (right of 1: the rail is better)'",
        "set logscale x 2", f"set ytics ({tics})", f"set yrange [0.3:{len(rows) + 0.7}]",
        "set grid xtics lc rgb '#dddddd'", "set arrow from 1, graph 0 to 1, graph 1 nohead lc rgb '#a00000'",
        "plot $ratios using 1:2:3:4 with xerrorbars pt 7 ps 0.6 lw 2 lc rgb '#2060c0'", ""])


def cells(tag, row):
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>\n"


def page(found):
    out = [HEAD, f"<h1>TCP and the rail</h1>\n<p>{found['pairs']} pair{'' if found['pairs'] == 1 else 's'} in {found['order']} order after "
                 f"{found['warm_up']} for warming up; {html.escape(time.strftime('%Y-%m-%d %H:%M:%S %Z'))}</p>\n"]
    out += [f'<p class="remark">{html.escape(line)}</p>\n' for line in ab_show.remarks(found)]
    out.append("<table>" + cells("th", ("", "unit", "TCP", "rail", "ratio", "95 % interval", "the rail is / takes")))
    for m in found["metrics"]:
        out.append(cells("td", (m["name"], m["unit"], ab_show.number(m["median_tcp"]),
                                ab_show.number(m["median_rail"]), ab_show.number(m["ratio"]),
                                ab_show.bounds(m), m["verdict"])))
    out.append(cells("td", ("on the rail", "%", ab_show.share_words(found["share"]["tcp"]),
                            ab_show.share_words(found["share"]["rail"]), "", "", "")))
    out.append(f"</table>\n<p>{html.escape(ab_show.NOTE.format(**found))}</p>\n")
    script = ratios(found["metrics"])
    if script:
        out.append(plot(script, "ratios"))
    out.append('\n<h2>Every run</h2>\n<div class="plots">\n')
    out += [plot(spread(m, i), f"spread{i}") for i, m in enumerate(found["metrics"])]
    out.append("</div>\n<h2>Commands</h2>\n<pre>")
    out.append(html.escape("\n".join(ab_show.commands(found)
                                     + [f"{k}={v}" for k, v in found["settings"].items()])))
    out.append("</pre>\n<h2>Machine</h2>\n<table>")
    out += [cells("td", (name, str(value))) for name, value in found["machine"].items()]
    out.append("</table>\n</body></html>\n")
    return "".join(out)


def write(path, found):
    # Words of the command line may hold bytes that are no UTF-8. All of it before the file loses
    # what it has.
    text = page(found).encode("utf-8", "backslashreplace")
    with open(path, "wb") as f:
        f.write(text)
