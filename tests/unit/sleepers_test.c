/*
 * sleepers_test.c - which sleeps are older than a connection's number, however many numbers
 * there have been.
 */
#include "ipoib_fallback/stream.h"
#include "tests/shim/shim.h"

TEST_CASE(sleepers, later_ones_are_not_older_after_two_thousand_million_numbers)
{
    struct fb_conn c = {0};
    const uint64_t far[] = {0,          1,         1ull << 20, 1ull << 31, (1ull << 31) + 100,
                            1ull << 32, 1ull << 40};

    EXPECT(!conn_began_after(&c, 1000)); /* when it began is not known */
    conn_began_at(&c, 1001);
    EXPECT(conn_began_after(&c, 1000));
    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
        EXPECT(!conn_began_after(&c, 1001 + far[i]));
        conn_began_at(&c, 1001 + far[i]);
        EXPECT(conn_began_after(&c, 1000 + far[i]) && !conn_began_after(&c, 1001 + far[i]));
        conn_began_at(&c, 1001);
    }
}
