/*
 * fence.h - the full fence of the sleep protocols: "store mine, fence, load theirs" on both
 * sides, so that at least one of the two sees the other.
 */
#ifndef RSK_FENCE_H
#define RSK_FENCE_H

#include <stdatomic.h>

static inline void rsk_fence(void)
{
#if defined(__SANITIZE_THREAD__)
    /* ThreadSanitizer does not model fences (and gcc warns); a read-modify-write orders too. */
    static _Atomic int word;
    atomic_fetch_add_explicit(&word, 1, memory_order_seq_cst);
#elif defined(__x86_64__)
    /* Orders stores before later loads in half the time of mfence. */
    __asm__ volatile("lock orl $0, -4(%%rsp)" ::: "memory", "cc");
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* The same where a read-modify-write came before: on x86 that is one. */
static inline void rsk_fence_after_rmw(void)
{
#if defined(__x86_64__)
    atomic_signal_fence(memory_order_seq_cst);
#else
    rsk_fence();
#endif
}

#endif
