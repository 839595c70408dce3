/* spin_test.c - what a wait learns of spinning: ipoib_fallback/spin.h against peers that
 * are simulated. */
#include "tests/shim/shim.h"

#include "ipoib_fallback/spin.h"

enum { MOST = 20000, WAKE = 3000 };

/* The peer answers after `answer` ns if it has a CPU, and what sleeps is awake WAKE later.
 * shared: it has none while we spin. Returns for how long this wait has spun, and whether
 * that was enough. */
static uint32_t wait_once(struct fb_spin *s, uint32_t answer, bool shared, bool *served)
{
    uint32_t budget = fb_spin_next(s, MOST);

    *served = !shared && answer <= budget;
    if (*served) {
        fb_spin_served(s, MOST, answer);
        return answer;
    }
    fb_spin_slept(s, MOST, (shared ? budget + answer : answer) + WAKE);
    return budget;
}

/* How many of n waits a spin has served. */
static int waits(struct fb_spin *s, int n, uint32_t answer, bool shared, uint64_t *spun)
{
    int by_spin = 0;
    bool served;

    for (int i = 0; i < n; i++) {
        *spun += wait_once(s, answer, shared, &served);
        by_spin += served;
    }
    return by_spin;
}

TEST_CASE(spin, ends_where_the_peer_needs_this_cpu)
{
    struct fb_spin s = {0};
    uint64_t spun = 0;

    EXPECT_EQ_INT(waits(&s, 10000, 500, true, &spun), 0);
    EXPECT(spun / 10000 < 2000);
}

TEST_CASE(spin, pays_again_when_the_peer_has_a_cpu)
{
    struct fb_spin s = {0};
    uint64_t spun = 0;

    waits(&s, 10000, 500, true, &spun);
    waits(&s, 300, 5000, false, &spun);
    EXPECT_EQ_INT(waits(&s, 100, 5000, false, &spun), 100);
}

TEST_CASE(spin, does_what_a_sleep_has_claimed)
{
    struct fb_spin s = {0};
    uint64_t spun = 0;

    /* What takes longer than any spin brings the budget down. */
    waits(&s, 10, 1000000, false, &spun);
    EXPECT_EQ_INT(s.ns, 100);
    EXPECT_EQ_INT(waits(&s, 20, 5000, false, &spun), 19);
}

/* What no spin has served is tried in full once in a thousand waits, in the end; and
 * once is enough. */
TEST_CASE(spin, tries_in_vain_are_rare)
{
    struct fb_spin s = {0};
    uint64_t spun = 0;

    waits(&s, 1024, 1000000, false, &spun);
    spun = 0;
    waits(&s, 10240, 1000000, false, &spun);
    EXPECT_EQ_U64(spun, 10240 * 100 + 10 * (MOST - 100));
    /* From a sleep that nearly ends in time, too long for any spin, nothing is learnt. */
    waits(&s, 1024, MOST - WAKE / 2, false, &spun);
    EXPECT_EQ_INT(waits(&s, 1000, MOST - WAKE / 2, false, &spun), 1000);
    EXPECT_EQ_INT(s.vain, 0);
}

TEST_CASE(spin, learns_nothing_from_a_spin_that_was_interrupted)
{
    struct fb_spin s = {.ns = 2000};

    fb_spin_served(&s, MOST, 3000000);
    EXPECT_EQ_INT(s.ns, 2000);
    EXPECT(fb_spin_next(&s, 0) == 0);
}

/* ---- whether long spins pay */

/* A thread whose waits take `took` ns, and for which so many streams become ready in a millisecond
 * by long spins, or by brief ones, for `ms`. In how many of those it span briefly. */
static unsigned tried(struct fb_trial *t, uint64_t *now, unsigned ms, unsigned by_long,
                      unsigned by_brief, uint64_t took)
{
    unsigned briefly = 0;

    for (unsigned i = 0; i < ms; i++) {
        unsigned n = t->brief ? by_brief : by_long;

        briefly += t->brief;
        for (unsigned k = 0; k < n; k++) {
            *now += 1000000 / n;
            fb_trial_ready(t, 1);
            if (fb_trial_waited(t, took, MOST))
                fb_trial_turn(t, *now, &fb_trial_brief);
        }
    }
    return briefly;
}

TEST_CASE(spin_trial, keeps_the_better_one)
{
    struct fb_trial t = {0};
    uint64_t now = 1000000000;
    unsigned briefly;

    briefly = tried(&t, &now, 20000, 10, 14, 2 * MOST);
    EXPECT(briefly > 19000);
    /* Its peers go away, and now sleeping is what costs. */
    tried(&t, &now, 8200, 20, 10, 2 * MOST);
    briefly = tried(&t, &now, 20000, 20, 10, 2 * MOST);
    EXPECT(briefly < 1000);
    /* As good as the other is not enough. */
    tried(&t, &now, 2200, 11, 10, 2 * MOST);
    briefly = tried(&t, &now, 20000, 11, 10, 2 * MOST);
    EXPECT(briefly > 19000);
}

/* What is by chance in one turn is in none of the others. */
TEST_CASE(spin_trial, long_ones_in_each_turn)
{
    struct fb_trial t = {0};
    uint64_t now = 1000000000;

    while (t.turn < FB_TRIALS)
        tried(&t, &now, 1, t.turn == 2 ? 60 : 10, 10, 2 * MOST);
    EXPECT(t.brief);
    EXPECT(1.15 * (double)t.got[1] / (double)t.ns[1] < (double)t.got[0] / (double)t.ns[0]);
}

/* What is so again and again is tried less often: after 2, 4, 8 and 8 seconds. */
TEST_CASE(spin_trial, brief_ones_for_longer_each_time)
{
    struct fb_trial t = {0};
    uint64_t now = 1000000000;
    unsigned lengthily = 0;

    for (unsigned s = 1; s <= 22; s++) {
        lengthily += 1000 - tried(&t, &now, 1000, 10, 14, 2 * MOST);
        /* Three turns of each: with those of the brief ones, 0.1 s. */
        EXPECT_EQ_INT((lengthily + 10) / 48, s < 3 ? 1 : s < 7 ? 2 : s < 15 ? 3 : 4);
    }
    /* Not any more when it was not so once. */
    tried(&t, &now, 8000, 20, 10, 2 * MOST);
    EXPECT_EQ_INT(t.again, 0);
    tried(&t, &now, 2200, 10, 14, 2 * MOST);
    EXPECT_EQ_INT(t.again, 1);
}

TEST_CASE(spin_trial, not_where_waits_are_short)
{
    struct fb_trial t = {0};
    uint64_t now = 1000000000;

    EXPECT_EQ_INT(tried(&t, &now, 5000, 10, 100, MOST / 2), 0);
    /* A long one now and then, as there always is. */
    for (int i = 0; i < 1000; i++) {
        EXPECT_EQ_INT(tried(&t, &now, 1, 1, 1, 2 * MOST), 0);
        EXPECT_EQ_INT(tried(&t, &now, 1, 20, 20, MOST / 2), 0);
    }
    /* What was kept is dropped when they become short. */
    tried(&t, &now, 1000, 10, 20, 2 * MOST);
    EXPECT(t.brief);
    tried(&t, &now, 100, 10, 10, MOST / 2);
    EXPECT(!t.brief);
}

TEST_CASE(spin_trial, idleness_says_nothing)
{
    struct fb_trial t = {0};
    uint64_t now = 1000000000;

    for (int i = 0; i < 100; i++) {
        now += 10 * (uint64_t)FB_TRIAL_NS;
        fb_trial_ready(&t, 1);
        EXPECT(fb_trial_waited(&t, 10 * (uint64_t)FB_TRIAL_NS, MOST));
        fb_trial_turn(&t, now, &fb_trial_brief);
    }
    EXPECT_EQ_INT(t.turn, 0);
    EXPECT(!t.brief);
}

/* ---- whether to spin at all */

/* A thread that for `ms` makes waits for several streams of 10 us each, is thrown off its processor
 * once in `every` of them (0: never) unless it rests, and for which so many streams become ready in
 * a millisecond by spinning, or by not. In how many waits it rested. */
struct crowded {
    struct fb_crowd c;
    uint64_t now, lost, ran;
    unsigned looks;
};

static unsigned goes_on(struct crowded *t, unsigned ms, unsigned every, unsigned spinning,
                        unsigned resting)
{
    unsigned rested = 0, got = 0;

    for (unsigned i = 0; i < 100 * ms; i++) {
        bool rests = fb_crowd_rests(&t->c);

        t->now += 10000;
        t->ran += 5000;
        rested += rests;
        t->lost += every && !rests && i % every == 0;
        got += rests ? resting : spinning;
        fb_trial_ready(&t->c.trial, got / 100);
        got %= 100;
        if (t->c.trying) {
            fb_crowd_turn(&t->c, t->now);
        } else if (fb_crowd_waited(&t->c)) {
            t->looks++;
            fb_crowd_look(&t->c, t->now, t->lost, t->ran);
        }
    }
    return rested;
}

TEST_CASE(spin_crowd, rests_where_that_makes_more)
{
    struct crowded t = {.now = 1000000000};
    unsigned rested;

    rested = goes_on(&t, 20000, 8, 100, 150);
    EXPECT(rested > 100 * 18000);
    /* It is kept though nobody throws off who rests, and found out anew after two seconds: then
     * they have gone. */
    goes_on(&t, 4000, 0, 100, 150);
    EXPECT_EQ_INT(goes_on(&t, 2000, 0, 100, 150), 0);
}

TEST_CASE(spin_crowd, spins_where_that_makes_nearly_as_much)
{
    struct crowded t = {.now = 1000000000};

    /* Once in 0.2 s, three turns of 16 ms of every two seconds at most. */
    EXPECT(goes_on(&t, 20000, 8, 100, 120) < 100 * 600);
}

TEST_CASE(spin_crowd, only_where_it_is_thrown_off_often_and_for_a_while)
{
    struct crowded t = {.now = 1000000000};

    /* Not once in 16 waits. */
    EXPECT_EQ_INT(goes_on(&t, 2000, 17, 100, 200), 0);
    /* For less than 50 ms at a time. */
    for (int i = 0; i < 100; i++) {
        EXPECT_EQ_INT(goes_on(&t, 45, 8, 100, 200), 0);
        EXPECT_EQ_INT(goes_on(&t, 5, 0, 100, 200), 0);
    }
    EXPECT(t.looks >= (200000 + 500000) / FB_CROWD_EVERY);
    EXPECT(!t.c.trying);
}

TEST_CASE(spin_crowd, not_by_what_every_thread_is_thrown_off)
{
    struct fb_crowd c = {0};
    uint64_t now = 1000000000, ran = 0;

    /* A thread of long waits that runs for 4 ms between two, and is thrown off at
     * the end of each. */
    for (uint64_t i = 0; i < 1000; i++) {
        now += 4000000;
        ran += 4000000;
        if (fb_crowd_waited(&c))
            fb_crowd_look(&c, now, i, ran);
    }
    EXPECT(!c.trying);
    /* Four times as often, and it is a crowd. */
    for (uint64_t i = 0; i < 1000 && !c.trying; i++) {
        now += 4000000;
        ran += 4000000;
        if (fb_crowd_waited(&c))
            fb_crowd_look(&c, now, 1000 + 4 * i, ran);
    }
    EXPECT(c.trying);
}
