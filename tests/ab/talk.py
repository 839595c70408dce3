"""talk.py PLAIN|KILL|OOB|SLEEP - both ends of a connection: 50 exchanges of 100 bytes, then an end as
named. SLEEP prints "ready" and waits for a signal."""
import os
import signal
import socket
import sys

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
for _ in range(50):
    client.sendall(b"x" * 100)
    assert len(server.recv(100, socket.MSG_WAITALL)) == 100
    server.sendall(b"y" * 100)
    assert len(client.recv(100, socket.MSG_WAITALL)) == 100
what = sys.argv[1]
if what == "OOB":
    client.send(b"!", socket.MSG_OOB)
elif what == "KILL":
    os.kill(os.getpid(), signal.SIGKILL)
elif what == "SLEEP":
    # Waited for, not handled: a handler's signal can come between "ready" and the sleep.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print("ready", flush=True)
    signal.sigwait([signal.SIGTERM])
    sys.exit(7)
sys.exit(3 if what == "PLAIN" else 0)
