"""zk.py ADDRESS:PORT - nodes of ZooKeeper are made, watched and read back, by several clients."""
import sys
import threading

from kazoo.client import KazooClient

N = 300


def work(at, who):
    c = KazooClient(hosts=at)
    c.start(timeout=20)
    for i in range(N):
        c.create(f"/{who}/{i}", b"%d" % (i * 7919), makepath=True)
    seen = threading.Event()
    c.get(f"/{who}/0", watch=lambda event: seen.set())
    c.set(f"/{who}/0", b"changed")
    if not seen.wait(10):
        sys.exit("the watch was not told")
    for i in range(1, N):
        if c.get(f"/{who}/{i}")[0] != b"%d" % (i * 7919):
            sys.exit(f"node {i} differs")
    if len(c.get_children(f"/{who}")) != N:
        sys.exit("nodes are missing")
    c.stop()


threads = [threading.Thread(target=work, args=(sys.argv[1], f"w{k}")) for k in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print("done")
