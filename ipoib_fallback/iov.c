/*
 * iov.c - see iov.h. On the data path of every receive and send over a rail.
 */
#include "ipoib_fallback/iov.h"

size_t fb_iov_copy(const struct iovec *to, int nto, const struct iovec *from, int nfrom,
                   size_t limit, enum rsk_way way)
{
    size_t done = 0, at = 0, off = 0;

    while (nto && nfrom && done < limit) {
        size_t n = limit - done;

        if (n > to->iov_len - at)
            n = to->iov_len - at;
        if (n > from->iov_len - off)
            n = from->iov_len - off;
        if (n) /* an empty buffer may have no address */
            rsk_copy((char *)to->iov_base + at, (const char *)from->iov_base + off, n, way);
        done += n;
        at += n;
        off += n;
        if (at == to->iov_len) {
            to++;
            nto--;
            at = 0;
        }
        if (off == from->iov_len) {
            from++;
            nfrom--;
            off = 0;
        }
    }
    return done;
}
