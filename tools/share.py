"""share.py PID... < `railsock stat --json`: what share of the bytes went over a rail.

Adds up all connections, open and closed, of these processes and of those below them.
Prints "PERCENT BYTES REASONS", where REASONS counts the connections that are on TCP or ended
without having left it; status 1 when none of them shows anything.
"""
import collections
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


def add_up(stat, roots):
    """stat is the parsed JSON. Returns the bytes (all, over a rail), or None without a process."""
    shown = [p for p in stat["processes"] if below(p["pid"], roots)]
    total = rail = 0
    for process in shown:
        for c in [process["closed"], *process["connections"]]:
            total += c["tx"] + c["rx"]
            rail += c["rail_tx"] + c["rail_rx"]
    return (total, rail) if shown else None


def reasons(stat, roots):
    """Why connections of these processes are, or were, not on a rail: a Counter of words."""
    why = collections.Counter()
    for process in stat["processes"]:
        if not below(process["pid"], roots):
            continue
        why.update(process["closed"]["reasons"])
        for c in process["connections"]:
            if c["path"] == "tcp":
                theirs = "" if c["peer_reason"] == "none" else f" (peer: {c['peer_reason']})"
                why[c["reason"] + theirs] += 1
    return why


def percent(total, rail):
    """With one place, rounded down: only all is 100.0, and only nothing is 0.0."""
    return max(rail * 1000 // total / 10, 0.1) if rail else 0.0


def main():
    roots = {int(pid) for pid in sys.argv[1:]}
    stat = json.load(sys.stdin)
    total, rail = add_up(stat, roots) or (0, 0)
    if not total:
        print("no bytes of process", *sorted(roots))
        return 1
    print(percent(total, rail), total,
          ", ".join(f"{name}: {n}" for name, n in reasons(stat, roots).most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
