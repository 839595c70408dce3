/*
 * lock.c - the contended path of lock.h: a short spin, then sleep (Drepper,
 * "Futexes are tricky", mutex 2).
 */
#include "ipoib_fallback/lock.h"

void fb_lock_slow(struct fb_lock *l)
{
    for (int i = 0; i < 64; i++) {
        if (atomic_load_explicit(&l->word, memory_order_relaxed) == 0 && fb_trylock(l))
            return;
        sys_pause_cpu();
    }
    while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire) != 0)
        sys_futex(&l->word, FUTEX_WAIT_PRIVATE, 2, NULL);
}
