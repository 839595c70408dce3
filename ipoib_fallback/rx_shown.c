/*
 * rx_shown.c - bytes of a ring that MSG_PEEK has shown are kept in a copy, and read from there. The
 * ring is the peer's to write, also after it has said that bytes are there: a program that looks at
 * a header first and then reads it again would otherwise get another one. The rx lock is held.
 *
 * Not for bytes in the kernel, which cannot change; nor those that a hand-over takes back into TCP,
 * where they come again as the sender has kept them.
 */
#include "ipoib_fallback/rx.h"

#include "ipoib_fallback/iov.h"

#include <string.h>
#include <sys/mman.h>

/* The bytes from `at` on that were shown already. */
static struct iovec known(const struct fb_rx *rx, uint64_t at)
{
    if (at < rx->shown_from || at >= rx->shown_to)
        return (struct iovec){NULL, 0};
    return (struct iovec){rx->shown + (at - rx->shown_from), (size_t)(rx->shown_to - at)};
}

static void skip(struct iovec v[2], size_t n)
{
    for (int i = 0; i < 2; i++) {
        size_t m = n < v[i].iov_len ? n : v[i].iov_len;

        v[i].iov_base = (char *)v[i].iov_base + m;
        v[i].iov_len -= m;
        n -= m;
    }
}

/* Makes the copy hold the bytes [at, at + n), those that it has not from the ring's pieces. */
static void keep(struct fb_conn *c, uint64_t at, const struct iovec ring[2], size_t n, size_t size)
{
    struct fb_rx *rx = &c->x->rx;
    struct iovec have = known(rx, at), to;
    uint8_t *p = rx->shown;

    if (rx->shown_size < size) {
        /* No malloc: a signal handler may be peeking. */
        p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return; /* then it is not kept: better than an error that TCP does not have */
    }
    if (have.iov_len)
        memmove(p, have.iov_base, have.iov_len);
    if (p != rx->shown) {
        rx_shown_free(c);
        rx->shown = p;
        rx->shown_size = size;
    }
    to = (struct iovec){p + have.iov_len, n - have.iov_len};
    rx->shown_from = at;
    rx->shown_to = at + have.iov_len + fb_iov_copy(&to, 1, ring, 2, to.iov_len, RSK_OUT_OF);
}

void rx_shown(struct fb_conn *c, uint64_t at, struct iovec have[3], size_t total, size_t show,
              size_t size)
{
    have[0] = known(&c->x->rx, at);
    skip(have + 1, have[0].iov_len);
    if (show > total)
        show = total;
    if (show > have[0].iov_len) {
        size_t before = have[0].iov_len;

        keep(c, at, have + 1, show, size);
        have[0] = known(&c->x->rx, at); /* out of the copy: the ring may have changed since */
        skip(have + 1, have[0].iov_len - before);
    }
}

void rx_shown_free(struct fb_conn *c)
{
    if (c->x->rx.shown)
        munmap(c->x->rx.shown, c->x->rx.shown_size);
    c->x->rx.shown = NULL;
    c->x->rx.shown_size = 0;
    c->x->rx.shown_from = c->x->rx.shown_to = 0;
}
