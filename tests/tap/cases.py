"""cases.py RAILSOCK LIBRARY WORK: runs two programs over shared memory and taps one of their connections.
Prints ok, not ok, skip for each case."""
import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import traceback

import pcapng
from kit import HERE, LIBRARY, RAILSOCK, WORK, Tap, connection, programs, refused, wait_for
from peer import GIVEN_BACK, SENT, piece

NOBODY = 65534
FIN, RST = 1, 4
root = os.geteuid() == 0


def direction(file, out, which):
    """The packets of one direction, each of whose bytes must be that of its place."""
    found = [p for p in file.packets if p.out == out]
    for p in found:
        assert p.data == piece(which, p.seq, len(p.data)), (out, p.seq, len(p.data))
    return found


def whole(file, begin, end, holes=0):
    """Both directions have the bytes [begin, end) of the client, once, in order; with holes, which are told."""
    for out, which in ((True, SENT), (False, GIVEN_BACK)):
        at, missing = None, 0
        for p in direction(file, out, which):
            if at is not None and p.seq != at:
                assert p.seq > at and holes, (out, at, p.seq)
                assert "missing" in p.comment, p.comment
                missing += p.seq - at
            at = p.seq + len(p.data) + p.cut + bool(p.flags & FIN)
        first = direction(file, out, which)[0].seq
        ends = [p for p in file.packets if p.out == out and p.flags & FIN]
        assert first <= begin and at - len(ends) >= end, (out, first, begin, at, end)
        assert bool(missing) == bool(holes), missing
    times = [p.time for p in file.packets]
    assert times == sorted(times) and abs(times[0] / 1e9 - time.time()) < 3600


def tcpdump(path):
    """How many packets it reads there. Its complaints are about what we have made up."""
    out = subprocess.run(["tcpdump", "-nvr", path], capture_output=True)
    text = out.stdout.decode()
    assert out.returncode == 0, out.stderr
    assert "incorrect" not in text and "bad cksum" not in text, text[:2000]
    return text.count(": Flags [")


# ---- the cases


def mid_run():
    # However long one of them is kept from reading: all goes by one path.
    with programs(settings={"RAILSOCK_STALL": "0"}) as (client, _, _):
        tap = Tap(client.pid).begun(client)
        begin = client.do("move")
        client.do("move", 300)
        end = client.do("bulk", 300_000)
        file, said = tap.file(signal.SIGINT)
        whole(file, begin, end)
        assert {p.path for p in file.packets} == {"shm"}
        assert max(len(p.data) for p in file.packets) == 61440
        c = connection(client.pid)
        assert f"{c['local']} (python3, process {client.pid}) to {c['peer']}" in file.comment, file.comment
        assert "the first one here that was sent: its byte is number" in file.packets[0].comment + file.packets[1].comment
        assert f"{len(file.packets)} packets" in said and "dropped 0 packets, 0 bytes" in said, said
        assert file.statistics == {"shm": (len(file.packets), 0)}
        assert tcpdump(tap.output) == len(file.packets)
        # An acknowledgment is of what has been recorded, as a TCP would.
        for a, b in zip(file.packets, file.packets[1:]):
            assert b.out == a.out or b.ack == a.seq + len(a.data), (a, b)
        client.do("move", 10)


def ipv6():
    with programs(family="6") as (client, server, port):
        # Both ends are meant: that which has accepted it is recorded.
        tap = Tap("--port", port).begun(client)
        begin = client.do("move")
        end = client.do("bulk", 100_001)
        client.do("move", 2)  # the server is back from the call that gave the last of these
        file = tap.file(signal.SIGTERM)[0]
        assert f"process {server.pid})" in file.comment
        flipped = pcapng.File(tap.output)
        flipped.packets = [p._replace(out=not p.out) for p in file.packets]
        whole(flipped, begin, end)
        assert {p.src for p in file.packets if p.out} == {("::1", int(port))}
        assert tcpdump(tap.output) == len(file.packets)


def begins_of_packets():
    with programs() as (client, _, _):
        tap = Tap(client.pid, "--bytes", 10, "--count", 40)
        wait_for("it does not end", lambda: client.do("move", 3) and tap.p.poll() is not None)
        file = tap.file()[0]
        assert len(file.packets) == 40
        assert all(len(p.data) <= 10 and (len(p.data) == 10 or not p.cut) for p in file.packets)
        assert any(p.cut for p in file.packets)
        for out, which in ((True, SENT), (False, GIVEN_BACK)):
            way = direction(file, out, which)
            assert all(a.seq + len(a.data) + a.cut == b.seq for a, b in zip(way, way[1:]))


def switches():
    """Streams that leave and board, and rails that fail, all the time: nothing is missing, and each byte says how
    it went."""
    with programs(settings={"RAILSOCK_TEST_SWITCH": "7"}) as (client, _, _):
        tap = Tap(client.pid).begun(client)
        begin = client.do("move")
        first = connection(client.pid)["switches"]
        end = wait_for("no switches", lambda: connection(client.pid)["switches"] >= first + 20 and client.do("move", 1)
                       or not client.do("move", 100))
        file = tap.file(signal.SIGINT)[0]
        whole(file, begin, end)
        assert {p.path for p in file.packets} == {"shm", "tcp"}
        for out in True, False:
            way = [p for p in file.packets if p.out == out]
            for a, b in zip(way, way[1:]):
                assert (a.path != b.path) == (f"over {b.path}" in b.comment), (a, b)


def leave():
    with programs() as (client, _, _):
        tap = Tap(client.pid).begun(client)
        begin = client.do("move", 20)
        client.do("leave")
        end = client.do("move", 100)
        assert connection(client.pid)["path"] == "tcp"
        file = tap.file(signal.SIGINT)[0]
        whole(file, begin, end)
        for out in True, False:
            paths = [p.path for p in file.packets if p.out == out]
            assert paths == sorted(paths) and set(paths) == {"shm", "tcp"}, paths
        left = [p for p in file.packets if p.path == "tcp"][0]
        assert "over tcp; reason option" in left.comment, left.comment


def close():
    with programs() as (client, _, _):
        tap = Tap(client.pid).begun(client)
        end = client.do("move", 5)
        client.do("close")
        file, said = tap.file()
        whole(file, end, end)
        assert "the connection is closed" in said, said
        last = file.packets[-1]
        assert last.out and last.flags & FIN and last.seq == end and "has ended it" in last.comment
        assert tcpdump(tap.output) == len(file.packets)


def end_of_the_other():
    with programs() as (client, server, _):
        tap = Tap(server.pid).begun(client)
        end = client.do("move", 5)
        client.do("close")
        file, said = tap.file()
        ends = [p for p in file.packets if p.flags & FIN]
        assert [p.out for p in ends] == [False, True] and ends[0].seq == ends[1].seq == end, ends
        assert "has read the end" in ends[0].comment, ends[0].comment


def killed_program():
    with programs() as (client, _, _):
        tap = Tap(client.pid).begun(client)
        end = client.do("move", 50)
        client.p.kill()
        file, said = tap.file()
        whole(file, end, end)
        assert "the program has ended it" in said, said


def executed():
    with programs() as (client, _, _):
        tap = Tap(client.pid).begun(client)
        end = client.do("move", 50)
        client.p.stdin.write(b"exec 0\n")
        client.p.stdin.flush()
        file = tap.file()[0]
        whole(file, end, end)
        # What it was is still alive, and has nothing of ours.
        assert not traces(client.pid)


def seccomp():
    with programs() as (client, _, _):
        tap = Tap(client.pid).begun(client)
        end = client.do("move", 50)
        client.do("filter")
        file, said = tap.file()
        whole(file, end, end)
        assert "filter" in said, said
        assert not traces(client.pid)
        client.do("move", 50)


def traces(pid):
    """What a process has of a tap."""
    with open(f"/proc/{pid}/maps") as f:
        found = [line for line in f if "railsock-tap" in line]
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if "railsock-tap" in os.readlink(f"/proc/{pid}/fd/{fd}"):
                found.append(fd)
    return found


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def key_of(pid, new=None):
    """The key in the request for a process's connection, as pub.h has it; writes a new one."""
    head, slot, tap = 8 + 4 + 4 + 8 + 8 + 64 + 8 + 16 * 8 + 8 + 7 * 8 + 64 * 8, 80, 8
    head = (head + 63) // 64 * 64
    with open(f"/dev/shm/railsock-{os.geteuid()}/{pid}", "r+b") as f:
        data = f.read(head + 64 * slot)
        at = next(at for at in range(head, len(data), slot) if data[at] & 1)  # in use
        if new:
            f.seek(at + tap)
            f.write(struct.pack("<Q", new))
        return struct.unpack_from("<Q", data, at + tap)[0]


def killed_tap():
    with programs() as (client, _, _):
        before = descriptors(client.pid)
        for _ in range(3):
            tap = Tap(client.pid).begun(client)
            assert traces(client.pid) and descriptors(client.pid) > before
            tap.p.kill()
            tap.p.communicate()
            wait_for("something is left", lambda: not traces(client.pid) and descriptors(client.pid) <= before)
        # One that is killed before the program has looked.
        tap = Tap(client.pid)
        wait_for("no request", lambda: key_of(client.pid))
        tap.p.kill()
        tap.p.communicate()
        tap = Tap(client.pid).begun(client)
        begin = client.do("move")
        end = client.do("move", 30)
        whole(tap.file(signal.SIGINT)[0], begin, end)


def slow():
    with programs() as (client, _, _):
        tap = Tap(client.pid, "--buffer", "128k").begun(client)
        begin = client.do("move")
        os.kill(tap.p.pid, signal.SIGSTOP)
        size = os.path.getsize(tap.output)
        for _ in range(20):
            client.do("bulk", 100_000)  # the program goes on
        os.kill(tap.p.pid, signal.SIGCONT)
        wait_for("it does not go on", lambda: os.path.getsize(tap.output) > size + 50_000)
        end = client.do("move", 20)
        file, said = tap.file(signal.SIGINT)
        whole(file, begin, end, holes=True)
        lost, missing = map(int, re.search(r"dropped (\d+) packets, (\d+) bytes", said).groups())
        assert file.statistics["shm"] == (len(file.packets) + lost, lost)
        assert lost == sum(p.drops for p in file.packets)
        told = sum(int(n) for p in file.packets for n in re.findall(r"(\d+) bytes before it are missing", p.comment))
        assert told == missing > 1_000_000, (told, missing)


def unread(fd):
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"...."))[0]


def full_pipe():
    with programs() as (client, _, _):
        read, write = os.pipe()
        tap = subprocess.Popen([RAILSOCK, "tap", "--buffer", "128k", "--pid", str(client.pid)], stdout=write,
                               stderr=subprocess.PIPE)
        os.close(write)

        def fill():
            """It has written, and then writes no more: what was in the pipe stays as much. More comes, and is lost."""
            seen = []
            wait_for("the pipe is not filled", lambda: client.do("bulk", 100_000) and
                     seen.append(unread(read)) is None and seen[-1] > 16384 and seen[-5:] == seen[-1:] * 5)
            for _ in range(10):
                client.do("bulk", 100_000)

        fill()
        # It goes on when the pipe is read, and tells of the hole with the packet behind it.
        got = bytearray()
        wait_for("the hole is not told", lambda: client.do("move", 3) and
                 (not unread(read) or got.extend(os.read(read, 65536)) is None) and b"too slow" in got)
        # It ends with the pipe full.
        fill()
        tap.send_signal(signal.SIGINT)
        with open(f"{WORK}/pipe", "wb") as f, open(read, "rb") as pipe:
            f.write(got + pipe.read())
        said = tap.communicate(timeout=30)[1].decode()
        lost = int(re.search(r"dropped (\d+) packets", said).group(1))
        file = pcapng.File(f"{WORK}/pipe")
        assert file.statistics["shm"] == (len(file.packets) + lost, lost), said
        packets = direction(file, True, SENT) + direction(file, False, GIVEN_BACK)
        assert lost >= sum(p.drops for p in packets) > 0, said
        assert any("too slow" in p.comment for p in packets)
        # Whoever reads it goes away.
        read, write = os.pipe()
        tap = subprocess.Popen([RAILSOCK, "tap", "--pid", str(client.pid)], stdout=write, stderr=subprocess.PIPE)
        os.close(write)
        os.read(read, 64)
        os.close(read)
        wait_for("it does not end", lambda: client.do("move", 3) and tap.poll() is not None)
        tap.communicate()
        assert tap.returncode == 0, tap.returncode
        # So he may while nothing moves: before anything has, or since.
        for moves in 0, 3:
            read, write = os.pipe()
            tap = subprocess.Popen([RAILSOCK, "tap", "--pid", str(client.pid)], stdout=write, stderr=subprocess.PIPE)
            os.close(write)
            wait_for("nothing is written", lambda: (not moves or client.do("move", moves)) and unread(read) > 1000 * moves)
            os.read(read, 64)
            os.close(read)
            wait_for("it does not end", lambda: tap.poll() is not None)
            assert tap.returncode == 0, tap.communicate()
            tap.communicate()
            assert "reset" not in str(client.do("move", 5))


def closed_error():
    """What it opens is not its standard error then."""
    with programs() as (client, _, _):
        out = f"{WORK}/closed"
        tap = subprocess.Popen(["sh", "-c", f"exec '{RAILSOCK}' tap -o '{out}' --count 30 --pid {client.pid} 2>&-"])
        wait_for("it does not end", lambda: client.do("move", 3) and tap.poll() is not None)
        assert tap.returncode == 0, tap.returncode
        assert len(pcapng.File(out).packets) == 30
        assert "reset" not in str(client.do("move", 5))


def several():
    with programs() as (client, server, _):
        one = Tap(client.pid).begun(client)
        # What is written there stays.
        assert f"process {one.p.pid} taps this connection already" in refused(client.pid, output=one.output)
        two = Tap(server.pid).begun(client)
        begin = client.do("move")
        end = client.do("move", 30)
        whole(one.file(signal.SIGINT)[0], begin, end)
        two.file(signal.SIGINT)
        again = Tap(client.pid).begun(client)
        again.file(signal.SIGINT)


def fork():
    with programs() as (client, _, _):
        tap = Tap(client.pid).begun(client)
        begin = client.do("move")
        child = client.do("fork")
        client.hear()
        assert traces(client.pid)
        wait_for("the child has it as well", lambda: not traces(child))
        end = client.do("move", 50)
        whole(tap.file(signal.SIGINT)[0], begin, end)


def choice():
    with programs() as (one, _, port), programs() as (two, _, other):
        said = refused("--program", "python3", "--path", "shm")
        assert re.search(r"more than one connection is meant", said), said
        assert said.count(f" 127.0.0.1:{port} ") == said.count(f" 127.0.0.1:{other} ") == 2, said
        assert "no such connection" in refused("--port", 1)
        assert "there is no process" in refused(4194303)
        local = connection(two.pid)["local"]
        tap = Tap(local, f"127.0.0.1:{other}").begun(two)
        assert f"127.0.0.1:{other} (" in tap.file(signal.SIGINT)[0].comment
        tap = Tap("--pid", two.pid, "--seconds", 0.3)
        assert "nothing has moved" in tap.ended()[1]
        assert "reset" not in str(two.do("move", 5))
    for words in ("--bytes 0", "--bytes 61441", "--count x", "--seconds 0", "--buffer 1", "--buffer 1g", "--path x",
                  "1.2.3.4", "1.2.3.4:0", "[::1:2", "--port 65536", "--what"):
        p = subprocess.run([RAILSOCK, "tap", "-o", "-", *words.split()], capture_output=True)
        assert p.returncode == 2 and p.stderr and not p.stdout, words


def as_nobody():
    """A copy of everything where everybody can reach it."""
    if not os.path.exists(f"{WORK}/railsock"):
        for path in RAILSOCK, LIBRARY, f"{HERE}/peer.py":
            os.chmod(shutil.copy(path, WORK), 0o755)
        os.chmod(WORK, 0o777)
    return {"command": f"{WORK}/railsock", "user": NOBODY, "group": NOBODY, "extra_groups": []}


def other_user():
    with programs() as (client, _, _):
        said = refused(client.pid, output=f"{WORK}/nobodys", **as_nobody())
        assert "another user's" in said, said
        # He has somehow made the program connect to him: it looks who he is.
        impostor = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        key = 0x1234567890abcdef
        os.seteuid(NOBODY)
        impostor.bind("\0railsock-tap.%016x" % key)
        impostor.listen()
        os.seteuid(0)
        key_of(client.pid, key)
        impostor.settimeout(30)
        client.do("move", 5)
        s = impostor.accept()[0]
        assert s.recv(100) == b""
        wait_for("the request stands", lambda: key_of(client.pid) == 0)
        impostor.close()
        # And the other way round: he comes to the tap that waits for the program.
        tap = Tap(client.pid)
        name = b"\0railsock-tap.%016x" % wait_for("no request", lambda: key_of(client.pid))
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.seteuid(NOBODY)
        s.connect(name)
        os.seteuid(0)
        s.settimeout(30)
        assert s.recv(100) == b""
        tap.begun(client).file(signal.SIGINT)


def own_user():
    """nobody taps what is nobody's, unless that has made itself undumpable; root taps it in any case."""
    as_nobody()
    with programs(user=NOBODY) as (client, _, _):
        tap = Tap(client.pid, output=f"{WORK}/own", **as_nobody()).begun(client)
        tap.file(signal.SIGINT)
        client.do("secret")
        tap = Tap(client.pid, output=f"{WORK}/own", **as_nobody())
        wait_for("it does not end", lambda: client.do("move", 3) and tap.p.poll() is not None)
        said = tap.ended()
        assert said[0] == 1 and "not dumpable" in said[1], said
        tap = Tap(client.pid).begun(client)
        tap.file(signal.SIGINT)


def other_network():
    with subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up; echo; exec cat"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as space:
        space.stdout.readline()
        with programs(before=("nsenter", "-t", str(space.pid), "-n", "--")) as (client, _, _):
            assert os.stat(f"/proc/{client.pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
            tap = Tap(client.pid).begun(client)
            begin = client.do("move")
            end = client.do("move", 20)
            whole(tap.file(signal.SIGINT)[0], begin, end)


for case in (mid_run, ipv6, begins_of_packets, switches, leave, close, end_of_the_other, killed_program, executed,
             seccomp, killed_tap, slow, full_pipe, closed_error, several, fork, choice, other_user, own_user,
             other_network):
    if len(sys.argv) > 4 and case.__name__ not in sys.argv[4:]:
        continue
    if case in (other_user, own_user, other_network) and not root:
        print(f"skip tap.{case.__name__}: needs root, to be another user or elsewhere", flush=True)
        continue
    try:
        case()
        print(f"ok tap.{case.__name__}", flush=True)
    except Exception as e:  # whatever it is, the next case can run
        at = traceback.extract_tb(e.__traceback__)[-1]
        print(f"not ok tap.{case.__name__}: {type(e).__name__} {str(e)[:300]!r} at {at.name}:{at.lineno}", flush=True)
        traceback.print_exc(file=sys.stdout)
