/*
 * pl_poll_words.c - a sleep on the futex words of several rails (pl_poll.h): the peers themselves wake the thread. Else it takes
 * two wake-ups, of the progress thread and then of ours.
 *
 * Any application thread. No locks.
 */
#include "preload/pl_poll.h"

#include <errno.h>
#include <pthread.h>

#include "config/env.h"
#include "rsock/sys.h"

enum { UNKNOWN, YES, NO };

static _Atomic int usable;

/* Since Linux 5.16. */
bool pl_words_usable(void)
{
    int known = atomic_load_explicit(&usable, memory_order_relaxed);

    if (known == UNKNOWN) {
        known = pl_filtered() ? NO : YES;
        atomic_store_explicit(&usable, known, memory_order_relaxed);
    }
    return known == YES;
}

static void add(struct pl_words *w, _Atomic uint32_t *word, uint32_t value, uint32_t flags)
{
    w->v[w->n++] =
        (struct futex_waitv){.uaddr = (uintptr_t)word, .val = value, .flags = FUTEX_32 | flags};
}

void pl_words_begin(struct pl_words *w, _Atomic uint32_t *own, uint32_t value)
{
    w->n = 0;
    add(w, own, value, FUTEX_PRIVATE_FLAG);
}

bool pl_words_add(struct pl_words *w, const struct fb_words *words)
{
    if (w->n + words->n > FUTEX_WAITV_MAX)
        return false;
    for (unsigned i = 0; i < words->n; i++)
        add(w, words->word[i], words->value[i], 0);
    return true;
}

/* A cancellation point: see sleep.c. */
__attribute__((noinline)) static int cancellable(struct pl_words *w, const struct timespec *until,
                                                 uint32_t signals)
{
    int n, old;

    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    n = (int)RSK_SLEEP(&rsk_sig.seen, signals, SYS_futex_waitv, w->v, w->n, 0, until,
                       CLOCK_MONOTONIC, 0);
    pthread_setcanceltype(old, NULL);
    return n;
}

int pl_words_sleep(struct pl_words *w, uint64_t deadline, uint32_t signals)
{
    struct timespec at, *until = NULL;
    int n;

    if (deadline != PL_FOREVER) {
        at = (struct timespec){(time_t)(deadline / 1000000000u), (long)(deadline % 1000000000u)};
        until = &at;
    }
    n = RSK_OPENED(cancellable(w, until, signals));
    if (n >= 0 || n == -EAGAIN || n == -ETIMEDOUT)
        return 0;
    if (n == -EINTR || n == -EFAULT) /* restarted by a handler's forked child, which has no rails */
        return -EINTR;
    atomic_store_explicit(&usable, NO, memory_order_relaxed);
    return 0;
}
