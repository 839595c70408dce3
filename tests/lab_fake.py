"""lab_fake.py RAILSOCK FOLDER: `railsock lab` with hosts that this script plays: what it does when they take or say something
that real ones seldom do. Prints ok, not ok for each case. As qemu-system-x86_64 it is one of the hosts.
"""
import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

TTY_BYTES = 300_000  # more than the sockets and the pipe on its way hold


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

    def end(self, status):
        self.say(f"ended {status}")
        self.hear("end")
        for name in "out", "err":
            self.port[name].sendall(self.value("lab_token").encode())
        signal.pause()

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
    return subprocess.Popen([RAILSOCK, "lab", *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **how)


def long_command():
    """Longer than what a socket's buffer holds."""
    said = start("words", "run", "--hosts", "1", "--", "echo", *["x" * 1000] * 600).communicate(timeout=60)
    return said == (b"host1| 601 words\n", b""), said


def resized():
    """The terminal changes its size while nobody takes what the shell prints."""
    lab = start("tty", "shell", "--hosts", "1")
    full = fcntl.fcntl(lab.stdout, fcntl.F_GETPIPE_SZ)
    until(lambda: struct.unpack("i", fcntl.ioctl(lab.stdout, termios.FIONREAD, b"...."))[0] >= full - 4096)
    for _ in range(3):
        lab.send_signal(signal.SIGWINCH)
    out, err = lab.communicate(timeout=60)
    return len(out) == TTY_BYTES, (len(out), err)


def ended_at_a_barrier():
    """Who has ended there does not count."""
    out, err = start("barrier", "run", "--hosts", "2", "--device", "none", "--", "true").communicate(timeout=60)
    return sorted(out.splitlines()) == [b"host1| go 11 0", b"host2| go 20 0"], (out, err)


def main():
    for name, text in (("lab-image", "#!/bin/sh\nprintf 'none\\nnone\\nnone\\n'\n"),
                       ("qemu-system-x86_64", f"#!/bin/sh\nexec '{sys.executable}' '{os.path.realpath(__file__)}' \"$@\"\n")):
        with open(f"{FOLDER}/{name}", "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(f.name, 0o755)
    for case in long_command, resized, ended_at_a_barrier:
        try:
            holds, said = case()
        except subprocess.TimeoutExpired as e:
            holds, said = False, e
        print(f"ok command.lab_{case.__name__}" if holds else
              f"not ok command.lab_{case.__name__}: {json.dumps(str(said)[:300])}", flush=True)


if "LAB_FAKE" in os.environ:
    getattr(Host(sys.argv), os.environ["LAB_FAKE"])()
else:
    RAILSOCK, FOLDER = sys.argv[1:]
    main()
