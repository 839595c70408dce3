"""rules.py RAILSOCK PORT CASE CLIENT SERVER: a client of an echo server under rules.

Talks until both ends of its connection are in a state, PATH/REASON, as `railsock stat` shows it. CASE is
`one`; or `many`: sixteen others were made before it, at once; or `two`: CLIENT is the state of a second
connection, to SECOND, while the first is on a rail; or `idle`: CLIENT is the state once nothing moves any
more. SERVER - is on another host, ADDRESS. Prints nothing if all is well.
"""
import os
import sys
import threading

sys.dont_write_bytecode = True  # nothing of ours beside the sources
import echo_client
from echo_client import exchange

railsock, port, case, client, server = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
address = os.environ.get("ADDRESS", "127.0.0.1")
if server == "-":
    server = None


def states(s):
    """PATH/REASON of the connection at this end and at the other."""
    own = "%s:%d" % s.getsockname()[:2]
    ends = {}
    for p in echo_client.processes(railsock):
        for c in p["connections"]:
            if own in (c["local"], c["peer"]):
                ends[c["local"] == own] = echo_client.path(c) + "/" + c["reason"]
    return ends.get(True), ends.get(False)


def until(wanted, s, busy):
    echo_client.until(lambda now: now == wanted, lambda: states(s), busy)


def connect(to=address):
    return echo_client.connect(to, port)


def many():
    """The first connections of the process, all at once, each by a thread."""
    conns, start = [], threading.Barrier(16)

    def talk():
        start.wait()
        s = connect()
        exchange(s, 50)
        conns.append(s)

    threads = [threading.Thread(target=talk) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(conns) == 16
    for s in conns:
        assert states(s)[0] == client, states(s)


if case == "many":
    many()
first = connect()
if case in ("one", "many"):
    until((client, server), first, [first])
elif case == "two":
    until(("shm/none", "shm/none"), first, [first])
    second = connect(os.environ.get("SECOND", address))
    until((client, server), second, [first, second])
    assert states(first)[0] == "shm/none"
elif case == "idle":
    until(("shm/none", "shm/none"), first, [first])
    until((client, server), first, [])
exchange(first)
