"""pod.py serve | pod.py PORT: one prints its port and sends back what comes, the other compares it."""
import os
import socket
import sys

if sys.argv[1] == "serve":
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    to, _ = server.accept()
    while data := to.recv(65536):
        to.sendall(data)
else:
    to = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for n in range(2000):
        sent = os.urandom(1 + n % 3000)
        to.sendall(sent)
        got = b""
        while len(got) < len(sent):
            got += to.recv(65536)
        assert got == sent, n
