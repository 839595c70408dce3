"""ab_legs - runs a program, or a server until it is told to end, and says what it took.

Every leg is `railsock run --report=json:FILE`: time, memory and the bytes on the rail come from there.
"""
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import ab_processes

MODES = {"tcp": ["--tcp"], "rail": []}
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


class Failure(Exception):
    pass


def exit_on_signals():
    """But not on one that this process was started to ignore, as by nohup."""
    for number in ENDING - {signal.SIGINT}:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda n, _: sys.exit(128 + n))


def sockets():
    """(port, inode) of each TCP socket that listens in this network namespace."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(name, encoding="ascii") as f:
                for line in f:
                    field = line.split()
                    if field[3] == "0A":
                        yield int(field[1].rsplit(":", 1)[1], 16), field[9]
        except FileNotFoundError:  # a kernel without IPv6
            pass


def listening(port):
    return any(port == p for p, _ in sockets())


def free_port(last=[21000 + os.getpid() % 8000]):
    """A port that nobody listens on, and that was not given out before: what a closed connection leaves
    behind would keep the next server from it."""
    while True:
        last[0] += 1
        if not listening(last[0]):
            return last[0]


def session_listens(leader):
    waiting = {inode for _, inode in sockets()}
    for pid in ab_processes.session(leader):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
                if match and match.group(1) in waiting:
                    return True
        except OSError:
            continue
    return False


def tail(path, most=300):
    """The end of what a program has said, from a line's start, to follow other words."""
    with open(path, encoding="utf-8", errors="replace") as f:
        said = f.read().strip()
    if len(said) > most:
        # The character before may be the end of a line.
        said = said[-most - 1:].partition("\n")[2] or f"... {said[-most:]}"
    return f": {said}" if said else ""


def ended(status):
    """A status as Popen has it, in words."""
    if status >= 0:
        return f"ended with {status}"
    try:
        return f"was ended by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"was ended by signal {-status}"


def words(error):
    """An exception's, without Python's number of an OSError."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


class Leg:
    """One program under railsock run, in a session of its own, of which nothing is left at the end.
    Without a mode it runs by itself, and has no figures."""

    def __init__(self, railsock, mode, options, command):
        self.folder = tempfile.TemporaryDirectory(prefix="railsock-ab.")
        self.output = os.path.join(self.folder.name, "output")
        self.report = os.path.join(self.folder.name, "report")
        self.name = os.path.basename(command[0])
        prefix = [] if not mode else [railsock, "run", *MODES[mode], *(options if mode == "rail" else []),
                                      f"--report=json:{self.report}", "--"]
        self.before = ab_processes.snapshot()
        with open(self.output, "wb") as out:
            self.process = subprocess.Popen([*prefix, *command], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=subprocess.STDOUT, start_new_session=True,
                                            preexec_fn=ab_processes.end_with(os.getpid()))
        ab_processes.started.add(self.process.pid)

    def wait(self, limit):
        """Its exit status, negative for a signal. Failure when it still runs after limit seconds."""
        until = time.monotonic() + limit
        # One that is blocked waits until it is asked for.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        try:
            while self.process.poll() is None:
                left = until - time.monotonic()
                if left <= 0:
                    raise Failure(f"{self.name} still ran after {limit} s")
                # Who waits for the end of what is in the background would see a dead process for
                # ever.
                if signal.sigtimedwait([signal.SIGCHLD], min(left, 0.5)):
                    ab_processes.reap(ab_processes.strays(self.before))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
        return self.process.returncode

    def figures(self):
        """What railsock run has reported."""
        try:
            with open(self.report, encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError):
            raise Failure(f"{self.name}: no report{tail(self.output)}") from None

    def warnings(self):
        """What railsock run said first: that the library does not reach the program."""
        return re.findall(r"^railsock run: warning: (.*)$", self.text(), re.M)

    def text(self):
        with open(self.output, encoding="utf-8", errors="replace") as f:
            return f.read()

    def ends(self, limit):
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self):
        """Asks first. What does not listen is killed, and railsock run last, so that it can tidy up. What is to end us
        waits meanwhile, which is some seconds at most: somebody may press Ctrl-C twice."""
        old = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            self.process.send_signal(signal.SIGTERM)
            self.ends(2)
            ab_processes.kill_program(self.process.pid)
            if not self.ends(5):
                self.process.kill()
                self.ends(5)
            ab_processes.started.discard(self.process.pid)
            ab_processes.kill_strays(self.before)
            self.folder.cleanup()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)


class Server:
    """A server on this host, from when it listens. Without a port: from when any socket of it does."""

    def __init__(self, railsock, mode, options, command, port=None, limit=30, listens=listening):
        until = time.monotonic() + 2  # what the leg before has killed
        while port and listens(port):
            if time.monotonic() > until:
                raise Failure(f"port {port}: another process listens there already")
            time.sleep(0.01)
        self.leg = Leg(railsock, mode, options, command)
        try:
            until = time.monotonic() + limit
            while not (listens(port) if port else session_listens(self.leg.process.pid)):
                self.check()
                if time.monotonic() > until:
                    raise Failure(f"the server {self.leg.name} does not listen"
                                  f"{f' on port {port}' if port else ''} after {limit} s")
                time.sleep(0.01)
        except BaseException:
            self.leg.close()
            raise

    def check(self):
        status = self.leg.process.poll()
        if status is not None:
            self.fail(status)

    def fail(self, status):
        raise Failure(f"the server {self.leg.name} {ended(status)}{self.hint(status)}{tail(self.leg.output)}")

    def hint(self, status):
        if status or not ab_processes.stray_lives(self.leg.before):
            return ""
        return ", and what it has started goes on; is it in the background? Start it in the foreground"

    def end(self):
        """Ends it, unless it has ended well by itself, and returns its figures. close() is still to be called."""
        status = self.leg.process.poll()
        if status is None:
            self.leg.process.send_signal(signal.SIGTERM)  # run passes it on
            self.leg.wait(20)
        elif status != 0 or self.hint(status):
            self.fail(status)
        return self.leg.figures()

    def close(self):
        self.leg.close()


class RemoteServer:
    """The same on another host: `railsock ab --serve` there, which ends with its standard input."""

    def __init__(self, ssh, host, railsock, mode, options, command, port=None, limit=30):
        self.host = host
        argv = [railsock, "ab", "--serve", mode, f"--run={shlex.join(options)}",
                *(["--port", str(port)] if port else []), "--", *command]
        self.process = subprocess.Popen([*ssh, host, shlex.join(argv)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, start_new_session=True)
        ab_processes.started.add(self.process.pid)
        del limit  # it is the other side's
        try:
            if self.say("listens") is None:
                raise Failure(f"the server on {host} has ended")
        except BaseException:
            self.close()
            raise

    def say(self, key):
        line = self.process.stdout.readline()
        try:
            answer = json.loads(line)
        except ValueError:
            raise Failure(f"{self.host}: no answer of railsock ab there: {line.strip()}") from None
        if "failed" in answer:
            raise Failure(f"{self.host}: {answer['failed']}")
        return answer.get(key)

    def check(self):
        if self.process.poll() is not None:
            raise Failure(f"the connection to {self.host} has ended")

    def end(self):
        self.process.stdin.close()
        return self.say("figures")

    def close(self):
        if self.process.poll() is None:
            if not self.process.stdin.closed:
                self.process.stdin.close()
            try:
                self.process.wait(25)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        ab_processes.started.discard(self.process.pid)
        self.process.stdout.close()


def serve(railsock, mode, options, command, port, stdin, stdout):
    """The other side of RemoteServer."""
    def say(**answer):
        print(json.dumps(answer), file=stdout, flush=True)
    try:
        server = Server(railsock, mode, options, command, port)
    except (Failure, OSError) as e:
        say(failed=words(e))
        return 1
    try:
        say(listens=True)
        stdin.read()
        say(figures=server.end())
        return 0
    except Failure as e:
        say(failed=str(e))
        return 1
    finally:
        server.close()
