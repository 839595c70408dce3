"""talker.py ADDRESS PORT [plain|boards|changed|held|frames]: talks to an echo server, each byte checked.

plain    random messages for a while; prints the path and the reason, as railsock stat has them
boards   the same, until the stream is on a rail: who is asked first may be the wrong process
changed  as plain, but somebody on the way changes each byte by one bit
held     says its address, and goes on for as long as its input is open
frames   messages that look like the library's own frames, cut everywhere
A stream begins with 16 bytes that anybody could guess.
"""
import json
import os
import random
import socket
import subprocess
import sys
import time

address, port, kind = sys.argv[1], int(sys.argv[2]), (sys.argv[3:] or ["plain"])[0]
s = socket.create_connection((address, port))
s.settimeout(20)
rng = random.Random(7)


def exchange(message):
    s.sendall(message)
    got = b""
    while len(got) < len(message):
        part = s.recv(65536)
        if not part:
            sys.exit("the stream has ended early")
        got += part
    if kind == "changed":
        got = bytes(b ^ 1 for b in got)
    if got != message:
        sys.exit("a byte is wrong")


def frame():
    """64 bytes: c, type, version 1, flags, epoch, two numbers or S and X, nonce, tag."""
    epoch = rng.choice((1, 2, 3))
    return (bytes((rng.choice((0x52, rng.randrange(256))), rng.choice((1, 2)), 1, rng.choice((0, 1, 2, 4))))
            + epoch.to_bytes(4, "little") + rng.randrange(1 << 20).to_bytes(8, "little") * 3
            + rng.randbytes(32))


def stat():
    """The path and the reason of this process's one connection."""
    out = subprocess.run([os.environ["RAILSOCK"], "stat", "--json"], capture_output=True, check=True,
                         env={**os.environ, "LD_PRELOAD": ""})
    for process in json.loads(out.stdout)["processes"]:
        if process["pid"] == os.getpid():
            for c in process["connections"]:
                return c
    return {}


exchange(b"GET / HTTP/1.1\r\n")
if kind == "frames":
    end = time.monotonic() + 3
    while time.monotonic() < end:
        message = b"".join(frame() for _ in range(rng.randrange(1, 40)))
        cut = rng.randrange(64)
        exchange(message[cut:] + message[:cut])
    print("fine")
elif kind == "held":
    for _ in range(100):
        exchange(rng.randbytes(rng.randrange(1, 300)))
    print(*s.getsockname(), address, port, flush=True)
    sys.stdin.read()
    for _ in range(100):
        exchange(rng.randbytes(rng.randrange(1, 300)))
    print("fine")
else:
    c = {}
    for _ in range(int(os.environ.get("TALKER_ROUNDS", 40))):
        for _ in range(100):
            exchange(rng.randbytes(rng.randrange(1, 3000)))
        c = stat()
        if kind == "boards" and c.get("path") == "tcp":
            time.sleep(0.05)  # the next process is asked a while later
        elif c.get("reason") not in ("new", "not-yet", "no-peer-library", "no-ack"):
            break
    print("fine", c.get("path", c.get("path_tx")), c.get("reason"))
