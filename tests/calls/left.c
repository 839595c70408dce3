/*
 * left.c - rows: names of calls_left.def, which are libc's alone. What the kernel refuses it
 * refuses on a rail, and what it answers it answers, with bytes waiting that only the rail has.
 */
#define _GNU_SOURCE
#include "rows.h"

#include <aio.h>
#include <dirent.h>
#include <mqueue.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <sgtty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <utmp.h>

static char buf[256];
static struct iovec part = {buf, 8};
static off64_t none;

/* The call is shown while bytes wait in s, which are then still there. */
#define TRY(name, ...)                \
    ROW(name, )                       \
    {                                 \
        deliver(c, s, "waiting");     \
        SHOW(SYM(name)(__VA_ARGS__)); \
        rows_hear(s, 7);              \
    }

/* The same for a call that gives a pointer. */
#define TRY_POINTER(name, ...)                                                     \
    ROW(name, )                                                                    \
    {                                                                              \
        deliver(c, s, "waiting");                                                  \
        errno = 0;                                                                 \
        printf("%d %s\n", SYM(name)(__VA_ARGS__) != NULL, strerrorname_np(errno)); \
        rows_hear(s, 7);                                                           \
    }

/* ---- transfers that need a file or a pipe ---- */

TRY(tee, s, c, 5, 0)
TRY(vmsplice, c, &part, 1, 0)
TRY(copy_file_range, s, NULL, c, NULL, 5, 0)

ssize_t __pread64(int fd, void *b, size_t n, off64_t off);
ssize_t __pwrite64(int fd, const void *b, size_t n, off64_t off);
ssize_t __pread_chk(int fd, void *b, size_t n, off_t off, size_t room);
ssize_t __pread64_chk(int fd, void *b, size_t n, off64_t off, size_t room);
off_t __lseek(int fd, off_t off, int whence);
off64_t llseek(int fd, off64_t off, int whence);

TRY(pread, s, buf, 5, 0)
TRY(pread64, s, buf, 5, 0)
TRY(__pread64, s, buf, 5, 0)
TRY(__pread_chk, s, buf, 5, 0, sizeof(buf))
TRY(__pread64_chk, s, buf, 5, 0, sizeof(buf))
TRY(pwrite, c, buf, 5, 0)
TRY(pwrite64, c, buf, 5, 0)
TRY(__pwrite64, c, buf, 5, 0)
TRY(preadv, s, &part, 1, 0)
TRY(preadv64, s, &part, 1, 0)
TRY(pwritev, c, &part, 1, 0)
TRY(pwritev64, c, &part, 1, 0)
TRY(lseek, s, 0, SEEK_SET)
TRY(lseek64, s, 0, SEEK_SET)
TRY(__lseek, s, 0, SEEK_SET)
TRY(llseek, s, 0, SEEK_SET)
TRY(ftruncate, c, 0)
TRY(ftruncate64, c, 0)
TRY(fallocate, c, 0, 0, 1)
TRY(fallocate64, c, 0, 0, 1)
TRY(posix_fallocate, c, 0, 1)
TRY(posix_fallocate64, c, 0, 1)
TRY(fsync, c)
TRY(fdatasync, c)
TRY(sync_file_range, c, 0, 1, 0)
TRY(readahead, s, 0, 1)

/* ---- folders ---- */

TRY(getdents64, s, buf, sizeof(buf))
TRY(getdirentries, s, buf, sizeof(buf), &none)
TRY(getdirentries64, s, buf, sizeof(buf), &none)
TRY_POINTER(fdopendir, s)
TRY(fchdir, s)
TRY(faccessat, s, "x", R_OK, 0)
TRY(fchmodat, s, "x", 0600, 0)
TRY(futimesat, s, "x", NULL)
TRY(linkat, s, "x", s, "y", 0)
TRY(mkdirat, s, "x", 0700)
TRY(mkfifoat, s, "x", 0600)
TRY(mknodat, s, "x", S_IFIFO | 0600, 0)
TRY(open_tree, s, "x", 0)
TRY(openat, s, "x", O_RDONLY)
TRY(openat64, s, "x", O_RDONLY)
TRY(readlinkat, s, "x", buf, sizeof(buf))
TRY(renameat, s, "x", s, "y")
TRY(renameat2, s, "x", s, "y", 0)
TRY(symlinkat, "x", s, "y")
TRY(unlinkat, s, "x", 0)
TRY(fspick, s, "x", 0)
TRY(move_mount, s, "x", s, "y", 0)
TRY(mount_setattr, s, "x", 0, (struct mount_attr *)buf, sizeof(struct mount_attr))

int __xmknodat(int version, int fd, const char *path, mode_t mode, dev_t *dev);
int __openat_2(int fd, const char *path, int flags);
int __openat64_2(int fd, const char *path, int flags);
ssize_t __readlinkat_chk(int fd, const char *path, char *b, size_t n, size_t room);
static dev_t device;

TRY(__xmknodat, 0, s, "x", S_IFIFO | 0600, &device)
TRY(__openat_2, s, "x", O_RDONLY)
TRY(__openat64_2, s, "x", O_RDONLY)
TRY(__readlinkat_chk, s, "x", buf, sizeof(buf), sizeof(buf))

static struct dirent **found;
static struct dirent64 **found64;
TRY(scandirat, s, ".", &found, NULL, NULL)
TRY(scandirat64, s, ".", &found64, NULL, NULL)

static char handle[sizeof(struct file_handle) + 128];
static int mount_id;
TRY(open_by_handle_at, s, (struct file_handle *)handle, O_RDONLY)

/* ---- terminals ---- */

int __ttyname_r_chk(int fd, char *b, size_t n, size_t room);
int __ptsname_r_chk(int fd, char *b, size_t n, size_t room);
static struct termios modes;

TRY(tcgetattr, s, &modes)
TRY(tcsetattr, s, TCSANOW, &modes)
TRY(tcdrain, s)
TRY(tcflow, s, TCOOFF)
TRY(tcflush, s, TCIOFLUSH)
TRY(tcgetpgrp, s)
TRY(tcgetsid, s)
TRY(tcsendbreak, s, 0)
TRY(tcsetpgrp, s, 1)
TRY(gtty, s, (struct sgttyb *)buf)
TRY(stty, s, (struct sgttyb *)buf)
TRY(isatty, s)
TRY_POINTER(ttyname, s)
TRY(ttyname_r, s, buf, sizeof(buf))
TRY(__ttyname_r_chk, s, buf, sizeof(buf), sizeof(buf))
TRY_POINTER(ptsname, s)
TRY(ptsname_r, s, buf, sizeof(buf))
TRY(__ptsname_r_chk, s, buf, sizeof(buf), sizeof(buf))
TRY(grantpt, s)
TRY(unlockpt, s)

static void log_in(void)
{
    SHOW(SYM(login_tty)(s));
}
ROW(login_tty, )
{
    rows_apart(log_in);
}

/* ---- descriptors of other kinds ---- */

static struct itimerspec times;
static sigset_t signals;
static struct mq_attr attributes;
static char priority[4];

TRY(inotify_add_watch, s, "/", IN_OPEN)
TRY(inotify_rm_watch, s, 1)
TRY(fanotify_mark, s, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "/")
TRY(signalfd, s, &signals, 0)
TRY(timerfd_gettime, s, &times)
TRY(timerfd_settime, s, 0, &times, NULL)
TRY(mq_getattr, s, &attributes)
TRY(mq_notify, s, NULL)
TRY(mq_receive, s, buf, sizeof(buf), (unsigned *)priority)
TRY(mq_send, s, buf, 1, 0)
TRY(mq_setattr, s, &attributes, NULL)
TRY(mq_timedreceive, s, buf, sizeof(buf), NULL, &times.it_value)
TRY(mq_timedsend, s, buf, 1, 0, &times.it_value)
pid_t pidfd_getpid(int fd); /* where sys/pidfd.h does not have it yet */
TRY(pidfd_getpid, s)
TRY(pidfd_send_signal, s, 0, NULL, 0)
TRY(process_madvise, s, &part, 1, 0, 0)
TRY(process_mrelease, s, 0)
TRY(fsconfig, s, 0, NULL, NULL, 0)
TRY(fsmount, s, 0, 0)

int getmsg(int fd, void *control, void *data, int *flags);
int getpmsg(int fd, void *control, void *data, int *band, int *flags);
int putmsg(int fd, const void *control, const void *data, int flags);
int putpmsg(int fd, const void *control, const void *data, int band, int flags);
int isastream(int fd);

TRY(getmsg, s, NULL, NULL, (int *)buf)
TRY(getpmsg, s, NULL, NULL, (int *)buf, (int *)buf)
TRY(putmsg, s, NULL, NULL, 0)
TRY(putpmsg, s, NULL, NULL, 0, 0)
TRY(isastream, s)

/* ---- what the anchor answers ---- */

static struct sockaddr_in name_;
static socklen_t length = sizeof(name_);
static uint32_t mode, count = 1;
static struct in_addr group, sources[1];

TRY(bind, s, (struct sockaddr *)&name_, sizeof(name_))
TRY(bindresvport, s, &name_)
TRY(getsockname, s, (struct sockaddr *)&name_, &length)
TRY(getpeername, s, (struct sockaddr *)&name_, &length)
TRY(getsourcefilter, s, 1, (struct sockaddr *)&name_, sizeof(name_), &mode, &count, NULL)
TRY(setsourcefilter, s, 1, (struct sockaddr *)&name_, sizeof(name_), 0, 0, NULL)
TRY(getipv4sourcefilter, s, group, group, &mode, &count, sources)
TRY(setipv4sourcefilter, s, group, group, 0, 0, sources)

int __fxstat(int version, int fd, struct stat *st);
int __fxstat64(int version, int fd, struct stat64 *st);
int __fxstatat(int version, int fd, const char *path, struct stat *st, int flags);
int __fxstatat64(int version, int fd, const char *path, struct stat64 *st, int flags);
static struct stat st;
static struct stat64 st64;
static struct statx stx;
static struct statfs fs;
static struct statfs64 fs64;
static struct statvfs vfs;
static struct statvfs64 vfs64;

TRY(fstat, s, &st)
TRY(fstat64, s, &st64)
TRY(__fxstat, 1, s, &st)
TRY(__fxstat64, 1, s, &st64)
TRY(fstatat, s, "", &st, AT_EMPTY_PATH)
TRY(fstatat64, s, "", &st64, AT_EMPTY_PATH)
TRY(__fxstatat, 1, s, "", &st, AT_EMPTY_PATH)
TRY(__fxstatat64, 1, s, "", &st64, AT_EMPTY_PATH)
TRY(statx, s, "", AT_EMPTY_PATH, STATX_TYPE, &stx)
TRY(isfdtype, s, S_IFSOCK)
TRY(fstatfs, s, &fs)
TRY(fstatfs64, s, &fs64)
TRY(fstatvfs, s, &vfs)
TRY(fstatvfs64, s, &vfs64)
TRY(fpathconf, s, _PC_PIPE_BUF)
TRY(syncfs, s)
TRY(posix_fadvise, s, 0, 0, POSIX_FADV_NORMAL)
TRY(posix_fadvise64, s, 0, 0, POSIX_FADV_NORMAL)
TRY(fchmod, s, 0777)
TRY(fchown, s, (uid_t)-1, (gid_t)-1)
TRY(fchownat, s, "", (uid_t)-1, (gid_t)-1, AT_EMPTY_PATH)
TRY(futimens, s, NULL)
TRY(futimes, s, NULL)
TRY(utimensat, s, "", NULL, AT_EMPTY_PATH)
TRY(fgetxattr, s, "system.sockprotoname", buf, sizeof(buf))
TRY(fsetxattr, s, "user.x", "y", 1, 0)
TRY(flistxattr, s, buf, sizeof(buf))
TRY(fremovexattr, s, "user.x")
TRY(name_to_handle_at, s, "", (struct file_handle *)handle, &mount_id, AT_EMPTY_PATH)
TRY(flock, s, LOCK_EX | LOCK_NB)
TRY(lockf, s, F_TEST, 0)
TRY(lockf64, s, F_TEST, 0)
TRY_POINTER(mmap, NULL, 4096, PROT_READ, MAP_SHARED, s, 0)
TRY_POINTER(mmap64, NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, s, 0)

ROW(aio_fsync, )
{
    struct aiocb cb = {.aio_fildes = s};

    SHOW(SYM(aio_fsync)(O_SYNC, &cb));
    while (aio_error(&cb) == EINPROGRESS)
        aio_suspend((const struct aiocb *[]){&cb}, 1, NULL);
    printf("  %s\n", strerrorname_np(aio_error(&cb)));
}

ROW(aio_fsync64, )
{
    struct aiocb64 cb = {.aio_fildes = s};

    SHOW(SYM(aio_fsync64)(O_SYNC, &cb));
    while (aio_error64(&cb) == EINPROGRESS)
        aio_suspend64((const struct aiocb64 *[]){&cb}, 1, NULL);
    printf("  %s\n", strerrorname_np(aio_error64(&cb)));
}

TRY(aio_cancel, s, NULL)
TRY(aio_cancel64, s, NULL)

/* ---- file actions are about a child's numbers ---- */

static void spawn(const char *what, int (*add)(posix_spawn_file_actions_t *))
{
    char *argv[] = {"true", NULL};
    posix_spawn_file_actions_t acts;
    int status = -1;
    pid_t pid;

    fcntl(c, F_SETFD, FD_CLOEXEC);
    fcntl(s, F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_init(&acts);
    printf("  %s %d\n", what, add(&acts));
    if (posix_spawnp(&pid, "true", &acts, NULL, argv, environ) == 0)
        must(waitpid(pid, &status, 0) == pid, "waitpid");
    printf("  %d\n", status);
    posix_spawn_file_actions_destroy(&acts);
    rows_over();
}

#define ACTION(name, ...)                                \
    static int act_##name(posix_spawn_file_actions_t *a) \
    {                                                    \
        return SYM(name)(a, __VA_ARGS__);                \
    }                                                    \
    ROW(name, )                                          \
    {                                                    \
        spawn(#name, act_##name);                        \
    }

ACTION(posix_spawn_file_actions_addclose, s)
ACTION(posix_spawn_file_actions_addopen, s, "/dev/null", O_RDONLY, 0)
ACTION(posix_spawn_file_actions_addfchdir_np, s)
ACTION(posix_spawn_file_actions_addclosefrom_np, 3)
ACTION(posix_spawn_file_actions_addtcsetpgrp_np, s)
