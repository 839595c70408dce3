"""server.py PORT: one connection, whose client says line by line what this process shall do.

echo TEXT     answers "WHO PID TEXT"
brief         forks a child that ends at once
descriptors   answers with how many descriptors are open
touch         forks a child that asks for the connection, and moves nothing
over          ends the children of idle and touch
idle          forks a child that touches nothing
child         forks a child that takes over until it is told to exit; the parent waits
heir          the same, but the parent closes its copy and goes on waiting
orphan        the same, but the parent is killed
again         as child, from a child: a grandchild
rest FIFO     answers, and once the client has gone a child reads, and writes into FIFO what it has got
exec          a child runs cat on the connection, until the end of a line "."
exit          a child ends
"""
import fcntl
import os
import select
import signal
import socket
import sys

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
s, _ = listener.accept()
listener.close()
who, buffered = "parent", b""
# A byte for each child that is to end; they end, too, when nobody is left who could write one.
told, over = os.pipe()
waiting = []


def line():
    global buffered
    while b"\n" not in buffered:
        got = s.recv(65536)
        if not got:
            os._exit(0)
        buffered += got
    one, _, buffered = buffered.partition(b"\n")
    return one.decode()


def answer(text):
    s.sendall(f"{who} {os.getpid()} {text}\n".encode())


def wait_in_child(first):
    pid = os.fork()
    if pid == 0:
        os.close(over)
        first()
        os.read(told, 1)
        os._exit(0)
    waiting.append(pid)


while True:
    command, _, text = line().partition(" ")
    if command == "echo":
        answer(text)
    elif command == "exit":
        os._exit(0)
    elif command == "idle":
        wait_in_child(lambda: None)
        answer("forked")
    elif command == "brief":
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        answer("forked")
    elif command == "descriptors":
        answer(str(len(os.listdir("/proc/self/fd"))))
    elif command == "touch":
        wait_in_child(lambda: fcntl.fcntl(s, fcntl.F_GETFL))
        answer("forked")
    elif command == "over":
        os.write(over, b"." * len(waiting))
        for pid in waiting:
            os.waitpid(pid, 0)
        waiting = []
        answer("ended")
    elif command == "rest":
        answer("ready")
        gone = select.poll()
        gone.register(s, select.POLLRDHUP)
        gone.poll()
        pid = os.fork()
        if pid == 0:
            try:
                got = s.recv(100).decode()
            except ConnectionResetError:
                got = "an error"
            with open(text, "w") as fifo:
                fifo.write(got or "a clean end")
            os._exit(0)
        os.waitpid(pid, 0)
        os._exit(0)
    elif command == "exec":
        answer("go")
        pid = os.fork()
        if pid == 0:
            os.dup2(s.fileno(), 0)
            os.dup2(s.fileno(), 1)
            os.execvp("sed", ["sed", "-u", "/^[.]$/q"])
        os.waitpid(pid, 0)
        answer("waited")
    else:
        parent = os.getpid()
        lives, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            who = {"child": "child", "again": "grandchild", "heir": "heir", "orphan": "orphan"}[command]
            if command == "orphan":
                os.close(tells)
                os.read(lives, 1)  # until the parent has gone
            answer("ready")
            continue
        if command == "orphan":
            os.kill(parent, signal.SIGKILL)
        os.close(lives)
        os.close(tells)
        if command == "heir":
            s.close()
        os.waitpid(pid, 0)
        if command == "heir":
            os._exit(0)
        answer("waited")
