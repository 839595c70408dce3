"""budgets.py RAILSOCK PORT CASE: a client of an echo server that looks at the server's connections.

Prints nothing if all is well.
"""
import os
import sys
import time

sys.dont_write_bytecode = True  # nothing of ours beside the sources
import echo_client
from echo_client import exchange

railsock, port, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def connect():
    return echo_client.connect("127.0.0.1", port)


def state(s):
    """Path and reason of this connection at this end."""
    local = "%s:%d" % s.getsockname()
    for p in echo_client.processes(railsock):
        if p["pid"] == os.getpid():
            for c in p["connections"]:
                if c["local"] == local:
                    return echo_client.path(c), c["reason"]
    return "none", "none"


def until(wanted, s, busy=()):
    """Waits for a state of s, with traffic on those of `busy`."""
    echo_client.until(lambda now: wanted in now, lambda: state(s), busy)


def idle():
    """RAILSOCK_IDLE=1: an idle rail is given back, a busy one is not; and traffic boards again."""
    quiet, loud = connect(), connect()
    until("shm", quiet, [quiet, loud])
    until("shm", loud, [quiet, loud])
    until("idle", quiet, [loud])
    assert state(loud)[0] == "shm", state(loud)
    exchange(quiet, 3)
    until("shm", quiet, [quiet, loud])
    exchange(quiet)
    exchange(loud)


def rails():
    """RAILSOCK_RAILS=2: the third waits until one of the others has been idle for a while."""
    s = [connect() for _ in range(3)]
    for i in (0, 1):
        until("shm", s[i], s[:2])
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for each in s:
            exchange(each)
        assert state(s[2])[0] == "tcp", "a third rail"
    assert state(s[2])[1] == "budget", state(s[2])
    until("shm", s[2], [s[0], s[2]])
    assert state(s[0])[0] == "shm", "a busy one has lost its rail"
    assert state(s[1]) == ("tcp", "idle"), state(s[1])
    for each in s:
        exchange(each)


def none():
    """RAILSOCK_RAILS=0."""
    s = connect()
    until("budget", s, [s])
    exchange(s, 100)
    assert state(s)[0] == "tcp"


globals()[case]()
