/*
 * pl_real.c - finds the next definition of every intercepted symbol, all at the first
 * need: calls come before our constructor (from constructors of other libraries) and
 * from inside dlsym itself (which may allocate, and an allocator may read its
 * configuration). Until the pointers are there, the calls that can happen in such a place are
 * plain system calls.
 *
 * Any thread. No lock: threads that come at the same time each look up, and one publishes.
 */
#include "preload/real.h"

#include "rsock/sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static long result(long n)
{
    if (n >= 0)
        return n;
    errno = (int)-n;
    return -1;
}

static ssize_t early_read(int fd, void *buf, size_t n)
{
    return result(sys_read(fd, buf, n));
}

static ssize_t early_write(int fd, const void *buf, size_t n)
{
    return result(sys_write(fd, buf, n));
}

static ssize_t early_readv(int fd, const struct iovec *v, int cnt)
{
    return result(SYS6(SYS_readv, fd, v, cnt, 0, 0, 0));
}

static ssize_t early_writev(int fd, const struct iovec *v, int cnt)
{
    return result(SYS6(SYS_writev, fd, v, cnt, 0, 0, 0));
}

static int early_close(int fd)
{
    return (int)result(sys_close(fd));
}

static int early_dup(int fd)
{
    return (int)result(SYS6(SYS_dup, fd, 0, 0, 0, 0, 0));
}

static int early_fcntl(int fd, int cmd, ...)
{
    va_list ap;
    long arg;

    va_start(ap, cmd);
    arg = va_arg(ap, long);
    va_end(ap);
    return (int)result(sys_fcntl(fd, cmd, arg));
}

static int early_ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    void *arg;

    va_start(ap, request);
    arg = va_arg(ap, void *);
    va_end(ap);
    return (int)result(sys_ioctl(fd, request, arg));
}

static int early_socket(int domain, int type, int protocol)
{
    return (int)result(sys_socket(domain, type, protocol));
}

static int early_openat(int at, const char *path, int flags, ...)
{
    va_list ap;
    mode_t mode;

    va_start(ap, flags);
    mode = va_arg(ap, mode_t);
    va_end(ap);
    return (int)result(SYS6(SYS_openat, at, path, flags, mode, 0, 0));
}

static int early_open(const char *path, int flags, ...)
{
    va_list ap;
    mode_t mode;

    va_start(ap, flags);
    mode = va_arg(ap, mode_t);
    va_end(ap);
    return early_openat(AT_FDCWD, path, flags, mode);
}

static int early_open_2(const char *path, int flags)
{
    return early_openat(AT_FDCWD, path, flags, 0);
}

static int early_openat_2(int at, const char *path, int flags)
{
    return early_openat(at, path, flags, 0);
}

static int early_creat(const char *path, mode_t mode)
{
    return early_openat(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* The system call that the function is. */
#define EARLY_INT(name, nr, params, a, b, c, d)         \
    static int early_##name params                      \
    {                                                   \
        return (int)result(SYS6(nr, a, b, c, d, 0, 0)); \
    }

EARLY_INT(pipe, SYS_pipe2, (int pair[2]), pair, 0, 0, 0)
EARLY_INT(pipe2, SYS_pipe2, (int pair[2], int flags), pair, flags, 0, 0)
EARLY_INT(socketpair, SYS_socketpair, (int domain, int type, int protocol, int pair[2]), domain,
          type, protocol, pair)
EARLY_INT(eventfd, SYS_eventfd2, (unsigned int count, int flags), count, flags, 0, 0)
EARLY_INT(timerfd_create, SYS_timerfd_create, (clockid_t clock, int flags), clock, flags, 0, 0)
EARLY_INT(signalfd, SYS_signalfd4, (int fd, const sigset_t *mask, int flags), fd, mask, 8, flags)
EARLY_INT(inotify_init, SYS_inotify_init1, (void), 0, 0, 0, 0)
EARLY_INT(inotify_init1, SYS_inotify_init1, (int flags), flags, 0, 0, 0)
EARLY_INT(memfd_create, SYS_memfd_create, (const char *name, unsigned int flags), name, flags, 0, 0)

/* glibc's other name of fopen. */
FILE *_IO_fopen(const char *path, const char *mode);

static void early_exit(int status)
{
    for (;;)
        SYS6(SYS_exit_group, status, 0, 0, 0, 0, 0);
}

/* Stands for a symbol that this libc does not have. */
static long missing(void)
{
    errno = ENOSYS;
    return -1;
}

#define EARLY                                                                                   \
    {                                                                                           \
        .read = early_read, .__read = early_read, .write = early_write, .__write = early_write, \
        .readv = early_readv, .writev = early_writev, .close = early_close,                     \
        .__close = early_close, .dup = early_dup, .fcntl = early_fcntl, .fcntl64 = early_fcntl, \
        .__fcntl = early_fcntl, .open = early_open, .open64 = early_open, .__open = early_open, \
        .__open64 = early_open, .__open_2 = early_open_2, .__open64_2 = early_open_2,           \
        .__openat_2 = early_openat_2, .__openat64_2 = early_openat_2, .creat = early_creat,     \
        .creat64 = early_creat, .pipe = early_pipe, .__pipe = early_pipe, .pipe2 = early_pipe2, \
        .socketpair = early_socketpair, .eventfd = early_eventfd,                               \
        .timerfd_create = early_timerfd_create, .signalfd = early_signalfd,                     \
        .inotify_init = early_inotify_init, .inotify_init1 = early_inotify_init1,               \
        .memfd_create = early_memfd_create, .openat = early_openat, .openat64 = early_openat,   \
        .fopen = _IO_fopen, .fopen64 = _IO_fopen, .ioctl = early_ioctl, .socket = early_socket, \
        ._exit = early_exit, ._Exit = early_exit                                                \
    }

struct pl_real pl_real = EARLY;
RSK_HOT _Atomic bool pl_resolved;

/* This thread is inside dlsym, or publishing: a call from there gets the early functions. */
static __thread bool resolving;

static const struct {
    const char *name;
    size_t at;
} symbols[] = {
#define CALL(ret, name, params, args, class) {#name, offsetof(struct pl_real, name)},
#include "preload/calls.def"
#undef CALL
};

/* To ask for what an older libc does not have, or only liburing, takes memory, which a program
 * would see: not before it is called. */
static bool is_newer(const char *name)
{
    return strcmp(name, "pidfd_spawn") == 0 || strcmp(name, "pidfd_spawnp") == 0 ||
           strncmp(name, "io_uring_", 9) == 0;
}

void *pl_newer(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

void pl_resolve(void)
{
    static _Atomic int publisher;
    struct pl_real found = EARLY;
    void *none = (void *)missing;
    bool lacks = false;
    size_t i;
    int saved = errno;

    if (resolving)
        return;
    resolving = true;
    for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        char *slot = (char *)&found + symbols[i].at;
        void *symbol = is_newer(symbols[i].name) ? NULL : dlsym(RTLD_NEXT, symbols[i].name);

        if (symbol)
            memcpy(slot, &symbol, sizeof(symbol));
        else if (memcmp(slot, (void *[]){NULL}, sizeof(symbol)) == 0)
            memcpy(slot, &none, sizeof(none));
        lacks |= !symbol && !is_newer(symbols[i].name);
    }
    /* an older libc; what dlsym has noted of it is no answer to the program's dlerror() */
    if (lacks)
        (void)dlerror();
    if (atomic_exchange(&publisher, 1) == 0) {
        pl_real = found;
        /* Release: pairs with pl_ready. */
        atomic_store_explicit(&pl_resolved, true, memory_order_release);
    } else {
        while (!atomic_load_explicit(&pl_resolved, memory_order_acquire))
            sys_yield();
    }
    resolving = false;
    errno = saved;
}
