"""polls.py ADDRESS PORT: talks to an echo server, and sleeps in epoll for each answer, as an event loop does."""
import select
import socket
import sys
import time

s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.setblocking(False)
ep = select.epoll()
ep.register(s, select.EPOLLIN)
end = time.monotonic() + 4
while time.monotonic() < end:
    s.send(b"some bytes")
    got = b""
    while len(got) < 10:
        if not ep.poll(10):
            sys.exit("no answer")
        got += s.recv(100)
print("fine")
