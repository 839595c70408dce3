#!/usr/bin/python3
"""trace.py LIBRARY FOLDER -- COMMAND...: runs COMMAND under strace twice, without and with LIBRARY
preloaded, and compares what each process did once it had started. Prints the first differences; status 1 if
there are any, 77 if nothing can be traced here. FOLDER is for the traces.

Left out: what ld.so does before a program's first instruction (it has one library more to load), what
our constructor does, which must be exactly STARTING, and getpid(), which the library calls at fork, exec and
exit; and getrandom(). Made equal: addresses, process numbers, random names, and what differs from run to run.
"""
import os
import re
import shutil
import subprocess
import sys

# What number 2 is, getpid(), then the page that tells a forked child of the fork.
STARTING = [r"fstat\(2, .*\)",
            r"mmap\(NULL, 4096, PROT_READ\|PROT_WRITE, MAP_PRIVATE\|MAP_ANONYMOUS, -1, 0\)",
            r"madvise\(AT, 4096, MADV_WIPEONFORK\)"]
# A shell waits for a child or finds it ended, as it happens. What the library does it does each
# time.
ATTEMPTS = 5


def run(folder, library, command):
    """The traces of all processes, in the order in which they began."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("RAILSOCK_")}
    # Always as many variables.
    env.update(PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
    option = ["-E", f"LD_PRELOAD={library}"] if library else ["-E", "NO_PRELOAD="]
    subprocess.run(["strace", "-ff", "-s", "200", "-o", os.path.join(folder, "t"), *option, *command],
                   env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=100,
                   check=True)
    names = sorted(os.listdir(folder), key=lambda n: int(n.split(".")[1]))
    return [(n.split(".")[1], open(os.path.join(folder, n), encoding="utf-8").read().splitlines()) for n in names]


def usual(line, pids):
    """The line without what differs between two runs."""
    line = re.sub(r"0x[0-9a-f]+", "AT", line)
    # Elsewhere the same number is something else.
    if re.match(r"(clone3?|v?fork|kill|tgkill|[gs]etpgid|getpgrp|getsid|setsid|gettid|ioctl)\(", line):
        line = re.sub(r"\b\d+\b", lambda m: f"P{pids[m.group()]}" if m.group() in pids else m.group(), line)
    line = re.sub(r"/tmp/cc\w{6}", "/tmp/ccX", line)
    line = re.sub(r"^(sysinfo|times|getrusage|wait4|clock_gettime\w*|gettimeofday)\(.*", r"\1", line)
    line = re.sub(r"^(getppid\(\)|set_tid_address\(AT\)).*", r"\1", line)
    line = re.sub(r"(st_[amc]time\w*=|f_[bf]\w*=|st_ino=|st_blocks=)[^,}]*", r"\1X", line)
    return re.sub(r"\s+= ", " = ", line)


def images(traces):
    """The calls of each program after ld.so has done its part: (what was executed, calls)."""
    pids = {pid: i for i, (pid, _) in enumerate(traces)}
    for _, lines in traces:
        name, calls = "(forked)", []
        for line in lines:
            # getpid is the library's question at fork, exec and exit. Signals come when they come,
            # and who wants a random name asks until the number suits it.
            if line.startswith(("getpid()", "getrandom(", "---", "+++")):
                continue
            calls.append(usual(line, pids))
            if line.startswith("execve(") and line.endswith("= 0"):
                yield name, calls[:-1]
                name, calls = re.sub(r", AT /\*.*", "", calls[-1]), []
        yield name, calls


def started(calls):
    """What comes after the last call of ld.so: it gives back its cache of names."""
    last = max((i for i, c in enumerate(calls) if c.startswith("set_robust_list(")), default=None)
    for i, c in enumerate(calls[last:] if last is not None else []):
        if c.startswith("munmap("):
            return calls[last + i + 1:]
    return calls


def without_ours(calls):
    """The calls without our constructor's; None if it did something else, or did not run."""
    for i in range(len(calls) - 1):
        if all(re.match(p, c) for p, c in zip(STARTING, calls[i:])):
            return calls[:i] + calls[i + len(STARTING):]
    return None


def compared(library, folder, command):
    """The differences, and of how many programs and calls."""
    plain = list(images(run(os.path.join(folder, "plain"), None, command)))
    with_it = list(images(run(os.path.join(folder, "library"), library, command)))
    bad, count = [], 0
    if [n for n, _ in plain] != [n for n, _ in with_it]:
        bad.append(f"other programs: {[n for n, _ in plain]}, {[n for n, _ in with_it]}")
    for (name, want), (_, got) in zip(plain, with_it):
        if name.startswith("execve("):
            want, got = started(want), without_ours(started(got))
        if got is None:
            bad.append(f"{name}: the library does something else when it is loaded")
            continue
        count += len(got)
        for i, (a, b) in enumerate(zip(want + ["the end"], got + ["the end"])):
            if a != b:
                bad.append(f"{name}, call {i}: {b}\n    without the library: {a}")
                break
    return bad, f"{len(plain)} programs, {count} calls"


def main():
    library, folder, command = sys.argv[1], sys.argv[2], sys.argv[4:]
    if subprocess.run(["strace", "-o", os.devnull, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        sys.exit(77)
    for _ in range(ATTEMPTS):
        bad, of = compared(library, folder, command)
        if not bad:
            break
    print("\n".join(bad) or of)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
