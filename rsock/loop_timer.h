/*
 * loop_timer.h - for loop.c only: the progress thread's timers, a binary heap. The
 * public part (rsk_timer_add, rsk_timer_cancel) is in loop.h.
 */
#ifndef RSK_LOOP_TIMER_H
#define RSK_LOOP_TIMER_H

#include <stdint.h>

/* Nanoseconds until the first timer is due, 0 if one is, UINT64_MAX if there is none. */
uint64_t timers_next(void);
/* Calls those that were due at the call's start. */
void timers_run(void);
/* Drops all of them without calling; forget also leaves their memory alone. */
void timers_clear(void);
void timers_forget(void);

#endif
