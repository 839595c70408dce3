"""netlink.py RAILSOCK HERE THERE COMMAND...: a client of the echo server that COMMAND starts on the port that is put in
place of {port}. Exchanges messages until the connection's reasons are these two, and both ends on TCP."""

import socket
import subprocess
import sys

import echo_client

railsock, here, there, *command = sys.argv[1:]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def reasons():
    """Of the end here and of the one there."""
    seen = {}
    for process in echo_client.processes(railsock):
        for c in process["connections"]:
            for is_server, address in (True, c["local"]), (False, c["peer"]):
                if address == f"127.0.0.1:{port}":
                    seen[is_server] = (c["path"], c["reason"])
    return seen.get(False), seen.get(True)


port = free_port()
with subprocess.Popen([arg.replace("{port}", str(port)) for arg in command], stdout=subprocess.PIPE, text=True) as server:
    try:
        assert server.stdout.readline() == "listening\n"
        end = echo_client.connect("127.0.0.1", port)
        echo_client.until(lambda now: now == (("tcp", here), ("tcp", there)), reasons, [end])
    finally:
        server.kill()
