"""private_users.py USER COMMAND...: runs COMMAND as USER, in a user namespace that knows root and that user alone and with a
/proc that shows other users' processes to nobody, as PrivateUsers=, User= and ProtectProc=invisible of a systemd unit do."""

import ctypes
import os
import pwd
import signal
import sys

NEWNS, NEWUSER, PRIVATE = 0x20000, 0x10000000, 0x44000
PDEATHSIG, NO_NEW_PRIVS = 1, 38
user = pwd.getpwnam(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
made, mapped = os.pipe(), os.pipe()


def must(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


child = os.fork()
if child == 0:
    must(libc.unshare(NEWNS), "unshare")
    must(libc.mount(None, b"/", None, PRIVATE, None), "mount")
    must(libc.mount(b"proc", b"/proc", b"proc", 0, b"hidepid=invisible"), "mount")
    must(libc.unshare(NEWUSER), "unshare")
    os.write(made[1], b"x")
    os.read(mapped[0], 1)
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.execvp(sys.argv[2], sys.argv[2:])
os.close(made[1])
os.read(made[0], 1)
for name, number in ("uid_map", user.pw_uid), ("gid_map", user.pw_gid):
    with open(f"/proc/{child}/{name}", "w") as file:
        file.write(f"0 0 1\n{number} {number} 1\n")
os.write(mapped[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
