"""identity_lab.py LOG: one process with both ends of connections over verbs, which changes its user.

Says what is wrong on stderr, with status 1. LOG is the library's log.
"""
import os

from echo_client import come
from lab_pair import listener, logged, pair, talk


def talks(ends, count):
    for i in range(count):
        talk(ends, i)


def boards(ends, who):
    """Both directions, from now on."""
    wanted = logged("sending on rxe") + 2
    come(lambda now: now[1] >= wanted, lambda: (who, logged("sending on rxe")), lambda: talks(ends, 5), 60)


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


# What a change closes is closed for good: librdmacm closes no context of its own, and was left with
# /dev/null for each descriptor.
def nulls():
    return sum(os.path.realpath(f"/proc/self/fd/{fd}") == "/dev/null" for fd in os.listdir("/proc/self/fd"))


before = nulls()
for user in 1000, 0:
    os.seteuid(user)
    boards(pair(listener()), f"a connection of {user}")
os.seteuid(1000)
come(lambda n: n <= before, nulls, seconds=10)
