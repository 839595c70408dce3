/*
 * verbs_wire.c - the table of operations, whether the wire is of any use here, and the waiting.
 */
#include <errno.h>
#include <string.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/fence.h"
#include "rsock/move.h"
#include "rsock/own.h"
#include "rsock/verbs_int.h"

static int usable(void)
{
    int reason = vb_host_has_device();

    /* librdmacm has one context of each device for all of a process, and we do with
     * it as we like. */
    if (!reason && !vb_cm_is_open())
        reason = vb_host_refuses();
    if (reason)
        return reason;
    if (!vb_dev_afresh())
        return RSN_NO_VERBS;
    switch (vb_dl_open()) {
    case 0:
        return 0;
    case -ENOMEM:
        reason = RSN_NO_MEMORY;
        break;
    case -EMFILE:
        reason = RSN_LIMIT_FD;
        break;
    default:
        reason = RSN_NO_VERBS;
    }
    vb_host_refused(reason);
    return reason;
}

static void shut(int reason)
{
    vb_bye_all();
    for (unsigned i = 0; i < vb_rails_high; i++) {
        struct vb_rail *r = atomic_load_explicit(&vb_rails[i], memory_order_relaxed);

        if (!r)
            continue;
        if (r->state != VB_UP) {
            vb_setup_failed(r, reason);
        } else {
            vb_rail_fail(r, reason);
            vb_rail_close(r);
        }
    }
    vb_dev_shut();
    vb_listen_shut();
    vb_cm_shut();
    vb_dl_shut();
}

static void destroy(struct rsk_rail *rail)
{
    if (!vb_bye_keeps(vb_of(rail)))
        vb_rail_free(vb_of(rail));
}

/* ---- waiting */

unsigned vb_look(struct vb_rail *r, unsigned events)
{
    unsigned bits = 0;

    if ((atomic_load_explicit(&r->arrived, memory_order_acquire) & ~VB_FROZEN) !=
        atomic_load_explicit(&r->consumed, memory_order_relaxed))
        bits |= RSK_RX;
    if (vb_tx_room(r) >= vb_enough(r, events))
        bits |= RSK_TX;
    if (atomic_load_explicit(&r->ctl_arrived, memory_order_acquire) !=
        atomic_load_explicit(&r->ctl_taken, memory_order_relaxed))
        bits |= RSK_CTL;
    if (atomic_load_explicit(&r->base.failed, memory_order_acquire))
        bits |= RSK_FAIL;
    return bits;
}

static unsigned poll_rail(struct rsk_rail *rail, unsigned events)
{
    rsk_shard_drain(rail->shard);
    return vb_look(vb_of(rail), events) & (events | RSK_FAIL);
}

/* Sets or takes back what a futex sleeper wants; keeps the part's count of such rails. */
static void want(struct vb_rail *r, unsigned events)
{
    if (atomic_fetch_or(&r->want, events & (RSK_RX | RSK_TX)) == 0)
        atomic_fetch_add(&r->part->sleepers, 1);
}

static void unwant(struct vb_rail *r, unsigned events)
{
    unsigned old = atomic_fetch_and(&r->want, ~events);

    if (old && !(old & ~events))
        atomic_fetch_sub(&r->part->sleepers, 1);
}

static unsigned arm(struct rsk_rail *rail, unsigned events, unsigned how)
{
    struct vb_rail *r = vb_of(rail);
    unsigned bits;

    if (how & RSK_BY_FUTEX)
        want(r, events);
    if (how & RSK_BY_LOOP)
        atomic_store(&r->part->left, true);
    if (how & (RSK_BY_FUTEX | RSK_BY_LOOP))
        vb_mind_watch_ask(r->part);
    rsk_fence(); /* pairs with vb_tell */
    bits = vb_look(r, events) & (events | RSK_FAIL);
    if (!bits && events & RSK_TX)
        vb_wait_for_room(r, vb_enough(r, events));
    /* By futex or by the loop the CQ of this rail is armed: its event has the progress thread drain
     * (RSK_BY_SHARD is armed by rsk_shard_arm). Then what came before the arming is drained, of
     * which nobody is told. RSK_BY_LOOP does not sleep, so two rounds are enough: then it has been
     * drained, or somebody else is draining. */
    for (int i = 0; !bits && !(how & RSK_BY_LOOP && i == 2); i++) {
        struct vb_cq *c = r->cq;

        if (how & (RSK_BY_FUTEX | RSK_BY_LOOP) && c)
            vb_arm_cq(r->part, c);
        if (!vb_part_peek(r->part)) {
            bits = vb_look(r, events) & (events | RSK_FAIL);
            break;
        }
        /* Somebody else is draining, and may have lost the CPU: let it. */
        if (rsk_shard_drain(rail->shard) <= 0)
            sys_yield();
        bits = vb_look(r, events) & (events | RSK_FAIL);
    }
    if (bits && how & RSK_BY_FUTEX)
        unwant(r, events);
    return bits & (events | RSK_FAIL);
}

/* An adapter says that a request is done when the peer's has acknowledged it, and all before it. */
static uint64_t tx_arrived(struct rsk_rail *rail)
{
    struct vb_rail *r = vb_of(rail);
    uint64_t freed = vb_tx_freed(rail);

    rsk_shard_drain(rail->shard);
    if (atomic_load(&r->mark) == VB_MARK_OUT && vb_is_done(r, r->mark_slot)) {
        r->landed = r->mark_pos;
        atomic_store(&r->mark, VB_NO_MARK);
    }
    if (r->landed < freed)
        r->landed = freed;
    if (r->landed < atomic_load_explicit(&r->posted, memory_order_relaxed) &&
        atomic_load(&r->mark) == VB_NO_MARK) {
        atomic_store(&r->mark, VB_MARK_DUE);
        vb_due(r, VB_DUE_MARK);
    }
    return r->landed;
}

static void kill_rail(struct rsk_rail *rail, int reason)
{
    vb_bye(vb_of(rail), reason);
}

static size_t give(struct rsk_rail *rail, const void *p, size_t n)
{
    return rsk_give(rail, p, n, vb_tx_space, vb_tx_put);
}

static size_t take(struct rsk_rail *rail, void *p, size_t n)
{
    return rsk_take(rail, p, n, vb_rx_peek, vb_rx_consume);
}

const struct rsk_wire rsk_verbs_wire = {
    .name = "verbs",
    .slow_to_wake = true,
    .news_by_drain = true,
    .much = 4, /* the receiver tells of as much (wait_imm) */
    .bound_to_credentials = true,
    .path = 2,
    .usable = usable,
    .listen = vb_listen,
    .unlisten = vb_unlisten,
    .connect = vb_connect,
    .on_route = vb_on_route,
    .on_room = vb_on_room,
    .shut = shut,
    .parting = vb_byes,
    .destroy = destroy,
    .tx_start = vb_tx_start,
    .tx_space = vb_tx_space,
    .tx_put = vb_tx_put,
    .tx_give = give,
    .tx_open = vb_tx_open,
    .tx_push = vb_tx_push,
    .tx_freed = vb_tx_freed,
    .tx_arrived = tx_arrived,
    .tx_kept = vb_tx_kept,
    .tx_stop = vb_tx_stop,
    .rx_start = vb_rx_start,
    .rx_peek = vb_rx_peek,
    .rx_consume = vb_rx_consume,
    .rx_take = take,
    .rx_freeze = vb_rx_freeze,
    .ctl_send = vb_ctl_send,
    .ctl_recv = vb_ctl_recv,
    .poll = poll_rail,
    .arm = arm,
    .kill = kill_rail,
};
