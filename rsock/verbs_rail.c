/*
 * verbs_rail.c - one rail's memory, protection domain and queue pair, and its end.
 *
 * Two mappings, both MAP_SHARED so that a fork never copies pinned pages. What the peer may
 * write (receive ring, control slots, credit block) is one registration, what only we write
 * (staging, control staging, credit staging) another without remote access: a peer that
 * misbehaves then reaches exactly what DESIGN section 6 allows. A protection domain of its own
 * per rail keeps its rkey from reaching other rails.
 *
 * Runs on the progress thread, except vb_rail_fail.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/verbs_int.h"

struct vb_rail *_Atomic vb_rails[VB_MAX_RAILS];
unsigned vb_rails_high;

static uint32_t generation;

static unsigned log2_of(size_t n)
{
    unsigned log2 = VB_RING_MIN_LOG2;

    while (log2 < VB_RING_MAX_LOG2 && (size_t)1 << log2 < n)
        log2++;
    return log2;
}

static unsigned free_place(void)
{
    unsigned i = 0;

    while (i < VB_MAX_RAILS && atomic_load_explicit(&vb_rails[i], memory_order_relaxed))
        i++;
    return i;
}

struct vb_rail *vb_rail_new(struct rsk_shard *shard, size_t ring)
{
    struct vb_rail *r;
    unsigned i = free_place();

    if (i == VB_MAX_RAILS) {
        vb_bye_all();
        i = free_place();
    }
    errno = ENOSPC;
    if (i == VB_MAX_RAILS || !(r = calloc(1, sizeof *r)))
        return NULL;
    atomic_init(&r->no_room_at, VB_ASKED_NONE);
    r->base.wire = &rsk_verbs_wire;
    r->base.shard = rsk_shard_get(shard);
    r->base.rx_word = &r->rx_word;
    r->base.tx_word = &r->tx_word;
    r->base.rx_size = 1u << log2_of(ring ? ring : VB_RING_DEFAULT);
    r->index = i;
    r->gen = ++generation;
    if (i >= vb_rails_high)
        vb_rails_high = i + 1;
    atomic_store_explicit(&vb_rails[i], r, memory_order_release);
    return r;
}

static uint8_t *map(struct rsk_own_map *m, size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    rsk_own_map(m, p, len);
    return p;
}

static int make_qp(struct vb_rail *r)
{
    static const uint32_t inlines[] = {VB_INLINE, 64, 0};
    struct ibv_qp_init_attr attr;

    if (!vb_pin_queue(VB_QP_PINS))
        return -ENOMEM;
    for (size_t i = 0; i < sizeof inlines / sizeof *inlines; i++) {
        attr = (struct ibv_qp_init_attr){
            .qp_type = IBV_QPT_RC,
            .send_cq = r->cq->cq,
            .recv_cq = r->cq->cq,
            .cap = {.max_send_wr = VB_SQ,
                    .max_recv_wr = VB_RQ,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = inlines[i]},
        };
        if (vdl.create_qp(r->id, r->pd, &attr) == 0) {
            r->max_inline = attr.cap.max_inline_data;
            r->qp = r->id->qp;
            return 0;
        }
    }
    vb_unpin_queue(VB_QP_PINS);
    return -errno;
}

int vb_rail_open(struct vb_rail *r)
{
    struct ibv_recv_wr hello = {.wr_id = vb_wr_id(r, VB_WR_HELLO, 0), .num_sge = 1}, *bad;
    struct ibv_sge sge;
    size_t len;
    int reason = 0;

    r->part = vb_part_get(r->base.shard, r->dev, &reason);
    if (!r->part)
        return reason;
    r->cq = vb_cq_reserve(r->part, &reason);
    if (!r->cq)
        return reason;
    r->off_ctl = r->base.rx_size;
    r->off_credit = r->off_ctl + VB_CTL_SLOTS * sizeof(struct rsk_msg);
    r->off_hello = r->off_credit + 64;
    len = r->off_hello + VB_HELLO_ROOM;
    r->ring = map(&r->map_in, len);
    r->pd = r->ring ? vdl.alloc_pd(r->id->verbs) : NULL;
    r->mr_in =
        r->pd ? vb_pin(r->pd, &r->map_in, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) : NULL;
    if (!r->mr_in || make_qp(r) < 0) {
        log_info("verbs: memory or queue pair on %s: %s", r->dev->name, strerror(errno));
        return vb_lack_reason(errno);
    }
    r->ctl_in = r->ring + r->off_ctl;
    r->credit_in = (struct vb_credit *)(r->ring + r->off_credit);
    snprintf(r->base.where, sizeof r->base.where, "%s/%u", r->dev->name, r->id->port_num);
    /* Receive queues are in order: the acceptor's first message is the initiator's hello. */
    sge = (struct ibv_sge){
        .addr = (uintptr_t)r->ring + r->off_hello, .length = VB_HELLO_ROOM, .lkey = r->mr_in->lkey};
    hello.sg_list = &sge;
    if (!r->initiator && ibv_post_recv(r->qp, &hello, &bad))
        return RSN_RAIL_FAILED;
    if (vb_post_receives(r, VB_MESSAGES))
        return RSN_RAIL_FAILED;
    /* Progress does not depend on who drains this part, also during the set-up. */
    vb_mind_watch(r->part);
    vb_arm_cq(r->part, r->cq);
    if (vb_part_peek(r->part))
        vb_mind_start(r->part);
    return 0;
}

static bool (*room)(void *owner, size_t bytes, bool stranger);

void vb_on_room(bool (*fn)(void *owner, size_t bytes, bool stranger))
{
    room = fn;
}

int vb_rail_open_out(struct vb_rail *r, unsigned ring_log2)
{
    size_t size = (size_t)1 << ring_log2, ctl = VB_CTL_SLOTS * sizeof(struct rsk_msg);
    size_t len = size + ctl + 4096;

    if (room && !room(r->caller, size + r->base.rx_size, true))
        return RSN_BUDGET;
    r->base.tx_size = (uint32_t)size;
    r->staging = map(&r->map_out, len);
    r->mr_out = r->staging ? vb_pin(r->pd, &r->map_out, IBV_ACCESS_LOCAL_WRITE) : NULL;
    if (!r->mr_out)
        return vb_lack_reason(errno);
    r->lkey_out = r->mr_out->lkey;
    r->ctl_out = r->staging + size;
    r->credit_out = (struct vb_credit *)(r->staging + size + ctl);
    r->max_message = (uint32_t)(size / 4 > 256 * 1024 ? 256 * 1024 : size / 4);
    return 0;
}

void vb_header(const struct vb_rail *r, struct vb_hdr *h, size_t len)
{
    *h = (struct vb_hdr){
        .magic = VB_MAGIC,
        .version = VB_VERSION,
        .len = (uint8_t)len,
        .ring_log2 = (uint8_t)log2_of(r->base.rx_size),
        .family = r->tuple.family,
        .request = r->request,
    };
}

void vb_rail_describe(const struct vb_rail *r, struct vb_desc *d)
{
    vb_header(r, &d->h, sizeof *d);
    d->ring = (uintptr_t)r->ring;
    d->ctl = (uintptr_t)r->ctl_in;
    d->credit = (uintptr_t)r->credit_in;
    d->rkey = r->mr_in->rkey;
    d->messages = VB_MESSAGES;
}

int vb_rail_peer(struct vb_rail *r, const struct vb_desc *d)
{
    if (d->h.magic != VB_MAGIC || d->h.len < sizeof *d || d->h.request != r->request ||
        d->h.ring_log2 < VB_RING_MIN_LOG2 || d->h.ring_log2 > VB_RING_MAX_LOG2 ||
        d->messages < VB_MESSAGES)
        return RSN_PEER_PROTOCOL;
    if (d->h.version != VB_VERSION)
        return RSN_VERSION;
    r->r_ring = d->ring;
    r->r_ctl = d->ctl;
    r->r_credit = d->credit;
    r->r_rkey = d->rkey;
    return 0;
}

int vb_rail_known(struct vb_rail *r)
{
    atomic_store(&r->knows, true);
    /* And what was due before that (vb_due). */
    return vb_post_test(r) ? RSN_RAIL_FAILED : 0;
}

/* ---- the end */

void vb_rail_fail(struct vb_rail *r, int reason)
{
    uint32_t none = 0;

    if (!atomic_compare_exchange_strong(&r->base.failed, &none, (uint32_t)reason)) {
        atomic_store(&r->broke, true);
        return;
    }
    log_debug("verbs: rail %u fails: %s", r->index, cfg_reason_name(reason));
    if (!atomic_load(&r->parting)) {
        atomic_store(&r->down, true);
        vb_kick();
    }
    vb_tell(r, RSK_FAIL);
}

void vb_rail_down(struct vb_rail *r)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    atomic_store(&r->down, false);
    /* Not under the rail's lock: this is a system call. Only this thread ends the QP. */
    if (r->qp)
        vdl.modify_qp(r->qp, &attr, IBV_QP_STATE);
}

static void lock_shard(struct vb_rail *r)
{
    if (r->part)
        rsk_shard_lock(r->base.shard);
}

static void unlock_shard(struct vb_rail *r)
{
    if (r->part)
        rsk_shard_unlock(r->base.shard);
}

void vb_rail_close(struct vb_rail *r)
{
    if (r->qp) {
        /* Nobody posts any more: a sender has the rail's lock, a drain the shard's. */
        lock_shard(r);
        vb_lock(&r->lock);
        r->qp = NULL;
        vb_unlock(&r->lock);
        unlock_shard(r);
        /* Ends every access of the adapter to our memory, and of flushing (ibv_destroy_qp(3)). An
         * adapter takes its time for that, in which the shard's other rails are drained. */
        vdl.destroy_qp(r->id);
        vb_unpin_queue(VB_QP_PINS);
    }
    if (r->cq) {
        lock_shard(r);
        vb_cq_release(r->part, r->cq);
        unlock_shard(r);
    }
    r->cq = NULL;
    vb_unpin(r->mr_in, &r->map_in);
    vb_unpin(r->mr_out, &r->map_out);
    if (r->pd)
        vdl.dealloc_pd(r->pd);
    r->mr_in = r->mr_out = NULL;
    r->pd = NULL;
    if (r->id && r->dev)
        vb_dev_end_id(r->dev, r->id);
    else if (r->id)
        vdl.destroy_id(r->id);
    r->id = NULL;
    if (r->dev)
        vb_dev_put(r->dev);
    r->dev = NULL;
}

void vb_rail_free(struct vb_rail *r)
{
    vb_rail_close(r);
    if (r->deadline)
        rsk_timer_cancel(r->deadline);
    /* The kick walks this table on this thread, a drain under the shard's lock. */
    rsk_shard_lock(r->base.shard);
    atomic_store_explicit(&vb_rails[r->index], NULL, memory_order_release);
    rsk_shard_unlock(r->base.shard);
    if (atomic_exchange(&r->want, 0) && r->part)
        atomic_fetch_sub(&r->part->sleepers, 1);
    while (vb_rails_high &&
           !atomic_load_explicit(&vb_rails[vb_rails_high - 1], memory_order_relaxed))
        vb_rails_high--;
    rsk_own_unmap(&r->map_in);
    rsk_own_unmap(&r->map_out);
    rsk_shard_put(r->base.shard);
    r->over = true;
    if (!r->telling)
        free(r);
}
