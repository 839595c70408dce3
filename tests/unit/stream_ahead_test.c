/*
 * stream_ahead_test.c - who only looks, by FIONREAD or MSG_PEEK, sees across a switch what TCP would show: a
 * program that waits in this way for a whole message gets it.
 */
#include "tests/unit/stream_pair.h"

#include <sys/ioctl.h>

static unsigned char in[300000], out[sizeof(in)];
static _Atomic int wakes;

static size_t count(struct end *e)
{
    int n = 0;

    if (fb_plain(e->s))
        ioctl(e->fd, FIONREAD, &n);
    else
        n = fb_inq(e->s, e->fd);
    return n < 0 ? 0 : (size_t)n;
}

static size_t show(struct end *e, void *p, size_t n)
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
static void more(struct end *b, uint64_t *pos, size_t n)
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
static void met(struct end *a, struct end *b, uint64_t *pos)
{
    unsigned char hello[100] = {0};

    eager();
    pair(a, b);
    ASSERT_EQ_INT(put(a, hello, sizeof(hello)), sizeof(hello));
    ASSERT_EQ_INT(get(b, hello, sizeof(hello)), sizeof(hello));
    *pos = 0;
}

/* One that this thread is asleep for in the kernel's poll, as far as the library knows; since before the switch. */
static struct pollfd asleep_on;
static struct fb_sleeper *asleep;

static void wakes_up(void)
{
    fb_sleeper_end(asleep);
    asleep = NULL;
}

/* A pair with a switch among what a has not read. What is unread is no proof, so it must come within few bytes or not at
 * all: then with another pair, and more time on a busy machine. */
static void cross_with(struct end *a, struct end *b, uint64_t *pos, bool sleeps)
{
    for (int tries = 0; tries < 200; tries++) {
        met(a, b, pos);
        if (sleeps) {
            asleep_on = (struct pollfd){.fd = a->fd, .events = POLLIN};
            asleep = fb_sleeper_poll(&asleep_on, 1);
        }
        for (int i = 0; i < 40 && conn_rail_tx(conn_of(b->s)) == 0; i++) {
            more(b, pos, 10);
            usleep(500u * (1 + (unsigned)tries / 8));
        }
        if (conn_rail_tx(conn_of(b->s)) > 0)
            break;
        wakes_up();
        done(b);
        done(a);
    }
    ASSERT(conn_rail_tx(conn_of(b->s)) > 0);
    ASSERT_EQ_INT(conn_of(a->s)->x->rx.state, RX_gS);
    ASSERT(conn_of(a->s)->x->rx.S > 0);
}

static void cross(struct end *a, struct end *b, uint64_t *pos)
{
    cross_with(a, b, pos, false);
}

/* a comes to see everything, in the end reads it, and it is right. */
static void sees(struct end *a, uint64_t pos)
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

static void reads(struct end *a, uint64_t pos)
{
    size_t n = 0;

    memset(in, 0, sizeof(in));
    while (n < pos) {
        ssize_t r = get(a, in + n, (size_t)pos - n);

        ASSERT(r > 0);
        n += (size_t)r;
    }
    EXPECT(check(in, 0, n));
    EXPECT_EQ_U64(count(a), 0);
}

TEST_CASE(stream_ahead, beyond_the_switch)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    sees(&a, pos);
    more(&b, &pos, 5000);
    sees(&a, pos);
    EXPECT_EQ_INT(conn_of(a.s)->x->rx.state, RX_gS);
    reads(&a, pos);
    EXPECT_EQ_INT(a.s->pub->path_rx, FB_PATH_SHM);
    done(&b);
    done(&a);
}

static void woken(struct fb_watcher *w, unsigned events)
{
    (void)w;
    (void)events;
    atomic_fetch_add(&wakes, 1);
}

/* A thread asleep in the kernel's poll since before the switch has to wake up before anything beyond it can be read. So it
 * is not shown until then; and who was not shown it is told when it is. */
TEST_CASE(stream_ahead, not_before_it_can_be_read)
{
    struct fb_watcher watcher = {.wake = woken};
    struct end a, b;
    uint64_t pos, S;
    int before;

    cross_with(&a, &b, &pos, true);
    more(&b, &pos, 5000);
    S = conn_of(a.s)->x->rx.S;
    fb_watch(a.s, &watcher);
    UNTIL(conn_of(a.s)->x->rx.unshown || count(&a) > S || show(&a, in, sizeof(in)) > S);
    for (int i = 0; i < 20; i++) {
        ASSERT_EQ_U64(count(&a), S);
        ASSERT_EQ_U64(show(&a, in, sizeof(in)), S);
        usleep(1000);
    }
    before = atomic_load(&wakes);
    wakes_up();
    UNTIL(atomic_load(&wakes) > before);
    sees(&a, pos);
    fb_unwatch(a.s, &watcher);
    reads(&a, pos);
    done(&b);
    done(&a);
}

/* The other one: all before the switch is read, and what was shown was all that there is. */
TEST_CASE(stream_ahead, read_while_one_sleeps)
{
    struct end a, b;
    uint64_t pos, S;

    cross_with(&a, &b, &pos, true);
    more(&b, &pos, 5000);
    S = conn_of(a.s)->x->rx.S;
    UNTIL(conn_of(a.s)->x->rx.unshown || count(&a) > S);
    ASSERT_EQ_U64(show(&a, in, sizeof(in)), S);
    ASSERT_EQ_INT(get(&a, in, (size_t)S), (int)S);
    EXPECT(check(in, 0, (size_t)S));
    EXPECT_EQ_INT(
        fb_recvv(a.s, a.fd, &(struct iovec){in + S, sizeof(in) - (size_t)S}, 1, MSG_DONTWAIT),
        -EAGAIN);
    EXPECT_EQ_U64(count(&a), 0);
    wakes_up();
    for (size_t n = (size_t)S; n < pos;) {
        ssize_t r = get(&a, in + n, (size_t)pos - n);

        ASSERT(r > 0);
        n += (size_t)r;
    }
    EXPECT(check(in, 0, (size_t)pos));
    done(&b);
    done(&a);
}

/* The sender leaves before anything is read: its bytes are there twice, and more come by TCP. */
TEST_CASE(stream_ahead, beyond_the_leave)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    more(&b, &pos, 3000);
    sees(&a, pos);
    end_leave(conn_of(b.s), RSN_RAIL_FAILED);
    more(&b, &pos, 40000);
    sees(&a, pos);
    reads(&a, pos);
    done(&b);
    done(&a);
}

/* The same, seen by a reader that has taken the frames and not yet what the ring has. */
TEST_CASE(stream_ahead, beyond_the_overlap)
{
    struct end a, b;
    uint64_t pos = 0;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    more(&b, &pos, 3000);
    end_leave(conn_of(b.s), RSN_RAIL_FAILED);
    UNTIL(conn_of(a.s)->x->rx.state == RX_sk);
    sees(&a, pos);
    more(&b, &pos, 40000);
    sees(&a, pos);
    reads(&a, pos);
    UNTIL(fb_plain(a.s) || a.s->pub->path_rx == FB_PATH_TCP);
    done(&b);
    done(&a);
}

/* What has come is counted in the same way in the kernel, in the ring and in both, read or not: it is by that that an
 * edge is told once (preload/pl_epoll_ready.c). But who finds less than asked for is told of all that follows. */
TEST_CASE(stream_ahead, tally)
{
    struct end a, b;
    struct fb_tally t;
    uint64_t pos;
    size_t half;

    cross(&a, &b, &pos);
    more(&b, &pos, 3000);
    half = (size_t)pos / 2;
    UNTIL(count(&a) >= pos);
    t = fb_tally(a.s, a.fd);
    EXPECT(t.in != 0 && t.out != 0);
    end_leave(conn_of(b.s), RSN_IDLE);
    more(&b, &pos, 1);
    UNTIL(count(&a) >= pos);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, t.in + 1);
    for (size_t at = 0; at < half; at += 10) {
        fill(out, at, 10);
        ASSERT_EQ_INT(get(&a, in, 10), 10);
        EXPECT(memcmp(in, out, 10) == 0);
        /* What is behind the ring in the kernel it does not see from there: an edge more, none less. */
        EXPECT(fb_tally(a.s, a.fd).in <= t.in + 1);
    }
    UNTIL(conn_of(a.s)->x->rx.state == RX_sk || conn_of(a.s)->x->rx.state == RX_t);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, t.in + 1);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).out, t.out);
    ASSERT_EQ_INT(put(&a, in, 1), 1);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).out, t.out + 1);
    while (get(&a, in, sizeof(in)) == (ssize_t)sizeof(in))
        ;
    UNTIL(conn_of(a.s)->x->rx.state == RX_t);
    EXPECT(fb_tally(a.s, a.fd).in > t.in + 1);
    t = fb_tally(a.s, a.fd);
    EXPECT_EQ_INT(fb_poll(a.s, a.fd, POLLIN), 0);
    EXPECT(fb_tally(a.s, a.fd).in > t.in);
    t = fb_tally(a.s, a.fd);
    more(&b, &pos, 1);
    UNTIL(count(&a) == 1);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, t.in + 1);
    /* Who cannot know what others read says nothing. */
    fb_pin(a.s, RSN_CALL, false);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, 0);
    done(&b);
    done(&a);
}

/* As before, with a receiver that looks only then. */
TEST_CASE(stream_ahead, beyond_both_at_once)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    end_leave(conn_of(b.s), RSN_RAIL_FAILED);
    more(&b, &pos, 40000);
    sees(&a, pos);
    reads(&a, pos);
    done(&b);
    done(&a);
}

/* The receiver's stream is to be TCP's alone: what is in the ring has to come that way first. */
TEST_CASE(stream_ahead, pinned_before_the_look)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    more(&b, &pos, 3000);
    fb_pin(a.s, RSN_CALL, false);
    sees(&a, pos);
    more(&b, &pos, 3000);
    sees(&a, pos);
    reads(&a, pos);
    done(&b);
    done(&a);
}

TEST_CASE(stream_ahead, pinned_after_the_look)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    sees(&a, pos);
    fb_pin(a.s, RSN_CALL, false);
    more(&b, &pos, 3000);
    sees(&a, pos);
    reads(&a, pos);
    done(&b);
    done(&a);
}

/* MSG_WAITALL may return less with MSG_PEEK (POSIX), but nothing twice. */
TEST_CASE(stream_ahead, waitall_shows_nothing_twice)
{
    struct end a, b;
    struct iovec v = {in, sizeof(in)};
    uint64_t pos;
    ssize_t r;

    cross(&a, &b, &pos);
    more(&b, &pos, 3000);
    memset(in, 0, sizeof(in));
    r = fb_recvv(a.s, a.fd, &v, 1, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT);
    ASSERT(r > 0);
    EXPECT((uint64_t)r <= pos);
    EXPECT(check(in, 0, (size_t)r));
    reads(&a, pos);
    done(&b);
    done(&a);
}

/* As the application's own recv in a process that may call nothing else. */
static ssize_t get_for_good(struct end *e, void *p, size_t n)
{
    struct iovec v = {p, n};
    ssize_t r = FB_RETRY;

    while (r == FB_RETRY) {
        if (!fb_rx_enter(e->s) && !fb_rx_enter_for_good(e->s))
            return -EDEADLK;
        r = recv(e->fd, p, n, 0);
        r = fb_rx_leave(e->s, e->fd, r < 0 ? -errno : r, &v, 1, 0);
    }
    return r;
}

/* Bytes `from`.. of the stream to its end at pos, in pieces of this size. */
static void reads_for_good(struct end *a, uint64_t from, uint64_t pos, size_t piece)
{
    while (from < pos) {
        ssize_t r = get_for_good(a, in, piece);

        ASSERT(r > 0 && (size_t)r <= piece);
        EXPECT(check(in, from, (size_t)r));
        from += (uint64_t)r;
    }
    EXPECT_EQ_U64(from, pos);
}

TEST_CASE(stream_ahead, read_for_good_with_the_frames_between)
{
    static const size_t pieces[] = {1, 63, 64, 65, 500, sizeof(in)};

    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        struct end a, b;
        uint64_t pos;

        cross(&a, &b, &pos);
        more(&b, &pos, 3000);
        fb_pin(a.s, RSN_SECCOMP, true);
        more(&b, &pos, 1000);
        reads_for_good(&a, 0, pos, pieces[i]);
        done(&b);
        EXPECT_EQ_INT(get_for_good(&a, in, 1), 0);
        done(&a);
    }
}

/* A pair on a rail, and something in a's ring. */
static void ring(struct end *a, struct end *b, uint64_t *pos)
{
    *pos = 0;
    eager();
    pair(a, b);
    ASSERT(board(a, b));
    more(b, pos, 3000);
}

/* A part has been read from the ring, and comes again by TCP. */
TEST_CASE(stream_ahead, read_for_good_after_the_ring)
{
    static const size_t pieces[] = {1, 100, sizeof(in)};

    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        struct end a, b;
        uint64_t pos;

        ring(&a, &b, &pos);
        EXPECT_EQ_INT(get(&a, in, 1000), 1000);
        EXPECT(check(in, 0, 1000));
        fb_pin(a.s, RSN_SECCOMP, false);
        jobs_done();
        more(&b, &pos, 1000);
        EXPECT_EQ_INT(get_for_good(&a, in, 0), 0);
        reads_for_good(&a, 1000, pos, pieces[i]);
        done(&b);
        EXPECT_EQ_INT(get_for_good(&a, in, 1), 0);
        done(&a);
    }
}

/* The end comes before what was on the rail has been sent again: that is no clean end. */
TEST_CASE(stream_ahead, end_without_the_frame_is_a_reset)
{
    struct end a, b;
    uint64_t pos;
    ssize_t r;

    ring(&a, &b, &pos);
    fb_lock(&conn_of(b.s)->x->tx.lock); /* it does not come to it */
    fb_pin(a.s, RSN_SECCOMP, false);
    shutdown(b.fd, SHUT_WR);
    r = get_for_good(&a, in, sizeof(in));
    if (r == -EDEADLK) /* the progress thread has been told of the end first */
        r = get(&a, in, sizeof(in));
    EXPECT_EQ_INT(r, -ECONNRESET);
    EXPECT_EQ_INT(get(&a, in, 1), 0);
    fb_unlock(&conn_of(b.s)->x->tx.lock);
    done(&a);
    done(&b);
}

/* A pair whose b has announced a switch behind bytes that a has not read, and has not waited for the answer. */
static void give_up(struct end *a, struct end *b, uint64_t *pos)
{
    uint64_t limit = sys_now() + PATIENCE;

    met(a, b, pos);
    while (!conn_of(b->s)->x->tx.want) { /* before b sends: what a has not read is no proof */
        unsigned char hello = 0;

        ASSERT(sys_now() < limit);
        ASSERT_EQ_INT(put(a, &hello, 1), 1);
        ASSERT_EQ_INT(get(b, &hello, 1), 1);
        jobs_done();
    }
    while (conn_of(a->s)->x->rx.state != RX_gS) {
        ASSERT(sys_now() < limit);
        fb_lock(&conn_of(a->s)->x->rx.lock); /* nobody answers as long as b waits for it */
        more(b, pos, 10);
        fb_unlock(&conn_of(a->s)->x->rx.lock);
        jobs_done();
    }
    ASSERT_EQ_INT(conn_of(b->s)->x->tx.state, TX_T);
}

/* What is unread on TCP then is all the stream's, and whoever is handed it gets it. */
TEST_CASE(stream_ahead, handed_over_where_the_switch_was_given_up)
{
    struct end a, b;
    uint64_t pos;
    size_t n = 0;

    give_up(&a, &b, &pos);
    ASSERT(fb_hand_over(a.s, RSN_FDOPEN, RSK_RX | RSK_TX));
    while (n < pos) {
        int r = (int)sys_recv(a.fd, in + n, (size_t)pos - n, 0);

        ASSERT(r > 0);
        n += (size_t)r;
    }
    EXPECT(check(in, 0, n));
    done(&b);
    done(&a);
}
