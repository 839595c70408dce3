"""doctor_seccomp.py REFUSED... -- COMMAND...: runs COMMAND under a seccomp filter that refuses these system
calls with EPERM and allows the others."""

import ctypes
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {"memfd_create": 319, "io_uring_setup": 425},
    "aarch64": {"memfd_create": 279, "io_uring_setup": 425},
}[platform.machine()]
LD_NR, JEQ, RET, ALLOW, REFUSE = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001

at = sys.argv.index("--")
calls = [NUMBERS[name] for name in sys.argv[1:at]]
lines = [(LD_NR, 0, 0, 0)]
lines += [(JEQ, len(calls) - i, 0, number) for i, number in enumerate(calls)]
lines += [(RET, 0, 0, ALLOW), (RET, 0, 0, REFUSE)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in lines))
program = struct.pack("@HP", len(lines), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
for args in ((38, 1, 0, 0, 0), (22, 2, program, 0, 0)):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
    if libc.prctl(*args) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
os.execv(sys.argv[at + 1], sys.argv[at + 1:])
