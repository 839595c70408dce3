/*
 * verbs_recv.c - the receiver half: bytes that the peer has written into our ring, control
 * messages, and when credit is given back.
 *
 * What arrives is announced by immediates, so the ring itself holds no cursor: V advances in
 * the drain, which any thread may be doing, while another one consumes.
 */
#include <string.h>

#include "config/reason.h"
#include "rsock/verbs_int.h"

void vb_rx_start(struct rsk_rail *rail, uint64_t S)
{
    struct vb_rail *r = vb_of(rail);

    /* consumed first: a drain that finds V moved finds room for it. Data that was sent before the
     * sender stopped has long been counted: control messages follow it on the same queue pair. */
    atomic_store(&r->consumed, S);
    atomic_store(&r->arrived, S);
    atomic_store(&r->peer_needs, 0);
    atomic_store_explicit(&r->pub_consumed, S, memory_order_relaxed);
    atomic_store_explicit(&r->rx_on, true, memory_order_release);
}

size_t vb_rx_peek(struct rsk_rail *rail, struct iovec v[2])
{
    struct vb_rail *r = vb_of(rail);
    /* Acquire: pairs with the drain's release; the bytes were there before the completion. */
    uint64_t V = atomic_load_explicit(&r->arrived, memory_order_acquire) & ~VB_FROZEN;
    uint64_t rx = atomic_load_explicit(&r->consumed, memory_order_relaxed);
    size_t n = (size_t)(V - rx), off = (size_t)(rx & (rail->rx_size - 1));
    size_t first = n <= rail->rx_size - off ? n : rail->rx_size - off;

    v[0] = (struct iovec){r->ring + off, first};
    v[1] = (struct iovec){r->ring, n - first};
    return n;
}

static uint64_t quarter(const struct vb_rail *r)
{
    return r->base.rx_size / 4;
}

/* Whether the WAIT is to be answered now: enough is free, or nothing more is coming that could
 * be consumed. True once per WAIT. */
static bool worth_a_wake(struct vb_rail *r, uint64_t rx)
{
    return (rx >= atomic_load(&r->peer_wake_at) || rx == (atomic_load(&r->arrived) & ~VB_FROZEN)) &&
           atomic_fetch_and(&r->peer_needs, ~(unsigned)VB_NEED_BYTES) & VB_NEED_BYTES;
}

void vb_rx_consume(struct rsk_rail *rail, size_t n)
{
    struct vb_rail *r = vb_of(rail);
    uint64_t rx = atomic_load_explicit(&r->consumed, memory_order_relaxed) + n;
    uint64_t owed = rx - atomic_load_explicit(&r->pub_consumed, memory_order_relaxed);

    /* seq_cst: stored before peer_needs is looked at; on_wait() does it the other way round, so
     * one of the two sees that somebody waits and something can be given. */
    atomic_store(&r->consumed, rx);
    vb_probe_wanted();
    if (atomic_load(&r->peer_needs) & VB_NEED_BYTES) {
        if (worth_a_wake(r, rx))
            vb_due(r, VB_DUE_WAKE_BYTES);
    } else if (owed >= quarter(r)) {
        vb_due(r, VB_DUE_CREDIT);
    }
}

uint64_t vb_rx_freeze(struct rsk_rail *rail)
{
    return atomic_fetch_or(&vb_of(rail)->arrived, VB_FROZEN) & ~VB_FROZEN;
}

int vb_ctl_recv(struct rsk_rail *rail, struct rsk_msg *m)
{
    struct vb_rail *r = vb_of(rail);
    uint64_t taken = atomic_load_explicit(&r->ctl_taken, memory_order_relaxed);

    if (atomic_load_explicit(&r->ctl_arrived, memory_order_acquire) == taken)
        return 0;
    memcpy(m, r->ctl_in + (taken % VB_CTL_SLOTS) * sizeof *m, sizeof *m);
    atomic_store(&r->ctl_taken, ++taken);
    if (taken - atomic_load_explicit(&r->pub_control, memory_order_relaxed) >= VB_CTL_SLOTS / 4)
        vb_due(r, VB_DUE_CREDIT);
    return 1;
}

/* ---- the drain */

int vb_post_receives(struct vb_rail *r, unsigned n)
{
    struct ibv_recv_wr wr[16], *bad;

    while (n) {
        unsigned k = n < 16 ? n : 16;

        for (unsigned i = 0; i < k; i++)
            wr[i] = (struct ibv_recv_wr){.wr_id = vb_wr_id(r, VB_WR_RECV, 0),
                                         .next = i + 1 < k ? &wr[i + 1] : NULL};
        if (ibv_post_recv(r->qp, wr, &bad))
            return -EPIPE;
        n -= k;
    }
    return 0;
}

static int on_data(struct vb_rail *r, uint32_t flags, uint32_t len)
{
    uint64_t V = atomic_load_explicit(&r->arrived, memory_order_relaxed);

    if ((flags & VB_SEQ) != (r->data_seen++ & VB_SEQ) || len == 0 ||
        !atomic_load_explicit(&r->rx_on, memory_order_acquire))
        return RSN_PEER_PROTOCOL;
    do {
        if (V & VB_FROZEN)
            return 0;
        /* consumed only grows, so an old value is the strict side. */
        if (V + len - atomic_load_explicit(&r->consumed, memory_order_acquire) > r->base.rx_size)
            return RSN_PEER_PROTOCOL;
    } while (!atomic_compare_exchange_weak_explicit(&r->arrived, &V, V + len, memory_order_release,
                                                    memory_order_relaxed));
    r->news |= RSK_RX;
    return 0;
}

static int on_wait(struct vb_rail *r, uint32_t needs, uint32_t worth)
{
    unsigned due = needs & VB_NEED_MESSAGES ? VB_DUE_WAKE_MESSAGES : 0;

    if (needs & VB_NEED_BYTES) {
        /* What the sender knew when it asked, not what we last published: that may have
         * crossed the WAIT, and the sender sleeps without having looked. */
        uint64_t seen = vb_word(&r->credit_in->seen), rx;

        if (worth == 0 || worth > quarter(r))
            worth = (uint32_t)quarter(r);
        atomic_store(&r->peer_wake_at, seen + worth);
        atomic_fetch_or(&r->peer_needs, VB_NEED_BYTES);
        rx = atomic_load(&r->consumed);
        if (seen > rx)
            return RSN_PEER_PROTOCOL;
        if (rx > seen && worth_a_wake(r, rx))
            due |= VB_DUE_WAKE_BYTES;
    }
    /* Posted after the receive work requests that this drain gives back. */
    if (due)
        atomic_fetch_or(&r->due, due);
    return 0;
}

int vb_receive(struct vb_rail *r, uint32_t imm)
{
    uint32_t flags = imm >> 24 & 15, len = imm & 0xffffff;

    r->to_repost++;
    switch (imm >> 28) {
    case VB_DATA:
        return on_data(r, flags, len);
    case VB_CTRL:
        if (atomic_load(&r->ctl_arrived) - atomic_load(&r->ctl_taken) >= VB_CTL_SLOTS)
            return RSN_PEER_PROTOCOL;
        atomic_fetch_add_explicit(&r->ctl_arrived, 1, memory_order_release);
        r->news |= RSK_CTL;
        return 0;
    case VB_WAIT:
        return on_wait(r, flags, len);
    case VB_WAKE:
        atomic_fetch_and(&r->waiting, ~(unsigned)flags);
        /* Also for whoever was refused a control message. */
        r->news |= RSK_TX;
        return 0;
    default:
        return RSN_PEER_PROTOCOL;
    }
}
