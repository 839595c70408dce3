/*
 * raw.h - the system calls that the config layer makes, without libc. The library
 * interposes libc's open, write and close, so calling those from here would come back
 * through its own wrappers; and they set errno. rsock/sys.h is the same for the layers
 * above, which this one may not include.
 *
 * Each returns the kernel's result: 0 or a count, or -errno.
 */
#ifndef CFG_RAW_H
#define CFG_RAW_H

#include <fcntl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>

#if defined(__x86_64__)
static inline long cfg_raw4(long nr, long a, long b, long c, long d)
{
    long ret;
    register long r10 __asm__("r10") = d;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return ret;
}
#elif defined(__aarch64__)
static inline long cfg_raw4(long nr, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;

    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#else
#error "railsock: no system call sequence for this architecture"
#endif

static inline ssize_t cfg_raw_write(int fd, const void *p, size_t n)
{
    return cfg_raw4(SYS_write, fd, (long)p, (long)n, 0);
}

/* Until the end, or until it is full. */
static inline ssize_t cfg_raw_read(int fd, char *p, size_t size)
{
    size_t used = 0;
    ssize_t n = 1;

    while (n > 0 && used < size) {
        n = cfg_raw4(SYS_read, fd, (long)(p + used), (long)(size - used), 0);
        used += n > 0 ? (size_t)n : 0;
    }
    return n < 0 ? n : (ssize_t)used;
}

static inline int cfg_raw_open(const char *path, int flags, int mode)
{
    return (int)cfg_raw4(SYS_openat, AT_FDCWD, (long)path, flags, mode);
}

static inline void cfg_raw_close(int fd)
{
    cfg_raw4(SYS_close, fd, 0, 0, 0);
}

#endif
