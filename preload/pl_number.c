/*
 * pl_number.c - calls that get a descriptor number and mean nothing to a stream. A new
 * descriptor of the library's has the lowest free number for some microseconds, until it is
 * moved out of the way: what a program gets meanwhile would not be the lowest, and one that
 * closes a number to get it again would get another. These calls are libc's, and wait until the
 * number is free again (rsock/own.h); so do those of other files that close, duplicate and
 * replace. Not here: what takes a number somewhere inside of libc (getaddrinfo, syslog,
 * popen...), where nobody counts on which it is.
 */
#include "preload/pl_own.h"

#include "rsock/own.h"
#include "rsock/sys.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

int pl_numbers(void)
{
    char buf[4096];
    ssize_t n = 0;
    const char *line;
    int file;

    rsk_own_enter();
    file = sys_open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC, 0);
    if (file >= 0) {
        n = sys_read(file, buf, sizeof(buf) - 1);
        sys_close(file);
    }
    rsk_own_leave();
    buf[n > 0 ? n : 0] = '\0';
    line = strstr(buf, "\nFDSize:");
    return line ? atoi(line + 8) : 0;
}

static void not_taking(void *a, void *b)
{
    (void)a;
    (void)b;
    rsk_own_taken();
}

void pl_numbered_begin(struct pl_numbered *n, const void *frame)
{
    n->on = !atomic_load_explicit(&pl_passive, memory_order_relaxed);
    if (!n->on)
        return;
    rsk_section_enter();
    if (__builtin_expect(rsk_sig.windows != 0, 0))
        rsk_windows_reclaim(frame);
    rsk_own_take();
    rsk_window_open(&n->pass, frame, not_taking, NULL, NULL);
    rsk_window_in_libc(&n->pass); /* fopen, for one */
}

void pl_numbered_end(struct pl_numbered *n)
{
    if (!n->on)
        return;
    if (rsk_window_close(&n->pass))
        rsk_own_taken();
    rsk_section_leave();
}

#define NUMBERED(ret, name, params, args)      \
    PL_EXPORT ret name params                  \
    {                                          \
        pl_ready();                            \
        return PL_NUMBERED(pl_real.name args); \
    }

/* mode is there if the flags ask for it; read anyhow, as libc does. */
#define OPENS(name, params, args, last)        \
    PL_EXPORT int name params                  \
    {                                          \
        va_list ap;                            \
        mode_t mode;                           \
                                               \
        va_start(ap, last);                    \
        mode = va_arg(ap, mode_t);             \
        va_end(ap);                            \
        pl_ready();                            \
        return PL_NUMBERED(pl_real.name args); \
    }

OPENS(open, (const char *path, int flags, ...), (path, flags, mode), flags)
OPENS(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode), flags)
PL_ALIAS(open64, open);
PL_ALIAS(__open, open);
PL_ALIAS(__open64, open);
PL_ALIAS(openat64, openat);

NUMBERED(int, __open_2, (const char *path, int flags), (path, flags))
NUMBERED(int, __open64_2, (const char *path, int flags), (path, flags))
NUMBERED(int, __openat_2, (int at, const char *path, int flags), (at, path, flags))
NUMBERED(int, __openat64_2, (int at, const char *path, int flags), (at, path, flags))
NUMBERED(int, creat, (const char *path, mode_t mode), (path, mode))
PL_ALIAS(creat64, creat);
NUMBERED(FILE *, fopen, (const char *path, const char *mode), (path, mode))
NUMBERED(FILE *, fopen64, (const char *path, const char *mode), (path, mode))
NUMBERED(int, pipe, (int pair[2]), (pair))
PL_ALIAS(__pipe, pipe);
NUMBERED(int, pipe2, (int pair[2], int flags), (pair, flags))
NUMBERED(int, socketpair, (int domain, int type, int protocol, int pair[2]),
         (domain, type, protocol, pair))
NUMBERED(int, eventfd, (unsigned int count, int flags), (count, flags))
NUMBERED(int, timerfd_create, (clockid_t clock, int flags), (clock, flags))
NUMBERED(int, signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))
NUMBERED(int, inotify_init, (void), ())
NUMBERED(int, inotify_init1, (int flags), (flags))
NUMBERED(int, memfd_create, (const char *name, unsigned int flags), (name, flags))
