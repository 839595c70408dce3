"""memlock_lab.py LOG: one process with both ends of several connections over verbs, under a limit of locked
memory (ulimit -l) that is too small for all of them: some board, the others go on over TCP.

Says what is wrong on stderr, with status 1. LOG is the library's log.
"""
import resource
import time

from lab_pair import listener, logged, pair, talk

limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def pinned():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmPin:")) * 1024


at = listener()
pairs = [pair(at) for _ in range(6)]
end = time.monotonic() + 60
i = most = 0
while logged("sending on rxe") < 2 or not logged("Cannot allocate memory"):
    assert time.monotonic() < end, f"boarded {logged('sending on rxe')}, refused {logged('Cannot allocate memory')}"
    for p in pairs:
        talk(p, i)
    i += 1
    most = max(most, pinned())
    time.sleep(0.01)
assert 0 < most <= limit * 3 // 4, f"{most} of {limit} bytes pinned"
print(f"# {most} of {limit} bytes pinned, {logged('sending on rxe')} directions boarded")
