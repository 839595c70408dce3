"""netns.py RAILSOCK: a pair of connected sockets, with the library, in a process that goes to another network
namespace and comes back. Its bytes come through all the time; a rail is for its own namespace only."""
import ctypes
import json
import os
import socket
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000


def talk(a, b):
    for _ in range(20):
        a.sendall(b"x" * 64)
        assert len(b.recv(64)) == 64
        b.sendall(b"y" * 64)
        assert len(a.recv(64)) == 64
        time.sleep(0.002)


def shown(a, b, wanted):
    """Talks until railsock stat says so of both ends."""
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    said = None
    for _ in range(100):
        talk(a, b)
        stat = json.loads(subprocess.run([sys.argv[1], "stat", "--json"], capture_output=True, env=env,
                                         check=True).stdout)
        said = {c["reason"] for p in stat["processes"] if p["pid"] == os.getpid() for c in p["connections"]}
        if said == wanted:
            return
    sys.exit(f"{said}, not {wanted}")


server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
server.close()
libc = ctypes.CDLL(None, use_errno=True)
home = os.open("/proc/self/ns/net", os.O_RDONLY)
shown(client, accepted, {"none"})
assert libc.unshare(CLONE_NEWNET) == 0
shown(client, accepted, {"netns"})
assert libc.setns(home, 0) == 0
shown(client, accepted, {"none"})
