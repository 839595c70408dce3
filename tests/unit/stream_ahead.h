/*
 * stream_ahead.h - a pair with a switch among bytes that nobody has read yet.
 */
#ifndef STREAM_AHEAD_H
#define STREAM_AHEAD_H

#include "tests/unit/stream_pair.h"

#include <sys/ioctl.h>

static unsigned char in[300000], out[sizeof(in)];

static inline size_t count(struct end *e)
{
    int n = 0;

    if (fb_plain(e->s))
        ioctl(e->fd, FIONREAD, &n);
    else
        n = fb_inq(e->s, e->fd);
    return n < 0 ? 0 : (size_t)n;
}

static inline size_t show(struct end *e, void *p, size_t n)
{
    struct iovec v[2] = {{p, n / 3}, {(char *)p + n / 3, n - n / 3}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    ssize_t r = FB_RETRY;

    if (fb_rx_enter(e->s)) {
        r = recvmsg(e->fd, &m, MSG_PEEK | MSG_DONTWAIT);
        r = fb_rx_leave(e->s, e->fd, r < 0 ? -errno : r, v, 2, MSG_PEEK);
    }
    if (r == FB_RETRY)
        r = fb_recvv(e->s, e->fd, v, 2, MSG_PEEK | MSG_DONTWAIT);
    return r < 0 ? 0 : (size_t)r;
}

/* b sends at `to`'s place what follows; a reads nothing. */
static inline void more(struct end *b, uint64_t *pos, size_t n)
{
    fill(out, *pos, n);
    for (size_t done_n = 0; done_n < n;) {
        ssize_t r = put(b, out + done_n, n - done_n);

        ASSERT(r > 0);
        done_n += (size_t)r;
    }
    *pos += n;
}

/* A pair that may board: a has said something. */
static inline void met(struct end *a, struct end *b, uint64_t *pos)
{
    unsigned char hello[100] = {0};

    eager();
    pair(a, b);
    ASSERT_EQ_INT(put(a, hello, sizeof(hello)), sizeof(hello));
    ASSERT_EQ_INT(get(b, hello, sizeof(hello)), sizeof(hello));
    *pos = 0;
}

/* A pair with a switch among what a has not read. What is unread is no proof, so it must come
 * within few bytes or not at all: then with another pair, and more time on a busy machine. before:
 * what else happens to the pair first. */
static inline void cross_after(void (*before)(struct end *a, struct end *b), struct end *a,
                               struct end *b, uint64_t *pos)
{
    for (int tries = 0; tries < 200; tries++) {
        met(a, b, pos);
        if (before)
            before(a, b);
        for (int i = 0; i < 40 && conn_rail_tx(conn_of(b->s)) == 0; i++) {
            more(b, pos, 10);
            let_go_on(ROUNDS_A_CALL * (1 + (unsigned)tries / 8));
        }
        /* S is 0 where it boarded before it had sent anything. */
        if (conn_rail_tx(conn_of(b->s)) > 0 && conn_of(a->s)->x->rx.S > 0)
            break;
        done(b);
        done(a);
    }
    ASSERT(conn_rail_tx(conn_of(b->s)) > 0);
    ASSERT_EQ_INT(conn_of(a->s)->x->rx.state, RX_gS);
    ASSERT(conn_of(a->s)->x->rx.S > 0);
}

static inline void cross(struct end *a, struct end *b, uint64_t *pos)
{
    cross_after(NULL, a, b, pos);
}

/* a comes to see everything, in the end reads it, and it is right. */
static inline void sees(struct end *a, uint64_t pos)
{
    size_t n = (size_t)pos;

    UNTIL(count(a) >= n);
    ASSERT_EQ_U64(count(a), n);
    UNTIL(show(a, in, sizeof(in)) >= n);
    memset(in, 0, sizeof(in));
    ASSERT_EQ_U64(show(a, in, sizeof(in)), n);
    EXPECT(check(in, 0, n));
    /* And in part, up to each side of the seams. */
    for (size_t part = 1; part < n; part += n / 7 + 1) {
        memset(in, 0, part);
        ASSERT_EQ_U64(show(a, in, part), part);
        EXPECT(check(in, 0, part));
    }
}

/* What it has not read yet, from byte n on. */
static inline void reads_on(struct end *a, size_t n, uint64_t pos)
{
    size_t from = n;

    while (n < pos) {
        ssize_t r = get(a, in + n, (size_t)pos - n);

        ASSERT(r > 0);
        n += (size_t)r;
    }
    EXPECT(check(in + from, from, n - from));
    EXPECT_EQ_U64(count(a), 0);
}

static inline void reads(struct end *a, uint64_t pos)
{
    memset(in, 0, sizeof(in));
    reads_on(a, 0, pos);
}

#endif
