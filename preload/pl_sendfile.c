/*
 * pl_sendfile.c - sendfile and splice. While the sending half is plain, sendfile is the
 * kernel's. On a rail the file is read piece by piece and sent, with the file's position
 * moved by what was sent, as sendfile(2) does. splice carries bytes past us in either
 * direction, so its streams leave first.
 *
 * Called by the application on any thread.
 */
#include "preload/pl_own.h"

#include "config/reason.h"
#include "rsock/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

enum { PIECE = 16384 }; /* on the stack */

/* The input is something that can be read at an offset: a file, or a device like one. */
static bool seekable(int in)
{
    return SYS6(SYS_lseek, in, 0, SEEK_CUR, 0, 0, 0) >= 0;
}

/*
 * Returns the bytes sent, or -errno with none sent. -ENOTSUP: the kernel has to judge these
 * arguments.
 */
__attribute__((noinline)) static ssize_t rail(struct pl_file *f, int in, off64_t *off, size_t n)
{
    char piece[PIECE];
    off64_t pos;
    size_t sent = 0;
    ssize_t got, put = 0;
    uint32_t signals = rsk_sig.seen;

    if (n > PL_RW_MAX)
        n = PL_RW_MAX;
    pos = off ? *off : SYS6(SYS_lseek, in, 0, SEEK_CUR, 0, 0, 0);
    while (sent < n) {
        struct iovec v = {piece, n - sent < PIECE ? n - sent : PIECE};

        got = SYS6(SYS_pread64, in, piece, v.iov_len, pos, 0, 0);
        if (got < 0 && sent == 0)
            return -ENOTSUP;
        if (got <= 0)
            break;
        v.iov_len = (size_t)got;
        put = fb_sendv(f->stream, f->fd, &v, 1, 0);
        if (put <= 0)
            break;
        sent += (size_t)put;
        pos += put;
        /* A handler may have run in a wait that then was not in vain. */
        if (put < got || rsk_sig.seen != signals)
            break;
    }
    if (sent > 0 && off)
        *off = pos;
    else if (sent > 0)
        SYS6(SYS_lseek, in, pos, SEEK_SET, 0, 0, 0);
    if (sent > 0)
        return (ssize_t)sent;
    if (put == -EPIPE)
        SYS6(SYS_tgkill, sys_getpid(), sys_gettid(), SIGPIPE, 0, 0, 0);
    return put;
}

static void lower(void *stream, void *unused)
{
    (void)unused;
    fb_tx_leave_unseen(stream, -EINTR);
}

PL_EXPORT ssize_t sendfile64(int out, int in, off64_t *off, size_t n)
{
    pl_ready();
    PL_HELD f = pl_get_stream(out);
    struct rsk_pass pass;
    ssize_t sent;

    if (!f)
        return pl_real.sendfile64(out, in, off, n);
    if (!fb_tx_enter(f->stream)) {
        sent = n > 0 && seekable(in) ? rail(f, in, off, n) : -ENOTSUP;
        if (sent != -ENOTSUP)
            return pl_ret(sent);
        fb_pin(f->stream, RSN_CALL, true);
        return RSK_OPENED(pl_real.sendfile64(out, in, off, n));
    }
    /* Not a cancellation point. */
    rsk_window_open(&pass, __builtin_frame_address(0), lower, f->stream, NULL);
    sent = pl_real.sendfile64(out, in, off, n);
    if (!rsk_window_close(&pass))
        atomic_fetch_add(&f->stream->tx_in, 1); /* see pl_recv.c */
    fb_tx_leave_unseen(f->stream, sent < 0 ? -errno : sent);
    return sent;
}

PL_ALIAS(sendfile, sendfile64);

/* What splice does from a stream that its peer has not handed back yet, or where an announced switch lies behind bytes
 * that are unread: a page goes through our hands, for which a pipe that polls as writable has room. */
static ssize_t through(struct pl_file *f, int out, size_t n, unsigned int flags)
{
    const bool nonblock = flags & SPLICE_F_NONBLOCK || sys_fcntl(out, F_GETFL, 0) & O_NONBLOCK;
    char page[PIPE_BUF];
    struct iovec v = {page, n < sizeof page ? n : sizeof page};
    struct pollfd p = {out, POLLOUT, 0};
    ssize_t got = sys_ppoll(&p, 1, nonblock ? &(struct timespec){0, 0} : NULL, NULL);

    if (got <= 0)
        return got == 0 ? -EAGAIN : got;
    if (p.revents & POLLERR) /* nobody reads it: SIGPIPE */
        return SYS6(SYS_write, out, "", 1, 0, 0, 0);
    got = fb_recvv(f->stream, f->fd, &v, 1, 0);
    return got <= 0 ? got : SYS6(SYS_write, out, page, got, 0, 0, 0);
}

static bool is_pipe(int fd)
{
    struct stat st = {0};

    return SYS6(SYS_fstat, fd, &st, 0, 0, 0, 0) == 0 && S_ISFIFO(st.st_mode);
}

/* An error that the library has taken from the kernel, and that is to be told; -ENOTSUP: the call is the kernel's. */
static ssize_t splice_in(int in, const off64_t *inoff, int out, const off64_t *outoff, size_t n,
                         unsigned int flags)
{
    PL_HELD f = pl_get_stream(in);
    int err;

    if (!f)
        return -ENOTSUP;
    fb_pin(f->stream, RSN_CALL, true);
    err = fb_so_error(f->stream);
    if (err)
        return err;
    if (fb_plain(f->stream) || inoff || outoff || n == 0 || !is_pipe(out))
        return -ENOTSUP;
    return through(f, out, n, flags);
}

static int splice_out(int out)
{
    PL_HELD f = pl_get_stream(out);

    if (!f)
        return 0;
    fb_pin(f->stream, RSN_CALL, true);
    return fb_so_error(f->stream);
}

PL_EXPORT ssize_t splice(int in, off64_t *inoff, int out, off64_t *outoff, size_t n,
                         unsigned int flags)
{
    ssize_t r;

    pl_ready();
    r = splice_in(in, inoff, out, outoff, n, flags);
    if (r != -ENOTSUP)
        return pl_ret(r);
    r = splice_out(out);
    if (r)
        return pl_ret(r);
    return pl_real.splice(in, inoff, out, outoff, n, flags);
}
