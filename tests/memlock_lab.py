"""memlock_lab.py LOG: one process with both ends of several connections over verbs, under a limit of locked
memory (ulimit -l) that is too small for all of them: some board, the others go on over TCP.

Says what is wrong on stderr, with status 1. LOG is the library's log.
"""
import os
import resource
import socket
import sys
import time

host = "10.1.0." + os.environ["LAB_HOST"]
log = sys.argv[1]
limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def pair(listener):
    one = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    return one, other


def talk(ends, i):
    for a, b in (ends, ends[::-1]):
        a.sendall(b"%015d\n" % i)
        got = b""
        while len(got) < 16:
            got += b.recv(16 - len(got))
        assert got == b"%015d\n" % i, got


def pinned():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmPin:")) * 1024


def logged(text):
    with open(log) as f:
        return f.read().count(text)


listener = socket.create_server((host, 0))
pairs = [pair(listener) for _ in range(6)]
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
