/*
 * stream_for_good_test.c - a stream that is to be TCP's alone from some byte on, read by calls of
 * the application's own or handed over, with frames among what it has not read.
 */
#include "tests/unit/stream_ahead.h"
#include "tests/unit/stream_waits.h"

#include "ipoib_fallback/heir.h"

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

TEST_CASE(stream_for_good, read_for_good_with_the_frames_between)
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
TEST_CASE(stream_for_good, read_for_good_after_the_ring)
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

/* The sender is no more before it has sent again what was on the rail: that is in the ring, and
 * all there was. */
TEST_CASE(stream_for_good, the_ring_is_read_at_an_end_without_the_frame)
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
    EXPECT_EQ_INT(r, 3000);
    EXPECT(check(in, 0, 3000));
    EXPECT_EQ_INT(get(&a, in, 1), 0);
    fb_unlock(&conn_of(b.s)->x->tx.lock);
    done(&a);
    done(&b);
}

/* A pair whose b has announced a switch behind bytes that a has not read, and has not waited
 * for the answer. */
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

/* All of a stream that was handed over, from its socket. */
static void reads_the_socket(struct end *a, uint64_t pos)
{
    size_t n = 0;

    while (n < pos) {
        int r = (int)sys_recv(a->fd, in + n, (size_t)pos - n, 0);

        ASSERT(r > 0);
        n += (size_t)r;
    }
    EXPECT(check(in, 0, n));
}

/* What is unread on TCP then is all the stream's, and whoever is handed it gets it. */
TEST_CASE(stream_for_good, handed_over_where_the_switch_was_given_up)
{
    struct end a, b;
    uint64_t pos;

    give_up(&a, &b, &pos);
    ASSERT(fb_hand_over(a.s, RSN_FDOPEN, RSK_RX | RSK_TX));
    reads_the_socket(&a, pos);
    done(&b);
    done(&a);
}

/* What the kernel has not delivered yet of a descriptor: all behind its first bytes, until then. */
static _Atomic int late_fd = -1;
static _Atomic uint64_t in_time, late_until;
static int (*real_inq)(int);
static ssize_t (*real_recv)(int, const struct iovec *, int, uint64_t, int);

static int late_inq(int fd)
{
    int n = real_inq(fd);

    if (fd != atomic_load(&late_fd) || n < 0 || (uint64_t)n <= atomic_load(&in_time))
        return n;
    return sys_now() < atomic_load(&late_until) ? (int)atomic_load(&in_time) : n;
}

static ssize_t late_recv(int fd, const struct iovec *v, int cnt, uint64_t limit, int flags)
{
    bool late = fd == atomic_load(&late_fd) && sys_now() < atomic_load(&late_until);

    return real_recv(fd, v, cnt, late && limit > in_time ? in_time : limit, flags);
}

/* Before there is another thread. */
__attribute__((constructor)) static void lie(void)
{
    real_inq = fb_io.inq;
    real_recv = fb_io.recv;
    fb_io.inq = late_inq;
    fb_io.recv = late_recv;
}

/* On a busy machine a segment waits for the kernel's own thread. */
TEST_CASE(stream_for_good, handed_over_where_that_comes_late)
{
    struct end a, b;
    uint64_t pos;

    give_up(&a, &b, &pos);
    atomic_store(&in_time, conn_of(a.s)->x->rx.S);
    atomic_store(&late_until, sys_now() + 100000000);
    atomic_store(&late_fd, a.fd);
    EXPECT(fb_hand_over(a.s, RSN_FDOPEN, RSK_RX | RSK_TX));
    atomic_store(&late_fd, -1);
    reads_the_socket(&a, pos);
    done(&b);
    done(&a);
}

/* exec resets first what it cannot hand over, and nothing comes to who was reset: 5 s would be
 * 10,000 waits. */
TEST_CASE(stream_for_good, who_was_reset_waits_for_nothing)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    EXPECT_EQ_INT(connect(a.fd, &none, sizeof(none)), 0);
    waits_are_counted();
    (void)fb_hand_over(a.s, RSN_FDOPEN, RSK_RX | RSK_TX);
    EXPECT(waits_so_far() < 1000);
    done(&b);
    done(&a);
}

/* What splice has taken is not counted as read, but has come. */
TEST_CASE(stream_for_good, handed_over_after_splice)
{
    struct end a, b;
    uint64_t pos = 0;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    more(&b, &pos, 30);
    fb_pin(a.s, RSN_CALL, true);
    ASSERT(fb_plain(a.s));
    EXPECT_EQ_INT(recv(a.fd, in, sizeof(in), 0), 30);
    EXPECT(end_settled(conn_of(a.s), RSN_SHARED));
    done(&b);
    done(&a);
}

/* The echo's end owes its frame, and no rail is left over which it could be asked for it. */
static void handed_over_without_rail(bool leaves_first)
{
    struct echo x = {0};
    struct end a;
    pthread_t t;
    struct rsk_rail *rail;
    struct fb_conn *c;
    struct held h;
    uint64_t pos = 0;

    ASSERT(echo_boarded(&a, &x, &t, &pos));
    c = conn_of(x.e.s);
    rail = c->x->rail;
    ASSERT(rail != NULL);
    if (leaves_first) {
        hold(&h);
        fb_lock(&c->x->tx.lock);
        tx_leave(c, RSN_PEER_LEFT, false);
        EXPECT(c->x->tx.owed);
        tx_unlock(c);
    }
    rail->wire->kill(rail, RSN_RAIL_FAILED);
    if (leaves_first)
        let_go(&h);
    conn_todo_tx(c, TODO_FAIL);
    conn_todo_rx(c, TODO_FAIL);
    conn_serve(c);
    UNTIL(!c->x->rail);
    fb_pin(a.s, RSN_CALL, true);
    EXPECT(fb_plain(a.s));
    EXPECT(round_trip(&a, &pos, 100));
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
    fb_put(x.e.s);
}

TEST_CASE(stream_for_good, failed_rail_then_handed_over)
{
    handed_over_without_rail(false);
}

TEST_CASE(stream_for_good, left_rail_that_fails_then_handed_over)
{
    handed_over_without_rail(true);
}

struct question {
    struct heir_note note;
    int reply;
};

static void asks(void *question)
{
    struct question *q = question;

    heir_asked(&q->note, q->reply, UINT32_MAX);
}

/* A child that is told that the kernel has it need not ask again, though the rail is still
 * there. */
TEST_CASE(stream_for_good, a_child_has_it_before_the_rail_ends)
{
    struct question q = {0};
    struct end a, b;
    struct fb_conn *c;
    uint8_t answer = 0;
    int p[2];

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    c = conn_of(a.s);
    conn_set(c, CF_RELEASE); /* as if that job were under way */
    ASSERT_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
    q.note = (struct heir_note){.what = HEIR_ASK_STREAM, .slot = c->s.slot, .gen = c->gen};
    q.reply = p[1];
    ASSERT_EQ_INT(rsk_loop_post(asks, &q), 0);
    ASSERT_EQ_INT(recv(p[0], &answer, 1, 0), 1);
    EXPECT_EQ_INT(answer, 1);
    EXPECT(c->x->rail != NULL);
    EXPECT(!(atomic_load(&c->s.pub->lent) & FB_LENT_BUSY));
    close(p[0]);
    atomic_fetch_and(&a.s->flags, ~(uint32_t)CF_RELEASE);
    link_release(c);
    UNTIL(!c->x->rail);
    done(&b);
    done(&a);
}
