#!/usr/bin/python3
"""shown.py RAILSOCK HOST: connects to itself at HOST, and compares the addresses that `railsock stat` shows of the two
ends, which nothing has passed, with the kernel's. Run with the library. 77: there is no such address here."""
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
near = socket.create_connection(listener.getsockname()[:2])
far, _ = listener.accept()
env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
said = subprocess.run([RAILSOCK, "stat", "--json", "--pid", str(os.getpid())], env=env, check=True, capture_output=True,
                      text=True, timeout=30)
got = sorted((c["role"], c["local"], c["peer"]) for c in json.loads(said.stdout)["processes"][0]["connections"])
want = [("accepted", text(far.getsockname()), text(far.getpeername())),
        ("connected", text(near.getsockname()), text(near.getpeername()))]
if got != want:
    sys.exit(f"{got}, not {want}")
