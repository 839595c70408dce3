"""shown.py RAILSOCK [PROGRAM...]: a process with a connection to itself says how many rows `railsock stat` has for it, at once and
after a program that is not there could not be executed, and executes PROGRAM; or once more when its input has ended."""

import os
import socket
import subprocess
import sys

railsock, *program = sys.argv[1:]
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far = listener.accept()[0]
for _ in range(50):
    near.sendall(b"x" * 50)
    assert far.recv(50, socket.MSG_WAITALL)


def rows():
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    out = subprocess.run([railsock, "stat", "--pid", str(os.getpid())], env=env, check=False, capture_output=True,
                         text=True).stdout
    return sum(f":{listener.getsockname()[1]} " in line for line in out.splitlines())


print(rows(), flush=True)
if program:
    try:
        os.execv("/nowhere", ["nowhere"])
    except FileNotFoundError:
        print(rows(), flush=True)
    os.execvp(program[0], program)
sys.stdin.read()
print(rows(), flush=True)
