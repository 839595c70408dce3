/*
 * past_test.c - which way large sends are copied, with the time that each way would take.
 */
#include "tests/shim/shim.h"

#include "ipoib_fallback/past.h"

#include <string.h>

enum { SEND = 128 * 1024 };

static uint64_t rng = 1;

static uint32_t rnd(uint32_t n)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(rng >> 33) % n;
}

struct way {
    uint32_t plain, past; /* ns for a send */
    uint32_t stop, once;  /* now and then, once in so many, one takes so many ns more */
};

/* Sends so many bytes, and returns how many of a thousand sends went past the caches. */
static unsigned run(struct fb_past *p, uint64_t *now, struct way w, uint64_t bytes)
{
    uint64_t past = 0, all = 0;

    for (; all * SEND < bytes; all++) {
        past += p->on;
        *now += p->on ? w.past : w.plain;
        if (w.once && rnd(w.once) == 0)
            *now += w.stop;
        fb_past_sent(p, *now, SEND);
    }
    return (unsigned)(past * 1000 / all);
}

enum { GIB = 1 << 30 };

TEST_CASE(past, is_taken_where_caches_are_far)
{
    struct fb_past p = {0};
    uint64_t now = 1;

    EXPECT(run(&p, &now, (struct way){26000, 10000, 0, 0}, 4ull * GIB) > 950);
}

TEST_CASE(past, is_never_tried_where_they_are_near)
{
    struct fb_past p = {0};
    uint64_t now = 1;

    EXPECT_EQ_INT(run(&p, &now, (struct way){5000, 10000, 0, 0}, 4ull * GIB), 0);
}

/* A thread that loses its processor has a slow turn, and that is no reason. */
TEST_CASE(past, is_not_tried_for_a_stop)
{
    struct fb_past p = {0};
    uint64_t now = 1;

    EXPECT(run(&p, &now, (struct way){5000, 10000, 300000, 40}, 16ull * GIB) < 30);
}

TEST_CASE(past, ends_when_the_thread_has_moved)
{
    struct fb_past p = {0};
    uint64_t now = 1;

    EXPECT(run(&p, &now, (struct way){26000, 10000, 0, 0}, GIB) > 900);
    (void)run(&p, &now, (struct way){5000, 10000, 0, 0}, GIB);
    EXPECT_EQ_INT(run(&p, &now, (struct way){5000, 10000, 0, 0}, GIB), 0);
    (void)run(&p, &now, (struct way){26000, 10000, 0, 0}, GIB / 8);
    EXPECT(run(&p, &now, (struct way){26000, 10000, 0, 0}, GIB) > 900);
}

/* Its reader is slow, or its application: both ways take the same. */
TEST_CASE(past, is_seldom_tried_where_it_makes_no_difference)
{
    struct fb_past p = {0};
    uint64_t now = 1;

    EXPECT(run(&p, &now, (struct way){30000, 30000, 0, 0}, 4ull * GIB) < 30);
}

/* A turn that takes long says nothing, and what was found out before is old. */
TEST_CASE(past, learns_nothing_of_idle_turns)
{
    struct fb_past p = {0};
    uint64_t now = 1;

    EXPECT_EQ_INT(run(&p, &now, (struct way){1000000, 10, 0, 0}, GIB), 0);
    EXPECT(run(&p, &now, (struct way){26000, 10000, 0, 0}, GIB) > 900);
    (void)run(&p, &now, (struct way){1000000, 1000000, 0, 0}, 2 * FB_PAST_TURN);
    EXPECT(!p.on);
}
