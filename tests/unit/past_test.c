/*
 * past_test.c - which way large sends are copied, with the time that each way would take.
 */
#include "tests/shim/shim.h"

#include "ipoib_fallback/past.h"

#include <string.h>

enum { KIB = 1 << 10, MIB = 1 << 20, GIB = 1 << 30 };

static uint64_t rng = 1;

static uint32_t rnd(uint32_t n)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(rng >> 33) % n;
}

struct way {
    uint32_t plain, past; /* ns for 128 KiB */
    uint32_t stop, once;  /* now and then, once in so many sends, one takes so many ns more */
};

static const struct way far = {.plain = 26000, .past = 10000},
                        near = {.plain = 5000, .past = 10000};

struct stream {
    struct fb_past p;
    uint64_t now;
};

/* Sends so many bytes, so many at a time, and returns how many of a thousand sends went
 * past the caches. */
static unsigned sends(struct stream *s, struct way w, uint64_t bytes, uint32_t piece)
{
    uint64_t past = 0, all = 0;

    s->now += !s->now;
    for (; all * piece < bytes; all++) {
        past += s->p.on;
        s->now += (uint64_t)(s->p.on ? w.past : w.plain) * piece / (128 * KIB);
        if (w.once && rnd(w.once) == 0)
            s->now += w.stop;
        if (fb_past_sent(&s->p, piece))
            fb_past_turn(&s->p, s->now);
    }
    return (unsigned)(past * 1000 / all);
}

/* The same for a stream that begins. */
static unsigned begins(struct way w, uint64_t bytes, uint32_t piece)
{
    struct stream s = {0};

    return sends(&s, w, bytes, piece);
}

TEST_CASE(past, is_taken_where_caches_are_far)
{
    EXPECT(begins(far, 4ull * GIB, 128 * KIB) > 950);
}

TEST_CASE(past, is_never_tried_where_they_are_near)
{
    EXPECT_EQ_INT(begins(near, 4ull * GIB, 128 * KIB), 0);
    EXPECT_EQ_INT(begins(near, 16ull * GIB, 13 * MIB), 0); /* a send of many turns is as fast */
    EXPECT_EQ_INT(begins(near, 4ull * GIB, 1500 * KIB), 0);
}

/* A thread that loses its processor has a slow turn, and that is no reason. */
TEST_CASE(past, is_not_tried_for_a_stop)
{
    const struct way stopped = {.plain = 5000, .past = 10000, .stop = 300000, .once = 40};

    EXPECT(begins(stopped, 16ull * GIB, 128 * KIB) < 30);
}

/* Its reader is slow, or its application: both ways take the same. */
TEST_CASE(past, is_seldom_tried_where_it_makes_no_difference)
{
    EXPECT(begins((struct way){.plain = 30000, .past = 30000}, 4ull * GIB, 128 * KIB) < 30);
}

TEST_CASE(past, ends_when_the_thread_has_moved)
{
    struct stream s = {0};

    EXPECT(sends(&s, far, GIB, 128 * KIB) > 900);
    (void)sends(&s, near, GIB, 128 * KIB);
    EXPECT_EQ_INT(sends(&s, near, GIB, 128 * KIB), 0);
    (void)sends(&s, far, GIB / 8, 128 * KIB);
    EXPECT(sends(&s, far, GIB, 128 * KIB) > 900);
}

/* A turn that takes long says nothing, and what was found out before is old. */
TEST_CASE(past, learns_nothing_of_idle_turns)
{
    struct stream s = {0};

    EXPECT_EQ_INT(sends(&s, (struct way){.plain = 1000000, .past = 10}, GIB, 128 * KIB), 0);
    EXPECT(sends(&s, far, GIB, 128 * KIB) > 900);
    (void)sends(&s, (struct way){.plain = 1000000, .past = 1000000}, 2 * FB_PAST_TURN, 128 * KIB);
    EXPECT(!s.p.on);
}
