"""echo_client.py HOST PORT CONNECTIONS MESSAGES STREAM: checks every byte that comes back.

Each connection, in a thread of its own: stays silent for a moment, in which nothing may
come; sends MESSAGES messages of many sizes, each after the last has come back; then sends
STREAM bytes while reading; then ends its direction and must get the end of the stream, and
nothing before it.
"""
import random
import socket
import sys
import threading

import connections

SIZES = [1, 2, 15, 16, 17, 63, 64, 100, 1000, 4095, 4096, 4097, 65535, 65536, 100000]


def expect(s, wanted, pick):
    at = 0
    while at < len(wanted):
        got = s.recv(min(len(wanted) - at, pick.choice((1, 100, 5000, 1 << 20))))
        if not got:
            raise AssertionError(f"the stream ends {len(wanted) - at} bytes early")
        if got != wanted[at : at + len(got)]:
            raise AssertionError(f"wrong bytes at {at} of a message of {len(wanted)}")
        at += len(got)


def full_duplex(s, pick, size):
    block = pick.randbytes(1 << 16)
    sender = threading.Thread(
        target=lambda: [s.sendall(block[: min(len(block), size - i)])
                        for i in range(0, size, len(block))])
    sender.start()
    at = 0
    while at < size:
        got = s.recv(min(size - at, 1 << 18))
        if not got:
            raise AssertionError(f"the stream ends {size - at} bytes early")
        offset = at % len(block)
        wanted = (block * (len(got) // len(block) + 2))[offset : offset + len(got)]
        if got != wanted:
            raise AssertionError(f"wrong bytes near {at} of the long stream")
        at += len(got)
    sender.join()


def connection(host, port, seed, messages, stream):
    pick = random.Random(seed)
    with socket.create_connection((host, port), timeout=30) as s:
        s.settimeout(0.1)
        try:
            got = s.recv(100)
            raise AssertionError(f"{got!r} came before anything was sent")
        except TimeoutError:
            pass
        s.settimeout(30)
        if seed % 2:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(messages):
            message = pick.randbytes(pick.choice(SIZES))
            s.sendall(message)
            expect(s, message, pick)
        full_duplex(s, pick, stream)
        s.shutdown(socket.SHUT_WR)
        got = s.recv(100)
        if got:
            raise AssertionError(f"{got!r} came after everything")


def main():
    host, port, count, messages, stream = sys.argv[1], *map(int, sys.argv[2:6])
    return connections.check(count, lambda seed: connection(host, port, seed, messages, stream),
                             "all came back")


sys.exit(main())
