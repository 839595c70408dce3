/*
 * waitv.h - a sleep on several futex words (Linux 5.16).
 */
#ifndef RSK_WAITV_H
#define RSK_WAITV_H

#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Can this process sleep so? Any thread. */
bool rsk_waitv_usable(void);
/* Sleeps until one of n words is woken, or `until` (CLOCK_MONOTONIC; NULL: for ever). 0: look
 * again, also where it turns out not to be usable; -EAGAIN: a word has another value;
 * -ETIMEDOUT; -EINTR: a handler has run since `signals` (of rsk_sig.seen). A cancellation point,
 * to be called in a window. */
int rsk_waitv(struct futex_waitv *, unsigned n, const struct timespec *until, uint32_t signals);

#endif
