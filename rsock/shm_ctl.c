/*
 * shm_ctl.c - control messages on a shm rail's memory: slots with a sequence number each. No system
 * call but to wake, no lock, no malloc; which threads may call what is said in wire.h.
 */
#include "rsock/shm_ring.h"

#include <errno.h>
#include <string.h>

#include "config/reason.h"
#include "rsock/shm_bell.h"

#define RELAXED memory_order_relaxed

enum { MSG_WORDS = sizeof(struct rsk_msg) / 8 };

int shm_ctl_send(struct rsk_rail *rail, const struct rsk_msg *m)
{
    struct shm_rail *r = shm_of(rail);
    struct shm_dir *d = r->out;
    uint64_t word[MSG_WORDS];
    uint64_t n = atomic_load_explicit(&r->ctl_out, memory_order_acquire), head;

    for (;;) {
        if (atomic_load_explicit(&rail->failed, RELAXED))
            return -EPIPE;
        /* Acquire: the slot's last message has been read; pairs with shm_ctl_recv. */
        head = atomic_load_explicit(&d->ctl.head, memory_order_acquire);
        if (n - head == SHM_CTL_SLOTS)
            return -EAGAIN;
        if (n - head > SHM_CTL_SLOTS) {
            /* Ahead of us: other threads have sent meanwhile, or the peer lies. */
            uint64_t now = atomic_load_explicit(&r->ctl_out, memory_order_acquire);

            if (n == now) {
                shm_fail(r, RSN_PEER_PROTOCOL);
                return -EPIPE;
            }
            n = now;
        } else if (atomic_compare_exchange_weak_explicit(
                       &r->ctl_out, &n, n + 1, memory_order_acq_rel, memory_order_acquire)) {
            break;
        }
    }
    /* Word by word: a peer that lies about its head can make two threads fill one slot. */
    memcpy(word, m, sizeof word);
    for (size_t i = 0; i < MSG_WORDS; i++)
        atomic_store_explicit(&d->slot[n % SHM_CTL_SLOTS][i], word[i], RELAXED);
    atomic_store_explicit(&d->seq[n % SHM_CTL_SLOTS], (uint32_t)(n + 1), memory_order_release);
    shm_peer_ring(r->peer_ctl.bell, r->peer_ctl.index);
    return 0;
}

int shm_ctl_ready(const struct shm_rail *r, uint64_t n)
{
    uint32_t seq = atomic_load_explicit(&r->in->seq[n % SHM_CTL_SLOTS], memory_order_acquire);

    if (seq == (uint32_t)(n + 1))
        return 1;
    return seq == (n < SHM_CTL_SLOTS ? 0 : (uint32_t)(n + 1 - SHM_CTL_SLOTS)) ? 0 : -1;
}

int shm_ctl_recv(struct rsk_rail *rail, struct rsk_msg *m)
{
    struct shm_rail *r = shm_of(rail);
    uint64_t n = atomic_load_explicit(&r->ctl_in, RELAXED);
    uint64_t word[MSG_WORDS];
    int ready = shm_ctl_ready(r, n);

    if (ready < 0)
        shm_fail(r, RSN_PEER_PROTOCOL);
    if (ready <= 0)
        return 0;
    for (size_t i = 0; i < MSG_WORDS; i++)
        word[i] = atomic_load_explicit(&r->in->slot[n % SHM_CTL_SLOTS][i], RELAXED);
    memcpy(m, word, sizeof word);
    atomic_store_explicit(&r->ctl_in, n + 1, RELAXED);
    atomic_store_explicit(&r->in->ctl.head, n + 1, memory_order_release);
    return 1;
}
