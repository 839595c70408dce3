"""signalled.py COMMAND...: starts COMMAND, which is to run `signalled.py` alone, sends signals to its process and to its group, one after
the other, and prints what that program has said. Alone: that program, which says what it gets, and ends with SIGUSR2."""

import os
import signal
import subprocess
import sys

SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGTTIN, signal.SIGWINCH, signal.SIGALRM, signal.SIGRTMIN + 3]


def name(number):
    return signal.Signals(number).name if number in list(signal.Signals) else f"SIGRTMIN+{number - signal.SIGRTMIN}"


if len(sys.argv) == 1:
    watched = {*SIGNALS, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    print("ready", flush=True)
    while (number := signal.sigwait(watched)) != signal.SIGUSR2:
        print(name(number), flush=True)
    sys.exit()

for send in os.kill, os.killpg:
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        assert child.stdout.readline() == "ready\n"
        got = []
        for number in SIGNALS:
            send(child.pid, number)
            got.append(child.stdout.readline().strip())
        os.kill(child.pid, signal.SIGUSR2)
        print(send.__name__, *got, child.stdout.read().strip() or "and no more,", "status", child.wait())
