/* spin_test.c - what a wait learns of spinning: ipoib_fallback/spin.h against peers that are simulated. */
#include "tests/shim/shim.h"

#include "ipoib_fallback/spin.h"

enum { MOST = 20000, WAKE = 3000 };

/* The peer answers after `answer` ns if it has a CPU, and what sleeps is awake WAKE later. shared: it has none while
 * we spin. Returns for how long this wait has spun, and whether that was enough. */
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
    EXPECT_EQ_INT(s.ns, 1000);
    EXPECT_EQ_INT(waits(&s, 20, 5000, false, &spun), 19);
}

TEST_CASE(spin, learns_nothing_from_a_spin_that_was_interrupted)
{
    struct fb_spin s = {.ns = 2000};

    fb_spin_served(&s, MOST, 3000000);
    EXPECT_EQ_INT(s.ns, 2000);
    EXPECT(fb_spin_next(&s, 0) == 0);
}
