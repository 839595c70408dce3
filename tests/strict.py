"""strict.py PORT: eight connections to an echo server go on a rail by small messages; when its input says so they fill their
rings."""
import socket
import sys

connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(8)]
for _ in range(400):
    for s in connections:
        s.sendall(b"a")
        assert s.recv(1) == b"a"
large = bytes(60000)
print("boarded", flush=True)
sys.stdin.readline()
for _ in range(40):
    for s in connections:
        s.sendall(large)
        got = 0
        while got < len(large):
            got += len(s.recv(65536))
print("done", flush=True)
