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
    else
        silent_ask(&t);
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

/* Who looks, and is then put off for another reason, is not the one for whose answer
 * the others wait. */
TEST_CASE(silent, a_look_is_no_question)
{
    struct rsk_tuple t = at(5, 80);
    int reason;

    answer(5, 80, RSN_RDV_TIMEOUT);
    clock_ns += 2 * SECOND;
    EXPECT_EQ_U64(silent_for(&t, &reason), 0);
    EXPECT_EQ_U64(silent_for(&t, &reason), 0);
    EXPECT(asked(5, 80));
    EXPECT(!asked(5, 80));
    silent_forget(); /* it was its parent's question */
    EXPECT(asked(5, 80));
}

/* More peers than a table of a few dozen has places for, all of them without the library or
 * without room. */
TEST_CASE(silent, many_at_once)
{
    enum { MANY = 200 };
    unsigned asked_again = 0, full = 0;
    int reason;

    for (unsigned i = 0; i < MANY; i++) {
        struct rsk_tuple t = at((uint8_t)i, (uint16_t)(7000 + i % 3));

        silent_answer(&t, RSN_NO_PEER_LIB);
        silent_said(&t, RSN_BUDGET);
    }
    for (unsigned i = 0; i < MANY; i++) {
        struct rsk_tuple t = at((uint8_t)i, (uint16_t)(7000 + i % 3));

        asked_again += silent_for(&t, &reason) == 0;
        full += silent_full(&t);
    }
    EXPECT(asked_again < MANY / 20);
    EXPECT(full > MANY - MANY / 20);
    for (unsigned i = 0; i < MANY; i++) {
        struct rsk_tuple t = at((uint8_t)i, (uint16_t)(7000 + i % 3));

        silent_answer(&t, RSN_BUDGET);
        EXPECT_EQ_U64(silent_for(&t, &reason), 0);
        silent_said(&t, RSN_NONE);
        EXPECT(!silent_full(&t));
    }
}
