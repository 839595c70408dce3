/*
 * harass.c - for tests only: RAILSOCK_TEST_SWITCH=SEED makes streams leave their rails, and rails
 * fail, at random moments; they board again at once. Nothing of it runs otherwise. Progress thread.
 *
 * The seed decides what is done at each look, and the machine when that is: a run cannot be
 * repeated exactly, as the simulation's can.
 */
#include "ipoib_fallback/stream.h"

#include "config/env.h"
#include "config/log.h"
#include "rsock/loop.h"

static bool going;
static uint64_t rng;

static uint32_t rnd(uint32_t n)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(rng >> 33) % n;
}

static void trouble(struct fb_conn *c, void *unused)
{
    struct rsk_rail *rail = c->x->rail;

    (void)unused;
    if (!rail || conn_flag(c, CF_PINNED | CF_CLOSED) || rnd(4))
        return;
    /* Seldom before it has boarded, or it never would. */
    if (c->x->tx.state != TX_R && c->x->rx.state != RX_r && rnd(400))
        return;
    switch (rnd(8)) {
    case 0:
        log_debug("stream %u: its rail is made to fail", c->s.slot);
        link_end(c, RSN_RAIL_FAILED);
        break;
    case 1: /* one direction */
        fb_lock(&c->x->tx.lock);
        tx_leave(c, RSN_RAIL_FAILED, rnd(2));
        tx_unlock(c);
        break;
    case 2:
        grow_now(c);
        atomic_store(&c->x->bulk, rnd(2));
        break;
    default:
        end_leave(c, rnd(2) ? RSN_IDLE : RSN_RAIL_FAILED); /* the second as for a hand-over */
    }
}

static void look(void *unused)
{
    (void)unused;
    conn_each(trouble, NULL);
    going = rsk_timer_add(100000 + 1000ull * rnd(rnd(4) ? 5000 : 40000), look, NULL) != NULL;
}

void harass(void)
{
    if (!cfg.test_switch || going)
        return;
    going = true;
    rng = cfg.test_switch * 0x9e3779b97f4a7c15ull + (unsigned)sys_getpid();
    look(NULL);
}

void harass_forget(void)
{
    going = false;
}
