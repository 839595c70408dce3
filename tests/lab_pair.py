"""lab_pair.py: both ends of connections in one process over verbs, for the lab tests that are written in python.
LOG, the first argument, is the library's log.
"""
import os
import socket
import sys

host = "10.1.0." + os.environ["LAB_HOST"]


def listener():
    return socket.create_server((host, 0))


def pair(at):
    one = socket.create_connection(at.getsockname())
    other, _ = at.accept()
    return one, other


def talk(ends, i):
    """One round trip, whose 16 bytes say i."""
    for a, b in (ends, ends[::-1]):
        a.sendall(b"%015d\n" % i)
        got = b""
        while len(got) < 16:
            got += b.recv(16 - len(got))
        assert got == b"%015d\n" % i, got


def logged(text):
    with open(sys.argv[1]) as f:
        return f.read().count(text)
