"""ab_show - the comparison as text, and what is said of the machine."""
import os
import platform
import shlex
import statistics
import subprocess
import sys

NOTE = """\
RATIO above 1: the rail is better. INTERVAL: 95 % of {resamples} bootstrap resamples of the pairs (seed {seed})."""


def number(value):
    """Three digits or more; below 0.1 without zeros at their end."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 10e6:
        return f"{value / 1e6:.1f}M"
    if size >= 100e3:
        return f"{value / 1e3:.0f}k"
    if 0 < size < 0.1:
        return f"{value:.3g}"
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"


def bounds(metric):
    if not metric["interval"]:
        return "-"
    return "{} .. {}".format(*map(number, metric["interval"]))


def table(rows, left=(0,)):
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) if i in left else c.rjust(w)
                      for i, (c, w) in enumerate(zip(row, width))).rstrip() for row in rows]


def share_words(values):
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    # Only all is 100.0, and only nothing is 0.0.
    middle = statistics.median(known)
    return f"{middle if middle in (0, 100) else min(max(middle, 0.1), 99.9):.1f}"


def commands(found):
    """What was run, in lines."""
    lines = []
    where = f" on {found['server_host']}" if found["server_host"] else ""
    for leg, prefix in (("TCP", found["tcp_leg"]), ("rail", found["rail_leg"])):
        address = found["address_tcp" if leg == "TCP" else "address"]
        for who, words in (("server" + where, found["server"]), ("", found["command"])):
            if words:
                # {port} needs no quotes in a shell, and reads better without.
                shown = shlex.join(w.replace("{address}", address).replace("{port}", "_PORT_")
                                   for w in words).replace("_PORT_", "{port}")
                lines.append(f"{leg + ' ' + who:12}".rstrip() + f": {prefix} -- {shown}")
    return lines


def text(found):
    lines = [f"{found['pairs']} pair{'' if found['pairs'] == 1 else 's'}, {found['order']}, after {found['warm_up']} for warming up", *commands(found)]
    lines += [f"{name}={value}" for name, value in found["settings"].items()]
    if found["metrics"]:
        rows = [("", "UNIT", "TCP", "RAIL", "RATIO", "INTERVAL", "THE RAIL IS/TAKES")]
        for m in found["metrics"]:
            rows.append((m["name"], m["unit"], number(m["median_tcp"]), number(m["median_rail"]),
                         number(m["ratio"]), bounds(m), m["verdict"]))
        rows.append(("on the rail", "%", share_words(found["share"]["tcp"]),
                     share_words(found["share"]["rail"]), "", "", ""))
        lines += ["", *table(rows, left=(0, 1, 6)), "", NOTE.format(**found)]
    lines += remarks(found)
    return "\n".join(lines)


def of_figures(found):
    """Which there are not, though they were wanted."""
    lines = []
    if found["interrupted"]:
        lines.append(f"Interrupted: of {found['pairs_wanted']} pairs only these are compared.")
    if found["metrics"] and all(m["kind"] == "use" or m["name"] == "wall time"
                                for m in found["metrics"]) and not found["left_out"]:
        lines.append("CMD printed no figure that is known, so only what it took is compared; iperf3 needs --json, "
                     "other programs --metric.")
    if found["left_out"]:
        lines.append(f"Shown by some legs only, and left out: {', '.join(found['left_out'])}.")
    return lines


def remarks(found):
    """What would make the figures mean something else than they seem to."""
    lines = of_figures(found)
    moved = [v for v in found["share"]["rail"] if v is not None]
    why = ", ".join(f"{name}: {n}" for name, n in sorted(found["reasons"].items(), key=lambda r: -r[1]))
    hidden = "; ".join(found["not_shown"])
    if hidden:
        lines.append(f"What went over a rail is not known{' of all processes' if any(moved) else ''}: {hidden}.")
    elif found["pairs"] and not any(moved):
        lines.append("Nothing went over a rail: this compares TCP with TCP. "
                     + (f"Connections stayed on TCP because of {why}." if why else
                        "The library saw no TCP connection."))
    elif moved and statistics.median(moved) < 50:
        lines.append(f"Less than half of the bytes went over a rail ({why or 'all connections boarded late'}).")
    lines += found["warnings"]
    if any(found["share"]["tcp"]):
        lines.append("Bytes of the TCP leg went over a rail: it is no TCP leg.")
    if found["failures"]:
        lines.append("1 run failed; its pair is not in the figures:" if len(found["failures"]) == 1 else
                     f"{len(found['failures'])} runs failed; their pairs are not in the figures:")
        lines += [f"  {f}" for f in found["failures"]]
    return lines


def progress(words, done, total):
    """On a terminal, a line that is written over."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{words and f'[{100 * done // total:3} %] {words}'}", end="", file=sys.stderr,
              flush=True)


def machine(railsock):
    def first(path, key):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                return next((line.split(":", 1)[1].strip() for line in f if line.startswith(key)), "?")
        except OSError:
            return "?"
    version = subprocess.run([railsock, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return {"host": platform.node(), "kernel": platform.release(), "processor": first("/proc/cpuinfo", "model name"),
            "cores": len(os.sched_getaffinity(0)), "memory": first("/proc/meminfo", "MemTotal"),
            "libc": " ".join(platform.libc_ver()), "railsock": version, "load": list(os.getloadavg())}
