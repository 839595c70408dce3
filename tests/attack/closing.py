"""closing.py server|client PORT: the client closes when the server is just about to write again."""
import socket
import sys
import threading
import time


def serve(s):
    with s:
        try:
            while s.send(b"x" * 100) and s.recv(100):
                pass
        except OSError:
            pass


if sys.argv[1] == "server":
    with socket.create_server(("127.0.0.1", int(sys.argv[2])), backlog=64) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()
for _ in range(150):
    with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as c:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            if len(c.recv(100, socket.MSG_WAITALL)) < 100:
                sys.exit("the server has ended it")
            c.sendall(b"y" * 100)
print("fine")
