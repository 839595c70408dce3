/*
 * verbs_bye.c - the end of a rail that is well. What its owner has posted last, such as why he ends
 * it, is still to be sent: an adapter sends when it comes to that, and throws away what it has not
 * sent when the queue pair is moved to ERR or destroyed. The peer would hear of nothing but the
 * disconnect, and take it for a failure of the path.
 *
 *   kill      a request whose completion is asked for goes behind what has been posted; nothing is
 *             posted any more (base.failed), and the rail is parting
 *   destroy   its owner is told of nothing any more; the rail stays
 *   over      that request has been acknowledged, and with it all before it; or something has
 *             failed; or 0.1 s have passed: ERR, and an end if its owner has gone
 *
 * Of a rail that has failed nothing is sent, nor does anybody wait. A parting one still takes what
 * the peer sends, as it would have before; to the layer above it has failed, and that layer freezes
 * V when it likes. The peer's memory is written by nothing but what was posted.
 *
 * A timer looks whether it is over, as nobody may be draining that shard: after 0.1 ms, then at
 * intervals that double. Whoever needs what parting rails have, or cannot wait, ends them all
 * (vb_bye_all). Progress thread.
 */
#include "config/reason.h"
#include "rsock/verbs_int.h"

static const uint64_t FIRST_NS = 100000, LONGEST_NS = 25000000, LIMIT_NS = 100000000;
enum { TRIES = 3 };

static unsigned parting;

/* Its QP may have been ended already, with the device. */
static void over(struct vb_rail *r)
{
    atomic_store(&r->parting, false);
    parting--;
    if (r->deadline)
        rsk_timer_cancel(r->deadline);
    r->deadline = NULL;
    if (r->orphan)
        vb_rail_free(r);
    else
        vb_rail_down(r);
}

static bool is_over(struct vb_rail *r)
{
    uint64_t end;

    if (!r->qp || sys_now() >= r->until)
        return true;
    /* Somebody else may be at it: what he finds is seen the next time. */
    (void)rsk_shard_drain(r->base.shard);
    end = atomic_load(&r->probe_end);
    return atomic_load(&r->broke) || (end && vb_is_done(r, (uint32_t)end));
}

static void look(void *arg);

static void look_again(struct vb_rail *r)
{
    r->deadline = rsk_timer_add(r->bye_ns, look, r);
    if (r->bye_ns < LONGEST_NS)
        r->bye_ns *= 2;
    if (!r->deadline) /* no memory */
        over(r);
}

static void look(void *arg)
{
    struct vb_rail *r = arg;

    r->deadline = NULL;
    if (is_over(r))
        over(r);
    else
        look_again(r);
}

/* Whoever is posting just now does it for us when he is through, unless the rail has failed by
 * then. If it cannot be posted, as the send queue is full, only the time is waited for. */
static void mark(struct vb_rail *r)
{
    atomic_store(&r->probe_end, 0);
    vb_due(r, VB_DUE_PROBE);
    for (int i = 0; i < TRIES && !atomic_load(&r->probe_end); i++) {
        vb_lock(&r->lock);
        vb_unlock(&r->lock);
        vb_due(r, 0);
    }
}

void vb_bye(struct vb_rail *r, int reason)
{
    if (atomic_load(&r->base.failed))
        return;
    if (reason != RSN_RAIL_FAILED && r->state == VB_UP) {
        mark(r);
        atomic_store(&r->parting, true);
        parting++;
        r->until = sys_now() + LIMIT_NS;
        r->bye_ns = FIRST_NS;
    }
    vb_rail_fail(r, reason);
    if (atomic_load(&r->parting))
        look_again(r);
}

bool vb_bye_keeps(struct vb_rail *r)
{
    if (!atomic_load(&r->parting))
        return false;
    rsk_shard_lock(r->base.shard); /* no drain is telling him of something */
    r->base.notify = NULL;
    r->base.owner = NULL;
    rsk_shard_unlock(r->base.shard);
    r->orphan = true;
    return true;
}

void vb_bye_all(void)
{
    for (unsigned i = 0; i < vb_rails_high; i++) {
        struct vb_rail *r = atomic_load_explicit(&vb_rails[i], memory_order_relaxed);

        if (r && atomic_load(&r->parting))
            over(r);
    }
}

unsigned vb_byes(void)
{
    return parting;
}

void vb_bye_forget(void)
{
    parting = 0;
}
