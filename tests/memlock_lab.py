"""memlock_lab.py LOG: one process with both ends of several connections over verbs, under a limit of locked
memory (ulimit -l) that is too small for all of them: some board, the others go on over TCP.

Says what is wrong on stderr, with status 1. LOG is the library's log.
"""
import resource

from echo_client import come
from lab_pair import listener, logged, pair, talk

limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def pinned():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmPin:")) * 1024


at = listener()
pairs = [pair(at) for _ in range(6)]
pins = []


def talks():
    for p in pairs:
        talk(p, len(pins))
    pins.append(pinned())


come(lambda now: now[0] >= 2 and now[1], lambda: (logged("sending on rxe"), logged("Cannot allocate memory")), talks, 60)
most = max(pins)
assert 0 < most <= limit * 3 // 4, f"{most} of {limit} bytes pinned"
print(f"# {most} of {limit} bytes pinned, {logged('sending on rxe')} directions boarded")
