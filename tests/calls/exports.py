#!/usr/bin/python3
"""exports.py [TABLE...]: compares what the running libc exports with preload/calls.def and
preload/calls_left.def (or with the TABLEs given), and prints a line for each name that takes a descriptor,
or something that contains one, and is in neither. Status 1 if there is such a name.

    exports.py --rows       tries out that each row is needed: without it there must be a complaint

The names come from the file of the libc that this Python itself runs with, and from the libraries that were
once apart from it. Whether a name takes a descriptor is read off its prototype in the headers, as the
preprocessor leaves it, fortified or not. Names without a prototype (old ones, and those for inlines)
must be in a table or in tests/calls/no_descriptor. Names that take none but make one, or processes, are in
BY_NAME. GLIBC_PRIVATE names are for glibc's own libraries, which this looks at, too.
"""
import collections
import os
import platform
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLES = [os.path.join(TOP, "preload", name) for name in ("calls.def", "calls_left.def")]
HARMLESS = os.path.join(TOP, "tests", "calls", "no_descriptor")
SIBLINGS = """libpthread.so.0 librt.so.1 libutil.so.1 libanl.so.1 libdl.so.2 libresolv.so.2""".split()

# What intercepted calls there are whose parameters say nothing of it.
BY_NAME = set("""open open64 __open __open64 __open_2 __open64_2 creat creat64 fopen fopen64 pipe __pipe pipe2 socketpair
eventfd timerfd_create inotify_init inotify_init1 memfd_create socket epoll_create epoll_create1 fork __fork _Fork vfork __vfork clone __clone syscall daemon
system popen _IO_popen wordexp execl execle execlp _exit _Exit quick_exit pthread_exit thrd_exit pthread_setcanceltype setuid seteuid
setreuid setresuid setgid setegid setregid setresgid setgroups initgroups capset execv execve execvp execvpe chroot pivot_root
unshare setrlimit setrlimit64 prlimit prlimit64 prctl sigaction __sigaction signal bsd_signal ssignal sysv_signal
__sysv_signal sigset sigignore siginterrupt sigvec""".split())

# In the tables, and in newer ones than the libc that they were made for: up to 2.41.
NEWER = set("""pidfd_spawn pidfd_spawnp pidfd_getpid posix_spawnattr_getcgroup_np posix_spawnattr_setcgroup_np
__isoc23_fscanf __isoc23_fwscanf __isoc23_vfscanf __isoc23_vfwscanf""".split())
# In calls.def, and another library's.
LIBURINGS = {"io_uring_queue_init", "io_uring_queue_init_params", "io_uring_queue_init_mem", "io_uring_setup"}

HEADERS = """aio aliases argp argz arpa/inet arpa/nameser arpa/nameser_compat assert ctype dirent dlfcn envz err
error execinfo fcntl fenv fmtmsg fnmatch fstab fts ftw gconv getopt glob gnu/libc-version grp gshadow iconv
ifaddrs inttypes langinfo libgen libintl link locale malloc math mcheck memory mntent monetary mqueue net/if
netdb netinet/ether netinet/in nl_types nss obstack poll printf pthread pty pwd regex resolv rpc/netdb sched
search semaphore setjmp sgtty shadow signal spawn stdbit stdio stdio_ext stdlib string strings sys/acct sys/auxv
sys/epoll sys/eventfd sys/fanotify sys/file sys/fsuid sys/gmon sys/inotify sys/io sys/ioctl sys/ipc sys/klog
sys/mman sys/mount sys/msg sys/personality sys/pidfd sys/prctl sys/profil sys/ptrace sys/quota sys/random
sys/reboot sys/resource sys/rseq sys/select sys/sem sys/sendfile sys/shm sys/signalfd sys/socket sys/stat
sys/statfs sys/statvfs sys/swap sys/syscall sys/sysinfo sys/sysmacros sys/time sys/timeb sys/timerfd sys/times
sys/timex sys/types sys/ucontext sys/uio sys/utsname sys/vlimit sys/wait sys/xattr syslog termios threads time
ttyent uchar ucontext ulimit unistd utime utmp utmpx wchar wctype wordexp""".split()

# An int, or several, that are descriptors by the name that the headers give them.
NUMBER = re.compile(r"(?<!long )\b(?:int|mqd_t)\b[\s\*]*(?:__restrict )?"
                    r"_*(?:\w*fd\w*|fp|fildes|amaster|\w*des|descriptors|s|sock\w*|from)(?:\[\d*\])?$")
# What holds descriptors, or descriptors and more.
HOLDER = re.compile(r"\b(?:FILE|_IO_FILE|DIR|__dirstream|fd_set|pollfd|msghdr|mmsghdr|aiocb|aiocb64|epoll_event|"
                    r"mqd_t|svc_req|SVCXPRT|posix_spawn_file_actions_t|posix_spawnattr_t)\b")


def without(text, word):
    """text without each word(...)."""
    while True:
        m = re.search(r"\b%s\s*\(" % word, text)
        if not m:
            return text
        i, depth = m.end(), 1
        while depth:
            depth += (text[i] == "(") - (text[i] == ")")
            i += 1
        text = text[:m.start()] + " " + text[i:]


def outermost(text):
    """text without what is in braces."""
    out, depth = [], 0
    for piece in re.split(r"([{}])", text):
        if piece == "{":
            depth += 1
            out.append(";" if depth == 1 else "")
        elif piece == "}":
            depth -= 1
        elif not depth:
            out.append(piece)
    return "".join(out)


def parameters(text):
    """The parameters of the list that text begins with."""
    depth, start, found = 1, 0, []
    for i, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        if depth == 0 or (depth == 1 and char == ","):
            found.append(text[start:i].strip())
            start = i + 1
        if depth == 0:
            break
    return found


def prototypes():
    """name -> parameters of all its declarations."""
    source = "".join(f"#if __has_include(<{h}.h>)\n#include <{h}.h>\n#endif\n" for h in HEADERS)
    found = collections.defaultdict(list)
    for flags in ([], ["-O2", "-D_FORTIFY_SOURCE=2"]):
        text = subprocess.run(["cc", "-E", "-P", "-U_FORTIFY_SOURCE", "-D_GNU_SOURCE", "-x", "c", *flags, "-"],
                              input=source, capture_output=True, text=True, check=True).stdout
        text = re.sub(r"^#.*$", "", re.sub(r'"(\\.|[^"\\])*"', '""', text), flags=re.M)
        for statement in outermost(text).split(";"):
            statement = " ".join(statement.split())
            for word in ("__attribute__", "__asm__", "__asm", "asm"):
                statement = without(statement, word)
            m = re.match(r"[\w\s\*]*?[\s\*\(]*\b(\w+)\b\s*\)?\s*\((.*)", statement)
            if m and not statement.startswith("typedef"):
                found[m.group(1)] += parameters(m.group(2))
    return found


def libc():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if re.search(r"/libc[.-][^/]*so", line):
                return line.split()[-1]
    sys.exit("exports.py: this Python has no libc.so")


def exports(path):
    """name -> its versions, functions only."""
    found = collections.defaultdict(set)
    for line in subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True,
                               check=True).stdout.splitlines():
        _, kind, name = line.split()[-3:] if len(line.split()) > 2 else ("", "", "")
        if kind in ("T", "W", "i"):
            base, _, version = name.partition("@")
            found[base].add(version.lstrip("@"))
    return found


def imports(path):
    """Names of libc that the library at path, if there, would find in us."""
    text = subprocess.run(["readelf", "-rW", path], capture_output=True, text=True, check=False).stdout
    return {m.group(1) for m in re.finditer(r"_(?:JUMP_SLOT?|GLOB_DAT?)\s+[0-9a-f]+\s+(\w+)@", text)}


def table(path):
    """name -> class."""
    with open(path, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    found = {m.group(1): m.group(2)
             for m in re.finditer(r"^CALL\([^,]*, (\w+),.*, (\w+)\)$", text, flags=re.M)}
    for m in re.finditer(r"^LEFT\((\w+),([\w\s]*)\)$", text, flags=re.M):
        found.update({name: m.group(1) for name in m.group(2).split()})
    return found


def harmless():
    """What matches a line of no_descriptor. A pattern is for names of up to 2.36: new ones are looked at."""
    with open(HARMLESS, encoding="utf-8") as f:
        words = [w for line in f if not line.startswith("#") for w in line.split()]
    names = {w for w in words if "*" not in w}
    patterns = re.compile("|".join(re.escape(w).replace(r"\*", r"\w+") for w in words if "*" in w) + "$")

    def known(name, versions):
        new = any(tuple(map(int, re.findall(r"\d+", v))) > (2, 36) for v in versions)
        return name in names or bool(not new and patterns.match(name))
    return known


class Libc:
    def __init__(self):
        self.path = libc()
        self.of = prototypes()
        self.versions = exports(self.path)
        for name in SIBLINGS:
            path = os.path.join(os.path.dirname(self.path), name)
            if os.path.exists(path):
                for symbol, versions in exports(path).items():
                    self.versions[symbol] |= versions
        self.public = {n for n, v in self.versions.items() if v - {"GLIBC_PRIVATE"}}
        known = harmless()
        self.concern = {n: why for n in sorted(self.public) for why in [self.why(n, known)] if why}

    def why(self, name, known):
        """Why the name has to be in a table, or None."""
        if name in BY_NAME:
            return "makes a descriptor or a process, or changes one"
        if name not in self.of:
            return None if known(name, self.versions[name]) else "is in no header"
        for p in self.of[name]:
            if NUMBER.search(p) or HOLDER.search(p):
                return f"takes '{p}'"
        return None

    def gone(self, tables):
        """Rows for names that there are not. Only of the libc that the tables were made for."""
        made_for = platform.libc_ver()[1] == "2.36" and platform.machine() == "x86_64"
        return sorted(set(tables) - set(self.versions) - NEWER - LIBURINGS) if made_for else []

    def unknown(self, tables):
        return {n: why for n, why in self.concern.items() if n not in tables}


def main():
    rows = sys.argv[1:2] == ["--rows"]
    tables = {}
    for path in (sys.argv[1:] if not rows else []) or TABLES:
        tables.update(table(path))
    here = Libc()
    bad = [f"{n}: {why}, and is in neither table" for n, why in here.unknown(tables).items()]
    if rows:
        bad = [f"{n}: nobody would miss it" for n in sorted(tables) if n in here.public
               and n not in here.unknown({k: v for k, v in tables.items() if k != n})]
    else:
        bad += [f"{n}: this libc has no such name" for n in here.gone(tables)]
        # glibc calls itself by names that cannot be intercepted, which calls_left.def builds on.
        bad += [f"{n}: {os.path.basename(here.path)} calls it so that it finds us"
                for n in sorted(imports(here.path) & set(table(TABLES[0])))]
    print("\n".join(bad) or f"{len(tables)} rows, {len(here.public)} names, {len(here.concern)} of them concern us")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
