#!/usr/bin/python3
"""quiet.py: does everything with descriptors but TCP, then prints what the process has: descriptors, threads,
mapped files, shared mappings, and children. For a comparison with and without the library; TAKEN says which
files may be mapped in addition."""
import glob
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading

TAKEN = re.compile(r"/(librailsock|libgcc_s)\.so[.\d]*$")


def busy():
    """All the kinds of calls that the library looks at."""
    r, w = os.pipe()
    os.write(w, b"pipe")
    assert select.select([r], [w], [], 1)[0] == [r]
    poll, epoll = select.poll(), select.epoll()
    poll.register(r, select.POLLIN)
    epoll.register(r, select.EPOLLIN)
    assert poll.poll(1000) and epoll.poll(1)
    assert os.read(r, 10) == b"pipe"
    a, b = socket.socketpair()
    a.sendmsg([b"descriptor"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, r.to_bytes(4, "little"))])
    data, extra, _, _ = b.recvmsg(100, 100)
    assert data == b"descriptor" and extra
    os.close(int.from_bytes(extra[0][2], "little"))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    udp.sendto(b"datagram", udp.getsockname())
    assert udp.recv(100) == b"datagram"
    # Made and never used.
    socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    with open(__file__, "rb") as f, os.fdopen(os.dup(w), "wb") as out:
        os.sendfile(w, f.fileno(), 0, 100)
        out.write(b"stdio")
        out.flush()
    old = signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, old)
    thread = threading.Thread(target=os.read, args=(r, 10))
    thread.start()
    thread.join()
    pid = os.fork()
    if pid == 0:
        os.write(w, b"child")
        os._exit(0)
    os.waitpid(pid, 0)
    subprocess.run(["true"], check=True)
    assert os.system("true") == 0
    for what in (epoll, a, b, udp):
        what.close()
    os.close(r)
    os.close(w)


def maps():
    files, shared, wiped = set(), [], 0
    with open("/proc/self/smaps", encoding="utf-8") as f:
        for line in f:
            fields = line.split()
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                name = fields[5] if len(fields) > 5 else ""
                if name.startswith("/") and not TAKEN.search(name):
                    files.add(name)
                if "s" in fields[1]:
                    shared.append(name)
            wiped += fields[0] == "VmFlags:" and "wf" in fields
    # The page that tells a child of a fork is all that the library has mapped for itself.
    return sorted(files), sorted(shared), wiped if not os.environ.get("LD_PRELOAD") else wiped - 1


def published():
    """A process of the same number that was killed may have left something."""
    return set(glob.glob(f"/dev/shm/railsock*/{os.getpid()}"))


before = published()
busy()
have, common, pages = maps()
print("descriptors", sorted((int(n), os.readlink(f"/proc/self/fd/{n}").split(":")[0])
                            for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")))
print("published", sorted(published() - before))
print("threads", len(os.listdir("/proc/self/task")))
print("files", have)
print("shared", common)
print("wiped", pages)
sys.stdout.flush()
