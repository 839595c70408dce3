/*
 * verbs_room.c - how much the sender may accept by what the peer says that it has consumed, and
 * having the peer speak up.
 */
#include "config/reason.h"
#include "rsock/verbs_int.h"

uint64_t vb_known(struct vb_rail *r)
{
    uint64_t freed = atomic_load_explicit(&r->freed, memory_order_relaxed);
    uint64_t word = vb_word(&r->credit_in->consumed);

    /* Not judged here, nor noted: vb_tx_freed does both, under the tx lock. So it is good for when
     * to look, and not for what to fill. */
    return word > freed && word <= atomic_load_explicit(&r->tx, memory_order_relaxed) ? word
                                                                                      : freed;
}

size_t vb_room_at(struct vb_rail *r, uint64_t consumed)
{
    uint64_t kept;

    if (!atomic_load_explicit(&r->tx_on, memory_order_acquire) ||
        atomic_load_explicit(&r->stopped, memory_order_relaxed) ||
        atomic_load_explicit(&r->base.failed, memory_order_relaxed))
        return 0;
    kept = atomic_load_explicit(&r->tx, memory_order_relaxed) - consumed;
    return kept < r->tx_window ? (size_t)(r->tx_window - kept) : 0;
}

size_t vb_lacks(struct vb_rail *r, uint64_t consumed)
{
    size_t room = vb_room_at(r, consumed), much = rsk_much(&r->base, r->tx_window);

    return room < much ? much - room : 1;
}

size_t vb_tx_room(struct vb_rail *r)
{
    return vb_room_at(r, vb_known(r));
}

/* The number at which this thread found too little room goes into the WAIT. Whoever posts that
 * may do so later, and know more by then; if the WAIT said so, the peer would not tell this
 * thread, which sleeps without having looked. A thread that found too little room at N has no
 * more until the peer has consumed more than N, so the least N will do for all that have asked
 * before the WAIT is posted. One that asks too late for that looks once more (arm), at what the
 * others have seen. */
void vb_wait_for_room(struct vb_rail *r, size_t enough)
{
    uint64_t known = vb_known(r), least = atomic_load(&r->no_room_at);

    if (!atomic_load_explicit(&r->open, memory_order_relaxed) || vb_room_at(r, known) >= enough)
        return;
    while (known < least && !atomic_compare_exchange_weak(&r->no_room_at, &least, known))
        ;
    vb_due(r, VB_DUE_WAIT_BYTES);
}

uint64_t vb_tx_freed(struct rsk_rail *rail)
{
    struct vb_rail *r = vb_of(rail);
    uint64_t word = vb_word(&r->credit_in->consumed);
    uint64_t freed = atomic_load_explicit(&r->freed, memory_order_relaxed);

    if (word <= freed || !atomic_load_explicit(&r->tx_on, memory_order_relaxed))
        return freed;
    if (word > atomic_load_explicit(&r->posted, memory_order_relaxed)) {
        /* After a stop the receiver may already be where the next start will be. */
        if (!atomic_load_explicit(&r->stopped, memory_order_relaxed))
            vb_rail_fail(r, RSN_PEER_PROTOCOL);
        return freed;
    }
    atomic_store_explicit(&r->freed, word, memory_order_relaxed);
    return word;
}
