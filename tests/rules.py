"""rules.py RAILSOCK PORT CASE CLIENT SERVER: a client of an echo server under rules.

Talks until both ends of its connection are in a state, PATH/REASON, as `railsock stat` shows it. CASE is
`one`; or `many`: sixteen others were made before it, at once; or `two`: CLIENT is the state of a second
connection, to SECOND, while the first is on a rail; or `idle`: CLIENT is the state once nothing moves any
more. SERVER - is on another host, ADDRESS. Prints nothing if all is well.
"""
import json
import os
import socket
import subprocess
import sys
import threading
import time

railsock, port, case, client, server = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
address = os.environ.get("ADDRESS", "127.0.0.1")
if server == "-":
    server = None


def exchange(s, count=20):
    for i in range(count):
        message = b"%d " % i * 50
        s.sendall(message)
        got = b""
        while len(got) < len(message):
            part = s.recv(4096)
            assert part, "the stream ended"
            got += part
        assert got == message, (got, message)


def states(s):
    """PATH/REASON of the connection at this end and at the other."""
    clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    stat = json.loads(subprocess.run([railsock, "stat", "--json"], env=clean, check=True,
                                     capture_output=True).stdout)
    own = "%s:%d" % s.getsockname()[:2]
    ends = {}
    for p in stat["processes"]:
        for c in p["connections"]:
            if own in (c["local"], c["peer"]):
                ends[c["local"] == own] = c["path"].partition(":")[0] + "/" + c["reason"]
    return ends.get(True), ends.get(False)


def until(wanted, s, busy):
    end = time.monotonic() + 15
    while (now := states(s)) != wanted:
        assert time.monotonic() < end, f"{now}, not {wanted}"
        for each in busy:
            exchange(each)
        time.sleep(0.02)


def connect(to=address):
    s = socket.create_connection((to, port), 10)
    s.settimeout(10)
    return s


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
