/*
 * stream_stall_test.c - a full ring of which nothing is read: a sender that boarded while much lay
 * unread in TCP gives its receiver time to come to the ring, and no longer
 * (ipoib_fallback/stall.c).
 */
#include "tests/shim/shim.h"
#include "tests/unit/stream_pair.h"

#include <errno.h>

enum { BEFORE = 1 << 20, PIECE = 1 << 14 };

static _Atomic uint64_t frozen; /* 0: the clock goes */
static _Atomic unsigned looks;
static struct rsk_wire hooked;
static const struct rsk_wire *wire;

static uint64_t now(void)
{
    uint64_t at = atomic_load(&frozen);

    return at ? at : sys_now();
}

/* Before there is a thread that calls it. */
__attribute__((constructor)) static void at_load(void)
{
    fb_io.now = now;
}

static uint64_t freed(struct rsk_rail *r)
{
    atomic_fetch_add(&looks, 1);
    return wire->tx_freed(r);
}

struct state {
    bool on_rail, echoed;
    uint64_t S, behind_until;
};

static struct state state_of(struct end *e)
{
    struct fb_tx *tx = &conn_of(e->s)->x->tx;
    struct state s;

    fb_lock(&tx->lock);
    s = (struct state){tx->state == TX_R, tx->echoed, tx->S, tx->behind_until};
    tx_unlock(conn_of(e->s));
    return s;
}

static void board_not_before(struct end *e, uint64_t at)
{
    struct fb_tx *tx = &conn_of(e->s)->x->tx;

    fb_lock(&tx->lock);
    tx->not_before = at;
    tx_unlock(conn_of(e->s));
}

/* -EAGAIN: there is no room. */
static ssize_t send_one(struct end *e, uint64_t *sent)
{
    static unsigned char out[PIECE];
    ssize_t n;

    fill(out, *sent, PIECE);
    n = put(e, out, PIECE);
    if (n > 0)
        *sent += (uint64_t)n;
    return n;
}

static void read_up_to(struct end *e, uint64_t *got, uint64_t end)
{
    static unsigned char in[PIECE];

    while (*got < end) {
        ssize_t n = get(e, in, end - *got < PIECE ? end - *got : PIECE);

        ASSERT(n > 0);
        EXPECT(check(in, *got, (size_t)n));
        *got += (uint64_t)n;
    }
}

/* a has boarded with so much unread in TCP before the ring, which is full. The clock stands just
 * before that does not count any more. */
static void behind(struct end *a, struct end *b, uint64_t before, uint64_t *sent)
{
    uint64_t asked, most;

    setenv("RAILSOCK_STALL", "5", 1);
    pair_proved(a, b);
    fb_set_nonblock(a->s, true);
    board_not_before(a, UINT64_MAX);
    while (*sent < before)
        ASSERT(send_one(a, sent) == PIECE);
    EXPECT(!state_of(a).on_rail);
    board_not_before(a, 0);
    asked = sys_now();
    UNTIL((send_one(a, sent), state_of(a).on_rail));
    EXPECT(state_of(a).S >= before);
    most = 20 * 5000000ull;
    EXPECT(state_of(a).behind_until >= asked + (125 * before < most ? 125 * before : most));
    atomic_store(&frozen, state_of(a).behind_until - 1);
    wire = conn_of(a->s)->x->rail->wire;
    hooked = *wire;
    hooked.tx_freed = freed;
    atomic_store(&looks, 0);
    use_wire(a, &hooked);
    while (send_one(a, sent) > 0)
        ;
}

/* The clock goes on; what has been sent arrives. */
static void over(struct end *a, struct end *b, uint64_t *got, uint64_t sent)
{
    atomic_store(&frozen, 0);
    read_up_to(b, got, sent);
    done(a);
    done(b);
}

TEST_CASE(stream_stall, waits_for_who_is_behind)
{
    struct end a, b;
    uint64_t sent = 0, got = 0;

    behind(&a, &b, BEFORE, &sent);
    UNTIL(atomic_load(&looks) >= 5);
    EXPECT(state_of(&a).on_rail);
    EXPECT(!state_of(&a).echoed);
    read_up_to(&b, &got, sent);
    UNTIL(state_of(&a).echoed);
    EXPECT(state_of(&a).on_rail);
    EXPECT_EQ_INT(send_one(&a, &sent), PIECE);
    read_up_to(&b, &got, sent);
    EXPECT(state_of(&a).on_rail);
    over(&a, &b, &got, sent);
}

TEST_CASE(stream_stall, not_for_ever)
{
    struct end a, b;
    uint64_t sent = 0, got = 0;

    behind(&a, &b, BEFORE, &sent);
    UNTIL(atomic_load(&looks) >= 3);
    EXPECT(state_of(&a).on_rail);
    atomic_store(&frozen, atomic_load(&frozen) + 1);
    UNTIL(!state_of(&a).on_rail);
    atomic_store(&frozen, 0);
    UNTIL(send_one(&a, &sent) != -EAGAIN); /* TCP has room for more */
    over(&a, &b, &got, sent);
}

/* Who only asks how much there is has seen that the ring goes on, and reads none of it. */
TEST_CASE(stream_stall, looks_ahead)
{
    struct end a, b;
    uint64_t sent = 0, got = 0;

    behind(&a, &b, 2 * PIECE, &sent);
    UNTIL((fb_inq(b.s, b.fd), state_of(&a).echoed));
    atomic_store(&looks, 0);
    UNTIL(atomic_load(&looks) >= 5);
    EXPECT(state_of(&a).on_rail);
    over(&a, &b, &got, sent);
}

/* At the ring, but not of use to it. */
TEST_CASE(stream_stall, reads_no_more)
{
    struct end a, b;
    uint64_t sent = 0, got = 0;

    behind(&a, &b, BEFORE, &sent);
    read_up_to(&b, &got, state_of(&a).S + 1);
    UNTIL(state_of(&a).echoed);
    UNTIL(!state_of(&a).on_rail);
    over(&a, &b, &got, sent);
}

/* What the receiver has read by the time that it is asked is not before the ring any more. */
TEST_CASE(stream_stall, has_read_it)
{
    struct end a, b;
    uint64_t sent = 0, got = 0;

    setenv("RAILSOCK_STALL", "5", 1);
    pair_proved(&a, &b);
    fb_set_nonblock(a.s, true);
    board_not_before(&a, UINT64_MAX);
    while (sent < BEFORE) {
        ASSERT(send_one(&a, &sent) == PIECE);
        read_up_to(&b, &got, sent);
    }
    board_not_before(&a, 0);
    UNTIL((read_up_to(&b, &got, sent), send_one(&a, &sent), state_of(&a).on_rail));
    EXPECT(state_of(&a).S >= BEFORE);
    EXPECT(state_of(&a).behind_until <= sys_now());
    while (send_one(&a, &sent) > 0)
        ;
    UNTIL(!state_of(&a).on_rail);
    over(&a, &b, &got, sent);
}
