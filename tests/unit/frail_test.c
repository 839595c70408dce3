/*
 * frail_test.c - rails that do not last: how long their streams and others wait, and when
 * that is forgotten.
 */
#include "tests/shim/shim.h"

#include "config/env.h"
#include "config/log.h"
#include "config/reason.h"
#include "ipoib_fallback/frail.h"

#define SECOND 1000000000ull

struct cfg cfg;
_Atomic int cfg_log_level;
void (*cfg_log_around)(bool begins);
static uint64_t clock_ns = SECOND;

void cfg_log_write(int level, const char *fmt, ...)
{
    (void)level, (void)fmt;
}

static uint64_t now(void)
{
    return clock_ns;
}

struct fb_io fb_io = {.now = now};

static struct fb_more more[8];
static struct fb_conn conns[8];

static struct fb_conn *to(unsigned i, uint8_t host)
{
    struct fb_conn *c = &conns[i];

    c->x = &more[i];
    c->s.role = FB_CONNECTED;
    c->x->tuple = (struct rsk_tuple){.family = AF_INET,
                                     .src = {10, 0, 0, 100},
                                     .dst = {10, 0, 0, host},
                                     .src_port = (uint16_t)(40000 + i),
                                     .dst_port = 80};
    return c;
}

static void up(struct fb_conn *c)
{
    frail_asks(c);
    frail_proved(c);
    c->x->up_at = clock_ns;
}

/* Each stream for itself, and all of them for the host. */
TEST_CASE(frail, others_wait_too)
{
    struct fb_conn *a = to(0, 1), *b = to(1, 1), *other = to(2, 2);

    EXPECT_EQ_INT(frail_for(a), 0);
    up(a);
    up(b);
    EXPECT_EQ_INT(frail_ended(a, RSN_RAIL_FAILED), SECOND);
    EXPECT_EQ_INT(frail_for(b), SECOND);
    EXPECT_EQ_INT(frail_for(other), 0);
    /* In the same moment: no second failure. */
    EXPECT_EQ_INT(frail_ended(b, RSN_RAIL_FAILED), SECOND);
    frail_goes_on(a);
    frail_goes_on(b);
    clock_ns += SECOND;
    EXPECT_EQ_INT(frail_for(b), 0);
    /* One asks for all. */
    frail_asks(b);
    EXPECT_EQ_INT(frail_for(a), SECOND / 4);
    up(b);
    EXPECT_EQ_INT(frail_for(a), 0);
    EXPECT_EQ_INT(frail_ended(b, RSN_RAIL_FAILED), 2 * SECOND);
    EXPECT_EQ_INT(frail_for(a), 2 * SECOND);
}

TEST_CASE(frail, up_to_a_minute)
{
    struct fb_conn *c;
    uint64_t hold = SECOND;

    for (unsigned i = 0; i < 14; i++) {
        c = to(3 + i % 2, 3);
        up(c);
        (void)frail_ended(c, RSN_RDV_TIMEOUT);
        EXPECT_EQ_INT(frail_for(c), hold);
        clock_ns += hold;
        EXPECT_EQ_INT(frail_for(c), 0);
        frail_goes_on(c);
        hold = hold < 32 * SECOND ? 2 * hold : 64 * SECOND;
    }
}

/* The peer's process was killed: its stream does not ask again. */
TEST_CASE(frail, ends_do_not_add_up)
{
    struct fb_conn *c = to(5, 5);

    for (unsigned i = 0; i < 5; i++) {
        up(c);
        (void)frail_ended(c, RSN_RAIL_FAILED);
        EXPECT_EQ_INT(frail_for(c), SECOND);
        clock_ns += 2 * SECOND;
        c->x->broke = false; /* the next one */
    }
}

TEST_CASE(frail, one_that_lives_is_the_end_of_it)
{
    struct fb_conn *c = to(6, 6), *d = to(7, 6);

    for (unsigned i = 0; i < 4; i++) {
        up(c);
        (void)frail_ended(c, RSN_RAIL_FAILED);
        clock_ns += frail_for(c);
        frail_goes_on(c);
    }
    EXPECT_EQ_INT(c->x->holds, 4);
    up(c);
    clock_ns += 61 * SECOND;
    /* That one is none that does not last. */
    EXPECT_EQ_INT(frail_ended(c, RSN_RAIL_FAILED), SECOND);
    EXPECT_EQ_INT(frail_for(c), 0);
    up(d);
    (void)frail_ended(d, RSN_RAIL_FAILED);
    EXPECT_EQ_INT(frail_for(c), SECOND);
}

TEST_CASE(frail, what_is_no_failure)
{
    struct fb_conn *c = to(0, 8);

    c->x->holds = 0;
    up(c);
    EXPECT_EQ_INT(frail_ended(c, RSN_LARGER), 0);
    EXPECT_EQ_INT(frail_ended(c, RSN_RDV_TIMEOUT), 0); /* there was no rail */
    up(c);
    EXPECT_EQ_INT(frail_ended(c, RSN_PEER_LEFT), SECOND);
    EXPECT_EQ_INT(frail_for(c), 0);
}

/* What is wrong with one stream is not the others' affair: they wait for a second each time, as its
 * own pauses grow. */
TEST_CASE(frail, one_that_fails_alone)
{
    struct fb_conn *bad = to(0, 9), *good = to(1, 9);
    uint64_t own = SECOND;

    up(good);
    bad->x->holds = 0;
    for (unsigned i = 0; i < 8; i++) {
        frail_goes_on(bad);
        up(bad);
        EXPECT_EQ_INT(frail_ended(bad, RSN_RAIL_FAILED), own);
        EXPECT_EQ_INT(frail_for(good), SECOND);
        clock_ns += own;
        EXPECT_EQ_INT(frail_for(good), 0);
        own = own < 32 * SECOND ? 2 * own : 64 * SECOND;
    }
    /* Another one's does not last either. */
    frail_goes_on(bad);
    up(good);
    (void)frail_ended(good, RSN_RAIL_FAILED);
    clock_ns += frail_for(bad);
    frail_goes_on(good);
    up(bad);
    (void)frail_ended(bad, RSN_RAIL_FAILED);
    EXPECT_EQ_INT(frail_for(good), 2 * SECOND);
}

/* As many hosts whose paths do not carry as a rack has. */
TEST_CASE(frail, many_hosts)
{
    enum { MANY = 200 };
    unsigned waiting = 0;

    clock_ns += 1000 * SECOND;
    for (unsigned i = 0; i < MANY; i++) {
        struct fb_conn *c = to(0, (uint8_t)i);

        up(c);
        frail_ended(c, RSN_RAIL_FAILED);
    }
    for (unsigned i = 0; i < MANY; i++)
        waiting += frail_for(to(0, (uint8_t)i)) != 0;
    EXPECT(waiting > MANY - MANY / 20);
}
