#!/usr/bin/python3
"""scale.py [--pairs N] [--json FILE] [--part NAME]...: what happens with many connections and many threads, the rail
over shared memory against TCP: 10,000 connections of which 64 are hot; 10,000 with a Zipf load and few
rails; 1,000 that are boarded and idle (crowd.c); threads, shared sockets and writes of many sizes (threads.c). Medians;
the legs of a pair take turns in one run."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("RAILSOCK_TEST_BUILD", "build")

# What the project aims at
WAIT_MORE, CPU_IDLE = 1.2, 0.05  # times; percent, shown as 0.0
MANY, HOT, IDLE = 10000, 64, 1000
RAIL, TCP = ("--wire", "shm"), ("--tcp",)
# Exponent, whose settings and which, and how many rails that makes: two rings of 256 KiB each
ZIPF = ((1.0, "both", {"RAILSOCK_RAILS": "256"}, 256), (1.2, "both", {"RAILSOCK_MEMORY": "64m"}, 128),
        (1.0, "the server", {"RAILSOCK_RAILS": "256"}, 256))
THREADS = (1, 2, 4, 8)
MIXED = "1,64,700,4096,20000,65536"


def environment(**settings):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAILSOCK_") and k != "LD_PRELOAD"}
    return {**clean, **settings}


def verdict(reached):
    return "reached" if reached else "MISSED"


def median(values):
    return statistics.median(values)


def spread(values, form="{:.3g}"):
    return "{} ({}..{})".format(*(form.format(v) for v in (median(values), min(values), max(values))))


class Crowd:
    """crowd.c: a server and its client, each a process with the library."""

    def __init__(self, program, leg, edge=False, both=None, server=None):
        run = [f"{BUILD}/railsock", "run", *leg, "--", program]
        how = ["edge"] if edge else []
        both, server = both or {}, server or {}
        self.server = subprocess.Popen([*run, "serve", *how], env=environment(**both, **server), stdout=subprocess.PIPE,
                                       text=True)
        port = self.server.stdout.readline().strip()
        self.client = subprocess.Popen([*run, "drive", port, *how], env=environment(**both), text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in (self.client, self.server):
            p.kill()
            p.wait()

    def order(self, *words):
        self.client.stdin.write(" ".join(map(str, words)) + "\n")
        self.client.stdin.flush()
        return json.loads(self.client.stdout.readline())

    def pids(self):
        return self.server.pid, self.client.pid

    def cpu(self):
        """Nanoseconds that the threads of both have run."""
        total = 0
        for pid in self.pids():
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                    total += int(f.read().split()[0])
        return total

    def quiet(self, seconds=10):
        """Percent of a CPU that both together use while nothing passes."""
        self.client.stdin.write(f"quiet {seconds + 2}\n")
        self.client.stdin.flush()
        time.sleep(1)  # what was on its way is done
        before, since = self.cpu(), time.monotonic()
        time.sleep(seconds)
        used = (self.cpu() - before) / (time.monotonic() - since) / 1e7
        self.client.stdout.readline()
        return used

    def memory(self):
        """Bytes of both, shared memory once; and of their page tables."""
        pss = tables = 0
        for pid in self.pids():
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
                pss += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                tables += sum(int(line.split()[1]) for line in f if line.startswith("VmPTE:"))
        return pss * 1024, tables * 1024

    def connections(self):
        """What `railsock stat` shows of each process: server, client."""
        said = []
        for pid in self.pids():
            out = subprocess.run([f"{BUILD}/railsock", "stat", "--json", "--pid", str(pid)], env=environment(), check=True,
                                 capture_output=True, text=True).stdout
            said.append(json.loads(out)["processes"][0]["connections"])
        return said


def on_rail(c):
    return c["path_tx"] != "tcp" and c["path_rx"] != "tcp"


# ---- 10,000 connections, 64 hot


def hot_leg(program, leg, n, edge):
    with Crowd(program, leg, edge) as crowd:
        crowd.order("open", n)
        crowd.order("load", HOT, 0.5)
        found = crowd.order("load", HOT, 1.5)
        result = {"ns": found["ns"], "trips": found["trips"] / found["seconds"]}
        if leg == RAIL and n == MANY:
            hot = [c for side in crowd.connections() for c in side if c["tx"] > 10000]
            rest = [c for side in crowd.connections() for c in side if c["tx"] <= 10000]
            result.update(hot=sum(map(on_rail, hot)), of=len(hot), silent=sum(map(on_rail, rest)), rest=len(rest),
                          share=sum(c["rail_tx"] for c in hot) / max(1, sum(c["tx"] for c in hot)))
            if not edge:
                result["cpu"] = crowd.quiet()
        return result


def hot(program, pairs):
    result = {}
    for i in range(pairs):
        for edge in (False, True):
            for leg in sorted((TCP, RAIL), reverse=i % 2):
                for n in (HOT, MANY):
                    key = f"{'edge' if edge else 'level'} {'tcp' if leg == TCP else 'rail'} {n}"
                    result.setdefault(key, []).append(hot_leg(program, leg, n, edge))
    print(f"{MANY} connections of which {HOT} are hot: ns for an event of epoll_wait, with its recv and send, at the client, "
          "in the quiet moments of each run")
    for way in ("level", "edge"):
        ns = {k: [r["ns"] for r in v] for k, v in result.items() if k.startswith(way)}
        for leg in ("tcp", "rail"):
            times = [b / a for a, b in zip(ns[f"{way} {leg} {HOT}"], ns[f"{way} {leg} {MANY}"])]
            print(f"    {way:6} {leg:5} {median(ns[f'{way} {leg} {MANY}']):6.0f}, with only {HOT} "
                  f"{median(ns[f'{way} {leg} {HOT}']):.0f}: times {spread(times)}"
                  + (f"; aim at most {WAIT_MORE}: {verdict(median(times) <= WAIT_MORE)}" if leg == "rail" else ""))
        runs = result[f"{way} rail {MANY}"]
        print(f"    {way:6} on a rail: {min(r['hot'] for r in runs)} of {runs[0]['of']} ends of the hot ones, "
              f"{min(r['share'] for r in runs):.2%} of their bytes, {max(r['silent'] for r in runs)} of "
              f"{runs[0]['rest']} ends of the silent ones: "
              + verdict(all(r["hot"] == r["of"] == 2 * HOT and not r["silent"] for r in runs)))
    cpu = [r["cpu"] for r in result[f"level rail {MANY}"]]
    print(f"    all quiet for 10 s: {median(cpu):.2f} % of a CPU (at most {max(cpu):.2f}), both processes; aim 0.0: "
          + verdict(max(cpu) < CPU_IDLE))
    return result


# ---- few rails, Zipf


def zipf_leg(program, leg, s, whose, settings):
    with Crowd(program, leg, **{"both" if whose == "both" else "server": settings}) as crowd:
        crowd.order("open", MANY)
        found = crowd.order("zipf", s, 6 if leg == TCP else 16, MANY // 2)
        if leg == RAIL:
            sides = [[c for c in side if c["path"] != "tcp"] for side in crowd.connections()]
            found["rails"] = max(map(len, sides))
            found["rings"] = max(sum((c["tx_ring"] or 0) + (c["rx_ring"] or 0) for c in side) for side in sides)
        return found


def zipf(program, pairs):
    result = []
    for s, whose, settings, rails in ZIPF:
        legs = {TCP: [], RAIL: []}
        for i in range(pairs):
            for leg in sorted(legs, reverse=i % 2):
                legs[leg].append(zipf_leg(program, leg, s, whose, settings))
        weights = [rank ** -s for rank in range(1, MANY + 1)]
        best = sum(weights[:rails]) / sum(weights)
        rate = [b["trips"] / b["seconds"] / (a["trips"] / a["seconds"]) for a, b in zip(legs[TCP], legs[RAIL])]
        parts = range(len(legs[RAIL][0]["parts"]))
        share = [median([run["parts"][i]["share"] for run in legs[RAIL]]) for i in parts]
        on = [median([run["parts"][i]["on"] for run in legs[RAIL]]) for i in parts]
        trips = median([a["trips"] / a["seconds"] for a in legs[TCP]])
        gain = [median([run["parts"][i]["trips"] for run in legs[RAIL]]) / trips for i in parts]
        used, most = max(run["rings"] for run in legs[RAIL]), rails * 512 * 1024
        setting = " ".join(f"{k}={v}" for k, v in settings.items())
        print(f"{MANY} connections, Zipf {s}, {setting} for {whose}: {rails} rails, ranks move on half way")
        print(f"    round trips          {median(rate):.2f} times TCP's {trips:.0f} a second ({min(rate):.2f}..{max(rate):.2f})")
        print("    in each tenth        " + " ".join(f"{g:.2f}" for g in gain) + " times TCP's")
        print("    bytes on a rail      " + " ".join(f"{v:.0%}" for v in share) + f"; the {rails} hottest have {best:.0%}")
        print("    rails                " + " ".join(f"{v:.0f}" for v in on))
        print(f"    rings                {used / 2**20:.0f} MiB at most; budget {most / 2**20:.0f}: " + verdict(used <= most))
        print("    follows the heat     aim 0.9 of what the hottest have, before and after: "
              + verdict(min(share[len(share) // 2 - 1], share[-1]) >= 0.9 * best))
        print("    aim                  not below TCP: " + verdict(median(rate) >= 1))
        result.append({"s": s, "whose": whose, "rails": rails, "tcp": legs[TCP], "rail": legs[RAIL]})
    return result


# ---- boarded and idle


def idle(program, _pairs):
    result = []
    print(f"{IDLE} connections that are boarded and idle")
    for give_back in ("0", "60"):
        with Crowd(program, RAIL, both={"RAILSOCK_IDLE": give_back}) as crowd:
            crowd.order("open", IDLE)
            before = crowd.memory()
            found = crowd.order("board", 2000)
            boarded = found["on"]
            after = crowd.memory()
            cpu = crowd.quiet()
            still = crowd.order("quiet", 0)["on"]
            crowd.order("pass", 512 * 1024)
            full = crowd.memory()
        r = {"idle": give_back, "boarded": boarded, "seconds": found["seconds"], "still": still, "cpu": cpu,
             "bytes": (after[0] - before[0]) / IDLE, "tables": (after[1] - before[1]) / IDLE,
             "full": (full[0] - before[0]) / IDLE, "full_tables": (full[1] - before[1]) / IDLE}
        print(f"    RAILSOCK_IDLE={give_back:3} {boarded} boarded in {found['seconds']:.2f} s, {still} after 10 s; {cpu:.2f} % of a CPU, both processes; aim 0.0: "
              + verdict(boarded == still == IDLE and cpu < CPU_IDLE))
        result.append(r)
    for what, key, tables in (("some messages of 64 bytes", "bytes", "tables"), ("512 KiB each way", "full", "full_tables")):
        print(f"    memory for each, both processes, after {what}: "
              + ", ".join(f"{r[key] / 1024:.0f} KiB and {r[tables] / 1024:.0f} of page tables" for r in result[:1]))
    return result


# ---- threads, shared sockets, sizes


def threads_leg(program, leg, words):
    said = subprocess.run([f"{BUILD}/railsock", "run", *leg, "--", program, *words], env=environment(), check=True,
                          capture_output=True, text=True, timeout=60)
    return json.loads(said.stdout)


def threads_cases():
    for t in THREADS:
        yield f"{t} threads, 64 B to and fro", "k/s", 1e3, ("turns", str(t), "1")
    for t in THREADS:
        yield f"{t} threads, 64 KiB writes", "MB/s", 1, ("stream", str(t), "1", "65536")
    for t in (2, 4):
        yield f"{t} threads, one socket, a lock", "k/s", 1e3, ("shared", str(t), "1")
        yield f"{t} threads, one socket, none", "k/s", 1e3, ("loose", str(t), "1")
    yield "1 B writes", "MB/s", 1, ("stream", "1", "1", "1")
    yield "64 KiB writes", "MB/s", 1, ("stream", "1", "1", "65536")
    yield "mixed writes, 1 B to 64 KiB", "MB/s", 1, ("stream", "1", "1", MIXED)


def threads(program, pairs):
    cases = list(threads_cases())
    result = {name: {TCP: [], RAIL: []} for name, *_ in cases}
    for i in range(pairs):
        for name, _, _, words in cases:
            for leg in sorted((TCP, RAIL), reverse=i % 2):
                result[name][leg].append(threads_leg(program, leg, words))
    print("threads of one process, a connection each or one for all, against a server with as many; and sizes of writes")
    for name, unit, scale, words in cases:
        tcp, rail = ([run["rate"] / scale for run in result[name][leg]] for leg in (TCP, RAIL))
        ratios = [b / a for a, b in zip(tcp, rail)]
        torn = sum(run["torn"] for run in result[name][RAIL])
        print(f"    {name:32} {median(tcp):8.4g} {unit:4} TCP {median(rail):8.4g} rail: times {spread(ratios)}; aim at least 1: "
              + verdict(median(ratios) >= 1 and (words[0] == "loose" or not torn)) + (f"; {torn} torn" if torn else ""))
    return {name: {"tcp": legs[TCP], "rail": legs[RAIL]} for name, legs in result.items()}


PARTS = {"hot": ("crowd", hot), "zipf": ("crowd", zipf), "idle": ("crowd", idle), "threads": ("threads", threads)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--json")
    p.add_argument("--part", action="append", choices=PARTS)
    args = p.parse_args()
    result = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.part or PARTS:
            source, measure = PARTS[name]
            program = os.path.join(scratch, source)
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-I.", "-pthread", "-o",
                            program, f"tests/bench/{source}.c", "-lm"], check=True)
            result[name] = measure(program, args.pairs)
            sys.stdout.flush()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
    return 0


sys.exit(main())
