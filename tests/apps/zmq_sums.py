"""zmq_sums.py server|client IP PORT - ZeroMQ: messages one way, pushed to PORT, whose sum the server is asked for at the end, and
requests with answers at PORT + 1. The client exits with 0 if every byte has come."""
import hashlib
import random
import sys

import zmq

MESSAGES, REQUESTS = 20000, 5000


def server(context, ip, port):
    pulls, answers = context.socket(zmq.PULL), context.socket(zmq.REP)
    pulls.bind(f"tcp://{ip}:{port}")
    answers.bind(f"tcp://{ip}:{port + 1}")
    total, n = hashlib.sha256(), 0
    while n < MESSAGES:
        total.update(pulls.recv())
        n += 1
    while True:
        request = answers.recv()
        answers.send(total.hexdigest().encode() if request == b"sum" else request)


def client(context, ip, port):
    pushes, asks = context.socket(zmq.PUSH), context.socket(zmq.REQ)
    pushes.connect(f"tcp://{ip}:{port}")
    asks.connect(f"tcp://{ip}:{port + 1}")
    some, total = random.Random(5), hashlib.sha256()
    for i in range(MESSAGES):
        message = some.randbytes(100000 if i % 100 == 0 else some.choice((1, 10, 100, 1000, 20000)))
        total.update(message)
        pushes.send(message)
    for i in range(REQUESTS):
        request = b"%d" % i * (i % 100 + 1)
        asks.send(request)
        if asks.recv() != request:
            sys.exit(f"answer {i} differs")
    asks.send(b"sum")
    if asks.recv() != total.hexdigest().encode():
        sys.exit("the sums differ")


{"server": server, "client": client}[sys.argv[1]](zmq.Context(), sys.argv[2], int(sys.argv[3]))
