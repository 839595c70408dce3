/*
 * rx_ahead.c - for programs that look without reading, by FIONREAD or MSG_PEEK, until a whole
 * message is there. A switch may be announced inside of it: then a part of it is in the kernel
 * before the SWITCH frame, a part in the ring, and once the sender has left, a part in the kernel
 * behind the RESUME frame, or, when that has been read, behind the overlap. Nobody reads, so nobody
 * comes to S. Here these parts are shown as one.
 *
 * Nothing is taken: the kernel's bytes stay where another process finds them after a hand-over, and
 * the frames wake whom they have to wake (HARD-CASES 1). The frame that is seen is as good as read:
 * the ECHO goes out, for which the sender of a wire like verbs waits before it publishes.
 *
 * The rx lock is held.
 */
#include "ipoib_fallback/rx.h"

#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/wait.h"
#include "rsock/shard.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* The most bytes before S that are looked over: more than a receive buffer holds by default. */
#define LOOKED (1u << 18)
/* What the kernel copies and nobody looks at. */
static unsigned char aside[LOOKED];

/* Pieces that take n bytes aside. Returns their number, or -1. */
static int put_aside(struct iovec *v, int room, uint64_t n)
{
    int cnt = 0;

    for (; n > 0; cnt++) {
        if (cnt == room)
            return -1;
        v[cnt] = (struct iovec){aside, n < LOOKED ? (size_t)n : LOOKED};
        n -= v[cnt].iov_len;
    }
    return cnt;
}

/* The buffers of v from byte `from` on. Returns their number, at most room. */
static int rest_of(const struct iovec *v, int cnt, size_t from, struct iovec *out, int room)
{
    int n = 0;

    for (int i = 0; i < cnt && n < room; i++) {
        if (from >= v[i].iov_len) {
            from -= v[i].iov_len;
            continue;
        }
        out[n++] = (struct iovec){(char *)v[i].iov_base + from, v[i].iov_len - from};
        from = 0;
    }
    return n;
}

/* 0: no whole SWITCH of ours is at S. 1: it is. 2: the RESUME of a sender that has left
 * lies behind it. */
static int look(struct fb_conn *c, int fd, uint64_t before)
{
    struct fb_rx *rx = &c->x->rx;
    struct iovec v[FB_PIECES];
    struct fb_frame f[2];
    int cnt = put_aside(v, FB_PIECES - 1, before);
    ssize_t n;

    if (cnt < 0 || rx->end != 0 || atomic_load(&c->s.rx_in))
        return 0;
    v[cnt++] = (struct iovec){f, sizeof(f)};
    n = rx_look(c, fd, v, cnt, before + sizeof(f), MSG_PEEK);
    if (n <= 0 || (uint64_t)n <= before)
        return 0;
    if (f[0].c != rx->c) {
        if (!rx_robbed(c, fd, 0))
            rx_no_switch(c); /* given up: these are the application's bytes */
        return 0;
    }
    /* What is not right will be found when it is read. */
    if ((uint64_t)n < before + FB_FRAME || !rx_frame_ours(c, &f[0], FF_SWITCH) ||
        f[0].u.sw.S != rx->S)
        return 0;
    rx_begin(c, &f[0]);
    /* A stream that is to be TCP's alone: so is what can be shown of it. */
    if (conn_flag(c, CF_PINNED) && !rx->asked) {
        rx->asked = true;
        rx_ask_back(c, rx->S, c->s.pub->reason);
    }
    /* Nobody can read beyond S yet (rx_switch), and what was shown must be there to be read. */
    if (!sleepers_gone(c))
        rx->unshown = true;
    rx_look_again(c);
    if (rx->unshown)
        return 0;
    return (uint64_t)n == before + sizeof(f) && rx_frame_ours(c, &f[1], FF_RESUME) &&
                   f[1].u.re.F == rx->S
               ? 2
               : 1;
}

/* The ring's bytes from S on, those that were shown before out of their copy. */
static size_t in_ring(struct fb_conn *c, struct iovec have[3], size_t show)
{
    struct rsk_rail *rail = c->x->rail;
    size_t n;

    memset(have, 0, 3 * sizeof(*have));
    if (!rail || !c->x->rx.begun || conn_flag(c, CF_PINNED))
        return 0;
    /* Who waits for edges gets one when more comes; armed before looking. */
    (void)rail->wire->arm(rail, RSK_RX, RSK_BY_SHARD);
    n = rail->wire->rx_peek(rail, have + 1);
    rx_shown(c, c->x->rx.S, have, n, show, rail->rx_size);
    return n;
}

size_t rx_ahead_count(struct fb_conn *c, int fd)
{
    uint64_t before = c->x->rx.S - c->s.pub->rx;
    int seen = look(c, fd, before), all;
    struct iovec have[3];
    size_t n;

    if (!seen)
        return 0;
    n = in_ring(c, have, 0);
    all = seen == 2 ? fb_io.inq(fd) : 0;
    /* The sender has sent again what was in the ring, and what follows it. */
    if (all > 0 && (uint64_t)all > before + 2 * FB_FRAME + n)
        n = (size_t)((uint64_t)all - before - 2 * FB_FRAME);
    return n;
}

/* Fills v from byte `from` on with what lies in the kernel behind `aside_n` bytes of it. */
static size_t peek_behind(struct fb_conn *c, int fd, const struct iovec *v, int cnt, size_t from,
                          uint64_t aside_n)
{
    struct iovec w[FB_PIECES];
    int before = put_aside(w, FB_PIECES - 1, aside_n), pieces;
    ssize_t n;

    if (before < 0)
        return 0;
    pieces = rest_of(v, cnt, from, w + before, FB_PIECES - before);
    n = rx_look(c, fd, w, before + pieces, UINT64_MAX, MSG_PEEK);
    return n > 0 && (uint64_t)n > aside_n ? (size_t)((uint64_t)n - aside_n) : 0;
}

size_t rx_ahead_peek(struct fb_conn *c, int fd, const struct iovec *v, int cnt)
{
    uint64_t before = c->x->rx.S - c->s.pub->rx;
    struct iovec rest[FB_PIECES], have[3];
    size_t room = fb_iov_size(v, cnt), n;
    int seen, pieces;

    if (room <= before || !(seen = look(c, fd, before)))
        return 0;
    room -= (size_t)before;
    pieces = rest_of(v, cnt, (size_t)before, rest, FB_PIECES);
    n = fb_iov_copy(rest, pieces, have, 3, in_ring(c, have, room), RSK_OUT_OF);
    if (seen == 2 && n < room)
        n += peek_behind(c, fd, v, cnt, (size_t)before + n, before + 2 * FB_FRAME + n);
    return n;
}

size_t rx_overlap_peek(struct fb_conn *c, int fd, const struct iovec *v, int cnt, size_t n)
{
    const struct fb_rx *rx = &c->x->rx;

    if (n < rx->V - c->s.pub->rx || n == fb_iov_size(v, cnt) || rx->end != 0)
        return 0;
    return peek_behind(c, fd, v, cnt, n, rx->skip);
}

/* ---- SO_PEEK_OFF: what comes before is put aside */

/* From the next byte to be read. */
static uint64_t peek_off(const struct fb_conn *c)
{
    uint64_t at = c->s.pub->rx;

    return c->x->rx.peek_at > at ? c->x->rx.peek_at - at : 0;
}

static void kernel_peeks(struct fb_conn *c, uint64_t off)
{
    int from = (int)off;

    if (!hold_for_good()) /* a filter may forbid it */
        sys_setsockopt(c->fd, SOL_SOCKET, SO_PEEK_OFF, &from, sizeof(from));
}

void rx_peeks_end(struct fb_conn *c)
{
    c->x->rx.peeks = false;
    kernel_peeks(c, peek_off(c));
}

/* FB_RETRY: the half was plain, or has become it. */
static ssize_t look_from(struct fb_conn *c, int fd, const struct iovec *v, int cnt)
{
    struct fb_rx *rx = &c->x->rx;
    uint64_t off = peek_off(c);
    struct iovec w[FB_PIECES];
    int before = put_aside(w, FB_PIECES - 1, off);
    ssize_t n;

    if (!rx->peeks)
        return FB_RETRY;
    if (before < 0)
        return -EAGAIN;
    n = rx_try(c, fd, w, before + rest_of(v, cnt, 0, w + before, FB_PIECES - before), MSG_PEEK);
    if (!rx->peeks) {
        if (n > 0) /* that look has moved it */
            kernel_peeks(c, off);
        return FB_RETRY;
    }
    if (n <= 0)
        return n;
    if ((uint64_t)n <= off)
        return -EAGAIN;
    rx->peek_at = c->s.pub->rx + (uint64_t)n;
    return n - (ssize_t)off;
}

ssize_t rx_peek_from(struct fb_conn *c, int fd, const struct iovec *v, int cnt, int flags)
{
    struct wait w = {.signals = sleep_signals()};
    bool nonblock;
    ssize_t n;
    int r;

    conn_settings(c);
    nonblock = (flags & MSG_DONTWAIT) || c->s.nonblock;
    if (!nonblock)
        wait_limit(&w, c->x->rcv_timeout);
    for (;;) {
        fb_lock(&c->x->rx.lock);
        n = look_from(c, fd, v, cnt);
        rx_unlock(c);
        if (n != -EAGAIN || nonblock)
            return n;
        if (w.cut)
            return -EINTR;
        if (w.ends)
            return 0;
        /* What came before the end may have come after the look. */
        w.ends = fb_ready(&c->s, fd, POLLRDHUP) & (POLLRDHUP | POLLHUP);
        r = w.ends ? 0 : wait_more(c, &w);
        if (r < 0)
            return r;
    }
}

bool fb_peek_from(struct fb_stream *s, int from)
{
    struct fb_conn *c = conn_of(s);
    bool ours;

    fb_lock(&c->x->rx.lock);
    ours = c->x->rx.state != RX_t;
    c->x->rx.peeks = ours && from >= 0;
    c->x->rx.peek_at = s->pub->rx + (uint64_t)(from > 0 ? from : 0);
    rx_unlock(c);
    return ours;
}

int fb_peeks_from(struct fb_stream *s)
{
    struct fb_conn *c = conn_of(s);
    int from;

    if (!atomic_load(&s->rx_gate))
        return -1;
    fb_lock(&c->x->rx.lock);
    from = c->x->rx.peeks ? (int)peek_off(c) : -1;
    rx_unlock(c);
    return from;
}
