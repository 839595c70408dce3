"""workers_lab.py LOG: a server of three processes on one port, over verbs: connections of each of them board.

Who is asked for a connection that another one has says whom to ask instead. The same once more on a port that only root may have, of
processes that are not root's any more when they accept. Then of two processes the one that has the server's RDMA port ends, or
has no connection any more: the other one's board as before. Says what is wrong on stderr, with status 1.
"""
import os
import signal
import socket
import subprocess
import sys
import threading

from echo_client import come, connect, path, processes, until

WORKERS, EACH = 3, 2  # each accepts so many, so that none has all of them


def echo(s):
    while data := s.recv(4096):
        s.sendall(data)


def work(listener):
    threads = [threading.Thread(target=echo, args=(listener.accept()[0],)) for _ in range(EACH)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def paths():
    """Of each connection: how it goes at its end here and at the other one, and which process has that."""
    ends = {}
    for p in processes("build/railsock"):
        for c in p["connections"]:
            here = p["pid"] == os.getpid()
            end = ends.setdefault(c["local"] if here else c["peer"], {})
            end[here] = path(c), None if here else p["pid"]
    return [(e.get(True), e.get(False)) for e in ends.values()]


def on_rails(count):
    return lambda ends: len(ends) == count and all(
        here and there and here[0] == there[0] == "verbs" for here, there in ends)


def serve(port, uid):
    listener = socket.create_server((os.environ["LAB_IP_1"], port))
    address = listener.getsockname()
    workers = []
    for _ in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            os.setuid(uid)
            work(listener)
            os._exit(0)
        workers.append(pid)
    listener.close()
    try:
        connections = [connect(*address) for _ in range(WORKERS * EACH)]
        until(on_rails(WORKERS * EACH), paths, connections)
        assert {there[1] for _, there in paths()} == set(workers), paths()
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for each in connections:
        each.close()


class Worker:
    """A process that accepts when it is told to."""

    def __init__(self, listener):
        order, self.orders = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            while os.read(order, 1) == b"a":
                threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
            os._exit(0)

    def accepts(self, address):
        os.write(self.orders, b"a")
        return connect(*address)

    def is_named(self):
        """Some RDMA port is its own."""
        with open("/proc/net/unix") as f:
            return any("@railsock-rdma." in line and line.rstrip().endswith(f".{self.pid}") for line in f)

    def ends(self):
        os.write(self.orders, b"e")
        os.waitpid(self.pid, 0)


def goes(how):
    listener = socket.create_server((os.environ["LAB_IP_1"], 0))
    address = listener.getsockname()
    first, second = Worker(listener), Worker(listener)
    listener.close()
    one = first.accepts(address)
    until(on_rails(1), paths, [one])
    two = second.accepts(address)
    until(on_rails(2), paths, [one, two])
    one.close()
    if how == "ends":
        first.ends()
    else:
        come(lambda named: not named, first.is_named)
    three = second.accepts(address)
    until(on_rails(2), paths, [two, three])
    assert {there[1] for _, there in paths()} == {second.pid}, paths()
    if how != "ends":
        four = first.accepts(address)
        until(on_rails(3), paths, [two, three, four])
        assert {there[1] for _, there in paths()} == {first.pid, second.pid}, paths()
        first.ends()
    second.ends()


# Each with a client that has not had the device open at its servers' fork.
if len(sys.argv) == 2:
    for port, uid in ("0", "0"), ("80", "1000"):
        subprocess.run([sys.executable, __file__, sys.argv[1], port, uid], check=True)
    for way in "ends", "closes":
        subprocess.run([sys.executable, __file__, sys.argv[1], way], check=True)
elif len(sys.argv) == 3:
    goes(sys.argv[2])
else:
    serve(*map(int, sys.argv[2:]))
