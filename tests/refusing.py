"""refusing.py REFUSED... -- COMMAND...: runs COMMAND under a seccomp filter that refuses these system calls with EPERM
and allows the others; `kill:CALL`: it kills who makes it, as the SystemCallFilter of a unit of systemd without
SystemCallErrorNumber does; `netlink` is socket(AF_NETLINK), with EAFNOSUPPORT, as a unit without it in its
RestrictAddressFamilies has it, and `unix` the same of AF_UNIX."""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

NUMBERS = {
    "x86_64": {"memfd_create": 319, "io_uring_setup": 425, "socket": 41},
    "aarch64": {"memfd_create": 279, "io_uring_setup": 425, "socket": 198},
}[platform.machine()]
FAMILIES = {"netlink": socket.AF_NETLINK, "unix": socket.AF_UNIX}
LD, JEQ, RET, ALLOW, REFUSE, KILL = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000, 0x80000000
NR, FIRST_ARGUMENT = 0, 16


def lines_of(name):
    if name in FAMILIES:
        return [(LD, 0, 0, NR), (JEQ, 0, 3, NUMBERS["socket"]), (LD, 0, 0, FIRST_ARGUMENT),
                (JEQ, 0, 1, int(FAMILIES[name])), (RET, 0, 0, REFUSE | errno.EAFNOSUPPORT)]
    how, _, call = name.rpartition(":")
    return [(LD, 0, 0, NR), (JEQ, 0, 1, NUMBERS[call]), (RET, 0, 0, KILL if how == "kill" else REFUSE | errno.EPERM)]


at = sys.argv.index("--")
lines = [line for name in sys.argv[1:at] for line in lines_of(name)] + [(RET, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in lines))
program = struct.pack("@HP", len(lines), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
for args in ((38, 1, 0, 0, 0), (22, 2, program, 0, 0)):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
    if libc.prctl(*args) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
os.execvp(sys.argv[at + 1], sys.argv[at + 1:])
