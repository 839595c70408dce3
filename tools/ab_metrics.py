"""ab_metrics - figures in the output of measuring programs, and which of two is better.

read() knows a program by what it prints, not by its name: it may run under sh or numactl.
"""
import collections
import csv
import json
import math
import re

# better is "higher" or "lower"; kind is "speed", or "use" for what a run takes of the machine.
Metric = collections.namedtuple("Metric", "name unit better value kind", defaults=["speed"])


class Unreadable(Exception):
    pass


def plain(text):
    """As it would look: without colours, and of a line that was written over only the last state."""
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))


def scaled(number, suffix, table):
    return float(number) * table[suffix]


SECONDS_IN_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6}
BYTES_IN_MB = {"B": 1e-6, "KB": 1024 / 1e6, "MB": 1024**2 / 1e6, "GB": 1024**3 / 1e6}


def redis_csv(text):
    found, columns = [], None
    for row in csv.reader(line for line in text.splitlines() if line.startswith('"')):
        if row[:2] == ["test", "rps"]:
            columns = row
        elif columns and len(row) == len(columns):
            value = dict(zip(columns, row))
            found.append(Metric(f"{row[0]} requests", "1/s", "higher", float(value["rps"])))
            for key in ("p50", "p99"):
                if f"{key}_latency_ms" in value:
                    found.append(Metric(f"{row[0]} {key}", "ms", "lower",
                                        float(value[f"{key}_latency_ms"])))
        elif not columns and len(row) == 2 and re.fullmatch(r"[0-9.]+", row[1]):
            found.append(Metric(f"{row[0]} requests", "1/s", "higher", float(row[1])))
    return found


def redis_text(text):
    found = []
    for name, body in re.findall(r"^ *====== (.+?) ======\n(.*?)(?=^ *======|\Z)", text, re.M | re.S):
        rate = re.search(r"throughput summary: ([0-9.]+) requests per second", body)
        if rate:
            found.append(Metric(f"{name} requests", "1/s", "higher", float(rate.group(1))))
        summary = re.search(r"avg +min +p50 +p95 +p99 +max\n *([0-9. ]+)", body)
        if summary:
            value = summary.group(1).split()
            found.append(Metric(f"{name} p50", "ms", "lower", float(value[2])))
            found.append(Metric(f"{name} p99", "ms", "lower", float(value[4])))
    for name, rate, p50 in re.findall(
            r"^(.+?): ([0-9.]+) requests per second(?:, p50=([0-9.]+) msec)?", text, re.M):
        if "throughput summary" not in name:
            found.append(Metric(f"{name} requests", "1/s", "higher", float(rate)))
            if p50:
                found.append(Metric(f"{name} p50", "ms", "lower", float(p50)))
    return found


def iperf3(text):
    start = text.find("{")
    if start < 0 or '"sum_' not in text:
        return []
    try:
        end = json.loads(text[start:])["end"]
    except (ValueError, LookupError, TypeError):
        return []
    return [Metric("throughput", "MB/s", "higher", end[key]["bits_per_second"] / 8e6)
            for key in ("sum_received", "sum") if key in end][:1]


def wrk(text):
    rate = re.search(r"^Requests/sec: +([0-9.]+)", text, re.M)
    if not rate:
        return []
    found = [Metric("requests", "1/s", "higher", float(rate.group(1)))]
    moved = re.search(r"^Transfer/sec: +([0-9.]+)([KMG]?B)", text, re.M)
    if moved:
        found.append(Metric("transfer", "MB/s", "higher", scaled(*moved.groups(), BYTES_IN_MB)))
    for part in ("50", "99"):
        late = re.search(rf"^ +{part}% +([0-9.]+)(us|ms|s|m|h)$", text, re.M)
        if late:
            found.append(Metric(f"p{part}", "us", "lower", scaled(*late.groups(), SECONDS_IN_US)))
    late = re.search(r"^ +Latency +([0-9.]+)(us|ms|s|m|h) ", text, re.M)
    if late and len(found) <= 2:
        found.append(Metric("mean latency", "us", "lower", scaled(*late.groups(), SECONDS_IN_US)))
    return found


def sockperf(text):
    found = []
    what = re.search(r"^sockperf: Summary: (Latency|Round trip) is ([0-9.]+) usec", text, re.M)
    if what:
        name = "round trip" if what.group(1) == "Round trip" else "one way"
        for part in ("50", "99"):
            late = re.search(rf"percentile {part}\.000 = +([0-9.]+)", text)
            if late:
                found.append(Metric(f"{name} p{part}", "us", "lower", float(late.group(1))))
        if not found:
            found.append(Metric(f"{name} mean", "us", "lower", float(what.group(2))))
    rate = re.search(r"^sockperf: Summary: Message Rate is ([0-9.]+) \[msg/sec\]", text, re.M)
    if rate:
        found.append(Metric("messages", "1/s", "higher", float(rate.group(1))))
    return found


def pgbench(text):
    # Old versions print two of them; the one without the connections' making is meant.
    rate = re.findall(r"^tps = ([0-9.]+) \((?:without|excluding)", text, re.M)
    if not rate:
        return []
    found = [Metric("transactions", "1/s", "higher", float(rate[-1]))]
    late = re.search(r"^latency average = ([0-9.]+) ms", text, re.M)
    if late:
        found.append(Metric("mean latency", "ms", "lower", float(late.group(1))))
    return found


def memtier(text):
    """A table whose head has Ops/sec and latencies, and a line of totals."""
    head = re.search(r"^Type +Ops/sec.*$", text, re.M)
    totals = re.search(r"^Totals +(.*)$", text, re.M)
    if not head or not totals:
        return []
    columns = re.split(r" {2,}", head.group(0).strip())[1:]
    value = dict(zip(columns, totals.group(1).split()))
    found = []
    for column, name, unit, better in (
            ("Ops/sec", "operations", "1/s", "higher"), ("p50 Latency", "p50", "ms", "lower"),
            ("p99 Latency", "p99", "ms", "lower"), ("Avg. Latency", "mean latency", "ms", "lower"),
            ("Latency", "mean latency", "ms", "lower")):
        if re.fullmatch(r"[0-9.]+", value.get(column, "")):
            found.append(Metric(name, unit, better, float(value[column])))
    return found


READERS = (redis_csv, redis_text, iperf3, wrk, sockperf, pgbench, memtier)


def custom(text, better, pattern):
    """The last match of a pattern whose one group is the number; a named group names the figure."""
    expression = re.compile(pattern, re.M)
    matches = [m for m in expression.finditer(text) if m.group(1) is not None]
    if not matches:
        raise Unreadable(f"nothing matches {pattern}")
    try:
        value = float(matches[-1].group(1).replace(",", ""))
    except ValueError:
        raise Unreadable(f"{pattern} matches {matches[-1].group(1)!r}, which is no number") from None
    return Metric(pattern_name(pattern), "", better, value)


def pattern_name(pattern):
    return next(iter(re.compile(pattern).groupindex), None) or pattern


def known(text):
    """What the first of READERS finds that finds anything."""
    for reader in READERS:
        try:
            found = reader(text)
        except (ValueError, LookupError, TypeError, OverflowError, csv.Error) as e:
            raise Unreadable(f"a figure as of {reader.__name__} cannot be read: {e}") from None
        if found:
            return found
    return []


def numbered(found):
    """The second of a name gets a number, and so on: names tell figures apart."""
    seen = collections.Counter()
    for metric in found:
        seen[metric.name] += 1
        n = seen[metric.name]
        yield metric if n == 1 else metric._replace(name=f"{metric.name} #{n}")


def read(text, patterns=()):
    """patterns are pairs (better, regular expression), and if there are any nothing else is looked for."""
    text = plain(text)
    found = [custom(text, *pattern) for pattern in patterns] if patterns else known(text)
    for metric in found:
        if not math.isfinite(metric.value):
            raise Unreadable(f"{metric.name} is {metric.value:g}, which is no number to compare")
    return list(numbered(found))
