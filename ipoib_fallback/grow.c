/*
 * grow.c - a stream that fills its ring again and again gets a larger one. Rings are small where a
 * stream boards, because most conversations are: one that turns to bulk later would wait for credit
 * at every turn. It leaves and boards again, once, as for any other reason, and both ends have
 * large rings then. Progress thread, except tx_short, which a sender calls.
 *
 * Which ring is meant is the receiver's, so it is told (FM_LARGER) before anything leaves. What
 * comes too late, or finds a peer that does not know it, costs a change of track for nothing;
 * hence GROW_MOST.
 */
#include "ipoib_fallback/stream.h"

#include "config/log.h"

enum { GROW_FULL = 32, GROW_MOST = 2 };

/* tx lock held. */
static void leave(struct fb_conn *c)
{
    struct rsk_msg m = {.type = FM_LARGER, .epoch = c->x->epoch, .a = c->s.pub->rx};
    struct rsk_rail *rail = c->x->rail;

    if (!rail || rail->failed || c->x->rdv != RDV_PROVED ||
        conn_flag(c, CF_PINNED | CF_CLOSED | CF_FIN) || rail->wire->ctl_send(rail, &m) < 0)
        return;
    log_info("stream %u: the ring of %u bytes is too small", c->s.slot, rail->tx_size);
    atomic_store(&c->x->bulk, true);
    atomic_store(&c->x->larger, true);
    /* This half, in the ordinary way; the other end's leaves when it hears of it. leave_why is not
     * touched: a hand-over may just have said there why the receiving half is to be frozen. */
    tx_leave(c, RSN_LARGER, true);
}

void grow_now(struct fb_conn *c)
{
    fb_lock(&c->x->tx.lock);
    leave(c);
    tx_unlock(c);
}

static void grow(void *arg)
{
    struct fb_conn *c = arg;

    if (!link_lock(c, &c->x->tx.lock, grow))
        return;
    leave(c);
    tx_unlock(c);
    /* Last: until then nothing is counted (tx_short). */
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_GROW);
    fb_put(&c->s);
}

void tx_short(struct fb_conn *c)
{
    uint64_t tx = c->s.pub->tx;
    struct rsk_rail *rail = c->x->rail;

    if (!rail || rail->tx_size >= FB_BULK_RING || conn_config(c)->ring ||
        c->x->grown >= GROW_MOST || conn_flag(c, CF_GROW) ||
        (rail->tx_limit &&
         rail->tx_limit <= rail->tx_size)) /* it is the application that wants no more */
        return;
    /* Who looks again and again while it is full has found that once. */
    if (tx - c->x->full_at < rail->tx_size / 2)
        return;
    c->x->full_at = tx;
    if (++c->x->fulls < GROW_FULL)
        return;
    c->x->fulls = 0;
    c->x->grown++;
    link_post_once(c, CF_GROW, JOB_GROW, grow);
}
