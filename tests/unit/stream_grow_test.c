/*
 * stream_grow_test.c - a stream that boards with a small ring and turns to bulk gets a larger
 * one (grow.c), whichever end sends, and no byte is lost on the way; one that does not fill
 * its ring keeps it.
 */
#include "tests/unit/stream_pair.h"

#include "config/rules.h"
#include "ipoib_fallback/budget.h"
#include "ipoib_fallback/rdv.h"

#include <sys/socket.h>

enum { SMALL = 256 * 1024, PIECE = 65536 };

static struct fb_more *more_of(const struct end *e)
{
    return conn_of(e->s)->x;
}

/* The sender waits for room, or does something else than send: what is read then makes it find the
 * ring full again. */
static void until_it_is_full(struct end *from)
{
    struct fb_more *x = more_of(from);

    for (int i = 0; i < 100000 && x->tx.state == TX_R && !x->tx_waiters; i++)
        sched_yield();
}

/* Sends bytes from `from` on until it is told to stop. */
struct flood {
    struct end *e;
    uint64_t at;
    _Atomic bool stop;
    bool good;
};

static void *flood_main(void *arg)
{
    struct flood *f = arg;
    static unsigned char buf[PIECE];

    f->good = true;
    while (!atomic_load(&f->stop) && f->good) {
        size_t sent = 0;

        fill(buf, f->at, sizeof buf);
        while (sent < sizeof buf && f->good) {
            ssize_t n = put(f->e, buf + sent, sizeof buf - sent);

            f->good = n > 0;
            sent += n > 0 ? (size_t)n : 0;
        }
        f->at += sizeof buf;
    }
    fb_shutdown(f->e->s, f->e->fd, SHUT_WR);
    return NULL;
}

/* A reader that is slow, as under a sanitizer, is no reason to leave. */
static void begin(void)
{
    setenv("RAILSOCK_STALL", "0", 1);
    eager();
}

/* One direction is flooded, by `from`. */
static void floods(struct end *from, struct end *to)
{
    static unsigned char buf[PIECE];
    struct flood f = {.e = from};
    uint64_t got = 0, limit = sys_now() + PATIENCE, large_at = 0;
    bool good = true;
    pthread_t t;
    ssize_t n;

    ASSERT_EQ_U64(more_of(from)->show->tx_ring, SMALL);
    pthread_create(&t, NULL, flood_main, &f);
    for (;;) {
        if (!large_at)
            until_it_is_full(from);
        n = get(to, buf, sizeof buf);
        if (n <= 0)
            break;
        good = good && check(buf, got, (size_t)n);
        got += (uint64_t)n;
        if (!large_at && more_of(from)->show->tx_ring == FB_BULK_RING &&
            from->s->pub->path_tx == FB_PATH_SHM && to->s->pub->path_rx == FB_PATH_SHM)
            large_at = got;
        /* Once it has, some more: it does not grow again. */
        if ((large_at && got > large_at + 16 * FB_BULK_RING) || sys_now() > limit)
            atomic_store(&f.stop, true);
    }
    pthread_join(t, NULL);
    EXPECT_EQ_INT((int)n, 0);
    EXPECT(good && f.good);
    EXPECT_EQ_U64(got, f.at);
    EXPECT(large_at > 0);
    EXPECT_EQ_U64(more_of(to)->show->rx_ring, FB_BULK_RING);
    EXPECT_EQ_U64(more_of(from)->grown, 1);
    EXPECT_EQ_U64(more_of(to)->grown, 0);
}

TEST_CASE(stream_grow, who_connected_sends)
{
    struct end a, b;

    begin();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    floods(&a, &b);
    done(&a);
    done(&b);
}

TEST_CASE(stream_grow, who_accepted_sends)
{
    struct end a, b;

    begin();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    floods(&b, &a);
    done(&a);
    done(&b);
}

/* So many bytes, a piece at a time. */
static void carry(struct end *a, struct end *b, unsigned pieces, size_t size)
{
    static unsigned char out[PIECE], in[PIECE];

    for (unsigned i = 0; i < pieces; i++) {
        ASSERT_EQ_INT(put(a, out, size), (ssize_t)size);
        for (size_t got = 0; got < size;) {
            ssize_t n = get(b, in, size - got);

            ASSERT(n > 0);
            got += (size_t)n;
        }
    }
}

static void idles(void *conn)
{
    EXPECT(budget_leave(conn, RSN_IDLE));
}

/* What has gone by the ring in many calls does not make the few on TCP large ones. */
TEST_CASE(stream_grow, what_went_by_rail_is_no_large_call)
{
    struct end a, b;

    begin();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    carry(&a, &b, 4096, 512);
    ASSERT_EQ_INT(rsk_loop_post(idles, conn_of(a.s)), 0);
    UNTIL(!more_of(&a)->rail && !more_of(&b)->rail);
    ASSERT(board(&a, &b));
    EXPECT_EQ_U64(more_of(&a)->show->tx_ring, SMALL);
    EXPECT_EQ_U64(more_of(&b)->show->tx_ring, SMALL);
    done(&a);
    done(&b);
}

/* An end whose calls are large, and that has no rail and asks for none. */
static void with_large_calls(struct end *a, struct end *b)
{
    static struct cfg_stream never;

    begin();
    pair(a, b);
    after(b, &never, 1000000);
    never.board_bytes = UINT64_MAX / 2;
    carry(a, b, 20, PIECE);
    UNTIL(more_of(a) && more_of(a)->show && !conn_flag(conn_of(a->s), CF_ASKED));
    jobs_done();
    EXPECT_EQ_U64(more_of(a)->budgeted, 0);
}

struct refused {
    struct fb_conn *conn;
    bool there;
    int reason;
};

static void refuse(void *arg)
{
    struct refused *r = arg;

    if (r->there)
        EXPECT(budget_take(r->conn));
    rdv_again(r->conn, r->reason);
}

/* The answer to a question for large rings; and what is asked for after it. */
static void small_after(int reason, bool there, bool small)
{
    struct end a, b;
    struct refused r = {.there = there, .reason = reason};

    with_large_calls(&a, &b);
    r.conn = conn_of(a.s);
    EXPECT_EQ_U64(rdv_ring_for(r.conn), FB_BULK_RING);
    ASSERT_EQ_INT(rsk_loop_post(refuse, &r), 0);
    jobs_done();
    EXPECT_EQ_U64(rdv_ring_for(r.conn), small ? 0 : FB_BULK_RING);
    done(&a);
    done(&b);
}

TEST_CASE(stream_grow, small_where_there_is_no_memory)
{
    small_after(RSN_NO_MEMORY, true, true);
}

TEST_CASE(stream_grow, small_where_the_peer_has_no_room)
{
    small_after(RSN_BUDGET, true, true);
}

/* There is none for small ones either, as this end knows. */
TEST_CASE(stream_grow, waits_where_there_is_no_room_here)
{
    small_after(RSN_BUDGET, false, false);
}

/* A rule's budget, which both ends share, has room for two rails, if they are small: for those who
 * connects asks at once. Who has accepted is ready before. */
TEST_CASE(stream_grow, small_where_there_is_room_for_that_only)
{
    static struct cfg_stream set[2];
    static struct cfg_use use;
    struct end a, b;

    begin();
    pair(&a, &b);
    after(&a, &set[0], 16);
    after(&b, &set[1], 4);
    for (int i = 0; i < 2; i++) {
        set[i].board_bytes = UINT64_MAX / 2;
        set[i].use = &use;
        set[i].max_memory = 2 * CFG_RAIL_EXPECTED;
    }
    carry(&a, &b, 12, PIECE);
    UNTIL(conn_flag(conn_of(b.s), CF_ASKED));
    jobs_done();
    ASSERT(board(&a, &b));
    EXPECT_EQ_U64(more_of(&a)->show->tx_ring, SMALL);
    EXPECT_EQ_INT(more_of(&a)->show->retries, 0);
    EXPECT_EQ_U64(use.memory, 4 * SMALL);
    done(&a);
    done(&b);
}

static void wait_there(void *until)
{
    while (sem_wait(until))
        ;
}

/* However often the ring is found full until that comes to the progress thread. */
TEST_CASE(stream_grow, is_asked_for_once)
{
    static unsigned char in[PIECE], out[PIECE];
    const struct iovec v = {out, sizeof(out)};
    struct end a, b;
    uint64_t sent = 0, got = 0;
    ssize_t n;
    sem_t go;

    begin();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    sem_init(&go, 0, 0);
    ASSERT_EQ_INT(rsk_loop_post(wait_there, &go), 0);
    for (int i = 0; i < 200; i++) {
        while (fill(out, sent, sizeof(out)), (n = fb_sendv(a.s, a.fd, &v, 1, MSG_DONTWAIT)) > 0)
            sent += (uint64_t)n;
        ASSERT_EQ_INT(n, -EAGAIN);
        while (got < sent && (n = get(&b, in, sizeof(in))) > 0) {
            ASSERT(check(in, got, (size_t)n));
            got += (uint64_t)n;
        }
        ASSERT_EQ_U64(got, sent);
    }
    EXPECT_EQ_U64(more_of(&a)->grown, 1);
    sem_post(&go);
    jobs_done();
    EXPECT(atomic_load(&more_of(&a)->bulk));
    done(&a);
    done(&b);
}

#ifdef RAILSOCK_SANITIZED
enum { TRIPS = 300 };
#else
enum { TRIPS = 1000 };
#endif

/* Much, but never more than the ring has room for. */
TEST_CASE(stream_grow, who_does_not_fill_it_keeps_it)
{
    struct echo x = {0};
    struct end a;
    pthread_t t;
    uint64_t pos = 0;

    begin();
    ASSERT(echo_boarded(&a, &x, &t, &pos));
    for (int i = 0; i < TRIPS; i++)
        ASSERT(round_trip(&a, &pos, 60000));
    EXPECT_EQ_U64(more_of(&a)->show->tx_ring, SMALL);
    EXPECT_EQ_U64(more_of(&a)->grown, 0);
    EXPECT(boarded(&a));
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
    fb_put(x.e.s);
}

/* SO_SNDBUF holds from the moment that it is set: the stream leaves, and boards with it. */
TEST_CASE(stream_grow, not_beyond_what_is_set)
{
    enum { ROOM = 16384 };
    struct end a, b;
    int room = ROOM;

    begin();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_U64(more_of(&a)->rail->tx_limit, 0);
    ASSERT_EQ_INT(setsockopt(a.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    fb_sockopt(a.s, SOL_SOCKET, SO_SNDBUF, 0);
    EXPECT(more_of(&a)->tx.state != TX_R);
    ASSERT(board(&a, &b));
    EXPECT(more_of(&a)->rail->tx_limit >= 2 * ROOM && more_of(&a)->rail->tx_limit < SMALL);
    EXPECT_EQ_U64(more_of(&b)->rail->tx_limit, 0);
    /* The same again is nothing new. */
    fb_sockopt(a.s, SOL_SOCKET, SO_SNDBUF, 0);
    EXPECT_EQ_INT(more_of(&a)->tx.state, TX_R);
    done(&a);
    done(&b);
}
