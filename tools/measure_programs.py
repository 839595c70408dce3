"""measure_programs - the programs behind the figures of tools/measure, and the figures.

A program is a function of (slow, folder) that says how one leg of it is run. Its folder is empty, and
gone after the leg.
"""
import collections
import json
import os
import pwd
import re
import subprocess
import tempfile

import ab_metrics
from ab_legs import Failure, Leg, free_port, listening

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BUILD = os.path.join(TOP, os.environ.get("RAILSOCK_TEST_BUILD", "build"))
IP = os.environ.get("LAB_IP_1", "127.0.0.1") if "LAB_HOST" in os.environ else "127.0.0.1"

# server: its command, or None; read: from what the client prints to the figure; listens(port):
# whether the server can be asked
Run = collections.namedtuple("Run", "server port client read listens", defaults=[listening])
# limits: what else takes its turn when limits are asked for, {wire: {words: program}}
Figure = collections.namedtuple("Figure", "words unit more_is_better program limits", defaults=[{}])


def first(text):
    """The first figure that the program is known to print."""
    return figure(text, 0)


def figure(text, which):
    try:
        found = ab_metrics.read(text)
    except ab_metrics.Unreadable as e:
        raise Failure(str(e)) from None
    if len(found) <= which:
        raise Failure(f"no result in: {text[-300:].strip()}")
    return found[which].value


def thousands(text):
    return first(text) / 1000


# ---- unmodified programs


def floor_under(name, **variables):
    """The words before a program that tests/bench/NAME.c carries. The dynamic linker would go on without it."""
    path = f"{TOP}/build/plain/tests/{name}.so"
    if not os.path.exists(path):
        raise Failure(f"{path} is not built; make bench builds it")
    return ["env", f"LD_PRELOAD={path}", *(f"{variable}={value}" for variable, value in variables.items())]


def redis(clients, requests, slow_requests, extra=(), floor=False):
    def program(slow, _folder):
        many = [requests, slow_requests, slow_requests // 5][min(slow, 2)]
        port = free_port()
        on = bare_rings(port, 10000) if floor else []
        return Run([*on, "redis-server", "--bind", IP, "--port", str(port), "--protected-mode", "no",
                    "--save", "", "--appendonly", "no", "--loglevel", "warning"], port,
                   [*on, "redis-benchmark", "-h", IP, "-p", str(port), "-c", str(clients),
                    "-n", str(many), "-t", "get", "--csv", *extra],
                   thousands)
    return program


def sockperf(full_rtt, floor=False):
    """floor: tests/bench/trip_floor.c between its ends."""
    def program(slow, _folder):
        port = free_port()
        on = floor_under("trip_floor", TRIP_FLOOR=f"/trip_floor.{port}") if floor else []
        return Run([*on, "sockperf", "server", "--tcp", "-i", IP, "-p", str(port)], port,
                   [*on, "sockperf", "ping-pong", "--tcp", "-i", IP, "-p", str(port), "-m", "64",
                    "-t", "4" if slow else "2",
                    # Its default allows for 600,000 messages a second; a rail may pass more.
                    *([] if slow else ["--mps=5000000"]), *(["--full-rtt"] if full_rtt else [])],
                   first)
    return program


def paced(rate):
    """So many messages a second, each of which is answered, whatever became of those before: what one in a hundred
    waits for at least."""
    def program(_slow, _folder):
        port = free_port()
        return Run(["sockperf", "server", "--tcp", "-i", IP, "-p", str(port)], port,
                   ["sockperf", "under-load", "--tcp", "-i", IP, "-p", str(port), "-m", "64", "-t", "5", "--full-rtt",
                    f"--mps={rate}", "--reply-every=1"],
                   lambda text: figure(text, 1))
    return program


def iperf3(slow, _folder):
    """The first second is left out: in it the connection is on TCP for a while, on both legs."""
    port = free_port()
    return Run(["iperf3", "-s", "-B", IP, "-p", str(port)], port,
               ["iperf3", "-c", IP, "-p", str(port), "-l", "128K", "-O", "1", "-t", "4" if slow else "3",
                "-J"],
               first)


NGINX = """\
worker_processes 1;
pid nginx.pid;
{user}
events {{ worker_connections 512; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests {requests};
    client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;
    server {{ listen {ip}:{port}; root www; }}
}}
"""


def nginx_command(folder, port, requests=100000000):
    """One worker, as wrk has one thread: the two processors are theirs. Settings as in Debian's file, but
    for the log and the number of requests after which a connection is closed."""
    os.mkdir(os.path.join(folder, "www"))
    for name, text in (("www/small", "x" * 1023 + "\n"),
                       ("nginx.conf", NGINX.format(ip=IP, port=port, requests=requests,
                                                      user="" if os.getuid() else "user root;"))):
        with open(os.path.join(folder, name), "w", encoding="ascii") as f:
            f.write(text)
    return ["nginx", "-g", "daemon off;", "-e", "stderr", "-p", folder, "-c", "nginx.conf"]


def wrk(port, seconds):
    return ["wrk", "-t", "1", "-c", "16", "-d", f"{seconds}s", f"http://{IP}:{port}/small"]


def bare_rings(port, looks):
    """The words before both ends of a server that tests/bench/ring_floor.c carries, and how long it looks before it sleeps."""
    return floor_under("ring_floor", RING_FLOOR=f"/ring_floor.{port}", RING_FLOOR_LOOKS=looks)


def nginx(floor=False):
    def program(slow, folder):
        port = free_port()
        on = bare_rings(port, 10000) if floor else []
        return Run([*on, *nginx_command(folder, port)], port, [*on, *wrk(port, 4 if slow else 3)], thousands)
    return program


def nginx_alone(_slow, folder):
    """tests/bench/answer_floor.c takes the place of its clients and of what carries the answers."""
    port, rate = free_port(), os.path.join(folder, "rate")
    return Run([*floor_under("answer_floor", ANSWER_FLOOR=rate), *nginx_command(folder, port)], port,
               ["sh", "-c", '"$@" >&2 && cat ' + rate, "sh", *wrk(port, 3)],
               lambda text: float(text.split()[-1]) / 1000)


class Cluster:
    """A PostgreSQL cluster with pgbench's tables; all legs run on it, one after the other."""
    made = None

    def __init__(self):
        found = [os.path.join("/usr/lib/postgresql", v, "bin") for v in os.listdir("/usr/lib/postgresql")]
        self.bin = max(found, key=lambda path: float(path.split("/")[-2]))
        self.scratch = tempfile.TemporaryDirectory(prefix="measure-pg.")
        self.data = os.path.join(self.scratch.name, "data")
        self.user = []
        os.mkdir(self.data, 0o700)
        if os.getuid() == 0:  # whom it refuses to serve
            who = pwd.getpwnam("postgres")
            self.user = ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups"]
            os.chown(self.data, who.pw_uid, who.pw_gid)
            os.chmod(self.scratch.name, 0o755)
        self.call([*self.user, f"{self.bin}/initdb", "-D", self.data, "--no-sync", "-A", "trust",
                   "-U", "bench", "--locale=C", "-E", "UTF8"])
        port = free_port()
        server = Leg(None, None, [], self.server(port))
        try:
            while not self.listens(port):
                if server.ends(0.1):
                    raise Failure(f"postgres has ended: {server.text()[-300:]}")
            self.call([f"{self.bin}/pgbench", "-i", "-q", "-h", IP, "-p", str(port), "-U", "bench", "postgres"])
        finally:
            server.close()

    @classmethod
    def get(cls):
        cls.made = cls.made or cls()
        return cls.made

    @staticmethod
    def call(command):
        made = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        if made.returncode:
            raise Failure(f"{command[-1]}: {made.stderr[-300:]}")

    def server(self, port):
        return [*self.user, "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", self.data, f"{self.bin}/postgres",
                "-D", self.data, "-h", IP, "-p", str(port), "-k", "", "-c", "fsync=off"]

    def listens(self, port):
        return subprocess.run([f"{self.bin}/pg_isready", "-q", "-h", IP, "-p", str(port)], check=False).returncode == 0


def pgbench(floor=False):
    """Both ends as one user: a rail between two users has a dearer bell (rsock/README.md)."""
    def program(slow, _folder):
        cluster, port = Cluster.get(), free_port()
        on = bare_rings(port, 0) if floor else []
        return Run([*on, *cluster.server(port)], port,
                   [*cluster.user, *on, f"{cluster.bin}/pgbench", "-S", "-n", "-c", "4", "-T", "4" if slow else "3",
                    "-h", IP, "-p", str(port), "-U", "bench", "postgres"],
                   thousands, listens=cluster.listens)
    return program


# ---- what there is at most, and what else there is


def shared_memory(what):
    """Two processes of tests/bench/shm_pingpong.c with nothing between them but the memory."""
    program = os.path.join(BUILD, "plain/tests/shm_pingpong")

    def read(text):
        value = float(text.split()[0])
        return value * 1000 if what == "copy" else value / 1000  # GB/s to MB/s; ns to us
    return lambda _slow, _folder: Run(None, None, [program, what], read)


def uring_tcp(what):
    """The kernel's TCP at its best: both ends of tests/bench/uring_tcp.c are in one program."""
    program = os.path.join(BUILD, "plain/tests/uring_tcp")
    factor = 1000 if what == "stream" else 1 / 1000  # GB/s to MB/s; ns to us
    return lambda _slow, _folder: Run(None, None, [program, what], lambda text: float(text) * factor)


def perftest(name, size, options, column, factor=1.0):
    """A perftest program; in its last line of figures the column with that number, times factor."""
    def program(_slow, _folder):
        port = free_port()
        command = [name, "-d", "rxe0", "-x", "1", "-p", str(port), "-s", str(size), "-F", *options]
        return Run(command, port, [*command, IP],
                   lambda text: factor * float(
                       [line.split() for line in text.splitlines()
                        if re.match(rf"\s*{size}\s+[0-9]", line)][-1][column]))
    return program


def copies_by_write(block, ring):
    """The least that such a stream can cost: tests/bench/write_floor.c."""
    program = os.path.join(BUILD, "plain/tests/write_floor")
    return lambda _slow, _folder: Run(None, None, [program, IP, "copied", str(block), str(ring)], float)


def rdma_listening(port):
    """Listeners of librdmacm are not among the kernel's sockets."""
    shown = subprocess.run(["rdma", "-j", "resource", "show", "cm_id"], capture_output=True, text=True,
                           check=True).stdout
    return any(c.get("state") == "LISTEN" and c.get("src-addr", "").endswith(f":{port}") for c in json.loads(shown))


def rstream(size, messages, rounds, figure):
    """rdma-core's rsockets, by the program that comes with them: messages one way, then as many back."""
    def program(_slow, _folder):
        port = free_port()
        sizes = ["-p", str(port), "-S", str(size), "-C", str(messages), "-I", str(rounds)]
        # name, bytes, transfers, rounds, total, seconds, Gb/sec, us of each transfer
        return Run(["rstream", "-b", IP, *sizes], port, ["rstream", "-s", IP, *sizes],
                   lambda text: figure(float(text.split()[-1])), listens=rdma_listening)
    return program


def redis_figure(words, *load):
    return Figure("redis-benchmark GET, " + words, "k/s", True, redis(*load), {
        "shm": {"on bare rings": redis(*load, floor=True)}})


FIGURES = {
    "redis-1": redis_figure("1 client", 1, 100000, 20000),
    "redis-16": redis_figure("1 client, pipeline of 16", 1, 1000000, 30000, ["-P", "16"]),
    "redis-20": redis_figure("20 clients", 20, 200000, 60000),
    "redis-50": redis_figure("50 clients", 50, 200000, 20000),
    "nginx": Figure("nginx, wrk, 16 connections, 1 KiB", "k/s", True, nginx(), {
        "shm": {"nginx and wrk on bare rings": nginx(floor=True), "nginx, carried by nothing": nginx_alone}}),
    "pgbench": Figure("pgbench -S, 4 clients", "k/s", True, pgbench(), {
        "shm": {"on bare rings": pgbench(floor=True)}}),
    "round-trip": Figure("sockperf ping-pong 64 B, round trip", "us", False, sockperf(True), {
        "shm": {"cache line": shared_memory("line"), "line and data": shared_memory("line+data"),
                "sockperf on a bare ring": sockperf(True, floor=True),
                "TCP, io_uring": uring_tcp("trip"), "TCP, io_uring, spinning": uring_tcp("trip-spin")}}),
    "paced": Figure("sockperf under-load, 10,000 a second, p99", "us", False, paced(10000), {}),
    "one-way": Figure("sockperf ping-pong 64 B, one way", "us", False, sockperf(False), {
        "verbs": {"ib_write_lat": perftest("ib_write_lat", 64, ["-n", "3000"], 4),
                  "rstream": rstream(64, 1, 3000, lambda us: us)}}),
    "iperf3": Figure("iperf3 -l 128K", "MB/s", True, iperf3, {
        "shm": {"ring memcpy": shared_memory("copy"), "TCP, io_uring": uring_tcp("stream")},
        # It counts 2^20 bytes as a MB.
        "verbs": {"ib_write_bw 64 KiB": perftest("ib_write_bw", 65536, ["-n", "1000"], 3, 1.048576),
                  "copies and writes": copies_by_write(131072, 1 << 20),
                  "rstream 64 KiB": rstream(65536, 200, 4, lambda us: 65536 / us)}}),
}
