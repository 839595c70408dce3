/*
 * stream_crowded_test.c - a rail that has no room for a control message when it is to be sent: what
 * depends on it comes all the same.
 */
#include "tests/unit/stream_pair.h"

#include <errno.h>

static const struct rsk_wire *roomy;
static struct rsk_wire full; /* the rail may outlive its stream */
static _Atomic int crowded;

static int crowded_out(struct rsk_rail *rail, const struct rsk_msg *m)
{
    return (m->type == FM_LEAVE_REQ || m->type == FM_ECHO) && atomic_fetch_sub(&crowded, 1) > 0
               ? -EAGAIN
               : roomy->ctl_send(rail, m);
}

/* The next three of these messages find no room. */
static void crowd(struct end *e, bool outlives)
{
    struct rsk_rail *rail = conn_of(e->s)->x->rail;
    struct held h;

    hold(&h);
    roomy = rail->wire;
    full = *roomy;
    full.ctl_send = crowded_out;
    full.outlives_sender = outlives;
    atomic_store(&crowded, 3);
    rail->wire = &full;
    let_go(&h);
}

static bool guards(struct fb_conn *c)
{
    bool yes;

    fb_lock(&c->x->rx.lock);
    yes = c->x->rx.state == RX_gS;
    rx_unlock(c);
    return yes;
}

static bool left_it(struct fb_conn *c)
{
    bool yes;

    fb_lock(&c->x->tx.lock);
    yes = c->x->tx.state != TX_R;
    tx_unlock(c);
    return yes;
}

static bool has_echo(struct fb_conn *c)
{
    bool yes;

    fb_lock(&c->x->tx.lock);
    yes = c->x->tx.echoed;
    tx_unlock(c);
    return yes;
}

/* The rail has no room for what asks the sender to leave; and nobody reads on before he has. */
TEST_CASE(stream, pinned_while_the_rail_has_no_room_to_say_so)
{
    unsigned char buf[6] = {0};
    struct end a, b;

    eager();
    pair_proved(&a, &b);
    while (conn_of(a.s)->x->rx.state != RX_r) { /* only b sends */
        ASSERT_EQ_INT(put(&b, buf, 1), 1);
        ASSERT_EQ_INT(get(&a, buf, 1), 1);
    }
    crowd(&a, true);
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

/* The same of one that is pinned while the switch is announced: it is asked when that is read. */
TEST_CASE(stream, pinned_before_the_switch_without_room_to_say_so)
{
    unsigned char buf[64] = {0};
    size_t sent = 0;
    struct end a, b;

    eager();
    pair_proved(&a, &b);
    crowd(&a, true);
    UNTIL(put(&b, buf, 1) == 1 && ++sent && guards(conn_of(a.s)));
    fb_pin(a.s, RSN_CALL, false);
    for (size_t got = 0; got < sent;) {
        ssize_t n = get(&a, buf, sizeof(buf));

        ASSERT(n > 0);
        got += (size_t)n;
    }
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    UNTIL(left_it(conn_of(b.s)));
    for (size_t got = 0; got < sizeof(buf);) {
        ssize_t n = get(&a, buf, sizeof(buf));

        ASSERT(n > 0);
        got += (size_t)n;
    }
    EXPECT(atomic_load(&crowded) < 0);
    done(&a);
    done(&b);
}

/* Nor for the ECHO, before which what its sender puts into the ring does not arrive. */
TEST_CASE(stream, boards_while_the_rail_has_no_room_to_say_so)
{
    unsigned char buf[6] = {0};
    struct end a, b;

    eager();
    pair_proved(&a, &b);
    crowd(&a, false); /* as of verbs: then the ECHO is waited for */
    while (conn_of(a.s)->x->rx.state != RX_r) {
        ASSERT_EQ_INT(put(&b, buf, 1), 1);
        ASSERT_EQ_INT(get(&a, buf, 1), 1);
    }
    EXPECT(conn_of(a.s)->x->rx.unechoed);
    UNTIL(has_echo(conn_of(b.s)));
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(conn_of(b.s)->x->tx.state, TX_R);
    done(&a);
    done(&b);
}
