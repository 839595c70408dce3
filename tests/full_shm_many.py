"""full_shm_many.py: 150 connections of this process with itself, each of which moves a byte. Prints how many have."""
import socket

listener = socket.create_server(("127.0.0.1", 0), backlog=200)
ends = []
for _ in range(150):
    near = socket.create_connection(listener.getsockname())
    ends.append((near, listener.accept()[0]))
for near, far in ends:
    near.sendall(b"x")
    assert far.recv(1) == b"x"
print(len(ends))
