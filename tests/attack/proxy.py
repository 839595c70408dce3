"""proxy.py LISTEN-ADDRESS PORT TO-ADDRESS PORT [change]: a TCP proxy; with "change" each byte towards the
server gets another lowest bit."""
import socket
import sys
import threading


def pump(a, b, change):
    while data := a.recv(65536):
        b.sendall(bytes(x ^ 1 for x in data) if change else data)
    b.shutdown(socket.SHUT_WR)


here, to = (sys.argv[1], int(sys.argv[2])), (sys.argv[3], int(sys.argv[4]))
with socket.create_server(here, backlog=64) as listener:
    while True:
        a, _ = listener.accept()
        b = socket.create_connection(to)
        threading.Thread(target=pump, args=(a, b, sys.argv[5:] == ["change"]), daemon=True).start()
        threading.Thread(target=pump, args=(b, a, False), daemon=True).start()
