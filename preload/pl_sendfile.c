/*
 * pl_sendfile.c - sendfile and splice. While the sending half is plain, sendfile is the
 * kernel's. On a rail the file is read piece by piece and sent, with the file's position
 * moved by what was sent, as sendfile(2) does. splice carries bytes past us in either
 * direction, so its streams leave first.
 *
 * Called by the application on any thread.
 */
#include "preload/pl_own.h"
#include "preload/pl_wait.h"

#include "config/reason.h"
#include "rsock/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

enum {
    PIECE = 65536,
    /* where each may be the last one that there is room for, and the rest of it was read in vain */
    SHORT = 16384,
    FEW = 1024 /* on the stack, which may be a small one */
};

/* Which one a number means. The kernel's sendfile keeps the file; another thread may close the
 * number meanwhile, and open something else. */
struct file {
    dev_t device;
    ino_t inode;
};

static bool look(int fd, struct file *file)
{
    struct stat st = {0};

    *file = (struct file){0, 0};
    if (SYS6(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH, 0, 0))
        return false;
    *file = (struct file){st.st_dev, st.st_ino};
    return true;
}

static bool is_still(int fd, const struct file *file)
{
    struct file now = {0};

    return look(fd, &now) && now.device == file->device && now.inode == file->inode;
}

/*
 * Returns the bytes sent, or -errno with none sent. -ENOTSUP: the kernel has to judge these
 * arguments. An input that cannot be read at an offset, which is no file nor a device like one, is
 * told by lseek or pread.
 */
static ssize_t by_pieces(struct pl_file *f, int in, off64_t *off, size_t n, char *piece,
                         size_t most)
{
    const bool looked = !off || n > most;
    struct file file = {0};
    off64_t pos;
    size_t sent = 0, left = 0; /* of what was read */
    ssize_t got = 0, put = 0;
    uint32_t signals = rsk_sig.seen;

    if (n > PL_RW_MAX)
        n = PL_RW_MAX;
    pos = off ? *off : SYS6(SYS_lseek, in, 0, SEEK_CUR, 0, 0, 0);
    if (pos < 0 || (looked && !look(in, &file)))
        return -ENOTSUP;
    while (sent < n) {
        struct iovec v = {piece, n - sent < most ? n - sent : most};

        if (left == 0) {
            if (sent && !looked) /* it has given less than was asked for */
                break;
            got = SYS6(SYS_pread64, in, piece, v.iov_len, pos, 0, 0);
            if (got < 0 && sent == 0)
                return -ENOTSUP;
            if (got <= 0 || (sent && !is_still(in, &file)))
                break;
            left = (size_t)got;
        }
        v = (struct iovec){piece + (got - (ssize_t)left), left};
        rsk_sig.no_point = true;
        put = sent ? fb_send_on(f->stream, f->fd, &v, 1, 0) : fb_sendv(f->stream, f->fd, &v, 1, 0);
        rsk_sig.no_point = false;
        if (put <= 0)
            break;
        sent += (size_t)put;
        left -= (size_t)put;
        pos += put;
        /* A handler may have run in a wait after which bytes were sent all the same: the call ends.
         * If a piece was cut short for another reason the next send is told of that, as the kernel
         * is with its next page. */
        if (rsk_sig.seen != signals)
            break;
    }
    if (sent > 0 && off)
        *off = pos;
    else if (sent > 0 && is_still(in, &file))
        SYS6(SYS_lseek, in, pos, SEEK_SET, 0, 0, 0);
    if (put == -EPIPE)
        pl_sigpipe();
    return sent > 0 ? (ssize_t)sent : put;
}

struct piece {
    struct pl_block block; /* first: a handler may longjmp out of a wait */
    char bytes[PIECE];
};

static void put_piece(struct piece **p)
{
    if (*p)
        pl_block_put(&(*p)->block);
}

__attribute__((noinline)) static ssize_t rail(struct pl_file *f, int in, off64_t *off, size_t n)
{
    struct piece *large __attribute__((cleanup(put_piece))) = NULL;
    char few[FEW];

    if (n > sizeof(few))
        large = (struct piece *)pl_block_get(sizeof *large, __builtin_frame_address(0), NULL);
    return large ? by_pieces(f, in, off, n, large->bytes, f->stream->nonblock ? SHORT : PIECE)
                 : by_pieces(f, in, off, n, few, sizeof few);
}

static void lower(void *stream, void *unused)
{
    (void)unused;
    fb_tx_leave_file(stream, -EINTR, -1, -1);
}

static ssize_t splice_in(int in, const off64_t *inoff, int out, const off64_t *outoff, size_t n,
                         unsigned int flags);

/* Since Linux 5.12 a socket can be sent to a pipe. -ENOTSUP: it is none of ours, or
 * the kernel's. */
static ssize_t from_stream(int out, int in, const off64_t *off, size_t n)
{
    if (!pl_at(in) && !atomic_load_explicit(&pl_heirs, memory_order_relaxed))
        return -ENOTSUP;
    return splice_in(in, off, out, NULL, n, 0);
}

/* From what has none the kernel sends nothing to a socket. */
static bool has_offsets(int in)
{
    return SYS6(SYS_lseek, in, 0, SEEK_CUR, 0, 0, 0) >= 0;
}

PL_EXPORT ssize_t sendfile64(int out, int in, off64_t *off, size_t n)
{
    ssize_t sent;

    pl_ready();
    if (n > SSIZE_MAX) /* an error, which one the kernel says */
        return pl_real.sendfile64(out, in, off, n);
    sent = from_stream(out, in, off, n);
    if (sent != -ENOTSUP)
        return pl_ret(sent);
    PL_HELD f = pl_get_stream(out);
    struct rsk_pass pass;

    if (!f || n == 0)
        return pl_real.sendfile64(out, in, off, n);
    if (!fb_tx_enter(f->stream)) {
        sent = rail(f, in, off, n);
        if (sent != -ENOTSUP)
            return pl_ret(sent);
        sent = has_offsets(in) ? pl_pin_tx(f, RSN_CALL, 0) : 0;
        return sent ? pl_ret(sent) : RSK_OPENED(pl_real.sendfile64(out, in, off, n));
    }
    /* Not a cancellation point. */
    rsk_window_open(&pass, __builtin_frame_address(0), lower, f->stream, NULL);
    sent = pl_real.sendfile64(out, in, off, n);
    if (!rsk_window_close(&pass)) {
        if (rsk_pass_forked(&pass))
            return sent;
        atomic_fetch_add(&f->stream->tx_in, 1); /* see pl_recv.c */
    }
    fb_tx_leave_file(f->stream, sent < 0 ? -errno : sent, in, sent > 0 && off ? *off - sent : -1);
    return sent;
}

PL_ALIAS(sendfile, sendfile64);

/* Until the pipe takes PIPE_BUF bytes, or nobody reads it. 0, or -errno. A handler with SA_RESTART
 * restarts splice. */
static int until_writable(int out, bool nonblock)
{
    const uint32_t cut = rsk_sig.cut;
    struct pollfd p = {out, POLLOUT, 0};
    int n;

    do
        n = nonblock ? pl_real.poll(&p, 1, 0) : RSK_OPENED(pl_real.poll(&p, 1, -1));
    while (n < 0 && errno == EINTR && rsk_sig.cut == cut);
    if (n <= 0)
        return n == 0 ? -EAGAIN : -errno;
    if (!(p.revents & POLLERR))
        return 0;
    pl_sigpipe();
    return -EPIPE;
}

/* A page at most. It is taken when the pipe has it; *by_pipe: the error is not the stream's. */
static ssize_t page_through(struct pl_file *f, int out, size_t n, int flags, bool *by_pipe)
{
    char page[PIPE_BUF];
    struct iovec v = {page, n < sizeof page ? n : sizeof page};
    ssize_t got = fb_peekv(f->stream, f->fd, &v, 1, flags);

    if (got <= 0)
        return got;
    got = pl_real.write(out, page, (size_t)got);
    *by_pipe = got <= 0;
    if (got <= 0)
        return -errno;
    v.iov_len = (size_t)got;
    return fb_recvv(f->stream, f->fd, &v, 1, MSG_DONTWAIT);
}

/* What splice does from a stream that its peer has not handed back yet, or may not (fb_shut_late),
 * or where an announced switch lies behind bytes that are unread: through our hands, as much as is
 * there and the pipe takes. */
static ssize_t through(struct pl_file *f, int out, size_t n, size_t shown, bool nonblock)
{
    struct pollfd p = {out, POLLOUT, 0};
    size_t done = 0;
    bool by_pipe = false;
    ssize_t got = until_writable(out, nonblock);

    if (got < 0)
        return got;
    do {
        /* What FIONREAD has shown comes, also where the peer's library has to send it
         * again by TCP. */
        got = page_through(f, out, n - done, done && (nonblock || done >= shown) ? MSG_DONTWAIT : 0,
                           &by_pipe);
        if (got < 0 && done && !by_pipe && got != -EAGAIN && got != -EINTR)
            fb_keep_error(f->stream, (int)got);
        if (got <= 0)
            return done ? (ssize_t)done : got;
        done += (size_t)got;
    } while (done < n && pl_real.poll(&p, 1, 0) == 1 && p.revents == POLLOUT &&
             !fb_at_mark(f->stream, f->fd));
    return (ssize_t)done;
}

static bool is_pipe(int fd)
{
    struct stat st = {0};

    return SYS6(SYS_fstat, fd, &st, 0, 0, 0, 0) == 0 && S_ISFIFO(st.st_mode);
}

/* See splice_in. *waits: the stream had to be handed back, and the call may wait for bytes. */
static ssize_t in_section(int in, const off64_t *inoff, int out, const off64_t *outoff, size_t n,
                          unsigned int flags, bool *waits)
{
    PL_HELD f = pl_get_stream(in);
    int err, how, shown;
    bool plain;

    if (!f)
        return -ENOTSUP;
    plain = fb_plain_rx(f->stream);
    shown = plain ? 0 : fb_inq(f->stream, in);
    if (!fb_shut_late(f->stream))
        fb_pin_rx(f->stream, RSN_CALL);
    err = fb_so_error(f->stream);
    if (err && fb_inq(f->stream, in) > 0) { /* bytes come first */
        fb_keep_error(f->stream, err);
        err = 0;
    }
    if (err)
        return err;
    how = sys_fcntl(out, F_GETFL, 0);
    *waits =
        !plain && !atomic_load(&f->stream->nonblock) && !inoff && !outoff && n > 0 && is_pipe(out);
    if (fb_plain_rx(f->stream) || inoff || outoff || n == 0 || !is_pipe(out) ||
        (how & O_ACCMODE) == O_RDONLY)
        return -ENOTSUP;
    return through(f, out, n, shown > 0 ? (size_t)shown : 0,
                   flags & SPLICE_F_NONBLOCK || how & O_NONBLOCK);
}

/* With a time-out any handler ends a wait for bytes, also one with SA_RESTART: signal(7). */
static bool limited(int fd)
{
    struct timeval tv = {0, 0};
    socklen_t len = sizeof tv;

    return sys_getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len) == 0 && (tv.tv_sec || tv.tv_usec);
}

static bool nothing_there(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};

    return pl_real.poll(&p, 1, 0) == 0;
}

/* The number of bytes that went through our hands, or -errno, which may be an error that
 * the library has taken from the kernel and that is to be told now. -ENOTSUP: the call is
 * the kernel's. */
static ssize_t splice_in(int in, const off64_t *inoff, int out, const off64_t *outoff, size_t n,
                         unsigned int flags)
{
    const uint32_t cut = rsk_sig.cut, seen = rsk_sig.seen;
    bool waits = false;
    ssize_t r = in_section(in, inoff, out, outoff, n, flags, &waits);

    /* A handler that would have ended the kernel's wait has run while the stream was handed back,
     * or at the end of that. */
    if (r == -ENOTSUP && waits && rsk_sig.seen != seen && (rsk_sig.cut != cut || limited(in)) &&
        nothing_there(in))
        return -EINTR;
    return r;
}

/* *waits: the stream was ours, and the call waits for room. */
static int splice_out(int out, unsigned int flags, bool *waits)
{
    PL_HELD f = pl_get_stream(out);
    int err;

    if (!f)
        return 0;
    err = pl_pin_tx(f, RSN_CALL, flags & SPLICE_F_NONBLOCK ? MSG_DONTWAIT : 0);
    if (err)
        return err;
    *waits = !atomic_load(&f->stream->nonblock);
    return fb_so_error(f->stream);
}

/* The kernel's splice has failed: has it told the stream's error? EPIPE is what follows one. */
static void tell(int fd, int err)
{
    PL_HELD f = NULL;

    if (err == ECONNRESET || err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH)
        f = pl_get_stream(fd);
    if (f)
        fb_told(f->stream, fd);
}

PL_EXPORT ssize_t splice(int in, off64_t *inoff, int out, off64_t *outoff, size_t n,
                         unsigned int flags)
{
    uint32_t cut = rsk_sig.cut;
    bool waits = false;
    ssize_t r;

    pl_ready();
    r = splice_in(in, inoff, out, outoff, n, flags);
    if (r != -ENOTSUP)
        return pl_ret(r);
    r = splice_out(out, flags, &waits);
    if (r)
        return pl_ret(r);
    /* A handler that would have ended the kernel's call has run while the stream was handed
     * back. */
    if (waits && !(flags & SPLICE_F_NONBLOCK) && rsk_sig.cut != cut)
        return pl_ret(-EINTR);
    r = pl_real.splice(in, inoff, out, outoff, n, flags);
    if (r < 0) {
        tell(in, errno);
        tell(out, errno);
    }
    return r;
}
