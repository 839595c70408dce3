"""lab_fake.py RAILSOCK FOLDER: `railsock lab` with hosts that this script plays: what it does when they take or say something
that real ones seldom do. Prints ok, not ok for each case. As qemu-system-x86_64 it is one of the hosts.
"""
import concurrent.futures
import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

TTY_BYTES = 300_000  # more than the sockets and the pipe on its way hold
LATE = b"".join(b"%099d\n" % n for n in range(1500))  # more than the pipe does
LATE_S = 17  # more than `railsock lab` gives a host that says nothing to end
MIB = 1 << 20


class Host:
    """What QEMU and the guest in it do, as far as `railsock lab` sees."""

    def __init__(self, argv):
        found = re.findall(r"socket,id=(\w+),fd=(\d+)", " ".join(argv))
        self.port = {name: socket.socket(fileno=int(fd)) for name, fd in found}
        self.control = self.port["ctl"].makefile("rb")
        self.say("hello")
        size = int(self.hear("config")[1])
        self.config = self.control.read(size).decode()
        self.number = int(self.value("lab_host"))
        self.say("up")
        self.hear("start")

    def value(self, name):
        return re.search(rf"^{name}='?([^'\n]*)", self.config, re.M).group(1)

    def say(self, line):
        self.port["ctl"].sendall(line.encode() + b"\n")

    def hear(self, verb):
        while words := self.control.readline().decode().split():
            if words[0] == verb:
                return words
        sys.exit(0)

    def end(self, status, last=b"", stays=True):
        self.say(f"ended {status}")
        self.hear("end")
        self.port["out"].sendall(last)
        for name in "out", "err":
            self.port[name].sendall(self.value("lab_token").encode())
        if stays:
            signal.pause()

    def taken(self):
        """All that was sent has been received."""
        until(lambda: not struct.unpack("i", fcntl.ioctl(self.port["out"], termios.TIOCOUTQ, b"...."))[0])

    # ---- what they play

    def words(self):
        """How many words the command has."""
        command = self.config.split("lab_command=(\n", 1)[1].rsplit(")\n", 1)[0]
        self.port["out"].sendall(f"{len(command.splitlines())} words\n".encode())
        self.end(0)

    def tty(self):
        """A shell that prints much."""
        self.port["tty"].sendall(b"x" * TTY_BYTES)
        self.end(0)

    def endless(self):
        """A command that prints for ever."""
        while True:
            self.port["out"].sendall(b"line\n" * 1000 + b"the begin of one")

    def late(self):
        """A host that is gone before all that it said is read."""
        self.end(0, LATE + b"the end", stays=False)

    def long_end(self):
        """The token lies across the place where a long line is cut."""
        self.end(0, b"x" * (MIB - 16))

    def long_lines(self):
        """Lines as long as one may be, and longer."""
        self.port["out"].sendall(b"x" * MIB)
        self.taken()
        self.port["out"].sendall(b"\n" + b"y" * (MIB + 1))
        self.taken()
        self.port["out"].sendall(b"\n" + b"z" * (2 * MIB + 100))
        self.end(0)

    def barrier(self):
        """Process 10 of host 1 has ended when host 2 comes to the barrier; 11 comes later."""
        state = os.environ["LAB_FAKE_STATE"]
        if self.number == 1:
            self.say("barrier 10 one")
            self.say("left 10")
            open(f"{state}/left", "w").close()
            until(lambda: os.path.exists(f"{state}/came"))
            self.say("barrier 11 one")
            self.port["out"].sendall(" ".join(self.hear("go")).encode() + b"\n")
        else:
            until(lambda: os.path.exists(f"{state}/left"))
            self.say("barrier 20 one")
            self.say("barrier 21 two")  # is heard after it
            self.say("left 21")
            open(f"{state}/came", "w").close()
            self.port["out"].sendall(" ".join(self.hear("go")).encode() + b"\n")
        self.end(0)


def until(holds):
    while not holds():
        time.sleep(0.01)


def start(play, *words, **how):
    env = os.environ | {"PATH": f"{FOLDER}:{os.environ['PATH']}", "RAILSOCK_SHARE": FOLDER, "LAB_FAKE": play,
                        "LAB_FAKE_STATE": FOLDER}
    how = {"stderr": subprocess.PIPE} | how
    lab = subprocess.Popen([RAILSOCK, "lab", *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **how)
    labs.append(lab)
    return lab


def fill(lab):
    """Waits until its output takes no more."""
    end = os.open(f"/proc/self/fd/{lab.stdout.fileno()}", os.O_WRONLY)
    until(lambda: not select.select((), (end,), (), 0)[1] or lab.poll() is not None)
    os.close(end)


def long_command():
    """Longer than what a socket's buffer holds."""
    said = start("words", "run", "--hosts", "1", "--", "echo", *["x" * 1000] * 600).communicate(timeout=60)
    return said == (b"host1| 601 words\n", b""), said


def resized():
    """The terminal changes its size while nobody takes what the shell prints."""
    lab = start("tty", "shell", "--hosts", "1")
    fill(lab)
    for _ in range(3):
        lab.send_signal(signal.SIGWINCH)
    out, err = lab.communicate(timeout=60)
    return len(out) == TTY_BYTES, (len(out), err)


def ended_at_a_barrier():
    """Who has ended there does not count."""
    out, err = start("barrier", "run", "--hosts", "2", "--device", "none", "--", "true").communicate(timeout=60)
    return sorted(out.splitlines()) == [b"host1| go 11 0", b"host2| go 20 0"], (out, err)


def ended_unread():
    """A signal ends it though nobody takes what it prints."""
    lab = start("endless", "run", "--hosts", "1", "--", "true")
    fill(lab)
    lab.send_signal(signal.SIGTERM)
    return lab.wait(timeout=60) == -signal.SIGTERM, lab.returncode


def timed_out_unread():
    """So does the command's time limit; what it then has to say is said where that is read."""
    lab = start("endless", "run", "--hosts", "1", "--timeout", "1", "--", "true")
    status = lab.wait(timeout=60)
    said = lab.stderr.read()
    return (status, said) == (124, b"railsock lab: host 1: no end after 1 s\n"), (status, said)


def timed_out_unread_at_all():
    lab = start("endless", "run", "--hosts", "1", "--timeout", "1", "--", "true", stderr=subprocess.STDOUT)
    return lab.wait(timeout=60) == 124, lab.returncode


def children_ended(lab):
    with open(f"/proc/{lab.pid}/task/{lab.pid}/children", encoding="ascii") as f:
        pids = f.read().split()
    states = []
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            states.append(f.read().rpartition(") ")[2][0])
    return set(states) == {"Z"}


def read_late(pause):
    lab = start("late", "run", "--hosts", "1", "--", "true")
    fill(lab)
    until(lambda: children_ended(lab))
    time.sleep(pause)
    out, err = lab.communicate(timeout=60)
    right = b"".join(b"host1| %s\n" % line for line in (LATE + b"the end").split(b"\n"))
    return (lab.returncode, out, err) == (0, right, b""), (lab.returncode, len(out), err)


def ended_before_it_is_read():
    return read_late(0)


def ended_long_before_it_is_read():
    return read_late(LATE_S)


def token_where_a_line_is_cut():
    lab = start("long_end", "run", "--hosts", "1", "--", "true")
    out, err = lab.communicate(timeout=60)
    return (lab.returncode, out, err) == (0, b"host1| " + b"x" * (MIB - 16) + b"\n", b""), (lab.returncode, len(out), err)


def long_lines_are_cut():
    out, err = start("long_lines", "run", "--hosts", "1", "--", "true").communicate(timeout=60)
    parts = b"x" * MIB, b"y" * MIB, b"y", b"z" * MIB, b"z" * MIB, b"z" * 100
    return out == b"".join(b"host1| " + part + b"\n" for part in parts), ([len(line) for line in out.split(b"\n")], err)


def judge(case):
    try:
        holds, said = case()
    except (subprocess.TimeoutExpired, OSError) as e:
        holds, said = False, e
    return (f"ok command.lab_{case.__name__}" if holds else
            f"not ok command.lab_{case.__name__}: {json.dumps(str(said)[:300])}")


def main():
    for name, text in (("lab-image", "#!/bin/sh\nprintf 'none\\nnone\\nnone\\n'\n"),
                       ("qemu-system-x86_64", f"#!/bin/sh\nexec '{sys.executable}' '{os.path.realpath(__file__)}' \"$@\"\n")):
        with open(f"{FOLDER}/{name}", "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(f.name, 0o755)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for verdict in pool.map(judge, CASES):
            print(verdict, flush=True)
    for lab in labs:
        lab.kill()
        lab.wait()


CASES = (ended_long_before_it_is_read, long_command, resized, ended_at_a_barrier, ended_unread, timed_out_unread,
         timed_out_unread_at_all, ended_before_it_is_read, token_where_a_line_is_cut, long_lines_are_cut)
labs = []


if "LAB_FAKE" in os.environ:
    getattr(Host(sys.argv), os.environ["LAB_FAKE"])()
else:
    RAILSOCK, FOLDER = sys.argv[1:]
    main()
