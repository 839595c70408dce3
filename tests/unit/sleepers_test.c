/*
 * sleepers_test.c - which sleeps are older than a connection's number, however many numbers there have been.
 */
#include "ipoib_fallback/sleepers.c"
#include "tests/shim/shim.h"

static bool began_before(uint64_t numbers, const struct fb_conn *c)
{
    struct pollfd pfd = {0, POLLIN, 0};
    struct fb_sleeper *s;
    bool r;

    atomic_store(&given, numbers);
    s = fb_sleeper_poll(&pfd, 1);
    r = s && before(s, c);
    fb_sleeper_end(s);
    return r;
}

TEST_CASE(sleepers, later_ones_are_not_older_after_two_thousand_million_numbers)
{
    struct fb_conn c = {0};
    const uint64_t far[] = {1, 1ull << 20, 1ull << 31, (1ull << 31) + 100, 1ull << 32, 1ull << 40};

    atomic_store(&given, 1000);
    EXPECT(!began_before(1000, &c)); /* when it began is not known */
    fb_sleeps_since(&c.s, fb_sleeps_now());
    EXPECT(began_before(1000, &c));
    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++)
        EXPECT(!began_before(1001 + far[i], &c));
}
