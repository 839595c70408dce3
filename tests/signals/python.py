#!/usr/bin/python3
"""A socket that waits while signals come: PEP 475 retries what SA_RESTART would not, set_wakeup_fd, an exception
out of a handler, setitimer once."""
import signal
import socket
import threading

listener = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
for i in range(300):
    a.sendall(bytes(500))
    assert len(b.recv(500, socket.MSG_WAITALL)) == 500
    b.sendall(bytes(500))
    assert len(a.recv(500, socket.MSG_WAITALL)) == 500


class Out(Exception):
    pass


def leave(*_):
    raise Out


ticks = 0


def tick(*_):
    global ticks
    ticks += 1
    if ticks == 50:
        a.sendall(b"now")  # from the handler, to the end of the stream that it has interrupted


# One alarm, which must end the call.
signal.signal(signal.SIGALRM, leave)
for i in range(100):
    signal.setitimer(signal.ITIMER_REAL, 0.0005 + i % 7 / 1000)
    try:
        b.recv(1)
        print("came back")
    except Out:
        pass
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
print(b.recv(3, socket.MSG_WAITALL))
signal.setitimer(signal.ITIMER_REAL, 0)
# From a thread, to the main thread, which is in recv.
signal.signal(signal.SIGUSR1, leave)
main = threading.main_thread().ident
for i in range(50):
    t = threading.Timer(0.002, signal.pthread_kill, (main, signal.SIGUSR1))
    try:
        t.start()
        b.recv(1)
        print("came back")
    except Out:
        pass
    t.join()
print(signal.getsignal(signal.SIGUSR1) is leave)
