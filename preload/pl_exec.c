/*
 * pl_exec.c - the exec family. The new program knows nothing of rails: streams leave
 * first. When the exec fails they may board again, except those that it would have
 * inherited.
 *
 * Called by the application on any thread, and very often in a child after fork or vfork, where
 * there is nothing to leave.
 */
#include "preload/pl_own.h"

#include "ipoib_fallback/pubfile.h"

#include <limits.h>
#include <unistd.h>

PL_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
    int r;

    pl_ready();
    pl_before_exec();
    fb_pub_show(false);
    r = pl_real.execve(path, argv, envp);
    fb_pub_show(true);
    return r;
}

PL_EXPORT int execv(const char *path, char *const argv[])
{
    return execve(path, argv, environ);
}

PL_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
    int r;

    pl_ready();
    pl_before_exec();
    fb_pub_show(false);
    r = pl_real.execvpe(file, argv, envp);
    fb_pub_show(true);
    return r;
}

PL_EXPORT int execvp(const char *file, char *const argv[])
{
    return execvpe(file, argv, environ);
}

PL_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
    int r;

    pl_ready();
    pl_before_exec();
    fb_pub_show(false);
    r = pl_real.fexecve(fd, argv, envp);
    fb_pub_show(true);
    return r;
}

PL_EXPORT int execveat(int dirfd, const char *path, char *const argv[], char *const envp[],
                       int flags)
{
    int r;

    pl_ready();
    pl_before_exec();
    fb_pub_show(false);
    r = pl_real.execveat(dirfd, path, argv, envp, flags);
    fb_pub_show(true);
    return r;
}

/* ---- the list forms: an array is made of the list, on the stack because a vfork child must not
 * allocate in its parent's memory ---- */

/* Elements up to the NULL that ends the list, first included; ap is read through. */
static long list_length(const char *first, va_list ap)
{
    long n = 0;

    while (first && n < INT_MAX) {
        first = va_arg(ap, const char *);
        n++;
    }
    return n;
}

static void list_copy(char **argv, const char *first, long n, va_list *ap)
{
    long i;

    argv[0] = (char *)first;
    for (i = 1; i <= n; i++)
        argv[i] = va_arg(*ap, char *);
}

/* Makes argv from the variable arguments after `first`, and leaves ap behind their NULL. */
#define LIST(argv, first, ap)         \
    va_start(ap, first);              \
    long n_ = list_length(first, ap); \
    char *(argv)[n_ + 1];             \
    va_end(ap);                       \
    va_start(ap, first);              \
    list_copy(argv, first, n_, &ap)

PL_EXPORT int execl(const char *path, const char *arg, ...)
{
    va_list ap;

    LIST(argv, arg, ap);
    va_end(ap);
    return execve(path, argv, environ);
}

PL_EXPORT int execlp(const char *file, const char *arg, ...)
{
    va_list ap;

    LIST(argv, arg, ap);
    va_end(ap);
    return execvpe(file, argv, environ);
}

PL_EXPORT int execle(const char *path, const char *arg, ...)
{
    va_list ap;
    char **envp;

    LIST(argv, arg, ap);
    envp = va_arg(ap, char **);
    va_end(ap);
    return execve(path, argv, envp);
}
