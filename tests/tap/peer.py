"""peer.py server PORT FAMILY | client PORT FAMILY: the two ends of a connection whose bytes are each a function of
direction and offset. The server gives back as many bytes as it gets. The client does what its input says, a word and a
number on each line, and then prints how many bytes it has sent and got."""
import ctypes
import fcntl
import os
import random
import socket
import sys

PERIOD = 65521


def pattern(seed):
    once = random.Random(seed).randbytes(PERIOD)
    return once * 12


SENT, GIVEN_BACK = pattern(1), pattern(2)


def piece(which, at, n):
    at %= PERIOD
    return which[at:at + n]


def server(s):
    got = 0
    while data := s.recv(65536):
        assert data == piece(SENT, got, len(data)), got
        s.sendall(piece(GIVEN_BACK, got, len(data)))
        got += len(data)


class Client:
    def __init__(self, s):
        self.s, self.at, self.rng = s, 0, random.Random(3)

    def round(self, n):
        self.s.sendall(piece(SENT, self.at, n))
        end = self.at + n
        while self.at < end:
            data = self.s.recv(min(65536, end - self.at))
            assert data and data == piece(GIVEN_BACK, self.at, len(data)), self.at
            self.at += len(data)

    def move(self, rounds):
        for _ in range(rounds):
            self.round(self.rng.choice((1, 7, 100, 1000, 5000)))

    def bulk(self, n):
        self.round(n)

    def leave(self, _):
        fcntl.fcntl(self.s, fcntl.F_SETOWN, os.getpid())

    def fork(self, _):
        """A child that has what its parent has, as far as the library lets it."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            os.read(read, 1)  # until its parent ends
            os._exit(0)
        print(pid, flush=True)

    def secret(self, _):
        assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE

    def filter(self, _):
        """A seccomp filter that allows everything."""
        code = (ctypes.c_uint64 * 1)(0x7fff000000000006)  # return SECCOMP_RET_ALLOW
        program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(code))
        prctl = ctypes.CDLL(None).prctl
        assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.byref(program)) == 0

    def close(self, _):
        self.s.close()

    def exec(self, _):
        os.execv("/bin/cat", ["cat"])


def main():
    port, family = int(sys.argv[2]), socket.AF_INET6 if sys.argv[3] == "6" else socket.AF_INET
    host = "::1" if sys.argv[3] == "6" else "127.0.0.1"
    if sys.argv[1] == "server":
        listener = socket.create_server((host, port), family=family)
        print("listening", flush=True)
        while True:
            server(listener.accept()[0])
    client = Client(socket.create_connection((host, port)))
    print("connected", flush=True)
    while line := os.read(0, 4096):  # not buffered: a child shall not have it twice
        word, number = line.decode().split()
        getattr(client, word)(int(number))
        print(client.at, flush=True)


if __name__ == "__main__":
    main()
