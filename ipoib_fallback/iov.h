/*
 * iov.h - copying between lists of buffers.
 */
#ifndef FB_IOV_H
#define FB_IOV_H

#include "rsock/copy.h"

#include <stddef.h>
#include <sys/uio.h>

/* So many of a call's buffers are looked at together. */
enum { FB_PIECES = 16 };

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
                   size_t limit, enum rsk_way);

#endif
