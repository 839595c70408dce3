"""memcached_client.py HOST PORT CONNECTIONS ITEMS: sets, gets and checks, in memcached's text
protocol, with several connections at once and with pipelined requests."""
import random
import socket
import sys

import connections

SIZES = [0, 1, 10, 100, 1000, 1400, 10000, 65536, 300000]


class Memcached:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=30)
        self.file = self.socket.makefile("rb")

    def ask(self, request, wanted):
        self.socket.sendall(request)
        self.answer(wanted)

    def answer(self, wanted):
        got = self.file.readline()
        if got != wanted + b"\r\n":
            raise AssertionError(f"answer {got!r}, not {wanted!r}")

    def value(self, key, wanted):
        self.answer(b"VALUE %s 7 %d" % (key, len(wanted)))
        if self.file.read(len(wanted)) != wanted:
            raise AssertionError(f"wrong bytes in {key!r} of {len(wanted)} bytes")
        self.answer(b"")
        self.answer(b"END")


def set_request(key, value):
    return b"set %s 7 0 %d\r\n%s\r\n" % (key, len(value), value)


def connection(host, port, seed, items):
    pick = random.Random(seed)
    server = Memcached(host, port)
    values = {b"k%d.%d" % (seed, i): pick.randbytes(pick.choice(SIZES)) for i in range(items)}
    for key, value in values.items():
        server.ask(set_request(key, value), b"STORED")
    keys = list(values)
    pick.shuffle(keys)
    for key in keys:
        server.socket.sendall(b"get %s\r\n" % key)
        server.value(key, values[key])
    # All at once.
    small = keys[:50]
    server.socket.sendall(b"".join(b"get %s\r\n" % key for key in small))
    for key in small:
        server.value(key, values[key])
    server.ask(b"delete %s\r\n" % keys[0], b"DELETED")
    server.ask(b"get %s\r\n" % keys[0], b"END")
    server.socket.sendall(b"quit\r\n")
    if server.file.read():
        raise AssertionError("bytes after quit")


def main():
    host, port, count, items = sys.argv[1], *map(int, sys.argv[2:5])
    return connections.check(count, lambda seed: connection(host, port, seed, items),
                             "all values were right")


sys.exit(main())
