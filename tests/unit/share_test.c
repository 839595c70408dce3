/*
 * share_test.c - questions that are under way: what peers which do not answer leave
 * for those that do.
 */
#include "tests/shim/shim.h"

#include "ipoib_fallback/share.h"

static struct rsk_tuple at(uint8_t host, uint16_t port)
{
    return (struct rsk_tuple){.family = AF_INET, .dst = {10, 0, 0, host}, .dst_port = port};
}

/* Asks as long as there is room, 0: there is none. */
static unsigned fill(enum share way, uint8_t host, uint16_t port)
{
    struct rsk_tuple t = at(host, port);
    unsigned n = 0;

    for (; share_rounds(way, &t) == 0; n++)
        share_ask(way, &t);
    return n;
}

TEST_CASE(share, silent_hosts_leave_room)
{
    struct rsk_tuple t = at(10, 80);

    EXPECT_EQ_INT(fill(SHARE_VERBS, 10, 80), 32);
    EXPECT_EQ_INT(fill(SHARE_VERBS, 10, 81), 0);
    EXPECT_EQ_INT(fill(SHARE_VERBS, 11, 80), 16);
    EXPECT_EQ_INT(fill(SHARE_VERBS, 12, 80), 8);
    EXPECT_EQ_INT(fill(SHARE_VERBS, 13, 80), 4);
    /* Who is put off again and again waits longer, and nobody else does. */
    for (unsigned i = 0; i < 200; i++)
        EXPECT(share_rounds(SHARE_VERBS, &t) > i / 64);
    EXPECT_EQ_INT(fill(SHARE_VERBS, 40, 80), 2);
    EXPECT(share_rounds(SHARE_VERBS, &t) > 3);
    for (unsigned i = 0; i < 32; i++)
        share_answered(SHARE_VERBS, &t);
    EXPECT_EQ_INT(share_rounds(SHARE_VERBS, &t), 0);
    EXPECT_EQ_INT(fill(SHARE_VERBS, 10, 80), 17);
    share_forget();
    EXPECT_EQ_INT(fill(SHARE_VERBS, 41, 80), 32);
    share_forget();
}

/* On one host each port is somebody else's, and one of them may be stopped. */
TEST_CASE(share, silent_ports_leave_room)
{
    struct rsk_tuple t = at(1, 80);

    EXPECT_EQ_INT(fill(SHARE_SHM, 1, 80), 16);
    EXPECT_EQ_INT(fill(SHARE_SHM, 1, 81), 8);
    EXPECT_EQ_INT(fill(SHARE_SHM, 1, 82), 4);
    for (unsigned i = 0; i < 16; i++)
        share_answered(SHARE_SHM, &t);
    EXPECT_EQ_INT(fill(SHARE_SHM, 1, 83), 10);
    EXPECT_EQ_INT(fill(SHARE_VERBS, 1, 83), 32);
    share_answered(SHARE_SHM, &t); /* nothing was under way any more */
    EXPECT_EQ_INT(fill(SHARE_SHM, 1, 80), 5);
    share_forget();
}

/* heat.c's questions are asked whether or not there is room. */
TEST_CASE(share, called)
{
    struct rsk_tuple t = at(1, 80), other = at(1, 81);

    for (unsigned i = 0; i < 100; i++)
        share_ask(SHARE_SHM, &t);
    EXPECT(share_rounds(SHARE_SHM, &other) > 0);
    for (unsigned i = 0; i < 100; i++)
        share_answered(SHARE_SHM, &t);
    EXPECT_EQ_INT(fill(SHARE_SHM, 1, 81), 16);
    share_forget();
}
