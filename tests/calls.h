/*
 * calls.h - a send and a receive on a tracked stream, as the intercepting layer makes them, for
 * tests that are linked from the product's own sources; and the bytes to send: each is a
 * function of its offset.
 */
#ifndef RAILSOCK_TESTS_CALLS_H
#define RAILSOCK_TESTS_CALLS_H

#include "ipoib_fallback/fb.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

static inline unsigned char byte_at(uint64_t i)
{
    return (unsigned char)((i * 2654435761u) >> 13);
}

/* The end of a plain call as the short way has it (preload/pl_short.h). */
static inline bool call_left(struct fb_stream *s, ssize_t r, bool rx)
{
    uint64_t end;

    if (!fb_usual(s, r, rx, &end))
        return false;
    fb_count(s, r, rx, end);
    return true;
}

/* On a rail, from or into one buffer: the short way (pl_short.h), and the long one if it has
 * done nothing. */
static inline ssize_t call_send_rail(struct fb_stream *s, int fd, const struct iovec *v, int flags)
{
    size_t n = v->iov_len ? fb_send_quick(s, fd, v->iov_base, v->iov_len, flags) : 0;

    return n ? (ssize_t)n : fb_sendv(s, fd, v, 1, flags);
}

static inline ssize_t call_recv_rail(struct fb_stream *s, int fd, const struct iovec *v, int flags)
{
    ssize_t n = fb_recv_quick(s, fd, v->iov_base, v->iov_len, flags);

    return n ? n : fb_recvv(s, fd, v, 1, flags);
}

/* Count or -errno. */
static inline ssize_t call_send(struct fb_stream *s, int fd, const void *p, size_t n)
{
    struct iovec v = {(void *)(uintptr_t)p, n};
    ssize_t r;

    if (!fb_tx_enter(s))
        return call_send_rail(s, fd, &v, 0);
    r = send(fd, p, n, MSG_NOSIGNAL);
    r = r < 0 ? -errno : r;
    if (!call_left(s, r, false))
        fb_tx_leave(s, r, &v, 1);
    return r;
}

static inline ssize_t call_recv(struct fb_stream *s, int fd, void *p, size_t n)
{
    struct iovec v = {p, n};
    ssize_t r = FB_RETRY;

    if (fb_rx_enter(s)) {
        r = recv(fd, p, n, 0);
        r = r < 0 ? -errno : r;
        if (!call_left(s, r, true))
            r = fb_rx_leave(s, fd, r, &v, 1, 0);
    }
    return r == FB_RETRY ? call_recv_rail(s, fd, &v, 0) : r;
}

#endif
