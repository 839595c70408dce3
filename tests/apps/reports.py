"""reports.py FOLDER: adds up the `railsock run --report=json` of a case's programs, both sides.

Prints "PERCENT BYTES REASONS": the share of the bytes that went over a rail, and why connections never
boarded, the most frequent reason first. Status 1 when no program has moved a byte that the library saw.
"""
import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
from share import percent  # noqa: E402  (its folder is found first)


def main():
    total = rail = 0
    why = collections.Counter()
    for file in pathlib.Path(sys.argv[1]).glob("*.json"):
        report = json.loads(file.read_text())
        total += report["bytes"]
        rail += report["rail_bytes"]
        why.update(report["reasons"])
    del why["none"]  # ended before it was looked at
    print(percent(total, rail), total, ", ".join(name for name, _ in why.most_common(2)))
    return 0 if total else 1


if __name__ == "__main__":
    sys.exit(main())
