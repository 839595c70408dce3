"""units.py RAILSOCK HERE THERE COMMAND...: a client of the echo server that COMMAND starts on the port that is put in
place of {port}. Exchanges messages until `railsock stat` shows of the two ends these PATH:REASON (-: whatever it is)."""

import socket
import subprocess
import sys

import echo_client

railsock, here, there, *command = sys.argv[1:]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def ends():
    seen = {}
    for process in echo_client.processes(railsock):
        for c in process["connections"]:
            for is_server, address in (True, c["local"]), (False, c["peer"]):
                if address == f"127.0.0.1:{port}":
                    seen[is_server] = f"{c['path']}:{c['reason']}"
    return seen


def as_wanted(seen):
    return all(want in ("-", seen.get(is_server)) for is_server, want in ((False, here), (True, there)))


port = free_port()
with subprocess.Popen([arg.replace("{port}", str(port)) for arg in command], stdout=subprocess.PIPE, text=True) as server:
    try:
        assert server.stdout.readline() == "listening\n"
        end = echo_client.connect("127.0.0.1", port)
        echo_client.until(as_wanted, ends, [end])
    finally:
        server.kill()
