"""budgets.py RAILSOCK PORT CASE: a client of an echo server that looks at the server's connections.

Prints nothing if all is well.
"""
import os
import socket
import sys
import time

sys.dont_write_bytecode = True  # nothing of ours beside the sources
import echo_client
from echo_client import come, exchange

railsock, port, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def connect():
    return echo_client.connect("127.0.0.1", port)


def state(s):
    """Path and reason of this connection at this end."""
    local = "%s:%d" % s.getsockname()
    for p in echo_client.processes(railsock, os.getpid()):
        for c in p["connections"]:
            if c["local"] == local:
                return echo_client.path(c), c["reason"]
    return "none", "none"


def until(wanted, s, busy=()):
    """Waits for a state of s, with traffic on those of `busy`."""
    echo_client.until(lambda now: wanted in now, lambda: state(s), busy)


def idle():
    """RAILSOCK_IDLE=4: an idle rail is given back, a busy one is not; and traffic boards again."""
    quiet, loud = connect(), connect()
    until("shm", quiet, [quiet, loud])
    until("shm", loud, [quiet, loud])
    until("idle", quiet, [loud])
    assert state(loud)[0] == "shm", state(loud)
    exchange(quiet, 3)
    until("shm", quiet, [quiet, loud])
    exchange(quiet)
    exchange(loud)


def pair(at):
    """A connection with both ends here: the one that connects, the one that accepts."""
    one = socket.create_connection(at.getsockname())
    return one, at.accept()[0]


def pass_on(one, two, size=64):
    one.sendall(bytes(size))
    assert len(two.recv(size, socket.MSG_WAITALL)) == size


def both(one, two):
    pass_on(one, two)
    pass_on(two, one)


def rings():
    """How often a ring is mapped here: a rail is there, used or not."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        return sum("memfd:railsock-ring" in line for line in maps)


def half():
    """RAILSOCK_IDLE=1: a rail that one direction alone has boarded is given back, too; and one that none has."""
    with socket.create_server(("127.0.0.1", 0)) as at:
        silent, other = pair(at)
        unused, last = pair(at)
    both(silent, other)
    both(unused, last)
    come(lambda now: now[0] == "shm", lambda: state(silent), lambda: pass_on(silent, other))
    until("idle", silent)
    until("idle", unused)
    for a, b in ((other, silent), (unused, last), (last, unused), (silent, other)):
        pass_on(a, b, 1000)


def halved():
    """Where one direction has ended the other one is on TCP, says so, and holds no rail."""
    # Who gives a rail back may be quicker than its FIN.
    over = {(("tcp", here), ("tcp", there), 0)
            for here in ("ending", "peer-left") for there in ("ending", "peer-left")}.__contains__

    def one_way(one, two):
        two.shutdown(socket.SHUT_WR)
        for _ in range(50):
            pass_on(one, two, 1000)
        # A rail is given back by calls, one in so many looks: some between two of ours, which take
        # long.
        come(over, lambda: (state(one), state(two), rings()), lambda: [pass_on(one, two, 1000) for _ in range(64)])
        assert one.recv(1) == b""
        one.close()
        assert two.recv(1) == b""

    with socket.create_server(("127.0.0.1", 0)) as at:
        for order in (1, -1):
            one_way(*pair(at)[::order])  # before a byte
            ends = pair(at)  # with a rail that nothing has used
            both(*ends)
            # One may have asked before the other could answer; without a call it does not again.
            come(lambda now: now == ["none"] * 2, lambda: [state(end)[1] for end in ends],
                 lambda: state(ends[0])[1] == "no-peer-library" and both(*ends))
            ends[::order][1].shutdown(socket.SHUT_WR)
            come(lambda now: not now, rings)  # by itself
            one_way(*ends[::order])
            ends = pair(at)  # on the rail
            come(lambda now: now == ["shm"] * 2, lambda: [state(end)[0] for end in ends], lambda: both(*ends))
            one_way(*ends[::order])


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


def small():
    """RAILSOCK_RING=64k RAILSOCK_MEMORY=1m: both rings of eight rails, and of no ninth."""
    s = [connect() for _ in range(9)]
    echo_client.until(lambda now: sorted(now) == [("shm", "none")] * 8 + [("tcp", "budget")],
                      lambda: [state(each) for each in s], s)


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


def done_by(pid):
    """How often its threads have gone to sleep, and for how many seconds they have run."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        ran = sum(map(int, f.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    slept = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="ascii", errors="replace") as f:
            slept += sum(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt_switches"))
    return slept, ran


def rests():
    """A rail on which nothing moves wakes nobody, at either end."""
    s = connect()
    until("shm", s, [s])
    there, = {p["pid"] for p in echo_client.processes(railsock) for c in p["connections"]
              if c["peer"] == "%s:%d" % s.getsockname()}
    before = None
    while before != (before := [done_by(pid) for pid in (os.getpid(), there)]):
        pass  # the boarding's last work
    time.sleep(3)
    after = [done_by(pid) for pid in (os.getpid(), there)]
    for (slept, ran), (has_slept, has_run) in zip(before, after):
        assert has_slept - slept < 10 and has_run - ran < 1, (before, after)
    exchange(s)
    assert state(s)[0] == "shm", state(s)


def none():
    """RAILSOCK_RAILS=0, or room for no ring."""
    s = connect()
    until("budget", s, [s])
    exchange(s, 100)
    assert state(s)[0] == "tcp"


globals()[case]()
