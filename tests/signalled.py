"""signalled.py COMMAND...: starts COMMAND, which is to run `signalled.py` alone, sends signals to its process, to its group, and to all
processes of its executable, one after the other, and prints what that program has said; then how it ends when its terminal is gone;
and how timeout, in its place, ends by the terminal's key.
Alone: that program, which says what it gets, and ends with SIGUSR2; on a terminal it waits."""

import os
import pty
import signal
import subprocess
import sys

SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGTTIN, signal.SIGWINCH, signal.SIGALRM, signal.SIGRTMIN + 3]


def name(number):
    return signal.Signals(number).name if number in list(signal.Signals) else f"SIGRTMIN+{number - signal.SIGRTMIN}"


def kill_all_of_it(pid, number):
    """As `kill $(pidof FILE)`, in its session."""
    file = os.readlink(f"/proc/{pid}/exe")
    for other in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(other)) == pid and os.readlink(f"/proc/{other}/exe") == file:
                os.kill(int(other), number)
        except OSError:
            pass


if len(sys.argv) == 1 and sys.stdout.isatty():
    print("ready", flush=True)
    signal.pause()
if len(sys.argv) == 1:
    watched = {*SIGNALS, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    print("ready", flush=True)
    while (number := signal.sigwait(watched)) != signal.SIGUSR2:
        print(name(number), flush=True)
    sys.exit()

for send in os.kill, os.killpg, kill_all_of_it:
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        assert child.stdout.readline() == "ready\n"
        got = []
        for number in SIGNALS:
            send(child.pid, number)
            got.append(child.stdout.readline().strip())
        os.kill(child.pid, signal.SIGUSR2)
        print(send.__name__, *got, child.stdout.read().strip() or "and no more,", "status", child.wait())

child, terminal = pty.fork()
if child == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
said = b""
while not said.endswith(b"ready\r\n"):
    said += os.read(terminal, 100)
os.close(terminal)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print("hangup", name(-status) if status < 0 else status)

# A program that makes a group of its own, as timeout does, hears of the terminal's key by what has
# started it.
child, terminal = pty.fork()
if child == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    argv = [*sys.argv[1:-2], "timeout", "60", "sh", "-c", "echo ready; exec sleep 50"]
    os.execvp(argv[0], argv)
said = b""
while not said.endswith(b"ready\r\n"):
    said += os.read(terminal, 100)
os.write(terminal, b"\x03")
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print("key", name(-status) if status < 0 else status)
