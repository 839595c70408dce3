"""ask_again_lab.py LOG: programs that ask again and again look for themselves over verbs.

The library's thread must not have to run for each message. Says what is wrong on stderr, with status 1. LOG is the library's log.
"""
import array
import fcntl
import glob
import re
import select
import socket
import sys
import termios

from echo_client import come
from lab_pair import listener, logged, pair, talk

MESSAGES = 400
MOST = MESSAGES * 2 // 3  # it looks every 20 ms; if nobody else does, it runs for nearly each


def woken():
    """How often the library's thread has gone to sleep."""
    for name in glob.glob("/proc/self/task/*/status"):
        with open(name) as f:
            status = f.read()
        if status.startswith("Name:\trailsock\n"):
            return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.M)[1])
    raise AssertionError("the library has no thread")


def receives(end):
    try:
        return end.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
    except BlockingIOError:
        return None


def counts(end):
    n = array.array("i", [0])
    fcntl.ioctl(end.fileno(), termios.FIONREAD, n)
    return n[0]


def polls(end):
    p = select.poll()
    p.register(end, select.POLLIN)
    return p.poll(0)


def selects(end):
    return select.select([end], [], [], 0)[0]


def epolls(_):
    return instance.poll(0)


def boarded(ask):
    """A pair on its rail; registered before that, so that the rail's news come to the instance itself."""
    ends = pair(at)
    if ask is epolls:
        instance.register(ends[1], select.EPOLLIN)
    before = logged("sending on rxe")
    come(lambda now: now >= before + 2, lambda: logged("sending on rxe"), lambda: talk(ends, 1), 60)
    return ends


WAYS = {"recv": receives, "FIONREAD": counts, "poll": polls, "select": selects, "epoll": epolls}
at = listener()
instance = select.epoll()
wrong = 0


def run(ask):
    """How often the library's thread ran meanwhile."""
    one, other = boarded(ask)
    before = woken()
    for _ in range(MESSAGES):
        one.sendall(b"0123456789abcdef")
        while not ask(other):
            pass
        assert other.recv(16) == b"0123456789abcdef"
    n = woken() - before
    one.close()
    other.close()
    return n


for name, ask in WAYS.items():
    # Who is awake already may go on winning the race for a while: then once more.
    tries = []
    while not tries or (tries[-1] > MOST and len(tries) < 6):
        tries.append(run(ask))
    print(f"# {name}: {tries} for {MESSAGES} messages")
    if tries[-1] > MOST:
        print(f"{name}: the library's thread ran {tries} times for {MESSAGES} messages", file=sys.stderr)
        wrong = 1
sys.exit(wrong)
