/*
 * killed.c - a process that is killed with bytes unread resets its connections: its kernel sees to
 * that. But of bytes that lie in its ring its kernel does not know, and sends FIN. Here the end
 * that survives finds out: FIN has come, the ring has bytes that nobody has read, and the peer has
 * not said that it lives (tx_ends), as each process does before it ends a direction. Then this end
 * does to itself what RST would have done: the error is told once, by whichever call comes first,
 * what has arrived is read as before, and nothing can be sent.
 *
 * If it had read everything, FIN is the answer, and a frame would only draw RST before the
 * application's next bytes do.
 *
 * A FIN that the kernel shows while bytes or frames before it are unread says as much:
 * whoever lives has given its word before. Where RST has come as well, or instead, it is the
 * kernel that tells.
 *
 * Only where what was sent outlives its sender, in shared memory. Any thread.
 */
#include "ipoib_fallback/killed.h"

#include "config/log.h"
#include "ipoib_fallback/hold.h"

#include <errno.h>

/* Is the ring the only place where something can be unread that the peer's kernel
 * does not know of? */
static bool by_rail(struct fb_conn *c)
{
    return c->x->tx.state == TX_R || (c->x->tx.state == TX_L1 && c->x->tx.owed);
}

/* Am I the first? Both halves may find it at once, and whoever sees `killed` relies on the error
 * being there, or told. */
static bool found(struct fb_conn *c)
{
    bool first;

    fb_lock(&c->x->ctl_lock);
    first = !atomic_load(&c->x->killed);
    if (first) {
        conn_todo_tx(c, TODO_PEER);
        conn_untold(c, -ECONNRESET);
        atomic_store(&c->x->killed, true);
    }
    fb_unlock(&c->x->ctl_lock);
    return first;
}

/* With rx alone the sender may be at work meanwhile. What it adds is unread, too: in TCP it
 * would have come to a socket that is gone, or is about to. The rail stays as long as either
 * lock is held. */
bool conn_killed(struct fb_conn *c)
{
    struct rsk_rail *rail = c->x->rail;
    enum rsk_fate fate;

    if (atomic_load(&c->x->killed))
        return true;
    if (!rail || !rail->wire->outlives_sender || !by_rail(c) || c->shut || c->fd < 0 ||
        hold_for_good())
        return false;
    /* FIN first, then the peer's word: it gives that before. */
    if ((fb_io.poll(c->fd, POLLRDHUP) & (POLLRDHUP | POLLHUP)) != POLLRDHUP)
        return false;
    fate = rail->wire->tx_fate(rail);
    if (fate == RSK_DIED)
        conn_set(c, CF_PEER_CLOSED);
    if (fate != RSK_DIED_UNREAD)
        return false;
    if (!found(c))
        return true;
    log_info("stream %u: the peer was killed, and has not read everything", c->s.slot);
    link_serve(c);
    conn_wake(c, RSK_RX | RSK_TX | FB_EV_STATE);
    return true;
}

void conn_ends(struct fb_conn *c)
{
    struct rsk_rail *rail = c->x->rail;

    if (rail && rail->wire->outlives_sender)
        rail->wire->tx_ends(rail);
}
