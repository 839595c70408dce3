#!/usr/bin/python3
"""classes.py NOTES LIST: compares what calls.def and calls_left.def say of each symbol with what the
rows noted: NOTES, from a run of tests/calls/rows with rails, and LIST, the output of rows --list.
Prints what does not agree; status 1 if anything."""
import collections
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import exports  # noqa: E402

# Their rails leave over verbs; those of shared memory belong to no user (identity_lab_test.sh).
OVER_VERBS = set("""setuid seteuid setreuid setresuid setgid setegid setregid setresgid setgroups
initgroups""".split())
# Where the kernel gives no ring, nothing leaves for it (tests/preload/rings.c).
MAY_STAY = OVER_VERBS | exports.LIBURINGS


def wrong(name, kind, noted):
    """What is wrong with the notes on a name, or None."""
    if kind in ("SERVED", "LEAVE", "TRACK", "NUMBER"):
        if any(whose != "ours" for _, whose in noted):
            return "a program that calls it does not come to us"
        if any(what == "unboarded" for what, _ in noted):
            return "its stream was never on a rail"
        if kind == "SERVED" and ("stayed", "ours") not in noted:
            return "the stream has left its rail"
        if kind == "LEAVE" and ("left", "ours") not in noted and name not in MAY_STAY:
            return "the stream has stayed on its rail"
    elif noted != {("stayed", "libc")}:
        return f"is to be libc's alone, on a rail that stays: {sorted(noted)}"
    return None


def main():
    calls, left = map(exports.table, exports.TABLES)
    tried = {**calls, **{n: kind for n, kind in left.items() if kind in ("REFUSED", "SAME")}}
    noted = collections.defaultdict(set)
    bad = []
    with open(sys.argv[1], encoding="utf-8") as f:
        for line in f:
            name, what, whose = line.split()
            noted[name].add((what, whose))
    with open(sys.argv[2], encoding="utf-8") as f:
        rows = set(f.read().split())
    # What only gets a number need not take one; tests/preload/numbered.c has them all.
    bad += [f"{n}: no row calls it" for n in sorted(set(tried) - rows) if tried[n] != "NUMBER"]
    bad += [f"{n}: a row calls it, and no table has it" for n in sorted(rows - set(tried))]
    for name, kind in sorted(tried.items()):
        why = name in noted and wrong(name, kind, noted[name])
        if why:
            bad.append(f"{name} ({kind}): {why}")
    bad += [f"{n}: its row noted nothing" for n in sorted(set(calls) & rows - set(noted) - exports.NEWER - exports.LIBURINGS)]
    print("\n".join(bad) or f"{len(noted)} symbols")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
