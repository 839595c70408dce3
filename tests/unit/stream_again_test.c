/*
 * stream_again_test.c - who has asked for a rail too early asks once more, also if its program
 * calls nothing meanwhile: else a quiet stream would show for ever what was so for a moment.
 */
#include "tests/unit/stream_waits.h"

/* a's first call finds that b is no rail's yet. Without another call it asks once more. */
static void asks_twice(struct end *a, struct end *b, int reason)
{
    unsigned char bytes[32] = {0};
    struct fb_conn *asks = conn_of(a->s);

    ASSERT_EQ_INT(put(a, bytes, 32), 32); /* its only call */
    ASSERT_EQ_INT(get(b, bytes, 32), 32);
    UNTIL(asks->x && asks->x->show && asks->x->show->retries >= 2);
    UNTIL(!conn_flag(asks, CF_ASKED));
    EXPECT_EQ_INT(asks->x->show->retries, 2);
    EXPECT_EQ_INT(a->s->pub->reason, reason);
    done(a);
    done(b);
}

/* The other end was not worth a rail yet when it was asked. */
TEST_CASE(stream_plain, asked_once_more_without_a_call)
{
    static struct cfg_stream set;
    int l = pair_listener();
    struct end a, b, c, d;

    eager();
    pair_at(l, &c, &d);
    ASSERT(board(&c, &d)); /* so that the port answers */
    pair_at(l, &a, &b);
    after(&b, &set, 1000);
    asks_twice(&a, &b, RSN_NOT_YET);
    close(l);
    done(&c);
    done(&d);
}

/* Its process could not be reached yet. */
TEST_CASE(stream_plain, looked_for_once_more_without_a_call)
{
    static struct cfg_stream set;
    struct end a, b;

    eager();
    pair(&a, &b);
    after(&b, &set, 1000);
    asks_twice(&a, &b, RSN_NO_PEER_LIB);
}
