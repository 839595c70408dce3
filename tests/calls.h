/*
 * calls.h - a send and a receive on a tracked stream, as the intercepting layer makes them, for tests that are
 * linked from the product's own sources; and the bytes to send: each is a function of its offset.
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

/* Count or -errno. */
static inline ssize_t call_send(struct fb_stream *s, int fd, const void *p, size_t n)
{
    struct iovec v = {(void *)(uintptr_t)p, n};
    ssize_t r;

    if (!fb_tx_enter(s))
        return fb_sendv(s, fd, &v, 1, 0);
    r = send(fd, p, n, MSG_NOSIGNAL);
    r = r < 0 ? -errno : r;
    fb_tx_leave(s, r, &v, 1);
    return r;
}

static inline ssize_t call_recv(struct fb_stream *s, int fd, void *p, size_t n)
{
    struct iovec v = {p, n};
    ssize_t r = FB_RETRY;

    if (fb_rx_enter(s)) {
        r = recv(fd, p, n, 0);
        r = fb_rx_leave(s, fd, r < 0 ? -errno : r, &v, 1, 0);
    }
    return r == FB_RETRY ? fb_recvv(s, fd, &v, 1, 0) : r;
}

#endif
