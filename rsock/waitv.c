/*
 * waitv.c - see waitv.h. Any application thread. No locks.
 */
#include "rsock/waitv.h"

#include "rsock/section.h"
#include "rsock/sys.h"
#include "rsock/valgrind.h"

#include <errno.h>
#include <pthread.h>

enum { UNKNOWN, YES, NO };

static _Atomic int usable;

bool rsk_waitv_usable(void)
{
    int known = atomic_load_explicit(&usable, memory_order_relaxed);

    if (known == UNKNOWN) {
        known = sys_filtered() || rsk_under_valgrind() ? NO : YES;
        atomic_store_explicit(&usable, known, memory_order_relaxed);
    }
    return known == YES;
}

/* See ipoib_fallback/sleep.c. */
__attribute__((noinline)) static int cancellable(struct futex_waitv *v, unsigned n,
                                                 const struct timespec *until, uint32_t signals)
{
    struct rsk_cancel cancel;
    int r;

    cancel = rsk_cancel_open();
    r = (int)RSK_SLEEP(&rsk_sig.seen, signals, SYS_futex_waitv, v, n, 0, until, CLOCK_MONOTONIC, 0);
    rsk_cancel_close(cancel);
    return r;
}

int rsk_waitv(struct futex_waitv *v, unsigned n, const struct timespec *until, uint32_t signals)
{
    int r = cancellable(v, n, until, signals);

    if (r >= 0)
        return 0;
    if (r == -EAGAIN || r == -ETIMEDOUT)
        return r;
    if (r == -EINTR || r == -EFAULT) /* restarted by a handler's forked child, which has no rails */
        return -EINTR;
    atomic_store_explicit(&usable, NO, memory_order_relaxed);
    return 0;
}
