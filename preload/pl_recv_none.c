/*
 * pl_recv_none.c - receives that put no bytes, or not all, where the caller says: a NULL
 * buffer, and MSG_TRUNC.
 *
 * Called by the application on any thread, from the receives of pl_recv.c; no locks of their own.
 */
#include "preload/pl_own.h"

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

/* A NULL buffer is no error before bytes come to it: the call waits for them, and gives what there
 * was room for in front of it. The kernel gives EFAULT instead where one segment lies on both
 * sides; a rail has no segments. */
ssize_t pl_recv_to_null(struct pl_file *f, const struct iovec *v, int cnt, int flags)
{
    char byte;
    struct iovec one = {&byte, 1};
    size_t room = 0;
    ssize_t n;
    int before = 0;

    for (int i = 0; i < cnt; i++)
        if (v[i].iov_len > SSIZE_MAX)
            return -EINVAL;
    while (before < cnt && (v[before].iov_base || !v[before].iov_len))
        room += v[before++].iov_len;
    if (room)
        return pl_receive(f, v, before, flags);
    n = pl_receive(f, &one, 1, (flags & ~MSG_WAITALL) | MSG_PEEK);
    return n > 0 ? -EFAULT : n;
}

/* As TCP with MSG_TRUNC: passes over the bytes, and touches no buffer. Also for a plain half, as
 * bytes that nobody has seen would be missing in what the next rail is proved with. */
ssize_t pl_pass_over(struct pl_file *f, const struct iovec *v, int cnt, int flags)
{
    char piece[PIPE_BUF] = {0};
    size_t n = 0, done = 0;

    for (int i = 0; i < cnt; i++) {
        if (v[i].iov_len > SSIZE_MAX)
            return -EINVAL;
        n = v[i].iov_len < PL_RW_MAX - n ? n + v[i].iov_len : PL_RW_MAX;
    }
    do {
        struct iovec one = {piece, n - done < sizeof piece ? n - done : sizeof piece};
        ssize_t got =
            pl_receive(f, &one, 1, done && !(flags & MSG_WAITALL) ? flags | MSG_DONTWAIT : flags);

        if (got < 0 && done && got != -EAGAIN && got != -EINTR)
            fb_keep_error(f->stream, (int)got);
        if (got <= 0)
            return done ? (ssize_t)done : got;
        done += (size_t)got;
    } while (done < n && !(flags & MSG_PEEK) && !fb_at_mark(f->stream, f->fd));
    if (flags & MSG_PEEK && done == sizeof piece) {
        int there = fb_inq(f->stream, f->fd);

        if (there > (ssize_t)done)
            done = (size_t)there < n ? (size_t)there : n;
    }
    return (ssize_t)done;
}
