"""log_ends.py server PORT | client PORT N close|stay: a server of one client that gives back what it gets, and closes when
there is no more; a client that has N words of 100 bytes given back, says so, and closes or not. Both stay until they get a
signal, so that the library's thread has time to tell of the end."""

import signal
import socket
import sys
import time

port = int(sys.argv[2])
if sys.argv[1] == "server":
    with socket.create_server(("127.0.0.1", port)) as listener:
        s, _ = listener.accept()
    while data := s.recv(65536):
        s.sendall(data)
    s.close()
else:
    s = socket.create_connection(("127.0.0.1", port))
    for i in range(int(sys.argv[3])):
        s.sendall(b"x" * 100)
        got = 0
        while got < 100:
            got += len(s.recv(100))
        if i < 300: # a moment each, to be still there when the rail is
            time.sleep(0.001)
    print("done", flush=True)
    if sys.argv[4] == "close":
        s.close()
signal.pause()
