/*
 * sys.h - the kernel, called directly. Everything inside the library that is
 * not the application's own call goes through here: the libc names are the
 * ones that the library interposes, so calling them would come back to us, and
 * they set errno, which an intercepted call must not change on success.
 *
 * Each returns the kernel's result: 0 or a count, or -errno. None is a
 * cancellation point. EINTR is returned as it comes.
 */
#ifndef RSK_SYS_H
#define RSK_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/prctl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* What each intercepted call reads first lies together, in one cache line or two: after a system
 * call that has sent or received, little of ours is left in the cache. */
#define RSK_HOT __attribute__((section("rsk_hot")))

#if defined(__x86_64__)
static inline long sys_call6(long nr, long a, long b, long c, long d, long e, long f)
{
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#elif defined(__aarch64__)
static inline long sys_call6(long nr, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "railsock: no system call sequence for this architecture"
#endif

#define SYS6(nr, a, b, c, d, e, f) \
    sys_call6((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* clang-format off */
static inline int sys_close(int fd) { return (int)SYS6(SYS_close, fd, 0, 0, 0, 0, 0); }
static inline ssize_t sys_read(int fd, void *p, size_t n) { return SYS6(SYS_read, fd, p, n, 0, 0, 0); }
static inline ssize_t sys_write(int fd, const void *p, size_t n) { return SYS6(SYS_write, fd, p, n, 0, 0, 0); }
static inline ssize_t sys_recv(int fd, void *p, size_t n, int flags) { return SYS6(SYS_recvfrom, fd, p, n, flags, 0, 0); }
static inline ssize_t sys_send(int fd, const void *p, size_t n, int flags) { return SYS6(SYS_sendto, fd, p, n, flags, 0, 0); }
static inline ssize_t sys_recvmsg(int fd, struct msghdr *m, int flags) { return SYS6(SYS_recvmsg, fd, m, flags, 0, 0, 0); }
static inline ssize_t sys_sendmsg(int fd, const struct msghdr *m, int flags) { return SYS6(SYS_sendmsg, fd, m, flags, 0, 0, 0); }
static inline int sys_socket(int d, int t, int p) { return (int)SYS6(SYS_socket, d, t, p, 0, 0, 0); }
static inline int sys_connect(int fd, const void *a, socklen_t n) { return (int)SYS6(SYS_connect, fd, a, n, 0, 0, 0); }
static inline int sys_bind(int fd, const void *a, socklen_t n) { return (int)SYS6(SYS_bind, fd, a, n, 0, 0, 0); }
static inline int sys_listen(int fd, int n) { return (int)SYS6(SYS_listen, fd, n, 0, 0, 0, 0); }
static inline int sys_accept4(int fd, void *a, socklen_t *n, int flags) { return (int)SYS6(SYS_accept4, fd, a, n, flags, 0, 0); }
static inline int sys_shutdown(int fd, int how) { return (int)SYS6(SYS_shutdown, fd, how, 0, 0, 0, 0); }
static inline int sys_getsockopt(int fd, int l, int o, void *v, socklen_t *n) { return (int)SYS6(SYS_getsockopt, fd, l, o, v, n, 0); }
static inline int sys_setsockopt(int fd, int l, int o, const void *v, socklen_t n) { return (int)SYS6(SYS_setsockopt, fd, l, o, v, n, 0); }
static inline int sys_getsockname(int fd, void *a, socklen_t *n) { return (int)SYS6(SYS_getsockname, fd, a, n, 0, 0, 0); }
static inline int sys_getpeername(int fd, void *a, socklen_t *n) { return (int)SYS6(SYS_getpeername, fd, a, n, 0, 0, 0); }
static inline int sys_ioctl(int fd, unsigned long q, void *p) { return (int)SYS6(SYS_ioctl, fd, q, p, 0, 0, 0); }
static inline int sys_fcntl(int fd, int cmd, long arg) { return (int)SYS6(SYS_fcntl, fd, cmd, arg, 0, 0, 0); }
static inline int sys_ftruncate(int fd, off_t n) { return (int)SYS6(SYS_ftruncate, fd, n, 0, 0, 0, 0); }
static inline int sys_memfd_create(const char *name, unsigned flags) { return (int)SYS6(SYS_memfd_create, name, flags, 0, 0, 0, 0); }
static inline int sys_eventfd(unsigned n, int flags) { return (int)SYS6(SYS_eventfd2, n, flags, 0, 0, 0, 0); }
static inline int sys_epoll_create1(int flags) { return (int)SYS6(SYS_epoll_create1, flags, 0, 0, 0, 0, 0); }
static inline int sys_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev) { return (int)SYS6(SYS_epoll_ctl, ep, op, fd, ev, 0, 0); }
static inline int sys_epoll_wait(int ep, struct epoll_event *ev, int max, int ms) { return (int)SYS6(SYS_epoll_pwait, ep, ev, max, ms, 0, 8); }
static inline int sys_ppoll(struct pollfd *p, nfds_t n, const struct timespec *ts, const void *mask) { return (int)SYS6(SYS_ppoll, p, n, ts, mask, 8, 0); }
static inline int sys_futex(_Atomic uint32_t *w, int op, uint32_t v, const struct timespec *ts) { return (int)SYS6(SYS_futex, w, op, v, ts, 0, FUTEX_BITSET_MATCH_ANY); }
static inline int sys_getrandom(void *p, size_t n) { return (int)SYS6(SYS_getrandom, p, n, 0, 0, 0, 0); }
static inline int sys_gettid(void) { return (int)SYS6(SYS_gettid, 0, 0, 0, 0, 0, 0); }
static inline int sys_getpid(void) { return (int)SYS6(SYS_getpid, 0, 0, 0, 0, 0, 0); }
static inline unsigned sys_geteuid(void) { return (unsigned)SYS6(SYS_geteuid, 0, 0, 0, 0, 0, 0); }
/* May there be a seccomp filter, which kills who makes a call that it does not know? */
static inline int sys_filtered(void) { return SYS6(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0) != 0; }
static inline int sys_yield(void) { return (int)SYS6(SYS_sched_yield, 0, 0, 0, 0, 0, 0); }
static inline int sys_open(const char *path, int flags, int mode) { return (int)SYS6(SYS_openat, AT_FDCWD, path, flags, mode, 0, 0); }
static inline int sys_unlink(const char *path) { return (int)SYS6(SYS_unlinkat, AT_FDCWD, path, 0, 0, 0, 0); }
/* clang-format on */

/* Blocks all of the calling thread's signals: whoever holds a lock, and may not be in a section.
 * Returns what was blocked. */
static inline uint64_t sys_block_signals(void)
{
    uint64_t all = UINT64_MAX, before = 0;

    SYS6(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all, 0, 0);
    return before;
}

static inline void sys_restore_signals(uint64_t before)
{
    SYS6(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before, 0, 0);
}

/* A TCP connection is reset at both ends, also for who holds its socket under another number or in
 * another process. */
static inline int sys_reset(int fd)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};

    return sys_connect(fd, &none, sizeof none);
}

/* Monotonic time in nanoseconds; the vDSO, no system call. */
static inline uint64_t sys_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The kernel's, for what it is told by that clock: libraries that show a program another time take
 * libc's function. */
static inline uint64_t sys_now_kernel(void)
{
    struct timespec ts = {0};
    SYS6(SYS_clock_gettime, CLOCK_MONOTONIC, &ts, 0, 0, 0, 0);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/*
 * Moves a descriptor of ours out of the application's way: to the lowest free number from 512 on,
 * if it is not there. It has close-on-exec set. Closes fd; returns the new number with
 * close-on-exec set, or -errno: a limit that does not allow for such numbers leaves them all to
 * the application.
 */
static inline int sys_hide_fd(int fd)
{
    int high;
    if (fd < 0 || fd >= 512)
        return fd;
    high = sys_fcntl(fd, F_DUPFD_CLOEXEC, 512);
    sys_close(fd);
    return high == -EINVAL ? -EMFILE : high;
}

/* The same, but where there is no such number it stays where it is. */
static inline int sys_hide_if_possible(int fd)
{
    int high = fd < 0 || fd >= 512 ? fd : sys_fcntl(fd, F_DUPFD_CLOEXEC, 512);

    if (high < 0 || high == fd)
        return fd;
    sys_close(fd);
    return high;
}

/* Does the calling thread have this capability now? */
static inline bool sys_capable(int cap)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    return SYS6(SYS_capget, &head, data, 0, 0, 0, 0) == 0 &&
           (data[CAP_TO_INDEX(cap)].effective & CAP_TO_MASK(cap));
}

/* Not in a user namespace of its own, where capabilities do not hold for what is the whole
 * machine's. Where there is no /proc, who has them is believed. */
static inline bool sys_in_first_users(void)
{
    const ino_t first = 0xeffffffd; /* the kernel's PROC_USER_INIT_INO, which never changes */
    struct stat st;

    return stat("/proc/thread-self/ns/user", &st) < 0 || st.st_ino == first;
}

static inline void sys_pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
