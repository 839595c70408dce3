"""connect_times.py HOST PORT CONNECTIONS EXCHANGES: how long does a program wait for TCP?

Against an echo server, one connection after the other: connect(), then exchanges of 1,000
bytes, the bytes checked. Prints the longest wait of each kind in ms, and fails when one of
them is so long that it can only be somebody's time-out. Being slow is no failure: the wait for
an answer over RDMA that nobody gives is some seconds, and a translated machine's own pauses
are far below one.
"""
import socket
import sys
import time

TIMEOUT = 2.0  # between the pauses of a slow machine and the shortest wait for RDMA (3 s)


def main():
    host, port, connections, exchanges = sys.argv[1], *map(int, sys.argv[2:5])
    longest = {"connect": 0.0, "exchange": 0.0, "close": 0.0}

    def timed(what, call, *arguments):
        start = time.monotonic()
        result = call(*arguments)
        longest[what] = max(longest[what], time.monotonic() - start)
        return result

    for i in range(connections):
        s = timed("connect", socket.create_connection, (host, port), 30)
        message = bytes([i % 256]) * 1000

        def exchange():
            s.sendall(message)
            got = b""
            while len(got) < len(message):
                part = s.recv(4096)
                if not part:
                    raise AssertionError("the stream ended early")
                got += part
            if got != message:
                raise AssertionError("wrong bytes came back")

        for _ in range(exchanges):
            timed("exchange", exchange)
        timed("close", s.close)
    print("longest: " + ", ".join(f"{k} {v * 1000:.0f} ms" for k, v in longest.items()))
    return max(longest.values()) >= TIMEOUT


sys.exit(main())
