/*
 * pl_aio.c - POSIX asynchronous I/O. glibc does it in threads of its own, by internal names that
 * nobody can intercept, so a stream leaves and stays on TCP before. Where that is not possible,
 * because its peer has gone with bytes of the rail unread or these lie before an announced switch,
 * who reads gets them here and now: such a request is over when it has been made.
 *
 * Called by the application on any thread.
 */
#include "preload/pl_own.h"

#include "config/reason.h"

#include <aio.h>
#include <errno.h>

/* struct aiocb64 is the same on 64 bits. */
_Static_assert(sizeof(struct aiocb) == sizeof(struct aiocb64), "");

/* What is written by another thread does not wait here for longer than for a hand-over. */
static int pin_queued(int fd)
{
    PL_HELD f = pl_get_stream(fd);
    int err = f ? fb_pin_tx(f->stream, fd, RSN_CALL, MSG_DONTWAIT) : 0;

    if (err != -EAGAIN)
        return err;
    (void)fb_hand_over(f->stream, RSN_CALL, RSK_TX);
    return fb_pin_tx(f->stream, fd, RSN_CALL, MSG_DONTWAIT);
}

/* What read() would say now, or -EAGAIN: glibc's own shall ask. */
static ssize_t read_now(const struct aiocb *cb)
{
    PL_HELD f = pl_get_stream(cb->aio_fildes);
    struct iovec v = pl_iov_one((const void *)cb->aio_buf, cb->aio_nbytes);

    if (!f)
        return -EAGAIN;
    fb_pin(f->stream, RSN_CALL, true);
    /* What glibc refuses, or the kernel, it shall refuse. */
    if (fb_plain_rx(f->stream) || !v.iov_base || !v.iov_len || PL_TOO_LONG(cb->aio_nbytes) ||
        cb->aio_offset < 0 || cb->aio_reqprio < 0 || cb->aio_reqprio > AIO_PRIO_DELTA_MAX)
        return -EAGAIN;
    return fb_recvv(f->stream, f->fd, &v, 1, MSG_DONTWAIT);
}

/* glibc tells of a list with nothing in it at once, in the way that is asked for. */
static void tell(struct sigevent *how)
{
    int saved = errno;

    (void)pl_real.lio_listio(LIO_NOWAIT, NULL, 0, how);
    errno = saved;
}

/* False: it is glibc's. *failed: an error has ended it. */
static bool over(struct aiocb *cb, bool *failed)
{
    ssize_t n = read_now(cb);
    struct sigevent how = cb->aio_sigevent;

    if (n == -EAGAIN || n == -EINTR || n == -EBADF)
        return false;
    *failed |= n < 0;
    cb->aio_lio_opcode = LIO_READ;
    cb->__return_value = n < 0 ? -1 : n;
    /* Who looks at it without a lock sees the value, and may use cb again. */
    __atomic_store_n(&cb->__error_code, n < 0 ? (int)-n : 0, __ATOMIC_RELEASE);
    tell(&how);
    return true;
}

PL_EXPORT int aio_read(struct aiocb *cb)
{
    bool failed = false;

    pl_ready();
    return over(cb, &failed) ? 0 : pl_real.aio_read(cb);
}

PL_EXPORT int aio_read64(struct aiocb64 *cb)
{
    bool failed = false;

    pl_ready();
    return over((struct aiocb *)cb, &failed) ? 0 : pl_real.aio_read64(cb);
}

PL_EXPORT int aio_write(struct aiocb *cb)
{
    int err;

    pl_ready();
    err = pin_queued(cb->aio_fildes);
    return err ? (int)pl_ret(err) : pl_real.aio_write(cb);
}

PL_EXPORT int aio_write64(struct aiocb64 *cb)
{
    int err;

    pl_ready();
    err = pin_queued(cb->aio_fildes);
    return err ? (int)pl_ret(err) : pl_real.aio_write64(cb);
}

/* Those that write first: if one of them cannot, nothing has begun. 0 or -errno. */
static int pin_writes(struct aiocb *const list[], int n)
{
    int err = 0;

    for (int i = 0; i < n && !err; i++)
        if (list[i] && list[i]->aio_lio_opcode == LIO_WRITE)
            err = pin_queued(list[i]->aio_fildes);
    return err;
}

/* Copies to left what is glibc's. True: one of the others has failed. */
static bool read_those_that_can(struct aiocb *const list[], int n, struct aiocb *left[])
{
    bool failed = false;

    for (int i = 0; i < n; i++)
        left[i] = list[i] && list[i]->aio_lio_opcode == LIO_READ && over(list[i], &failed)
                      ? NULL
                      : list[i];
    return failed;
}

static int listio(int mode, struct aiocb *const list[], int n, struct sigevent *sev)
{
    struct aiocb *left[n > 0 ? n : 1]; /* glibc has as many pointers on its stack */
    int err = pin_writes(list, n), r;
    bool failed;

    if (err)
        return (int)pl_ret(err);
    failed = read_those_that_can(list, n, left);
    r = pl_real.lio_listio(mode, left, n, sev);
    return r == 0 && failed && mode == LIO_WAIT ? (int)pl_ret(-EIO) : r;
}

PL_EXPORT int lio_listio(int mode, struct aiocb *const list[restrict], int n,
                         struct sigevent *restrict sev)
{
    pl_ready();
    return mode == LIO_WAIT || mode == LIO_NOWAIT ? listio(mode, list, n, sev)
                                                  : pl_real.lio_listio(mode, list, n, sev);
}

PL_EXPORT int lio_listio64(int mode, struct aiocb64 *const list[restrict], int n,
                           struct sigevent *restrict sev)
{
    return lio_listio(mode, (struct aiocb *const *)list, n, sev);
}
