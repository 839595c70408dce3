/*
 * rx_given.c - unread bytes that cannot be left in TCP when a forked child asks for the stream. They lie before a switch, and who
 * takes the frames behind them out of TCP must take them first; or they are in the ring alone, as their sender, who has left,
 * needed room for what follows and so what he had sent again was discarded. Only the owner's application could take
 * them, and may never do it, because it is the child that is to read. So if it has not for a while, the owner's library does,
 * and the child has the bytes in memory: its half begins in sk, as if they had been left in a ring.
 *
 * They are that process's then. If it ends, closes or forks before it has read them they cannot be given back: the
 * connection is reset, as it is where they cannot be given.
 *
 * The owner: progress thread. The child: any thread.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/tap.h"

#include "config/log.h"

/* How many can only be given. rx lock held. */
static size_t to_give(struct fb_conn *c)
{
    const struct fb_rx *rx = &c->x->rx;
    uint64_t at = c->s.pub->rx;

    if (c->fd < 0 || rx->end != 0 || c->x->tx.state != TX_T || atomic_load(&c->x->peekers))
        return 0;
    switch ((enum fb_rx_state)rx->state) {
    case RX_gS:
        /* Bytes that poll or MSG_PEEK has shown beyond S are in the ring's copy. */
        return at < rx->S && at >= rx->shown_to && sleepers_gone(c) && rx_ahead_left(c, c->fd)
                   ? (size_t)(rx->S - at)
                   : 0;
    case RX_sk:
        /* Of what was sent again the first has been discarded. */
        return c->x->rail && at < rx->V - rx->skip ? (size_t)(rx->V - at) : 0;
    default:
        return 0;
    }
}

size_t rx_to_give(struct fb_conn *c)
{
    size_t n;

    fb_lock(&c->x->rx.lock);
    n = to_give(c);
    rx_unlock(c);
    return n;
}

bool rx_give(struct fb_conn *c, void *p, size_t n)
{
    struct iovec v = {p, n};
    bool same;

    fb_lock(&c->x->rx.lock);
    same = to_give(c) == n;
    while (same && v.iov_len) {
        ssize_t got = c->x->rx.state == RX_gS ? rx_kernel_read(c, c->fd, &v, 1, v.iov_len, 0)
                                              : rx_ring_read(c, c->x->rail, &v, 1, v.iov_len, 0);

        if (got <= 0)
            same = false;
        else
            v = (struct iovec){(char *)v.iov_base + got, v.iov_len - (size_t)got};
    }
    if (same) {
        log_info("stream %u: %zu unread bytes are given to a child", c->s.slot, n);
        if (c->x->rx.state == RX_sk)
            c->x->rx.handed = true; /* what is beyond V comes by TCP */
        atomic_store(&c->x->anchor_news, 1);
        rx_anchor(c, c->fd);
    }
    rx_unlock(c);
    return same;
}

void rx_given(struct fb_conn *c, void *p, size_t n)
{
    struct fb_rx *rx = &c->x->rx;

    fb_lock(&c->x->rx.lock);
    rx->F = rx->V = rx->E = c->s.pub->rx;
    rx->skip = 0;
    rx->frozen = false;
    rx->handed = true;
    c->s.pub->rx -= n;
    c->x->own_rx += n; /* the kernel has given them */
    rx->shown = p;
    rx->shown_size = n;
    rx->shown_from = rx->V - n;
    rx->shown_to = rx->V;
    rx->state = RX_sk;
    atomic_store(&c->s.rx_gate, 1);
    rx_unlock(c);
    /* A child of this process asks, and hears that it cannot have them. */
    (void)heir_take(c);
}

bool rx_given_left(const struct fb_conn *c)
{
    const struct fb_rx *rx = &c->x->rx;

    return rx->state == RX_sk && !c->x->rail && c->s.pub->rx < rx->shown_to;
}

size_t rx_given_read(struct fb_conn *c, const struct iovec *v, int cnt, int flags)
{
    struct fb_rx *rx = &c->x->rx;
    uint64_t at = c->s.pub->rx;
    struct iovec have = {rx->shown + (at - rx->shown_from), (size_t)(rx->shown_to - at)};
    size_t n = fb_iov_copy(v, cnt, &have, 1, have.iov_len, RSK_OUT_OF);

    if (n == 0 || (flags & MSG_PEEK))
        return n;
    if (conn_seen_wants(&c->s.rx_mark, at + n))
        conn_seen_rx(c, at, v, cnt, n);
    if (tap_on(c))
        tap_copy(c, TAP_RX, FB_PATH_TCP, at, v, cnt, n);
    c->s.pub->rx += n;
    c->x->own_rx -= n;
    if (c->s.pub->rx == rx->shown_to) {
        rx_shown_free(c);
        heir_settled(c);
    }
    return n;
}
