"""address_space_lab.py LOG: a connection over verbs in a process whose address space (ulimit -v) has no room for the RDMA
libraries yet: it goes on over TCP, nothing is said on stderr, and with room again it boards.

Says what is wrong on stderr, with status 1. LOG is the library's log.
"""
import resource
import time

from lab_pair import listener, logged, pair, talk

ROOM = 24 << 20  # for the progress thread, but not for verbs


def until(text, ends, what):
    end = time.monotonic() + 60
    i = 0
    while not logged(text):
        assert time.monotonic() < end, what
        talk(ends, i)
        i += 1


ends = pair(listener())
with open("/proc/self/statm") as f:
    used = int(f.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
until("the address space has no room", ends, "nothing was short")
assert not logged("sending on rxe"), "it has boarded"
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
until("sending on rxe", ends, "it does not board with room again")
