/*
 * rdv_rail.c - what a rail is asked for with: the shard that tells of it, and the size of its
 * rings. Progress thread.
 */
#include "ipoib_fallback/rdv.h"

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

size_t rdv_ring_for(struct fb_conn *c)
{
    uint64_t calls = atomic_load(&c->s.calls);

    if (conn_config(c)->ring)
        return conn_config(c)->ring;
    if (atomic_load(&c->x->bulk))
        return FB_BULK_RING;
    return calls && (c->s.pub->tx + c->s.pub->rx) / calls >= BULK_CALL ? FB_BULK_RING : 0;
}
