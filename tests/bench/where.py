#!/usr/bin/python3
"""where.py [--wire W] [--slow] [--runs N] [--symbols N] [--limits] FIGURE...: where the time of a figure of tools/measure goes, on
TCP and on the rail, and with --limits on the floors that have a server, whose library is then the preloaded one: microseconds of processor time for each request (transaction, round trip, MB) by program
and object, from perf's samples by time of the whole machine, root only; --symbols shows the largest functions and,
of the kernel, system calls. A thread that spins spends its time in the library and in the clock; `railsock` is the
threads of the library's own. What no transport could take away is the time in the program itself and in libc."""
import argparse
import collections
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
TOP = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../..")
BUILD = os.path.join(TOP, os.environ.get("RAILSOCK_TEST_BUILD", "build"))
sys.path.insert(0, os.path.join(TOP, "tools"))
import ab_show
import share
from ab_legs import Server
from measure_programs import FIGURES

RAILSOCK = os.path.realpath(os.path.join(BUILD, "railsock"))
FRAME = re.compile(r"\s*[0-9a-f]+ (.*) \((.*)\)$")
RATE = 997  # samples a second of each processor; each costs a virtual machine some 10 us
START = 200  # milliseconds at the start that are not sampled: the program starts, and boards
GROUPS = ("itself", "libc", "clock", "library", "kernel")


def group(dso):
    dso = os.path.basename(dso)
    if dso.startswith("[kernel") or dso.startswith("[guest"):
        return "kernel"
    if dso == "[vdso]":
        return "clock"
    return "library" if re.search("librailsock|liburing|_floor", dso) else "libc" if dso.startswith("libc.") else "itself"


def below(roots):
    """All processes below these."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {pid for pid in pids if share.below(pid, roots)}


def record(command, data, server):
    """Runs it under perf; returns what it printed, and the processes of both ends."""
    ours = set()
    with tempfile.TemporaryFile("w+") as out:
        perf = subprocess.Popen(["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", str(RATE),
                                 "-D", str(START), "-o", data, "--", *command], stdout=out, stderr=subprocess.STDOUT)
        while perf.poll() is None:
            ours |= below({perf.pid, server})
            time.sleep(0.1)
        out.seek(0)
        said = out.read()
    if perf.returncode:
        raise SystemExit(f"where.py: {command[-1]}: {said[-300:]}")
    return said, ours - {perf.pid}


def run_once(kind, program, wire, slow):
    """(figure, samples by (thread's name, group, symbol or system call), samples of all)."""
    with tempfile.TemporaryDirectory(prefix="where.") as folder:
        run = program(slow, folder)
        data = os.path.join(folder, "perf.data")
        if kind in ("tcp", "rail"):
            prefix = [RAILSOCK, "run", *(["--tcp"] if kind == "tcp" else ["--wire", wire]), "--"]
            server = Server(RAILSOCK, kind, ["--wire", wire], run.server, run.port, listens=run.listens)
        else:
            prefix, server = [], Server(None, None, [], run.server, run.port, listens=run.listens)
        try:
            said, ours = record([*prefix, *run.client], data, server.leg.process.pid)
            # It is above the server only to report.
            ours.discard(server.leg.process.pid)
        finally:
            server.close()
        shown = subprocess.run(["perf", "script", "-i", data, "-F", "comm,pid,ip,sym,dso"], capture_output=True,
                               text=True, check=True).stdout
    samples, total = collections.Counter(), 0
    for sample in filter(str.strip, shown.split("\n\n")):
        head, *frames = sample.strip().splitlines()
        frames = [match.groups() for match in map(FRAME.match, frames) if match]
        who = re.match(r"(.+?)\s+(\d+)\s*$", head)
        if not who or not frames:
            continue
        total += 1
        if int(who.group(2)) in ours:
            symbol, dso = frames[0]
            call = [name[len("__x64_sys_"):] for name, _ in frames if name.startswith("__x64_sys_")]
            samples[who.group(1), group(dso), (call or ["no call"])[0] if group(dso) == "kernel" else symbol] += 1
    return run.read(said), samples, total


def leg(kind, program, figure, args):
    values, samples, total = [], collections.Counter(), 0
    for _ in range(args.runs):
        value, more, n = run_once(kind, program, args.wire, args.slow)
        values.append(value)
        samples += more
        total += n
    value = statistics.median(values)
    each = {"us": value, "k/s": 1e3 / value, "MB/s": 1e6 / value}[figure.unit]  # us for one
    factor = each * os.cpu_count() / total
    print(f"  {kind}: {ab_show.number(value)} {figure.unit}, {ab_show.number(each)} us each")
    by = collections.Counter()
    for (comm, where, _), n in samples.items():
        by[comm, where] += n * factor
    rows = [("", *GROUPS)]
    for comm in sorted({comm for comm, _ in by}):
        rows.append((comm, *(f"{by[comm, g]:.3f}" for g in GROUPS)))
    print("\n".join("    " + line for line in ab_show.table(rows)))
    for (comm, where, symbol), n in samples.most_common(args.symbols):
        print(f"    {n * factor:8.3f}  {comm}  {where}  {symbol}")
    own = {comm: by[comm, "itself"] + by[comm, "libc"] for comm, _ in by}
    print(f"    itself and libc: {sum(own.values()):.3f} us, of which {max(own, key=own.get)} {max(own.values()):.3f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--wire", default="shm")
    p.add_argument("--slow", action="store_true", help="on a lab host")
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--symbols", type=int, default=0)
    p.add_argument("--limits", action="store_true")
    p.add_argument("what", nargs="+", choices=FIGURES)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="where.") as folder:
        # postgres, which runs as another user, must be able to read it.
        os.chmod(folder, 0o755)
        os.environ["RAILSOCK_LIBRARY"] = shutil.copy(os.path.join(BUILD, "librailsock.so"), folder)
        for name in args.what:
            figure = FIGURES[name]
            print(f"{name}: {figure.words}, {args.wire}")
            limits = figure.limits.get(args.wire, {}) if args.limits else {}
            for kind, program in (("tcp", figure.program), ("rail", figure.program), *limits.items()):
                leg(kind, program, figure, args)


main()
