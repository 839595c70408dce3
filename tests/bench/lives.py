#!/usr/bin/python3
"""lives.py [--pairs N] [--seconds N] [REQUESTS...]: nginx and wrk over connections that live for so many requests, without the library
and with it as it is by default and with RAILSOCK_MODE=rail, in turn: where a rail pays, and what is lost where it does not."""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
TOP = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../..")
BUILD = os.path.join(TOP, os.environ.get("RAILSOCK_TEST_BUILD", "build"))
sys.path.insert(0, os.path.join(TOP, "tools"))
from ab_legs import Server, free_port
from measure_programs import nginx_command, wrk

RUN = [os.path.realpath(os.path.join(BUILD, "railsock")), "run"]
LEGS = {"TCP": [], "auto": [*RUN, "--"], "rail": [*RUN, "--rail", "--"]}


def rate(prefix, requests, seconds):
    """Requests a second."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        server = Server(None, None, [], [*prefix, *nginx_command(folder, port, requests)], port)
        try:
            said = subprocess.run([*prefix, *wrk(port, seconds)], capture_output=True, text=True, check=True).stdout
        finally:
            server.close()
    wrong = re.search("Socket errors.*|Non-2xx.*", said)
    if wrong:
        raise SystemExit(f"lives.py: {wrong[0]}")
    return float(re.search(r"Requests/sec: *([\d.]+)", said)[1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--seconds", type=int, default=2)
    p.add_argument("requests", type=int, nargs="*", default=[1, 4, 10, 20, 40, 80, 160, 320, 1000])
    args = p.parse_args()
    print("same host, shm: nginx + wrk, 16 connections that live for so many requests; thousands a second, times TCP")
    print("    requests     TCP    auto                      rail")
    for requests in args.requests:
        got = {leg: [] for leg in LEGS}
        for _ in range(args.pairs):
            for leg, prefix in LEGS.items():
                got[leg].append(rate(prefix, requests, args.seconds) / 1000)
        tcp = statistics.median(got["TCP"])
        print(f"    {requests:8} {tcp:7.1f}", *(
            f"{statistics.median(of):7.1f} {statistics.median(of) / tcp:5.2f} ({min(of):.1f}..{max(of):.1f})".ljust(28)
            for leg, of in got.items() if leg != "TCP"), flush=True)
    return 0


sys.exit(main())
