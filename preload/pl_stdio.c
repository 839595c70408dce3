/*
 * pl_stdio.c - descriptors that are given to stdio, or to a function of libc's that reads or
 * writes them inside. That happens by internal names that nobody can intercept, so their streams
 * leave and stay on TCP. fclose and freopen close numbers in the same way: we forget them before.
 *
 * Called by the application on any thread.
 */
#include "preload/pl_own.h"

#include "config/log.h"
#include "config/reason.h"

#include <errno.h>
#include <execinfo.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/eventfd.h>

static void pin(int fd, int reason)
{
    PL_HELD f = pl_get_stream(fd);

    if (f)
        fb_pin(f->stream, reason, true);
}

/* The same for what only writes: 0, or -errno, with which the call ends. */
static int pin_tx(int fd, int reason)
{
    PL_HELD f = pl_get_stream(fd);

    return f ? pl_pin_tx(f, reason, 0) : 0;
}

/* ---- stdio ---- */

/*
 * Stdio reads and writes a number by system calls of its own, so the stream leaves. Where it
 * cannot in time, or bytes that are unread lie before an announced switch, stdio gets a
 * stream of fopencookie, which calls us, and has the descriptor's number for fileno(). It has
 * no wide characters.
 */
static ssize_t cookie_read(void *cookie, char *buf, size_t n)
{
    return read((int)(intptr_t)cookie, buf, n);
}

/* As stdio's own: all of it, or an error. */
static ssize_t cookie_write(void *cookie, const char *buf, size_t n)
{
    size_t done = 0;

    while (done < n) {
        ssize_t r = write((int)(intptr_t)cookie, buf + done, n - done);

        if (r < 0)
            break;
        done += (size_t)r;
    }
    return (ssize_t)done;
}

static int cookie_seek(void *cookie, off64_t *to, int whence)
{
    (void)cookie, (void)to, (void)whence;
    errno = ESPIPE;
    return -1;
}

static int cookie_close(void *cookie)
{
    return close((int)(intptr_t)cookie);
}

/* Behind every FILE of libc lies what it calls; that of fopencookie's, once there is one. */
static const void *_Atomic cookie_table;

static const void *table_of(FILE *f)
{
    const void *table;

    memcpy(&table, f + 1, sizeof(table));
    return table;
}

static FILE *cookie_open(int fd, const char *mode)
{
    FILE *f =
        fopencookie((void *)(intptr_t)fd, mode,
                    (cookie_io_functions_t){cookie_read, cookie_write, cookie_seek, cookie_close});

    if (f) {
        f->_fileno = fd;
        f->_wide_data = NULL; /* for freopen, which takes anything else for a pointer */
        atomic_store(&cookie_table, table_of(f));
    }
    return f;
}

static unsigned directions(const char *mode)
{
    return strchr(mode, '+') ? RSK_RX | RSK_TX : *mode == 'r' ? RSK_RX : RSK_TX;
}

PL_EXPORT FILE *fdopen(int fd, const char *mode)
{
    pl_ready();
    PL_HELD f = pl_get_stream(fd);

    if (f || pl_made(fd))
        pl_made_file(fd);
    if (f && !fb_hand_over(f->stream, RSN_FDOPEN, directions(mode))) {
        log_info("descriptor %d: stdio uses it by way of the library", fd);
        return cookie_open(fd, mode);
    }
    return pl_real.fdopen(fd, mode);
}

PL_ALIAS(_IO_fdopen, fdopen);

/* What C++ streams of old were made of; no header has it any more. */
PL_EXPORT FILE *_IO_file_attach(FILE *file, int fd);
PL_EXPORT FILE *_IO_file_attach(FILE *file, int fd)
{
    pl_ready();
    pin(fd, RSN_FDOPEN);
    return pl_real._IO_file_attach(file, fd);
}

static bool is_stream(int fd)
{
    PL_HELD f = pl_get_stream(fd);

    return f != NULL;
}

/* Writes what is buffered, while the descriptor still is what it was: our close may end the
 * connection at once. What could not be written is lost, as at any close. 0, or errno. */
static int flushed(FILE *file)
{
    int err;

    if (__fpending(file) == 0 || fflush(file) == 0)
        return 0;
    err = errno;
    __fpurge(file);
    return err;
}

/* fclose of one of cookie_open's calls cookie_close itself, and freopen does as with any other
 * number. Returns the error of what was written, or 0. */
static int file_closing(FILE *file, bool again)
{
    int saved = errno, err = 0;
    int fd = file ? fileno_unlocked(file) : -1;

    if (fd >= 0 && (again || table_of(file) != atomic_load(&cookie_table))) {
        if (is_stream(fd))
            err = flushed(file);
        (void)pl_closing(fd);
    }
    errno = saved;
    return err;
}

PL_EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict file)
{
    FILE *now;

    pl_ready();
    (void)file_closing(file, true);
    now = pl_real.freopen(path, mode, file);
    if (now && fileno_unlocked(now) == STDERR_FILENO && pl_is_owner_here())
        cfg_log_note_stderr();
    return now;
}

PL_EXPORT FILE *freopen64(const char *restrict path, const char *restrict mode, FILE *restrict file)
{
    FILE *now;

    pl_ready();
    (void)file_closing(file, true);
    now = pl_real.freopen64(path, mode, file);
    if (now && fileno_unlocked(now) == STDERR_FILENO && pl_is_owner_here())
        cfg_log_note_stderr();
    return now;
}

PL_EXPORT int fclose(FILE *file)
{
    int err, r;

    pl_ready();
    err = file_closing(file, false);
    r = pl_real.fclose(file);
    if (err) {
        errno = err;
        r = EOF;
    }
    return r;
}

PL_ALIAS(_IO_fclose, fclose);

PL_EXPORT int vdprintf(int fd, const char *restrict fmt, va_list ap)
{
    int err;

    pl_ready();
    err = pin_tx(fd, RSN_FDOPEN);
    return err ? (int)pl_ret(err) : pl_real.vdprintf(fd, fmt, ap);
}

PL_EXPORT int dprintf(int fd, const char *restrict fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vdprintf(fd, fmt, ap);
    va_end(ap);
    return n;
}

PL_EXPORT int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);
PL_EXPORT int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
{
    int err;

    pl_ready();
    err = pin_tx(fd, RSN_FDOPEN);
    return err ? (int)pl_ret(err) : pl_real.__vdprintf_chk(fd, flag, fmt, ap);
}

PL_EXPORT int __dprintf_chk(int fd, int flag, const char *fmt, ...);
PL_EXPORT int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = __vdprintf_chk(fd, flag, fmt, ap);
    va_end(ap);
    return n;
}

/* ---- functions that read or write the number themselves ---- */

PL_EXPORT void backtrace_symbols_fd(void *const *array, int size, int fd)
{
    pl_ready();
    if (pin_tx(fd, RSN_CALL) == 0)
        pl_real.backtrace_symbols_fd(array, size, fd);
}

PL_ALIAS(__backtrace_symbols_fd, backtrace_symbols_fd);

/* They do not ask what the number is. */
PL_EXPORT int eventfd_read(int fd, eventfd_t *value)
{
    pl_ready();
    pin(fd, RSN_CALL);
    return pl_real.eventfd_read(fd, value);
}

PL_EXPORT int eventfd_write(int fd, eventfd_t value)
{
    int err;

    pl_ready();
    err = pin_tx(fd, RSN_CALL);
    return err ? (int)pl_ret(err) : pl_real.eventfd_write(fd, value);
}
