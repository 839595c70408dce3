/*
 * spin_over_test.c - a thread whose long spins have it thrown off its processor spins briefly for a
 * while: ipoib_fallback/spin.c with a kernel that is simulated.
 */
#include "tests/shim/shim.h"

#include "config/env.h"
#include "ipoib_fallback/processors.h"
#include "ipoib_fallback/quota.h"
#include "ipoib_fallback/stream.h"

#define MS     1000000ull
#define SECOND 1000000000ull

enum { BRIEF = 20000, MOST = 100000, SHORT = 10000, LONG = 40000 };

const struct cfg_stream cfg_stream_defaults = {.spin_ns = BRIEF, .spin_auto = true};
struct cfg cfg;
_Atomic uint8_t fb_quota_state = QUOTA_USED;
_Atomic bool fb_one_processor;

void quota_first(void)
{
}

/* Of the thread: so many waits after one another have it thrown off once. */
static uint64_t now = SECOND, waits, lost, ran;
static unsigned every, looks;
static uint32_t wait_ns;

void crowd_look(struct fb_crowd *c, uint64_t at)
{
    EXPECT_EQ_U64(at, now);
    looks++;
    fb_crowd_look(c, now, lost, ran);
}

/* A wait of wait_ns for one stream. For how many ns it might have spun. */
static uint32_t waits_once(struct fb_conn *c)
{
    struct fb_spin fresh = {0};
    uint32_t budget = spin_budget(c, &fresh), spun = budget < wait_ns ? budget : wait_ns;

    now += wait_ns;
    ran += spun;
    waits++;
    if ((spun > BRIEF || wait_ns <= BRIEF) && every && waits % every == 0)
        lost++;
    spin_over(c, now, spun);
    return budget;
}

/* For so long. How much of that time its waits were not long. */
static uint64_t goes_on(struct fb_conn *c, uint64_t ns)
{
    uint64_t end = now + ns, brief = 0;

    while (now < end)
        if (waits_once(c) <= BRIEF)
            brief += wait_ns;
    return brief;
}

/* A thread begins with nothing learnt. */
static void in_a_thread(void *(*run)(void *))
{
    pthread_t t;

    lost = ran = waits = looks = 0;
    wait_ns = LONG;
    ASSERT(pthread_create(&t, NULL, run, NULL) == 0 && pthread_join(t, NULL) == 0);
}

static struct fb_conn stream(const struct cfg_stream *set)
{
    /* Sleeping has been seen to be dear. */
    for (int i = 0; i < 100; i++)
        spin_measured(MOST, false);
    return (struct fb_conn){.set = set};
}

static void *alone(void *unused)
{
    struct fb_conn c = stream(&cfg_stream_defaults);

    (void)unused;
    every = 0;
    EXPECT_EQ_U64(goes_on(&c, 10 * SECOND), 0);
    every = 100; /* which happens to everybody */
    EXPECT_EQ_U64(goes_on(&c, 10 * SECOND), 0);
    EXPECT(looks > 0);
    return NULL;
}

TEST_CASE(spin_over, alone)
{
    in_a_thread(alone);
}

static void *crowded(void *unused)
{
    struct fb_conn c = stream(&cfg_stream_defaults);
    uint64_t brief;

    (void)unused;
    every = 10;
    EXPECT_EQ_U64(goes_on(&c, 50 * MS), 0); /* not at once */
    brief = goes_on(&c, 20 * SECOND);
    EXPECT(brief > 19 * SECOND);
    /* Now and then it finds out whether it still is so, more and more seldom. */
    EXPECT(brief < 20 * SECOND - 3 * 50 * MS);
    brief = goes_on(&c, 100 * SECOND);
    EXPECT(brief > 99 * SECOND + 500 * MS);
    EXPECT(brief < 100 * SECOND);
    every = 0; /* the others have gone */
    (void)goes_on(&c, 33 * SECOND);
    EXPECT_EQ_U64(goes_on(&c, 60 * SECOND), 0);
    every = 10; /* and have come back */
    brief = goes_on(&c, SECOND);
    EXPECT(brief > 900 * MS);
    return NULL;
}

TEST_CASE(spin_over, crowded)
{
    in_a_thread(crowded);
}

static void *nothing_learnt(void *unused)
{
    struct cfg_stream told = cfg_stream_defaults;
    struct fb_conn c = stream(&told), slow = stream(&cfg_stream_defaults);

    (void)unused;
    every = 10;
    told.spin_auto = false;
    told.spin_ns = MOST;
    EXPECT_EQ_U64(goes_on(&c, 2 * SECOND), 0); /* who was told for how long does */
    told.spin_auto = true;
    /* Short spins are no harm, whatever befalls them. */
    wait_ns = SHORT;
    EXPECT_EQ_U64(goes_on(&c, SECOND), 0);
    EXPECT_EQ_INT(looks, 0);
    wait_ns = LONG;
    EXPECT(goes_on(&c, SECOND) > 900 * MS);
    /* A wire that is slow to wake has another limit, and is not looked at. */
    spin_joined(&slow, true);
    for (int i = 0; i < 100; i++)
        spin_measured(MOST, true);
    looks = 0;
    EXPECT_EQ_U64(goes_on(&slow, SECOND), 0);
    (void)goes_on(&c, 3 * SECOND); /* until its rest is over */
    EXPECT_EQ_U64(goes_on(&c, SECOND), 0);
    EXPECT_EQ_INT(looks, 0);
    return NULL;
}

TEST_CASE(spin_over, only_where_it_says_something)
{
    in_a_thread(nothing_learnt);
}

/* Neither a configured spin nor one that pays. */
TEST_CASE(spin_over, nobody_spins_on_one_processor)
{
    const struct cfg_stream said = {.spin_ns = MOST};
    struct fb_conn by_measure = stream(&cfg_stream_defaults), configured = stream(&said);
    struct fb_spin fresh = {0};

    EXPECT(spin_budget(&by_measure, &fresh) != 0 && spin_budget(&configured, &fresh) != 0);
    atomic_store(&fb_one_processor, true);
    EXPECT_EQ_U64(spin_budget(&by_measure, &fresh), 0);
    EXPECT_EQ_U64(spin_budget(&configured, &fresh), 0);
    atomic_store(&fb_one_processor, false);
}
