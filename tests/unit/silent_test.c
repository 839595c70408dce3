/*
 * silent_test.c - who gave no answer is not asked for a while, and who else is not.
 */
#include "tests/shim/shim.h"

#include "config/reason.h"
#include "ipoib_fallback/silent.h"

#define SECOND 1000000000ull

static uint64_t clock_ns = SECOND;

static uint64_t now(void)
{
    return clock_ns;
}

struct fb_io fb_io = {.now = now};

static struct rsk_tuple at(uint8_t host, uint16_t port)
{
    return (struct rsk_tuple){.family = AF_INET, .dst = {10, 0, 0, host}, .dst_port = port};
}

static bool asked(uint8_t host, uint16_t port)
{
    struct rsk_tuple t = at(host, port);
    int reason = 0;
    uint64_t ns = silent_for(&t, &reason);

    if (ns)
        EXPECT_EQ_INT(reason, RSN_RDV_TIMEOUT);
    return ns == 0;
}

static void answer(uint8_t host, uint16_t port, int reason)
{
    struct rsk_tuple t = at(host, port);

    silent_answer(&t, reason);
}

/* Its process may be stopped, and those of the host's other ports are not. */
TEST_CASE(silent, one_port_is_not_the_host)
{
    EXPECT(asked(1, 80));
    answer(1, 80, RSN_RDV_TIMEOUT);
    EXPECT(!asked(1, 80));
    EXPECT(asked(1, 81));
    answer(1, 81, 0);
    /* Longer and longer, but for nobody else. */
    for (unsigned i = 0; i < 6; i++) {
        clock_ns += SECOND << i;
        EXPECT(asked(1, 80));
        answer(1, 80, RSN_RDV_TIMEOUT);
        EXPECT(!asked(1, 80));
        EXPECT(asked(1, 81));
        answer(1, 81, 0);
    }
}

TEST_CASE(silent, two_ports_are_the_host)
{
    EXPECT(asked(2, 80) && asked(2, 81) && asked(2, 82));
    answer(2, 80, RSN_RDV_TIMEOUT);
    answer(2, 81, RSN_RDV_TIMEOUT);
    EXPECT(!asked(2, 82) && !asked(2, 83));
    EXPECT(asked(3, 82));
    /* One asks for all, and is answered. */
    clock_ns += SECOND;
    EXPECT(asked(2, 82));
    EXPECT(!asked(2, 83));
    answer(2, 82, 0);
    EXPECT(asked(2, 83));
}

/* Long ago is no sign of what is now. */
TEST_CASE(silent, another_port_long_ago)
{
    answer(4, 80, RSN_RDV_TIMEOUT);
    clock_ns += 10 * SECOND;
    answer(4, 81, RSN_RDV_TIMEOUT);
    EXPECT(asked(4, 82));
}
