/*
 * verbs_lock.h - a lock that spins before it sleeps. For verbs_*.c only; which there are, and in
 * what order, is in verbs_int.h.
 */
#ifndef RSK_VERBS_LOCK_H
#define RSK_VERBS_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rsock/sys.h"

struct vb_lock {
    _Atomic uint32_t held; /* 0 free, 1 held, 2 held with sleepers */
};

/* Sequentially consistent: who finds the lock taken leaves a bit in `due`, and who gives it back
 * looks at that. */
static inline bool vb_trylock(struct vb_lock *l)
{
    uint32_t free = 0;

    return atomic_compare_exchange_strong(&l->held, &free, 1);
}

static inline void vb_lock(struct vb_lock *l)
{
    for (unsigned spins = 0; spins < 110; spins++) {
        if (vb_trylock(l))
            return;
        /* The holder may have lost its CPU: give it ours. */
        if (spins < 100)
            sys_pause_cpu();
        else
            sys_yield();
    }
    /* It may also be one that gets none as long as we want it, because our priority is higher. */
    while (atomic_exchange(&l->held, 2) != 0)
        sys_futex(&l->held, FUTEX_WAIT_PRIVATE, 2, NULL);
}

static inline void vb_unlock(struct vb_lock *l)
{
    if (atomic_exchange(&l->held, 0) == 2)
        sys_futex(&l->held, FUTEX_WAKE_PRIVATE, 1, NULL);
}

#endif
