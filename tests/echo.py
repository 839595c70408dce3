"""echo.py server PORT | client PORT N [HOST]: a server that gives back what it gets; a client that has N words of
100 bytes given back, says so, and stays until its input ends, or, with HOST, until it gets a signal."""

import signal
import socket
import sys
import threading


def serve(s):
    while data := s.recv(65536):
        s.sendall(data)


port = int(sys.argv[2])
if sys.argv[1] == "server":
    listener = socket.create_server(("127.0.0.1", port))
    print("listening", flush=True)
    while True:
        s, _ = listener.accept()
        threading.Thread(target=serve, args=(s,), daemon=True).start()
s = socket.create_connection((sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1", port))
for i in range(int(sys.argv[3])):
    s.sendall(bytes(range(i % 100, i % 100 + 100)))
    got = 0
    while got < 100:
        got += len(s.recv(100))
print("done", flush=True)
if len(sys.argv) > 4:
    signal.pause()
sys.stdin.read()
