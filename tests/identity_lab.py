"""identity_lab.py LOG: one process with both ends of connections over verbs, which changes its user.

Says what is wrong on stderr, with status 1. LOG is the library's log.
"""
import os
import socket
import sys
import time

host = "10.1.0." + os.environ["LAB_HOST"]
log = sys.argv[1]


def pair():
    listener = socket.create_server((host, 0))
    one = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    return one, other


def talk(ends, count):
    for i in range(count):
        for a, b in (ends, ends[::-1]):
            a.sendall(b"%015d\n" % i)
            got = b""
            while len(got) < 16:
                got += b.recv(16 - len(got))
            assert got == b"%015d\n" % i, got


def boarded():
    with open(log) as f:
        return f.read().count("sending on rxe")


def boards(ends, who):
    """Both directions, from now on."""
    wanted = boarded() + 2
    end = time.monotonic() + 60
    while boarded() < wanted:
        assert time.monotonic() < end, f"{who} does not board"
        talk(ends, 5)
        time.sleep(0.02)


old = pair()
boards(old, "a connection of root")
os.seteuid(1000)
talk(old, 20)
boards(old, "an old connection")
new = pair()
boards(new, "a new connection")
os.seteuid(0)
talk(new, 20)
boards(old, "a connection of root's again")
