#!/usr/bin/python3
"""table.py FIGURES - prints the table of tests/faults/run from what cases.sh has written: NAME KIND
PAUSE-MS MS-UNTIL-TCP BOARDED-AGAIN SAW, one line for each try and program."""
import statistics
import sys

KINDS = {"p": "64-byte ping-pong", "d": "checked transfer", "pdu": "checked streams",
         "redis": "redis-benchmark", "iperf3": "iperf3"}


def ms(values):
    """Median and worst."""
    if not values:
        return "-", "-"
    return tuple(f"{v / 1000:.2f} s" for v in (statistics.median(values), max(values)))


def again(boarded):
    """How many came back, and how many of them only over a new device."""
    anew = boarded.count("new-device")
    if not boarded:
        return "-"
    return f"{boarded.count('yes') + anew} of {len(boarded)}" + (f" ({anew}: new device)" if anew else "")


def main():
    groups = {}
    with open(sys.argv[1], encoding="ascii") as f:
        for line in f:
            name, kind, pause, to_tcp, boarded, saw = line.rstrip("\n").split(" ", 5)
            group = groups.setdefault((name, kind), [])
            group.append((int(pause), None if to_tcp == "-" else int(to_tcp), boarded, saw))
    rows = [("FAULT", "PROGRAM", "IT SAW", "TRIES", "PAUSE median", "worst", "ON TCP AFTER median", "worst",
             "BOARDED AGAIN", "LOST")]
    for (name, kind), tries in groups.items():
        saw = sorted({word for t in tries for word in t[3].split()})
        boarded = [t[2] for t in tries if t[2] != "-"]
        rows.append((name.replace("_", " "), KINDS[kind], " ".join(saw), str(len(tries)),
                     *ms([t[0] for t in tries]), *ms([t[1] for t in tries if t[1] is not None]),
                     again(boarded),
                     # Anything else is a failed case; redis-benchmark and iperf3 do not check.
                     "0" if kind in ("p", "d", "pdu") else "-"))
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(w) if i < 3 else cell.rjust(w)
                        for i, (cell, w) in enumerate(zip(row, width))).rstrip())


if __name__ == "__main__":
    main()
