"""identity_lab.py LOG: one process with both ends of connections over verbs, which changes its user.

Says what is wrong on stderr, with status 1. LOG is the library's log.
"""
import os
import time

from lab_pair import listener, logged, pair, talk


def talks(ends, count):
    for i in range(count):
        talk(ends, i)


def boards(ends, who):
    """Both directions, from now on."""
    wanted = logged("sending on rxe") + 2
    end = time.monotonic() + 60
    while logged("sending on rxe") < wanted:
        assert time.monotonic() < end, f"{who} does not board"
        talks(ends, 5)
        time.sleep(0.02)


old = pair(listener())
boards(old, "a connection of root")
os.seteuid(1000)
talks(old, 20)
boards(old, "an old connection")
new = pair(listener())
boards(new, "a new connection")
os.seteuid(0)
talks(new, 20)
boards(old, "a connection of root's again")
