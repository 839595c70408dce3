"""echo_client.py: what clients of an echo server share that look at their connections; `rules.py`, `budgets.py`."""
import json
import os
import socket
import subprocess
import time


def connect(address, port):
    s = socket.create_connection((address, port), 10)
    s.settimeout(10)
    return s


def exchange(s, count=20):
    for i in range(count):
        message = b"%d " % i * 50
        s.sendall(message)
        got = b""
        while len(got) < len(message):
            part = s.recv(4096)
            assert part, "the stream ended"
            got += part
        assert got == message, (got, message)


def come(holds, look, step=lambda: None, seconds=30):
    """Looks until it holds of what there is, with a step between two looks."""
    end = time.monotonic() + seconds
    while not holds(now := look()):
        assert time.monotonic() < end, f"still {now}"
        step()


def until(holds, look, busy):
    """The same with traffic on those of `busy`."""
    def step():
        for each in busy:
            exchange(each)
        time.sleep(0.02)

    come(holds, look, step)


def processes(railsock, pid=None):
    """What `railsock stat`, itself without the library, shows of them, or of this one, if that has anything to show."""
    clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    one = ["--pid", str(pid)] if pid else []
    run = subprocess.run([railsock, "stat", "--json", *one], env=clean, check=not pid, capture_output=True)
    return json.loads(run.stdout)["processes"] if run.stdout else []


def path(connection):
    """Without a device."""
    return connection["path"].partition(":")[0]
