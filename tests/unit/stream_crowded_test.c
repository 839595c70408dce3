/*
 * stream_crowded_test.c - a rail that has no room for a control message when it is to be sent: what depends on it comes all the same.
 */
#include "tests/unit/stream_pair.h"

#include <errno.h>

static const struct rsk_wire *roomy;
static unsigned crowded;

static int crowded_out(struct rsk_rail *rail, const struct rsk_msg *m)
{
    return (m->type == FM_LEAVE_REQ || m->type == FM_ECHO) && crowded-- > 0
               ? -EAGAIN
               : roomy->ctl_send(rail, m);
}

/* The rail has no room for what asks the sender to leave; and nobody reads on before he has. */
TEST_CASE(stream, pinned_while_the_rail_has_no_room_to_say_so)
{
    unsigned char buf[6] = {0};
    static struct rsk_wire full; /* the rail may outlive its stream */
    struct rsk_rail *rail;
    struct end a, b;

    eager();
    pair_proved(&a, &b);
    while (conn_of(a.s)->x->rx.state != RX_r) { /* only b sends */
        ASSERT_EQ_INT(put(&b, buf, 1), 1);
        ASSERT_EQ_INT(get(&a, buf, 1), 1);
    }
    rail = conn_of(a.s)->x->rail;
    full = *(roomy = rail->wire);
    full.ctl_send = crowded_out;
    crowded = 3;
    rail->wire = &full;
    fb_pin(a.s, RSN_CALL, false);
    EXPECT(conn_of(a.s)->x->rx.frozen);
    UNTIL(conn_of(b.s)->x->tx.state != TX_R);
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), sizeof(buf));
    UNTIL(conn_of(a.s)->x->rx.state == RX_t);
    UNTIL(!conn_of(a.s)->x->rail);
    done(&a);
    done(&b);
}

/* Nor for the ECHO, before which what its sender puts into the ring does not arrive. */
TEST_CASE(stream, boards_while_the_rail_has_no_room_to_say_so)
{
    unsigned char buf[6] = {0};
    static struct rsk_wire full;
    struct rsk_rail *rail;
    struct end a, b;

    eager();
    pair_proved(&a, &b);
    rail = conn_of(a.s)->x->rail;
    full = *(roomy = rail->wire);
    full.ctl_send = crowded_out;
    full.outlives_sender = false; /* as of verbs: then the ECHO is waited for */
    crowded = 3;
    rail->wire = &full;
    while (conn_of(a.s)->x->rx.state != RX_r) {
        ASSERT_EQ_INT(put(&b, buf, 1), 1);
        ASSERT_EQ_INT(get(&a, buf, 1), 1);
    }
    EXPECT(conn_of(a.s)->x->rx.unechoed);
    UNTIL(conn_of(b.s)->x->tx.echoed);
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(conn_of(b.s)->x->tx.state, TX_R);
    done(&a);
    done(&b);
}
