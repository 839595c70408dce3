"""server.py PORT: one connection, whose client says line by line what this process shall do.

echo TEXT     answers "WHO PID TEXT"
brief         forks a child that ends at once
descriptors   answers with how many descriptors are open
unread        answers with how many descriptors and mappings it has of unread bytes that were taken out for a child
touch         forks a child that asks for the connection, and moves nothing
over          ends the children of idle and touch
idle          forks a child that touches nothing
child         forks a child that takes over until it is told to exit; the parent waits
heir          the same, but the parent closes its copy and goes on waiting
orphan        the same, but the parent is killed
again         as child, from a child: a grandchild
rest FIFO     answers, and once the client has gone a child reads, and writes into FIFO what it has got
ahead FIFO X  goes on answering, without reading, until FIFO has a byte; then as many bytes as FIFO says are
              read, after a fork and in the way of X (see ahead()), and it answers how many were right
exec          a child runs cat on the connection, until the end of a line "."
exit          a child ends
"""
import ctypes
import fcntl
import os
import select
import signal
import socket
import sys
import termios
import time

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


PATTERN = bytes(range(251)) * 20  # as long as what is compared, and once more


def take(total, one, at=0):
    """How many of them are right, the first `at` included, which somebody else has read. one() gives some."""
    while at < total:
        some = one(min(4000, total - at))
        right = len(os.path.commonprefix([some, PATTERN[at % 251:at % 251 + len(some)]]))
        at += right
        if right < len(some) or not some:
            break
    return at


def looked(total):
    """By all that says whether something is there."""
    ep = select.epoll()
    ep.register(s, select.EPOLLIN)

    def some(n):
        nonlocal total
        assert s in select.select([s], [], [], 10)[0]
        assert ep.poll(10)
        late = time.monotonic() + 10
        here = ctypes.c_int()
        while here.value != total:
            assert time.monotonic() < late, (here.value, total)
            fcntl.ioctl(s, termios.FIONREAD, here)
        seen = s.recv(n, socket.MSG_PEEK)
        got = s.recv(n)
        assert got[:len(seen)] == seen[:len(got)]
        total -= len(got)
        return got
    return some


def stdio():
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fdopen(os.dup(s.fileno()), b"r"))
    buffer = ctypes.create_string_buffer(4000)

    def some(n):
        n = libc.fread(buffer, 1, n, file)
        return buffer.raw[:n]
    return some


def in_child(name, first):
    """Runs it in a forked child; returns what lets it begin, and then waits for its end. Its end is sudden."""
    global who
    lives, begins = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(begins)
        who = name
        if os.read(lives, 1):
            first()
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(lives)

    def go(wait=True):
        os.write(begins, b".")
        if wait:
            os.waitpid(pid, 0)
    return go


def what(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # closed since the list was made: by the library's thread, or the list's own
        return ""


def taken_out():
    with open("/proc/self/maps") as maps:
        return sum("railsock-unread" in m for m in maps)


def adopted(then=lambda: None):
    """A child asks for the connection, gets what its parent has taken out of TCP, and tells it."""
    s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    assert taken_out() == 1
    then()
    os.write(tell, b".")


def reads(total, how):
    adopted()
    answer(take(total, how()))


def reads_late(total):
    """Its parent has closed its copy, and waits a minute for what TCP would."""
    time.sleep(65)
    answer(take(total, s.recv))


def then_grandchild(total):
    adopted()
    in_child("grandchild", lambda: answer(take(total, s.recv)))()


def then_other(first, total, other):
    adopted()
    first()
    answer(take(total, s.recv))
    other(wait=False)


def parent_waits(ending):
    """It ends, but not before what it has taken out is read."""
    os.read(ending, 1)
    assert not select.select([parent], [], [], 0.3)[0]


def program(begins=None):
    """It reads from the connection once it is told to: until then the parent alone does."""
    adopted(lambda: answer("executes"))
    os.dup2(s.fileno(), 0)
    os.dup2(s.fileno(), 1)
    if begins is not None:
        os.set_inheritable(begins, True)
        os.execvp("bash", ["bash", "-c", f"read -r go <&{begins}; exec sed -u '/^[.]$/q'"])
    os.execvp("sed", ["sed", "-u", "/^[.]$/q"])


def ahead(fifo, reader):
    global heard, tell, parent
    heard, tell = os.pipe()
    parent = os.pidfd_open(os.getpid())
    ending, tell_ending = os.pipe()
    orders = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    answer("ready")
    while not select.select([orders], [], [], 0.01)[0]:
        answer("tick")
    assert os.read(orders, 1) == b"."
    answer("last")
    os.set_blocking(orders, True)
    with open(orders) as f:
        total = int(f.read())
    if reader in ("other", "closed", "killed", "exits"):
        other = in_child("other", lambda: answer(take(total, s.recv, 10 if reader in ("other", "closed") else total)))
    child = in_child("child", {
        "child": lambda: reads(total, lambda: s.recv),
        "looking": lambda: reads(total, lambda: looked(total)),
        "stdio": lambda: reads(total, stdio),
        "grandchild": lambda: then_grandchild(total),
        "late": lambda: reads_late(total),
        "parent": lambda: answer("written"),
        "program": program,
        "later": lambda: program(ending),
        "reset": adopted,
        "killed": lambda: then_other(lambda: os.kill(os.getppid(), signal.SIGKILL), total, other),
        "exits": lambda: then_other(lambda: parent_waits(ending), total, other),
    }.get(reader, lambda: take(10, s.recv)))
    if reader == "late":
        s.close()
    child(reader not in ("later", "exits", "parent"))
    if reader in ("reset", "late"):
        os._exit(0)
    elif reader == "exits":
        os.read(heard, 1)
        os.write(tell_ending, b".")
        os._exit(0)
    elif reader in ("later", "parent"):
        if reader == "later":
            os.read(heard, 1)
        late = time.monotonic() + 10
        while not taken_out():
            assert time.monotonic() < late
        answer(take(total, s.recv))
        os.write(tell_ending, b"\n")
        os.wait()
    elif reader == "part":
        answer(take(total, s.recv, 10))
    elif reader == "other":
        other()
    elif reader == "closed":
        s.close()
        other()
        os._exit(0)


while True:
    command, _, text = line().partition(" ")
    if command == "ahead":
        ahead(*text.split())
        continue
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
    elif command == "unread":
        answer(taken_out() + sum("railsock-unread" in what(n) for n in os.listdir("/proc/self/fd")))
    elif command == "touch":
        wait_in_child(lambda: s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
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
