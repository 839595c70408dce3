/*
 * stream_short_test.c - calls on a rail that only move bytes (rx_move, tx_move in call.c): they do
 * what the general way does, and leave to it what they do not.
 */
#include "tests/unit/stream_pair.h"

#include "rsock/section.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

static unsigned char out[8192], in[8192];

static struct fb_more *more_of(const struct end *e)
{
    return conn_of(e->s)->x;
}

/* As who waits for edges is told of it. */
static uint64_t no_data(const struct end *e)
{
    return fb_tally(e->s, e->fd).in >> 44;
}

/* The next bytes of a direction are none that are digested, which a send takes the
 * general way for. */
static bool undigested(struct end *from, struct end *to)
{
    uint64_t end = from->s->pub->tx + 1000;

    return !conn_seen_wants(&from->s->tx_mark, end) && !conn_seen_wants(&to->s->rx_mark, end);
}

/* On a rail, and with undigested bytes before it; how many it takes to board is a matter of how
 * soon others run. */
static bool aboard(struct end *a, struct end *b)
{
    uint64_t limit = sys_now() + PATIENCE;

    eager();
    pair(a, b);
    if (!board(a, b))
        return false;
    while (!undigested(a, b) || !undigested(b, a))
        if (sys_now() > limit || put(a, out, 500) != 500 || get(b, in, 500) != 500 ||
            put(b, out, 500) != 500 || get(a, in, 500) != 500)
            return false;
    return true;
}

/* What the boarding has left to the progress thread, an event or a mail, is done. */
static void nothing_to_come(void)
{
    for (int i = 0; i < 2; i++)
        jobs_done();
}

/* The short way is not for whom the progress thread is in the way of, at that moment. */
static size_t quick_send(struct end *e, size_t n, int flags)
{
    size_t did;

    UNTIL((did = fb_send_quick(e->s, e->fd, out, n, flags)) != 0);
    return did;
}

static ssize_t quick_recv(struct end *e, size_t most, int flags)
{
    ssize_t did;

    UNTIL((did = fb_recv_quick(e->s, e->fd, in, most, flags)) != 0);
    return did;
}

/* The short way says that there is nothing. What it leaves to the general one, as news of the
 * anchor, that one has seen to. */
static bool nothing_there(struct end *e)
{
    struct iovec v = {in, 64};
    ssize_t did;

    UNTIL((did = fb_recv_quick(e->s, e->fd, in, 64, MSG_DONTWAIT)) != 0 ||
          fb_recvv(e->s, e->fd, &v, 1, MSG_DONTWAIT) != -EAGAIN);
    return did == -EAGAIN;
}

/* A receive that finds less than it asked for says so: who waits for an edge is told of all
 * that follows. */
TEST_CASE(stream_short, less_than_asked_for)
{
    struct end a, b;
    uint64_t before;

    ASSERT(aboard(&a, &b));
    before = no_data(&b);
    ASSERT_EQ_INT(put(&a, out, 20), 20);
    ASSERT_EQ_INT(get(&b, in, 10), 10);
    EXPECT_EQ_U64(no_data(&b), before);
    ASSERT_EQ_INT(get(&b, in, 64), 10);
    EXPECT_EQ_U64(no_data(&b), before + 1);
    EXPECT_EQ_INT(more_of(&b)->rx.state, RX_r);
    done(&a);
    done(&b);
}

/* Several buffers, at every place of the ring. */
TEST_CASE(stream_short, several_buffers)
{
    struct end a, b;
    uint64_t pos = 0, size, tx, rail;

    ASSERT(aboard(&a, &b));
    size = more_of(&a)->rail->tx_size;
    tx = a.s->pub->tx;
    rail = more_of(&a)->show->rail_tx;
    while (pos < 2 * size + 5000) {
        struct iovec from[3] = {{out, 1000}, {out + 1000, 0}, {out + 1000, 2001}};
        struct iovec to[3] = {{in, 7}, {in + 7, 2900}, {in + 2907, 94}};

        fill(out, pos, 3001);
        memset(in, 0, sizeof(in));
        ASSERT_EQ_INT(fb_sendv(a.s, a.fd, from, 3, 0), 3001);
        ASSERT_EQ_INT(fb_recvv(b.s, b.fd, to, 3, 0), 3001);
        ASSERT(memcmp(in, out, 3001) == 0);
        pos += 3001;
    }
    EXPECT_EQ_U64(a.s->pub->tx, tx + pos);
    EXPECT_EQ_U64(more_of(&a)->show->rail_tx, rail + pos);
    EXPECT_EQ_U64(b.s->pub->rx, a.s->pub->tx);
    EXPECT_EQ_INT(more_of(&a)->tx.state, TX_R);
    done(&a);
    done(&b);
}

/* What was shown is read from the copy, whatever the peer has made of the ring meanwhile. */
TEST_CASE(stream_short, shown_bytes)
{
    struct end a, b;
    struct iovec ring[2], to = {in, 16};

    ASSERT(aboard(&a, &b));
    fill(out, 0, 16);
    ASSERT_EQ_INT(put(&a, out, 16), 16);
    ASSERT_EQ_INT(fb_recvv(b.s, b.fd, &to, 1, MSG_PEEK), 16);
    ASSERT(memcmp(in, out, 16) == 0);
    ASSERT_EQ_INT(more_of(&b)->rail->wire->rx_peek(more_of(&b)->rail, ring), 16);
    memset(ring[0].iov_base, 0xff, 16);
    memset(in, 0, 16);
    ASSERT_EQ_INT(get(&b, in, 16), 16);
    EXPECT(memcmp(in, out, 16) == 0);
    done(&a);
    done(&b);
}

/* An option that was set meanwhile is known before bytes are given. */
TEST_CASE(stream_short, settings)
{
    struct end a, b;
    int on = 1;

    ASSERT(aboard(&a, &b));
    ASSERT_EQ_INT(put(&a, out, 16), 16);
    ASSERT_EQ_INT(get(&b, in, 8), 8);
    EXPECT(!more_of(&b)->tells_inq);
    ASSERT(setsockopt(b.fd, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)) == 0);
    fb_sockopt(b.s, IPPROTO_TCP, TCP_INQ, on);
    ASSERT_EQ_INT(get(&b, in, 4), 4);
    EXPECT(more_of(&b)->tells_inq);
    EXPECT_EQ_INT(fb_inq_told(b.s, b.fd), 4);
    done(&a);
    done(&b);
}

/* Who does not wait is told at once that there is nothing, unless somebody else may have some. */
TEST_CASE(stream_short, nothing_at_once)
{
    struct iovec into = {in, 64};
    struct held h;
    struct end a, b;
    struct fb_more *x;
    uint64_t before;

    ASSERT(aboard(&a, &b));
    nothing_to_come();
    x = more_of(&b);
    EXPECT(nothing_there(&b));
    before = no_data(&b);
    EXPECT(nothing_there(&b));
    EXPECT(no_data(&b) > before);
    hold(&h); /* which looks at them, too, and at the anchor */
    fb_lock(&x->rx.lock);
    conn_of(b.s)->shut = true;
    fb_unlock(&x->rx.lock);
    EXPECT_EQ_INT(fb_recv_quick(b.s, b.fd, in, 64, MSG_DONTWAIT), 0);
    EXPECT_EQ_INT(fb_recvv(b.s, b.fd, &into, 1, MSG_DONTWAIT), 0);
    fb_lock(&x->rx.lock);
    conn_of(b.s)->shut = false;
    atomic_store(&x->anchor_news, 1);
    fb_unlock(&x->rx.lock);
    EXPECT_EQ_INT(fb_recv_quick(b.s, b.fd, in, 64, MSG_DONTWAIT), 0);
    EXPECT_EQ_INT(fb_recvv(b.s, b.fd, &into, 1, MSG_DONTWAIT), -EAGAIN); /* it looks */
    let_go(&h);
    EXPECT(nothing_there(&b));
    atomic_store(&x->rail->failed, true);
    EXPECT_EQ_INT(fb_recv_quick(b.s, b.fd, in, 64, MSG_DONTWAIT), 0);
    atomic_store(&x->rail->failed, false);
    EXPECT_EQ_INT(put(&a, out, 20), 20);
    EXPECT_EQ_INT(quick_recv(&b, 64, MSG_DONTWAIT), 20);
    done(&a);
    done(&b);
}

/* Who has no reference gets nothing but what is the number's: not by another number, not of
 * what is closed. */
TEST_CASE(stream_short, without_a_reference)
{
    struct end a, b;

    ASSERT(aboard(&a, &b));
    fill(out, 0, 16);
    EXPECT_EQ_INT(fb_send_quick(a.s, b.fd, out, 16, 0), 0);
    EXPECT_EQ_INT(fb_send_quick(a.s, a.fd, out, 16, MSG_MORE), 0);
    EXPECT_EQ_INT(quick_send(&a, 16, MSG_NOSIGNAL), 16);
    EXPECT_EQ_INT(fb_recv_quick(b.s, a.fd, in, 64, 0), 0);
    EXPECT_EQ_INT(fb_recv_quick(b.s, b.fd, in, 64, MSG_PEEK), 0);
    EXPECT_EQ_INT(quick_recv(&b, 64, MSG_DONTWAIT), 16);
    EXPECT(check(in, 0, 16));
    EXPECT_EQ_INT(quick_send(&a, 16, 0), 16);
    fb_close(b.s, b.fd);
    EXPECT_EQ_INT(fb_recv_quick(b.s, b.fd, in, 64, 0), 0);
    EXPECT_EQ_INT(fb_send_quick(b.s, b.fd, out, 16, 0), 0);
    close(b.fd);
    fb_put(b.s);
    done(&a);
}

/* What a look at the ring says is what the whole of readiness says; where the ring alone does not
 * decide it says nothing. */
TEST_CASE(stream_short, seen_at_a_glance)
{
    struct held h;
    struct end a, b;
    struct fb_more *x;
    struct fb_tally t = {0};

    ASSERT(aboard(&a, &b));
    nothing_to_come();
    x = more_of(&b);
    UNTIL(fb_sight(b.s, POLLIN) == FB_NONE);
    EXPECT_EQ_INT(fb_ready(b.s, b.fd, POLLIN), 0);
    UNTIL(fb_sight_arm(b.s, b.fd, POLLIN, &t) == FB_NONE);
    EXPECT_EQ_U64(t.in, 0);
    ASSERT_EQ_INT(put(&a, out, 16), 16);
    UNTIL(fb_sight(b.s, POLLIN) == FB_SOME);
    EXPECT_EQ_INT(fb_ready(b.s, b.fd, POLLIN), POLLIN);
    UNTIL(fb_sight_arm(b.s, b.fd, POLLIN, &t) == FB_SOME);
    EXPECT_EQ_U64(t.in, fb_tally(b.s, b.fd).in);
    EXPECT_EQ_U64(t.out, fb_tally(b.s, b.fd).out);
    EXPECT_EQ_INT(fb_sight(b.s, POLLIN | POLLOUT), FB_CLOSER);
    EXPECT_EQ_INT(fb_sight(b.s, POLLOUT), FB_CLOSER);
    fb_lock(&x->rx.lock);
    EXPECT_EQ_INT(fb_sight(b.s, POLLIN), FB_BUSY);
    x->rx.frozen = true; /* as where the ring's rest comes by TCP once more */
    fb_unlock(&x->rx.lock);
    EXPECT_EQ_INT(fb_ready(b.s, b.fd, POLLIN), 0);
    UNTIL(fb_sight(b.s, POLLIN) == FB_CLOSER);
    fb_lock(&x->rx.lock);
    x->rx.frozen = false;
    fb_unlock(&x->rx.lock);
    hold(&h); /* or it has seen to the news */
    atomic_store(&x->anchor_news, 1);
    EXPECT_EQ_INT(fb_sight(b.s, POLLIN), FB_CLOSER);
    let_go(&h);
    ASSERT_EQ_INT(get(&b, in, 16), 16);
    done(&a);
    done(&b);
}

/* A checkpoint of the digests within the buffer, but behind the bytes, is nothing to them; one
 * among them is taken. */
TEST_CASE(stream_short, past_checkpoints)
{
    struct end a, b;
    const struct fb_digest *sent, *got;
    unsigned passed;

    ASSERT(aboard(&a, &b));
    sent = &conn_seen((struct fb_conn *)a.s)->tx;
    got = &conn_seen((struct fb_conn *)b.s)->rx;
    passed = got->index;
    ASSERT(conn_seen_wants(&b.s->rx_mark, b.s->pub->rx + sizeof in));
    for (int i = 0; got->index < passed + 2 && i < 20000; i++) {
        fill(out, a.s->pub->tx, 24);
        ASSERT_EQ_INT(put(&a, out, 24), 24);
        ASSERT_EQ_INT(quick_recv(&b, sizeof in, MSG_DONTWAIT), 24);
    }
    ASSERT_EQ_INT(got->index, passed + 2);
    ASSERT_EQ_INT(sent->index, got->index);
    EXPECT_EQ_U64(got->valid, sent->valid);
    for (int i = 0; i < 8; i++)
        EXPECT_EQ_U64(got->ring[i], sent->ring[i]);
    done(&a);
    done(&b);
}

/* He may hold a lock of what has become nobody's meanwhile, or another's: it stays held. */
TEST_CASE(stream_short, locks_outlive_their_stream)
{
    struct end a, b;
    struct fb_more *x;

    eager();
    pair(&a, &b);
    x = more_of(&a);
    ASSERT(fb_trylock(&x->tx.lock) && fb_trylock(&x->rx.lock));
    done(&a);
    EXPECT(!fb_trylock(&x->tx.lock) && !fb_trylock(&x->rx.lock));
    ASSERT_EQ_INT(a.s->refs, 0);
    fb_unlock(&x->tx.lock);
    fb_unlock(&x->rx.lock);
    done(&b);
}

/* ---- a receive that may wait */

static struct rsk_wire hooked;
static _Thread_local struct {
    void (*what)(void *);
    void *arg;
    unsigned looks;
} meanwhile;

static unsigned poll_hooked(struct rsk_rail *rail, unsigned events)
{
    if (meanwhile.what && ++meanwhile.looks == 3)
        meanwhile.what(meanwhile.arg);
    return rsk_shm_wire.poll(rail, events);
}

/* Before there is a thread that could be calling it. */
__attribute__((constructor)) static void hooked_wire(void)
{
    hooked = rsk_shm_wire;
    hooked.poll = poll_hooked;
}

/* In the thread that looks, at its third look: no other need run just then. */
static void do_meanwhile(void (*what)(void *), void *arg)
{
    meanwhile.what = what;
    meanwhile.arg = arg;
    meanwhile.looks = 0;
}

static void give_byte(void *e)
{
    EXPECT_EQ_INT(put(e, out, 1), 1);
}

/* What comes while it looks is its own, without a second call. */
TEST_CASE(stream_short, waits_a_little)
{
    struct end a, b;
    uint64_t limit = sys_now() + PATIENCE;
    ssize_t n = 0;

    ASSERT(aboard(&a, &b));
    use_wire(&b, &hooked);
    while (n == 0 && sys_now() < limit) { /* the progress thread may have the lock */
        /* Which a spin that has served makes 0, and nothing else in here. */
        more_of(&b)->spin_rx.deaf = 7;
        more_of(&b)->spin_rx.ns = 50000; /* whatever those in vain have taught it */
        EXPECT(fb_recv_quick(b.s, b.fd, in, 64, MSG_DONTWAIT) <= 0);
        do_meanwhile(give_byte, &a);
        n = fb_recv_quick(b.s, b.fd, in, 64, 0);
        if (n == 0 && meanwhile.looks >= 3)
            EXPECT_EQ_INT(get(&b, in, 64), 1);
        do_meanwhile(NULL, NULL);
    }
    EXPECT_EQ_INT(n, 1);
    EXPECT_EQ_INT(more_of(&b)->spin_rx.deaf, 0);
    done(&a);
    done(&b);
}

/* For how long a receive from an empty ring has looked, which has learnt to spin for `ns`. 0: it
 * has stopped before; 1: it has not begun. */
static uint32_t looked(struct end *e, uint32_t ns, int flags)
{
    struct fb_spin *s = &more_of(e)->spin_rx;

    s->ns = ns;
    s->spent = 1;
    EXPECT(fb_recv_quick(e->s, e->fd, in, 64, flags) <= 0);
    return s->spent;
}

struct sleeper {
    struct end *from, *to;
};

/* A byte for who sleeps. */
static void *wakes(void *arg)
{
    struct sleeper *s = arg;

    while (!atomic_load(&more_of(s->to)->rx_waiters))
        sched_yield();
    EXPECT_EQ_INT(put(s->from, out, 1), 1);
    return NULL;
}

/* As fb_lock_slow before it sleeps, which it does not here. */
static void wants_it(void *lock)
{
    struct fb_lock *l = lock;

    if (atomic_exchange(&l->word, 2) == 0)
        fb_unlock(l);
}

/* Nothing that is to be done, but left to be. */
static void leaves_a_bit(void *conn)
{
    conn_todo_rx(conn, TODO_ANCHOR);
}

/* A receive that would look for longer is kept from it by what somebody does meanwhile. */
static void stops_for(void (*what)(void *), void *arg, struct end *e)
{
    const struct iovec into = {in, sizeof(in)};
    uint64_t limit = sys_now() + PATIENCE;
    uint32_t did;

    do {
        /* What was left to be done is done. */
        EXPECT_EQ_INT(fb_recvv(e->s, e->fd, &into, 1, MSG_DONTWAIT), -EAGAIN);
        do_meanwhile(what, arg);
        did = looked(e, 9000, 0);
        do_meanwhile(NULL, NULL);
    } while (did == 1 && sys_now() < limit); /* the progress thread had the lock */
    EXPECT_EQ_INT(did, 0);
}

TEST_CASE(stream_short, waits_no_longer_than_it_may)
{
    struct end a, b;
    struct sleeper who = {&a, &b};
    pthread_t thread;

    ASSERT(aboard(&a, &b));
    UNTIL(looked(&b, 0, 0) == 2000);
    UNTIL(looked(&b, 9000, 0) == 2000);
    UNTIL(looked(&b, 1500, 0) == 1500);
    /* What has mostly been in vain is not tried here. */
    UNTIL(looked(&b, 100, 0) == 0);
    EXPECT_EQ_INT(looked(&b, 9000, MSG_DONTWAIT), 1);
    fb_set_nonblock(b.s, true);
    EXPECT_EQ_INT(looked(&b, 9000, 0), 1);
    fb_set_nonblock(b.s, false);
    /* A handler waits. */
    rsk_sig.pending = 1;
    UNTIL(looked(&b, 9000, 0) == 0);
    rsk_sig.pending = 0;
    /* A time-out lets every handler end the call. */
    more_of(&b)->rcv_timeout = 1000000000;
    UNTIL(looked(&b, 9000, 0) == 0);
    more_of(&b)->rcv_timeout = 0;
    use_wire(&b, &hooked);
    stops_for(wants_it, &more_of(&b)->rx.lock, &b);
    stops_for(leaves_a_bit, conn_of(b.s), &b);
    /* The wait proper takes it into account, once. */
    UNTIL(looked(&b, 9000, 0) == 2000);
    ASSERT_EQ_INT(pthread_create(&thread, NULL, wakes, &who), 0);
    EXPECT_EQ_INT(get(&b, in, 64), 1);
    EXPECT_EQ_INT(more_of(&b)->spin_rx.spent, 0);
    pthread_join(thread, NULL);
    done(&a);
    done(&b);
}
