"""full_shm.py RAILSOCK: both ends of a connection in this process exchange messages until the stream is on a rail or has
said why not. Prints path and reason of both, as `railsock stat` shows them."""

import json
import os
import socket
import subprocess
import sys
import time

listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far = listener.accept()[0]
for sock in near, far:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def shown():
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    out = subprocess.run([sys.argv[1], "stat", "--json", "--pid", str(os.getpid())], env=env, check=True,
                         capture_output=True, text=True).stdout
    return sorted((c["path"], c["reason"]) for c in json.loads(out)["processes"][0]["connections"])


until = time.monotonic() + 30
seen = []
while time.monotonic() < until and not (seen and all(c[0] != "tcp" or c[1] == "no-memory" for c in seen)):
    for _ in range(20):
        for a, b in (near, far), (far, near):
            a.sendall(b"0123456789abcdef" * 4)
            assert b.recv(64, socket.MSG_WAITALL) == b"0123456789abcdef" * 4
    seen = shown()
print(*(f"{path}:{reason}" for path, reason in seen))
