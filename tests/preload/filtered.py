"""filtered.py LOG COUNT: puts itself under a filter that allows everything, and empties the library's log. Then it talks, over
a connection that was there before and over a new one: at least so many streams of the two go on to a rail, or none."""
import ctypes
import socket
import struct
import sys
import time


def pair():
    with socket.create_server(("127.0.0.1", 0)) as at:
        one = socket.create_connection(at.getsockname())
        return one, at.accept()[0]


def talk(one, two):
    for a, b in ((one, two), (two, one)) * 20:
        a.sendall(bytes(500))
        assert len(b.recv(500, socket.MSG_WAITALL)) == 500


def boarded():
    with open(sys.argv[1], encoding="ascii") as log:
        return {line.partition("stream ")[2].partition(":")[0] for line in log if "sending on shm" in line}


def wait_for(count, seconds, *pairs):
    end = time.monotonic() + seconds
    while len(boarded()) < count and time.monotonic() < end:
        for each in pairs:
            talk(*each)
    return len(boarded())


open(sys.argv[1], "w").close()
before = pair()
assert wait_for(2, 30, before) == 2
allow = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000))  # BPF_RET, SECCOMP_RET_ALLOW
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, struct.pack("@HP", 1, ctypes.addressof(allow)), 0, 0) == 0  # PR_SET_SECCOMP
open(sys.argv[1], "w").close()
wanted = int(sys.argv[2])
found = wait_for(wanted or 1, 30 if wanted else 2, before, pair())
assert found >= wanted and bool(found) == bool(wanted), found
