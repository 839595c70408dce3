/*
 * iov.h - copying between lists of buffers.
 */
#ifndef FB_IOV_H
#define FB_IOV_H

#include "rsock/copy.h"

#include <stddef.h>
#include <sys/uio.h>

static inline size_t fb_iov_size(const struct iovec *v, int cnt)
{
    size_t n = 0;

    for (int i = 0; i < cnt; i++)
        n += v[i].iov_len;
    return n;
}
/* Copies from the buffers of `from` into those of `to` until either list ends or `limit` bytes are
 * there. Returns the number of bytes. Neither list is changed. */
size_t fb_iov_copy(const struct iovec *to, int nto, const struct iovec *from, int nfrom,
                   size_t limit);

/* The first n bytes of the two pieces of a ring, out and in. They hold so many. */
static inline void fb_iov_take(void *to, const struct iovec piece[2], size_t n)
{
    size_t first = n < piece[0].iov_len ? n : piece[0].iov_len;

    rsk_copy(to, piece[0].iov_base, first);
    if (n > first)
        rsk_copy((char *)to + first, piece[1].iov_base, n - first);
}

static inline void fb_iov_give(const struct iovec piece[2], const void *from, size_t n)
{
    size_t first = n < piece[0].iov_len ? n : piece[0].iov_len;

    rsk_copy(piece[0].iov_base, from, first);
    if (n > first)
        rsk_copy(piece[1].iov_base, (const char *)from + first, n - first);
}

#endif
