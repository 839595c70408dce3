#!/usr/bin/python3
"""A socket that waits while signals come: PEP 475 retries what SA_RESTART would not, set_wakeup_fd, an exception
out of a handler."""
import os
import signal
import socket
import threading
import time

listener = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()


def on_rails():
    """Both ends, by the library's log; without the library there is nothing to wait for."""
    path = os.environ.get("RAILSOCK_LOG", "").partition(":")[2]
    if not path:
        return True
    with open(path, encoding="ascii", errors="replace") as log:
        return log.read().count("sending on shm") >= 2


end = time.monotonic() + 30
while True:
    for i in range(300):
        a.sendall(bytes(500))
        assert len(b.recv(500, socket.MSG_WAITALL)) == 500
        b.sendall(bytes(500))
        assert len(a.recv(500, socket.MSG_WAITALL)) == 500
    if on_rails() or time.monotonic() > end:
        break


class Out(Exception):
    pass


waits = False


def leave(*_):
    """Once for each wait, however many come."""
    global waits
    if waits:
        waits = False
        raise Out


ticks = 0


def tick(*_):
    global ticks
    ticks += 1
    if ticks == 50:
        a.sendall(b"now")  # from the handler, to the end of the stream that it has interrupted


AGAIN = 1.0  # seconds: a signal may come just before the call that it is for, now and then
late = 0


def interrupted(begin, end):
    """A call that the first signal must end."""
    global late, waits
    began = time.monotonic()
    try:
        waits = True
        begin()
        b.recv(1)
        print("came back")
    except Out:
        pass
    end()
    late += time.monotonic() - began > AGAIN


signal.signal(signal.SIGALRM, leave)
for i in range(100):
    interrupted(lambda: signal.setitimer(signal.ITIMER_REAL, 0.0005 + i % 7 / 1000, AGAIN),
                lambda: signal.setitimer(signal.ITIMER_REAL, 0))
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
print(b.recv(3, socket.MSG_WAITALL))
signal.setitimer(signal.ITIMER_REAL, 0)
# From a thread, to the main thread, which is in recv.
signal.signal(signal.SIGUSR1, leave)
main = threading.main_thread().ident
over = threading.Event()


def kills():
    after = 0.002
    while not over.wait(after):
        signal.pthread_kill(main, signal.SIGUSR1)
        after = AGAIN


for i in range(50):
    over.clear()
    t = threading.Thread(target=kills)
    interrupted(t.start, over.set)
    t.join()
if late > 15:
    print(late, "calls of 150 were ended late")
print(signal.getsignal(signal.SIGUSR1) is leave)
