"""peek_server.py PORT: an echo server that looks at its bytes before it reads them, as parsers of headers
do. What was shown has to be what is read: otherwise it prints "changed"."""
import socket
import sys
import threading


def serve(s):
    with s:
        while shown := s.recv(65536, socket.MSG_PEEK):
            data = s.recv(len(shown))
            if data != shown[:len(data)]:
                print("changed", flush=True)
            s.sendall(data)


with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64) as listener:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
