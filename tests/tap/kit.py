"""What the cases of `railsock tap` stand on: two programs with a connection on a rail, and a tap of it."""
import contextlib
import json
import os
import subprocess
import sys
import time

import pcapng

RAILSOCK, LIBRARY, WORK = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
ports = iter(range(24000 + os.getpid() % 5000, 32000))


def wait_for(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return value


class Program:
    def __init__(self, *words, user=None, settings=None, before=(), run=("--board", "eager", "--wire", "shm")):
        command, library, peer = (f"{WORK}/railsock", f"{WORK}/librailsock.so", f"{WORK}/peer.py") if user else (
            RAILSOCK, LIBRARY, f"{HERE}/peer.py")
        self.p = subprocess.Popen(
            [*before, command, "run", *run, "--", "/usr/bin/python3", peer, *words], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "RAILSOCK_LIBRARY": library, **(settings or {})},
            **({"user": user, "group": user, "extra_groups": []} if user else {}))
        self.pid = self.p.pid
        self.hear()

    def hear(self):
        line = self.p.stdout.readline()
        assert line, "the program has ended"
        return line.decode().strip()

    def do(self, word, number=0):
        self.p.stdin.write(f"{word} {number}\n".encode())
        self.p.stdin.flush()
        return int(self.hear())


@contextlib.contextmanager
def programs(family="4", **how):
    """A client and a server with a connection that is on a rail both ways."""
    port = str(next(ports))
    started = []
    try:
        started.append(Program("server", port, family, **how))
        started.append(Program("client", port, family, **how))
        client = started[1]
        wait_for("no rail", lambda: client.do("move", 50) and connection(client.pid)["path_rx"] == "shm" and
                 connection(client.pid)["path_tx"] == "shm")
        yield client, started[0], port
    finally:
        for p in started:
            p.p.kill()
            p.p.communicate()


def stat():
    return json.loads(subprocess.run([RAILSOCK, "stat", "--json"], check=True, capture_output=True).stdout)["processes"]


def connection(pid):
    return [c for p in stat() if p["pid"] == pid for c in p["connections"]][-1]


class Tap:
    """A running `railsock tap`."""

    def __init__(self, *words, output=None, command=RAILSOCK, **how):
        self.output = output or f"{WORK}/tap.{next(ports)}"
        self.p = subprocess.Popen([command, "tap", "-o", self.output, *map(str, words)], stderr=subprocess.PIPE,
                                  stdout=subprocess.PIPE, **how)

    def begun(self, client):
        """Moves bytes until it has some."""
        wait_for("nothing is recorded", lambda: self.p.poll() is None and client.do("move", 3) and
                 os.path.exists(self.output) and os.path.getsize(self.output) > 2000)
        return self

    def ended(self, sig=None):
        """What it says at its end."""
        if sig:
            self.p.send_signal(sig)
        said = self.p.communicate(timeout=30)[1].decode()
        return self.p.returncode, said

    def file(self, sig=None):
        status, said = self.ended(sig)
        assert status == 0, said
        return pcapng.File(self.output), said


def refused(*words, **how):
    said = Tap(*words, **how).ended()
    assert said[0] == 1, said
    return said[1]
