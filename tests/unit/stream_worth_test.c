/*
 * stream_worth_test.c - from how many calls on a stream boards: what those before it at the
 * same address have lived for, and that an accepted one asks for nothing where it can be
 * asked for already.
 */
#include "ipoib_fallback/reach.h"
#include "ipoib_fallback/worth.h"
#include "tests/unit/stream_waits.h"

#include <string.h>

static const struct cfg_stream defaults =
    CFG_STREAM_DEFAULTS; /* eager() has changed the process's */

/* ns that have passed for the stream's policies beside those that have. */
static _Atomic uint64_t later;

static uint64_t now_later(void)
{
    return sys_now() + later;
}

__attribute__((constructor)) static void clock_of_ours(void)
{
    fb_io.now = now_later;
}

/* Streams without sockets: what is known of them is put where the library keeps it. */
static void lives(uint16_t port, enum fb_role role, uint32_t calls, uint64_t bytes,
                  const struct cfg_stream *set, bool ends, unsigned *shift)
{
    struct fb_stream *s = fb_track(1 << 20, role, 0);
    struct fb_conn *c = conn_of(s);

    s->pub->peer = (struct fb_pub_addr){.family = AF_INET, .port = port, .addr = {10, 0, 0, 1}};
    c->set = set;
    conn_set(c, CF_ADDRESSES);
    s->calls = calls / 2;
    c->x->rx.calls = calls / 4; /* those on a rail count as well */
    c->x->tx.calls = calls - calls / 2 - calls / 4;
    s->pub->tx = bytes;
    if (ends)
        worth_ended(c, false);
    if (shift)
        *shift = worth_shift(c);
    s->calls = c->x->rx.calls = c->x->tx.calls = 0;
    s->pub->tx = 0;
    if (!ends)
        worth_ended(c, false);
    fb_put(s);
}

static void live(unsigned times, uint32_t calls, uint64_t bytes)
{
    while (times--)
        lives(80, FB_CONNECTED, calls, bytes, &defaults, true, NULL);
}

/* From 8 << it calls on. */
static unsigned shift(uint16_t port)
{
    unsigned n;

    lives(port, FB_CONNECTED, 0, 0, &defaults, false, &n);
    return n;
}

static void begin(void)
{
    eager();
    worth_forget();
}

/* A stream to that address that stays open. */
static struct fb_stream *another(void)
{
    struct fb_stream *s = fb_track(1 << 20, FB_CONNECTED, 0);
    struct fb_conn *c = conn_of(s);

    s->pub->peer = (struct fb_pub_addr){.family = AF_INET, .port = 80, .addr = {10, 0, 0, 1}};
    c->set = &defaults;
    conn_set(c, CF_ADDRESSES);
    (void)worth_shift(c); /* counts it */
    return s;
}

static void no_other(struct fb_stream *s)
{
    worth_ended(conn_of(s), false);
    fb_put(s);
}

TEST_CASE(stream_worth, short_ones_do_not_board)
{
    begin();
    EXPECT_EQ_INT(shift(80), 0);
    live(5, 7, 0); /* none of them would have boarded */
    EXPECT_EQ_INT(shift(80), 0);
    live(1, 20, 0);
    EXPECT_EQ_INT(shift(80), 2); /* 32 calls */
    EXPECT_EQ_INT(shift(81), 0); /* another address */
    live(30, 80, 0);
    EXPECT_EQ_INT(shift(80), 4); /* 128 */
    live(40, 20, 0);
    EXPECT(shift(80) >= 2);
}

TEST_CASE(stream_worth, long_ones_do)
{
    begin();
    live(3, 20, 0);
    EXPECT_EQ_INT(shift(80), 2);
    live(1, 1000000, 0);
    live(30, 5000, 0);
    EXPECT_EQ_INT(shift(80), 0);
    /* Or those that move much with few calls. */
    live(40, 20, 0);
    EXPECT_EQ_INT(shift(80), 2);
    live(80, 20, 16 << 20);
    EXPECT_EQ_INT(shift(80), 0);
}

/* A boarding keeps the others waiting as well: what pays for one alone does not pay then. */
TEST_CASE(stream_worth, several_at_once)
{
    struct fb_stream *s;

    begin();
    live(20, 200, 0);
    EXPECT_EQ_INT(shift(80), 0);
    s = another();
    live(20, 200, 0);
    EXPECT_EQ_INT(shift(80), 5); /* 256 */
    live(60, 600, 0);
    EXPECT_EQ_INT(shift(80), 0);
    live(20, 200, 0);
    EXPECT(shift(80) >= 5);
    no_other(s);
    live(80, 200, 0);
    EXPECT_EQ_INT(shift(80), 0);
    /* A child has none of its parent's. */
    s = another();
    worth_forked();
    live(40, 200, 0);
    EXPECT_EQ_INT(shift(80), 0);
    fb_put(s);
}

/* A few long ones among many short ones: the bound is where the short ones have ended. */
TEST_CASE(stream_worth, some_of_both)
{
    begin();
    for (int i = 0; i < 50; i++) {
        live(9, 20, 0);
        live(1, 3000, 0);
        EXPECT_EQ_INT(shift(80), 2);
    }
}

/* What somebody has said counts as it is, and the end that is asked keeps to its own bound. */
TEST_CASE(stream_worth, only_the_default_learns)
{
    struct cfg_stream said;
    unsigned n;

    begin();
    said = defaults;
    ASSERT(cfg_key_parse(CFG_BOARD, "after=8", &said));
    for (int i = 0; i < 20; i++) {
        lives(80, FB_CONNECTED, 20, 0, &said, true, NULL);
        lives(80, FB_ACCEPTED, 20, 0, &defaults, true, NULL);
    }
    EXPECT_EQ_INT(shift(80), 0);
    live(5, 20, 0);
    EXPECT_EQ_INT(shift(80), 2);
    lives(80, FB_CONNECTED, 0, 0, &said, false, &n);
    EXPECT_EQ_INT(n, 0);
    lives(80, FB_ACCEPTED, 0, 0, &defaults, false, &n);
    EXPECT_EQ_INT(n, 0);
}

/* ---- with sockets */

static void by_default(struct end *e)
{
    struct fb_conn *c = conn_of(e->s);

    conn_addresses(c); /* which finds its rule */
    c->set = &defaults;
    e->s->tx_mark = e->s->rx_mark = FB_DIGEST_LATER;
    e->s->look_at = defaults.board_calls / 2;
}

static void pair_default(int l, struct end *a, struct end *b)
{
    pair_at(l, a, b);
    by_default(a);
    by_default(b);
}

static unsigned char bytes[32768];

/* Two calls of each end, and one more for each piece in which n bytes come. */
static void exchange_of(struct end *a, struct end *b, size_t n)
{
    ASSERT_EQ_INT(put(a, bytes, n), (int)n);
    for (size_t have = 0; have < n;)
        have += (size_t)get(b, bytes, n - have);
    ASSERT_EQ_INT(put(b, bytes, n), (int)n);
    for (size_t have = 0; have < n;)
        have += (size_t)get(a, bytes, n - have);
}

static void exchange(struct end *a, struct end *b, unsigned times)
{
    while (times--)
        exchange_of(a, b, 32);
}

static void waits_until(struct end *e, uint32_t calls)
{
    EXPECT(conn_flag(conn_of(e->s), CF_LOOKS));
    EXPECT(!conn_flag(conn_of(e->s), CF_ASKED));
    EXPECT_EQ_U64(e->s->look_at, calls);
}

static bool begun(struct end *e)
{
    return !fb_digest_later(e->s->tx_mark) && !fb_digest_later(e->s->rx_mark);
}

/* Ten short streams; the eleventh asks when it has lived longer than they have, and not before. */
TEST_CASE(stream_worth, who_lives_longer_boards)
{
    int l = pair_listener();
    struct end a, b;
    uint64_t end;

    begin();
    for (int i = 0; i < 10; i++) {
        pair_default(l, &a, &b);
        exchange(&a, &b, 10);
        EXPECT_EQ_INT(conn_flag(conn_of(a.s), CF_ASKED), i == 0);
        done(&a);
        done(&b);
    }
    pair_default(l, &a, &b);
    exchange(&a, &b, 4);
    waits_until(&a, 16);
    EXPECT(!begun(&a));
    EXPECT(begun(&b)); /* who knows nothing of it */
    exchange(&a, &b, 4);
    waits_until(&a, 32);
    EXPECT(begun(&a));
    exchange(&a, &b, 7);
    waits_until(&a, 32);
    exchange(&a, &b, 1);
    EXPECT(conn_flag(conn_of(a.s), CF_ASKED));
    EXPECT(board(&a, &b));
    done(&a);
    done(&b);
    /* Large ones have the same bound in bytes, 256 KiB. */
    pair_default(l, &a, &b);
    while (!conn_flag(conn_of(a.s), CF_LOOKS))
        exchange_of(&a, &b, sizeof(bytes));
    EXPECT(a.s->look_at < 32);
    waits_until(&a, a.s->look_at);
    /* Its calls until then are counted, and nothing else. */
    ASSERT(fb_rx_enter(a.s));
    EXPECT(fb_usual(a.s, -EAGAIN, true, &end));
    fb_count(a.s, -EAGAIN, true, end);
    while (!conn_flag(conn_of(a.s), CF_ASKED) && a.s->calls < 64)
        exchange_of(&a, &b, sizeof(bytes));
    EXPECT(conn_flag(conn_of(a.s), CF_ASKED));
    EXPECT(a.s->calls < 32);
    done(&a);
    done(&b);
    close(l);
}

/* Accepted ones that have lived for so many calls. */
static void unasked(unsigned times, uint32_t calls)
{
    while (times--) {
        struct fb_stream *s = fb_track(1 << 20, FB_ACCEPTED, 0);

        conn_of(s)->set = &defaults;
        s->calls = calls;
        worth_ended(conn_of(s), false);
        s->calls = 0;
        fb_put(s);
    }
}

static bool puts_off(void)
{
    struct fb_stream *s = fb_track(1 << 20, FB_ACCEPTED, 0);
    bool yes;

    conn_of(s)->set = &defaults;
    yes = worth_unasked(conn_of(s)) > 0;
    fb_put(s);
    return yes;
}

/* Whose peers do not ask, as none of them has the library, needs no digests; who is asked for all
 * the same begins then. */
TEST_CASE(stream_worth, nobody_asks)
{
    int l = pair_listener();
    struct end a, b;

    begin();
    unasked(200, 7);
    for (int i = 0; i < 200; i++) /* these have had a rail */
        lives(80, FB_ACCEPTED, 20, 0, &defaults, true, NULL);
    EXPECT(!puts_off());
    unasked(63, 8);
    EXPECT(!puts_off());
    unasked(1, 8);
    EXPECT(puts_off());
    pair_default(l, &a, &b);
    exchange(&a, &b, 3);
    EXPECT(begun(&a));
    EXPECT(!begun(&b));
    waits_until(&b, 8);
    EXPECT(board(&a, &b));
    EXPECT(begun(&b));
    EXPECT(!puts_off());
    done(&a);
    done(&b);
    pair_default(l, &a, &b);
    exchange(&a, &b, 3);
    EXPECT(begun(&b));
    done(&a);
    done(&b);
    close(l);
}

/* One after the other: each is alone, also where those before it have never asked. */
TEST_CASE(stream_worth, one_at_a_time)
{
    int l = pair_listener();
    struct end a, b;

    begin();
    for (int i = 0; i < 34; i++) {
        pair_default(l, &a, &b);
        exchange(&a, &b, i < 10 ? 10 : 100);
        done(&a);
        done(&b);
    }
    pair_default(l, &a, &b);
    exchange(&a, &b, 4);
    EXPECT(conn_flag(conn_of(a.s), CF_ASKED));
    done(&a);
    done(&b);
    close(l);
}

/* It has said when it is to be looked at; until its traffic has to be worth it anew. */
TEST_CASE(stream_worth, not_before_it_is_looked_at)
{
    int l = pair_listener();
    struct end a, b;

    begin();
    pair_default(l, &a, &b);
    exchange(&a, &b, 3);
    a.s->look_at = 1000;
    conn_set(conn_of(a.s), CF_LOOKS);
    exchange(&a, &b, 40);
    EXPECT(!conn_flag(conn_of(a.s), CF_ASKED));
    conn_afresh(conn_of(a.s));
    exchange(&a, &b, 30);
    EXPECT(conn_flag(conn_of(a.s), CF_ASKED));
    done(&a);
    done(&b);
    close(l);
}

/* A port is known to be reachable for a second, which may be over before all of this is done. */
TEST_CASE(stream_worth, who_is_found_need_not_ask)
{
    uint64_t until = sys_now() + PATIENCE;
    struct end a, b, first_a, first_b;
    int l = pair_listener();
    bool late = false;

    begin();
    pair_default(l, &first_a, &first_b);
    exchange(&first_a, &first_b, 4);
    EXPECT(conn_flag(conn_of(first_b.s), CF_ASKED)); /* nobody could be asked for at this port */
    ASSERT(board(&first_a, &first_b));
    while (!late && sys_now() < until) {
        struct fb_conn *c;

        pair_default(l, &a, &b);
        c = conn_of(b.s);
        exchange(&a, &b, 3); /* neither end asks yet */
        EXPECT(!conn_flag(c, CF_ASKED));
        if (reach_known(c)) {
            /* The one end alone goes on: nobody asks for it. */
            for (int i = 0; i < 8; i++) {
                EXPECT_EQ_INT(put(&b, bytes, 32), 32);
                let_go_on(1);
            }
            late = !conn_flag(c, CF_ASKED) && reach_known(c);
            EXPECT(!late || b.s->pub->reason == RSN_WAIT_PEER);
        }
        if (late) {
            for (size_t have = 0; have < 256;)
                have += (size_t)get(&a, bytes, 256 - have);
            while (!conn_flag(conn_of(a.s), CF_ASKED))
                ASSERT_EQ_INT(put(&a, bytes, 32), 32);
            UNTIL(conn_flag(c, CF_ASKED)); /* without a call of its own */
            UNTIL(conn_flag(c, CF_REACHABLE));
            EXPECT(board(&a, &b));
        }
        done(&a);
        done(&b);
    }
    EXPECT(late);
    done(&first_a);
    done(&first_b);
    close(l);
}

/* A port that is reachable is looked at again: after a second, and when a hold has ended that. */
TEST_CASE(stream_worth, what_is_reachable_may_change)
{
    int l = pair_listener();
    struct end a, b, c, d;

    begin();
    pair_default(l, &a, &b);
    exchange(&a, &b, 4);
    UNTIL(reach_known(conn_of(b.s)));
    /* What is over does not come again, whatever is counted in. */
    for (uint64_t ns = 1000000000; ns < 200000000000000; ns += ns / 8) {
        later = ns;
        EXPECT(!reach_known(conn_of(b.s)));
    }
    later = 0;
    reach_unknown();
    pair_default(l, &c, &d);
    exchange(&c, &d, 4);
    EXPECT(conn_flag(conn_of(d.s), CF_ASKED));
    EXPECT(!conn_flag(conn_of(d.s), CF_LOOKS));
    done(&a);
    done(&b);
    done(&c);
    done(&d);
    close(l);
}
