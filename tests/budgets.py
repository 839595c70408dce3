"""budgets.py RAILSOCK PORT CASE: a client of an echo server that looks at the server's connections.

Prints nothing if all is well.
"""
import os
import socket
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


def half():
    """RAILSOCK_IDLE=1: a rail that one direction alone has boarded is given back, too; and one that none has."""
    with socket.create_server(("127.0.0.1", 0)) as at:
        silent, other = socket.create_connection(at.getsockname()), at.accept()[0]
        unused, last = socket.create_connection(at.getsockname()), at.accept()[0]
    for a, b in ((silent, other), (unused, last)):
        for one, two in ((a, b), (b, a)):
            one.sendall(bytes(64))
            assert len(two.recv(64, socket.MSG_WAITALL)) == 64
    end = time.monotonic() + 30
    while state(silent)[0] != "shm":
        assert time.monotonic() < end, state(silent)
        silent.sendall(bytes(64))
        assert len(other.recv(64, socket.MSG_WAITALL)) == 64
        time.sleep(0.01)
    until("idle", silent)
    until("idle", unused)
    for a, b in ((other, silent), (unused, last), (last, unused), (silent, other)):
        a.sendall(bytes(1000))
        assert len(b.recv(1000, socket.MSG_WAITALL)) == 1000


def halved():
    """Where one direction has ended the other one is on TCP, says so, and holds no rail."""
    def pair():
        one = socket.create_connection(at.getsockname())
        return one, at.accept()[0]

    def both(one, two, n, size=64):
        for _ in range(n):
            for a, b in ((one, two), (two, one)):
                a.sendall(bytes(size))
                assert len(b.recv(size, socket.MSG_WAITALL)) == size

    def one_way(one, two, n=50):
        two.shutdown(socket.SHUT_WR)
        end = time.monotonic() + 30
        while n or [state(one), state(two)] != [("tcp", "ending")] * 2:
            one.sendall(bytes(1000))
            assert len(two.recv(1000, socket.MSG_WAITALL)) == 1000
            assert time.monotonic() < end, (state(one), state(two))
            n = max(n - 1, 0)
        assert one.recv(1) == b""
        one.close()
        assert two.recv(1) == b""

    with socket.create_server(("127.0.0.1", 0)) as at:
        for order in (1, -1):
            one_way(*pair()[::order])  # before a byte
            here, there = pair()  # with a rail that nothing has used
            both(here, there, 1)
            time.sleep(0.3)
            one_way(*(here, there)[::order])
            here, there = pair()  # on the rail
            end = time.monotonic() + 30
            while [state(here)[0], state(there)[0]] != ["shm"] * 2:
                assert time.monotonic() < end, (state(here), state(there))
                both(here, there, 3)
            one_way(*(here, there)[::order])


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


def talk(s, size=1 << 16, times=4):
    """Much more than an exchange."""
    for _ in range(times):
        s.sendall(bytes(size))
        got = 0
        while got < size:
            part = len(s.recv(size))
            assert part, "the stream ended"
            got += part


def heat():
    """RAILSOCK_RAILS=2, here or at the server: a hot one gets the rail of a lukewarm one, which is never idle."""
    warm, other, hot = connect(), connect(), connect()
    until("shm", warm, [warm, other])
    until("shm", other, [warm, other])
    end = time.monotonic() + 30
    while state(hot)[0] != "shm":
        assert time.monotonic() < end, state(hot)
        talk(hot)
        exchange(warm, 1)
        exchange(other, 1)
    echo_client.until(lambda paths: sorted(paths) == ["shm", "tcp"],
                      lambda: [state(s)[0] for s in (warm, other)], [hot, warm, other])
    for each in (warm, other, hot):
        exchange(each)


def none():
    """RAILSOCK_RAILS=0."""
    s = connect()
    until("budget", s, [s])
    exchange(s, 100)
    assert state(s)[0] == "tcp"


globals()[case]()
