"""stat_watch.py RAILSOCK FILE PID: `railsock stat --watch` on a terminal made here. FILE is what process PID
shows, with one connection; a second one is added. Prints what is wrong."""

import os
import pty
import re
import select
import signal
import struct
import sys
import termios

railsock, path, pid = sys.argv[1:]
HEAD = (8 + 4 + 4 + 8 + 8 + 64 + 4 + 4 + 16 * 8 + 8 + 7 * 8 + 64 * 8 + 63) // 64 * 64
SLOT, TX = 80, 16

with open(path, "r+b") as f:
    slot = f.read()[HEAD:HEAD + SLOT]
    f.seek(HEAD + SLOT)
    f.write(slot[:36].replace(struct.pack("<H", 7), struct.pack("<H", 77)) + slot[36:])
    f.seek(8 + 4 + 4 + 8 + 8 + 64)
    f.write(struct.pack("<I", 2))


def add(slot, n):
    """The connection in this slot sends n bytes more."""
    with open(path, "r+b") as f:
        at = HEAD + slot * SLOT + TX
        f.seek(at)
        tx, = struct.unpack("<Q", f.read(8))
        f.seek(at)
        f.write(struct.pack("<Q", tx + n))


class Watch:
    def __init__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(railsock, ["railsock", "stat", "--pid", pid, "--watch", "0.1"])
        self.seen = b""
        self.before = None

    def screens(self):
        """Whole screens, one after the other; the terminal is small."""
        while True:
            while self.seen.count(b"\033[J") == 0:
                if not self.more():
                    raise SystemExit(f"it ended: {self.seen}")
            screen, _, self.seen = self.seen.partition(b"\033[J")
            yield screen

    def more(self):
        if not select.select([self.fd], [], [], 20)[0]:
            raise SystemExit(f"nothing comes: {self.seen}")
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side of a terminal is closed
            data = b""
        self.seen += data
        return data

    def end(self):
        """Everything that it writes until it ends, and its status."""
        while self.more():
            pass
        return self.seen, os.waitpid(self.pid, 0)[1]


def busiest(screen):
    """The local port of the first connection."""
    lines = [line for line in screen.split(b"\n") if b" 127.0.0.1:" in line]
    return lines[0].split(b" 127.0.0.1:")[1].split()[0] if lines else None


def check(holds, what):
    if not holds:
        raise SystemExit(what)


# In place, the busiest first.
w = Watch()
flags = termios.tcgetattr(w.fd)
screens = w.screens()
first = next(screens)
check(b"\033[?1049h" in first and b"2 connections" in first, f"the first screen: {first}")
check(re.search(rb"PID +PROGRAM +LOCAL +PEER +PATH +TX/s +RX/s", first), f"80 columns have no rates: {first}")
check(not termios.tcgetattr(w.fd)[3] & termios.ECHO, "keys are echoed")
# Behind a line that is as long as the terminal is wide nothing may be cleared: the last character
# would go.
check(not re.search(rb"[^\r\nH]\033\[K", first), f"lines are cleared behind their text: {first}")
check(first.count(b"\033[K") == first.count(b"\n") > 2 and first.endswith(b"\n"), f"what is cleared: {first}")
for slot, port in ((1, b"77"), (0, b"7")):
    for n, screen in enumerate(screens):
        add(slot, 1000000)
        if busiest(screen) == port:
            break
        check(n < 100, f"{port} does not come to the top: {screen}")
os.write(w.fd, b"xq")
rest, status = w.end()
check(status == 0, f"q: status {status}")
check(rest.endswith(b"\033[?25h\033[?1049l"), f"it leaves {rest}")

# The terminal is as it was, whatever ends it.
for how, want in ((b"q", 0), (b"\x03", 0), (signal.SIGTERM, signal.SIGTERM)):
    master, slave = pty.openpty()
    was = termios.tcgetattr(slave)
    child = os.fork()
    if child == 0:
        os.setsid()
        for fd in range(3):
            os.dup2(slave, fd)
        import fcntl
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        os.execv(railsock, ["railsock", "stat", "--watch"])
    seen = b""
    while b"\033[J" not in seen:
        seen += os.read(master, 65536)
    check(termios.tcgetattr(slave) != was, "the terminal is not its own")
    if isinstance(how, bytes):
        os.write(master, how)
    else:
        os.kill(child, how)
    got = os.waitpid(child, 0)[1]
    check(got == want, f"{how}: status {got}")
    check(termios.tcgetattr(slave) == was, f"{how}: the terminal is not as it was")
    os.close(master)
    os.close(slave)
