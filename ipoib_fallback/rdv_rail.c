/*
 * rdv_rail.c - what a rail is asked for with: the shard that tells of it, and the size of its
 * rings. Progress thread.
 */
#include "ipoib_fallback/rdv.h"

#include "ipoib_fallback/budget.h"
#include "rsock/loop.h"
#include "rsock/shard.h"

#define BULK_CALL (16u * 1024)

static void drop_shard(void *shard)
{
    rsk_shard_put(shard);
}

struct rsk_shard *rdv_shard_for(struct fb_conn *c)
{
    struct rsk_shard *s = conn_shard(c);

    if (s && rsk_loop_post(drop_shard, s) == 0)
        return s;
    rsk_shard_put(s);
    return rsk_shard_common();
}

bool rdv_wants_large(struct fb_conn *c)
{
    /* Calls on a rail are not among them, so neither are the bytes that went there. */
    uint64_t bytes = c->s.pub->tx - conn_rail_tx(c) + c->s.pub->rx - conn_rail_rx(c);
    uint64_t calls = atomic_load(&c->s.calls);

    if (conn_config(c)->ring || c->x->small)
        return false;
    return atomic_load(&c->x->bulk) || (calls && bytes / calls >= BULK_CALL);
}

size_t rdv_ring_for(struct fb_conn *c)
{
    return rdv_wants_large(c) ? FB_BULK_RING : conn_config(c)->ring;
}

bool rdv_small_again(struct fb_conn *c)
{
    if (!rdv_wants_large(c))
        return false;
    atomic_store(&c->x->bulk, false);
    c->x->small = true;
    c->x->grown = UINT32_MAX;
    return true;
}

void rdv_fit(struct fb_conn *c)
{
    if (rdv_wants_large(c) && !budget_fits(c, 2 * (size_t)FB_BULK_RING, false))
        (void)rdv_small_again(c);
}

void rdv_small_no_more(struct fb_conn *c)
{
    atomic_store(&c->x->bulk, false);
    c->x->small = false;
    c->x->grown = 0;
}
