/*
 * owed.c - a RESUME that is owed on a rail that has failed. It would wait for the next bytes of its
 * direction; but the other end may have to hand the stream over, and has no rail any more to ask for it
 * (LEAVE_REQ). So it is written after a while, unless the peer is at its end, to whom a frame would
 * draw RST. Progress thread, except tx_owes.
 */
#include "ipoib_fallback/tx.h"

#include "rsock/loop.h"

#define DELAY_NS 100000000u

static void due(void *arg)
{
    struct fb_conn *c = arg;

    if (!link_lock(c, &c->x->tx.lock, due))
        return;
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_OWES);
    if (c->x->tx.state == TX_L1 && c->x->tx.owed && c->fd >= 0 && c->x->rx.end == 0 &&
        !conn_flag(c, CF_PEER_CLOSED) && !(fb_io.poll(c->fd, POLLRDHUP) & (POLLRDHUP | POLLHUP)))
        tx_leave(c, c->x->tx.why, true);
    tx_unlock(c);
    fb_put(&c->s);
}

static void begin(void *arg)
{
    if (!rsk_timer_add(DELAY_NS, due, arg))
        due(arg);
}

void tx_owes(struct fb_conn *c)
{
    if (!conn_flag(c, CF_OWES))
        link_post_once(c, CF_OWES, JOB_OWES, begin);
}
