#!/usr/bin/python3
"""shown.py RAILSOCK HOST: connects to itself at HOST, and compares the addresses that `railsock stat` shows with the
kernel's: of two ends that nothing has passed, and of two that have been worth a rail, so that the library has asked for
one address of each, and have not asked for it, as so few bytes prove nothing. Run with the library. 77: there is no such
address here."""
import json
import os
import socket
import subprocess
import sys

RAILSOCK, HOST = sys.argv[1:]


def text(address):
    host = address[0].removeprefix("::ffff:")
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


try:
    listener = socket.socket(socket.AF_INET6 if ":" in HOST else socket.AF_INET)
    if ":" in HOST:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind((HOST, 0))
    listener.listen()
except OSError as e:
    print(e)
    sys.exit(77)


def pair(round_trips):
    """Both ends of a connection that so many bytes have passed, each way."""
    near = socket.create_connection(listener.getsockname()[:2])
    far, _ = listener.accept()
    for _ in range(round_trips):
        for a, b in (near, far), (far, near):
            a.send(b"x")
            b.recv(1)
    return near, far


pair(1)  # the first one reads the rules
ends = [*pair(0), *pair(5)]
env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
said = subprocess.run([RAILSOCK, "stat", "--json", "--pid", str(os.getpid())], env=env, check=True, capture_output=True,
                      text=True, timeout=30)
got = sorted((c["role"], c["local"], c["peer"]) for c in json.loads(said.stdout)["processes"][0]["connections"])
want = sorted(("connected" if i % 2 == 0 else "accepted", text(end.getsockname()), text(end.getpeername()))
              for i, end in enumerate(ends))
if got != want:
    sys.exit(f"{got}, not {want}")
