"""client.py RAILSOCK PORT CASE: the other end of server.py. Prints nothing if all is well."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

railsock, port, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if case == "unread":
    # A client is killed, and the parent has not read all that came by rail: a child of its does.
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/got")
        assert subprocess.run([sys.executable, *sys.argv[:3], "vanishes", f"{folder}/got"],
                              check=False).returncode == -signal.SIGKILL
        with open(f"{folder}/got") as fifo:
            got = fifo.read()
    assert got == "0123456789", got
    sys.exit()
s = socket.create_connection(("127.0.0.1", port), 30)
s.settimeout(30)
f = s.makefile("rb")
number = 0


def hear():
    got = f.readline().decode().split()
    assert len(got) == 3, got
    return got[0], int(got[1]), got[2]


def say(text, who=None, wanted=None):
    s.sendall(text.encode() + b"\n")
    got = hear()
    assert who in (None, got[0]) and wanted in (None, got[2]), (text, got)
    return got


def exchanges(count, who):
    """Each answer must be the one to its question. Returns the server's pid."""
    global number
    for _ in range(count):
        number += 1
        pid = say(f"echo {number}", who, str(number))[1]
    return pid


def connection(pid, path="path"):
    clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    stat = json.loads(subprocess.run([railsock, "stat", "--json"], env=clean, check=True,
                                     capture_output=True).stdout)
    for p in stat["processes"]:
        if p["pid"] == pid:
            for c in p["connections"]:
                return c[path].partition(":")[0], c["reason"]
    return "none", "none"


def until(wanted, who, seconds=30):
    """Goes on with exchanges until the server's connection is what is wanted."""
    end = time.monotonic() + seconds
    while True:
        pid = exchanges(20, who)
        now = connection(pid)
        if wanted in now:
            return pid
        assert time.monotonic() < end, f"{who}: {now}, not {wanted}; here: {connection(os.getpid())}"


def never(path, who, seconds=0.5):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = connection(exchanges(50, who))
        assert now[0] != path, f"{who}: {now}"


def idle():
    """A child that only exists costs nothing: the stream stays on its rail."""
    until("shm", "parent")
    say("idle", "parent", "forked")
    never("tcp", "parent", 1.0)
    say("over", "parent", "ended")
    never("tcp", "parent")


def before_boarding():
    """A child is there when the stream boards."""
    say("idle", "parent", "forked")
    until("shm", "parent")
    say("over", "parent", "ended")
    never("tcp", "parent")


def child():
    """A child uses the stream: its parent hands it over, and afterwards it stays on TCP, since its
    parent does not know what went over it."""
    until("shm", "parent")
    say("child", "child", "ready")
    never("shm", "child")
    exchanges(100, "child")
    s.sendall(b"exit\n")
    hear()
    exchanges(100, "parent")
    assert connection(exchanges(1, "parent"))[1] != "none"
    never("shm", "parent")


def before_a_switch(reader):
    """Bytes lie before a switch, unread, when the server forks."""
    pattern = bytes(range(251)) * 4000
    total = 20
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/sent")
        pid = say(f"ahead {folder}/sent {reader}", "parent", "ready")[1]
        s.sendall(pattern[:20])  # more, and the proof would wait until it is read
        late = time.monotonic() + 30
        while "shm" not in connection(pid)[0]:
            assert time.monotonic() < late, connection(pid)
            hear()
        fifo = go_on(folder)
        while connection(os.getpid(), "path_tx")[0] != "shm":
            assert total + 21000 < len(pattern), connection(os.getpid())
            s.sendall(pattern[total:total + 1000])
            total += 1000
        s.sendall(pattern[total:total + 10000])
        total += 10000
        fifo.write(str(total))
        fifo.close()
        return time.monotonic() + 4, str(total)


def go_on(folder):
    fifo = open(f"{folder}/sent", "w")
    fifo.write(".")
    fifo.flush()
    while hear()[2] != "last":
        pass
    return fifo


def read_by(who, reader):
    late, total = before_a_switch(reader)
    got = hear()
    assert got[0] == who and got[2] == total and time.monotonic() < late, got


def goes_on():
    """The parent answers, and gives back what the bytes were in."""
    exchanges(100, "parent")
    late = time.monotonic() + 30
    while say("unread", "parent")[2] != "0":
        assert time.monotonic() < late


def ahead():
    """A child reads them, as rsync's does."""
    read_by("child", "child")
    goes_on()


def ahead_looking():
    read_by("child", "looking")
    goes_on()


def ahead_stdio():
    read_by("child", "stdio")
    goes_on()


def ahead_part():
    """A child has read some of them, and is killed: the parent reads the others."""
    read_by("parent", "part")
    goes_on()


def ahead_other():
    """The same, and it is another child, which was forked before."""
    read_by("other", "other")
    goes_on()


def ahead_closed():
    """The same, after the parent has closed its copy."""
    read_by("other", "closed")
    assert s.recv(100) == b""


def ahead_late():
    """A child reads them more than a minute after the parent has closed its copy."""
    total = before_a_switch("late")[1]
    s.settimeout(90)
    got = hear()
    assert got[0] == "child" and got[2] == total, got
    assert s.recv(100) == b""


def ahead_grandchild():
    read_by("grandchild", "grandchild")
    goes_on()


def ahead_program():
    """A child that has asked for them executes a program, which could not read them, and nobody else does."""
    before_a_switch("program")
    assert hear()[2] == "executes"
    try:
        got = s.recv(100)
    except ConnectionResetError:
        return
    raise AssertionError(got)


def ahead_later():
    """The same, and the parent reads them in time."""
    late, total = before_a_switch("later")
    assert hear()[2] == "executes"
    got = hear()
    assert got[0] == "parent" and got[2] == total and time.monotonic() < late, got
    for i in range(20):
        s.sendall(f"line {i}\n".encode())
        assert f.readline() == f"line {i}\n".encode()
    s.sendall(b".\n")
    assert f.readline() == b".\n"
    goes_on()


def ahead_killed():
    """The parent is killed while a child has still to read them; when it has, another child can use the connection."""
    read_by("child", "killed")
    got = hear()
    assert got[0] == "other" and int(got[2]) > 20, got


def ahead_exits():
    read_by("child", "exits")
    got = hear()
    assert got[0] == "other" and int(got[2]) > 20, got


def ahead_reset():
    """A child has asked, and is gone, and the parent ends. They are unread: a reset, as with TCP."""
    late = before_a_switch("reset")[0]
    try:
        got = s.recv(100)
    except ConnectionResetError:
        assert time.monotonic() < late  # sooner than who asks in vain would do it
        return
    raise AssertionError(got)


def ahead_parent():
    """The parent reads them, while a child waits to write."""
    late, total = before_a_switch("parent")
    got = {hear()[::2], hear()[::2]}
    assert got == {("parent", total), ("child", "written")} and time.monotonic() < late, got
    exchanges(100, "parent")


def ahead_full():
    """The sender has left a full ring, and there was no room for all that it has sent again."""
    pattern = bytes(range(251)) * 4000
    until("shm", "parent")
    late = time.monotonic() + 30
    while connection(os.getpid(), "path_tx")[0] != "shm":
        assert time.monotonic() < late
        exchanges(20, "parent")
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/sent")
        say(f"ahead {folder}/sent child", "parent", "ready")
        s.sendall(pattern)
        fifo = go_on(folder)
        late = time.monotonic() + 4
        fifo.write(str(len(pattern)))
        fifo.close()
        got = hear()
    assert got[0] == "child" and got[2] == str(len(pattern)) and time.monotonic() < late, got
    exchanges(100, "parent")


def grandchild():
    until("shm", "parent")
    say("child", "child", "ready")
    say("again", "grandchild", "ready")
    exchanges(100, "grandchild")
    s.sendall(b"exit\n")
    assert hear()[0] == "child"
    exchanges(100, "child")


def grandchild_first():
    """The child has not used it: the grandchild asks its grandparent."""
    until("shm", "parent")
    say("idle", "parent", "forked")
    say("child", "child", "ready")
    s.sendall(b"exit\n")
    hear()
    exchanges(100, "parent")


def heir():
    """The parent closes its copy, as a forking server does: the child boards."""
    exchanges(2, "parent")
    say("heir", "heir", "ready")
    until("shm", "heir")


def orphan():
    """The parent is killed before anything was on a rail: the child boards."""
    exchanges(2, "parent")
    say("orphan", "orphan", "ready")
    until("shm", "orphan")


def heir_of_a_rail():
    """The stream was on a rail, and the parent closes it: TCP's bytes are all that there is."""
    until("shm", "parent")
    say("heir", "heir", "ready")
    exchanges(200, "heir")


def orphan_of_a_rail():
    """The parent is killed with the stream on a rail: an error, and no wrong byte."""
    until("shm", "parent")
    s.sendall(b"orphan\n")
    try:
        got = s.recv(100)
    except ConnectionResetError:
        return
    assert not got, got


def execute():
    """A new program gets the connection."""
    until("shm", "parent")
    say("exec", "parent", "go")
    for i in range(100):
        s.sendall(b"line %d\n" % i)
        got = f.readline()
        assert got == b"line %d\n" % i, got
    s.sendall(b".\n")
    assert f.readline() == b".\n"
    assert hear()[0] == "parent"
    exchanges(100, "parent")
    never("shm", "parent")


def many_children():
    """Forks in quick succession, with traffic between."""
    until("shm", "parent")
    for _ in range(60):
        say("idle", "parent", "forked")
        exchanges(5, "parent")
    never("tcp", "parent")
    say("over", "parent", "ended")
    never("tcp", "parent")


def given_back():
    """A child has used the stream, but moved nothing: with its end the parent may board again."""
    until("shm", "parent")
    say("touch", "parent", "forked")
    until("tcp", "parent")
    say("over", "parent", "ended")
    until("shm", "parent")


def sibling():
    """The parent has closed its copy, but another child may still use its own: nobody boards."""
    exchanges(2, "parent")
    say("idle", "parent", "forked")
    say("heir", "heir", "ready")
    never("shm", "heir")


def no_leak():
    """Children come and go: nothing of them stays in the parent."""
    exchanges(2, "parent")
    for _ in range(100):
        say("brief", "parent", "forked")
    assert int(say("descriptors", "parent")[2]) < 60


def vanishes():
    until("shm", "parent")
    say(f"rest {sys.argv[4]}", "parent", "ready")
    s.sendall(b"0123456789")
    os.kill(os.getpid(), signal.SIGKILL)


globals()[case]()
s.close()
