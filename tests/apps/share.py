"""share.py PID... < `railsock stat --json`: what share of the bytes went over a rail.

Adds up all connections, open and closed, of these processes and of those below them.
Prints "PERCENT BYTES"; status 1 when none of them shows anything.
"""
import json
import sys


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def below(pid, roots):
    while pid > 1:
        if pid in roots:
            return True
        pid = parent(pid)
    return False


def main():
    roots = {int(pid) for pid in sys.argv[1:]}
    shown = [p for p in json.load(sys.stdin)["processes"] if below(p["pid"], roots)]
    total = rail = 0
    for process in shown:
        for c in [process["closed"], *process["connections"]]:
            total += c["tx"] + c["rx"]
            rail += c["rail_tx"] + c["rail_rx"]
    if not total:
        print("no bytes in" if shown else "no process of", *sorted(roots))
        return 1
    # Rounded down: what is shown as 100 is all, and only nothing at all is 0.0.
    percent = int(rail * 1000 / total) / 10
    print(max(percent, 0.1) if rail else 0.0, total)
    return 0


sys.exit(main())
