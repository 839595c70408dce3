/*
 * stream_waits.h - how often a call that is to be the kernel's waits until its stream is.
 */
#ifndef TESTS_UNIT_STREAM_WAITS_H
#define TESTS_UNIT_STREAM_WAITS_H

#include "tests/unit/stream_pair.h"

static void (*real_wait)(int fd, short events, uint64_t ns);
static _Atomic unsigned waits;

static void counting_wait(int fd, short events, uint64_t ns)
{
    atomic_fetch_add(&waits, 1);
    real_wait(fd, events, ns);
}

static inline void waits_are_counted(void)
{
    atomic_store(&waits, 0);
    real_wait = fb_io.wait;
    fb_io.wait = counting_wait;
}

static inline unsigned waits_so_far(void)
{
    fb_io.wait = real_wait;
    return atomic_load(&waits);
}

static inline unsigned waits_of_pin_rx(struct end *e)
{
    waits_are_counted();
    fb_pin_rx(e->s, RSN_CALL);
    return waits_so_far();
}

#endif
