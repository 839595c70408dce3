"""ab_processes - the processes that a program has started, also those that have left it, and their end.

After adopt() a process below us whose parent has ended is our child, and not init's: what a program has
put into the background is found so, whatever session it has made for itself. In `railsock ab` all children
are those of `started`, and strays.
"""
import collections
import ctypes
import os
import signal
import time

Process = collections.namedtuple("Process", "state parent session began")

PRCTL = ctypes.CDLL(None).prctl
# The children that were started here, and are waited for where that was.
started = set()
# Whether adopt() was called.
adopting = []


def adopt():
    if PRCTL(36, 1, 0, 0, 0) == 0:  # PR_SET_CHILD_SUBREAPER
        adopting.append(True)


def end_with(parent):
    """For a child: SIGTERM when its parent ends, in whatever way."""
    def ask():
        PRCTL(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)
    return ask


def processes():
    """All there are: {pid: Process}."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="latin-1") as f:
                    field = f.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            found[int(name)] = Process(field[0], int(field[1]), int(field[3]), int(field[19]))
    return found


def lives(process):
    return process.state not in "ZX"


def below(roots, everyone, without=frozenset()):
    """The roots and their descendants, but nothing of `without`, a set of (pid, began), nor what is below that."""
    children = collections.defaultdict(list)
    for pid, process in everyone.items():
        children[process.parent].append(pid)
    found, todo = {}, list(roots)
    while todo:
        pid = todo.pop()
        if pid in everyone and (pid, everyone[pid].began) not in without:
            found[pid] = everyone[pid]
            todo += children[pid]
    return found


def session(leader):
    """The processes of a session that live."""
    return [pid for pid, p in processes().items() if p.session == leader and lives(p)]


def snapshot():
    """What is below us now: (pid, began) of each."""
    return frozenset((pid, p.began) for pid, p in below([os.getpid()], processes()).items() if pid != os.getpid())


def strays(before):
    """What has come to us since that snapshot, with all below it, dead children too. Nothing without adopt()."""
    if not adopting:
        return {}
    everyone = processes()
    roots = [pid for pid, p in everyone.items() if p.parent == os.getpid() and pid not in started]
    return below(roots, everyone, before)


def reap(found):
    for pid, process in found.items():
        if process.state == "Z" and process.parent == os.getpid():
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def stray_lives(before, limit=0.5):
    """Whether one goes on; it has a moment to end behind the program that has left it."""
    until = time.monotonic() + limit
    while any(map(lives, strays(before).values())):
        if time.monotonic() > until:
            return True
        time.sleep(0.01)
    return False


def kill(pids):
    """Returns those that are not ours to kill."""
    others = set()
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:
            others.add(pid)
    return others


def kill_program(leader):
    """What is left of its session, and all below it; but not itself."""
    everyone = processes()
    pids = {pid for pid, p in everyone.items() if p.session == leader} | set(below([leader], everyone))
    kill(pids - {leader})


def kill_strays(before, limit=5):
    """Until there is none: while one is killed it may start another."""
    until = time.monotonic() + limit
    others = set()
    while time.monotonic() < until:
        found = strays(before)
        reap(found)
        alive = {pid for pid, p in found.items() if lives(p)} - others
        if not alive:
            break
        others |= kill(alive)
        time.sleep(0.005)
