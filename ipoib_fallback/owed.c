/*
 * owed.c - what did not go at once, and nobody would come back for. Progress thread, except tx_owes.
 *
 * A RESUME that is owed on a rail that has failed. It would wait for the next bytes of its direction; but the other end
 * may have to hand the stream over, and has no rail any more to ask for it (LEAVE_REQ). So it is written after a while,
 * unless the peer is at its end, to whom a frame would draw RST.
 *
 * A LEAVE_REQ that the rail had no room for. The stream is not read before its sender has left, and it has not been asked.
 */
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/tx.h"

#include "rsock/loop.h"

#define DELAY_NS 100000000u
#define AGAIN_NS 2000000u

static void ask(void *arg)
{
    struct fb_conn *c = arg;

    if (!link_lock(c, &c->x->rx.lock, ask))
        return;
    rx_ask_again(c);
    rx_unlock(c);
    fb_put(&c->s);
}

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
    ask(c);
}

static void begin(void *arg)
{
    struct fb_conn *c = arg;

    if (!rsk_timer_add(c->x->rx.unasked ? AGAIN_NS : DELAY_NS, due, c))
        due(c);
}

void tx_owes(struct fb_conn *c)
{
    if (!conn_flag(c, CF_OWES))
        link_post_once(c, CF_OWES, JOB_OWES, begin);
}
