/*
 * spin.c - for how long a wait spins before it sleeps: at most what is configured or, on wires that are
 * slow to wake, measured; and within that what the last waits have taught (spin.h). wait.c does the spinning.
 */
#include "ipoib_fallback/stream.h"

#include "config/env.h"

#define SPIN_LIMIT 500000u /* ns; nowhere is a sleep as dear as that, but on a translated machine */

static _Atomic uint32_t measured; /* 0: nothing yet */
/* 1 + the longest of the streams that have had a rail, unless measured. */
static _Atomic uint32_t configured;
static _Atomic bool by_measure; /* one of those spins for as long as it pays */

/* Where a stream begins that spins for as long as it pays. */
static uint32_t measured_most(void)
{
    uint32_t most = atomic_load_explicit(&measured, memory_order_relaxed);

    return most ? most : cfg_stream_defaults.spin_ns;
}

static uint32_t most_of(struct fb_conn *c)
{
    const struct cfg_stream *set = conn_config(c);

    return set->spin_auto ? measured_most() : set->spin_ns;
}

uint32_t fb_spin_most(void)
{
    uint32_t most = atomic_load_explicit(&configured, memory_order_relaxed);
    uint32_t other = atomic_load_explicit(&by_measure, memory_order_relaxed) ? measured_most() : 0;

    if (!most && !other) /* no rail so far */
        return cfg.stream.spin_auto ? measured_most() : cfg.stream.spin_ns;
    most -= most != 0;
    return most > other ? most : other;
}

void spin_joined(struct fb_conn *c)
{
    const struct cfg_stream *set = conn_config(c);

    if (set->spin_auto)
        atomic_store_explicit(&by_measure, true, memory_order_relaxed);
    else if (set->spin_ns >= atomic_load(&configured)) /* the progress thread alone writes it */
        atomic_store_explicit(&configured, set->spin_ns + 1, memory_order_relaxed);
}

/* The least that was seen, which forgets slowly: a peer that was busy says nothing of sleeping. */
void spin_measured(uint64_t answer)
{
    uint32_t most = measured_most(), now = answer < SPIN_LIMIT ? (uint32_t)answer : SPIN_LIMIT;

    if (now < cfg_stream_defaults.spin_ns)
        now = cfg_stream_defaults.spin_ns;
    atomic_store_explicit(&measured,
                          now < most || !atomic_load(&measured) ? now : most + (now - most) / 8,
                          memory_order_relaxed);
}

uint32_t spin_budget(struct fb_conn *c, struct fb_spin *s)
{
    return fb_spin_next(s, most_of(c));
}

void spin_served(struct fb_conn *c, struct fb_spin *s, uint64_t took)
{
    fb_spin_served(s, most_of(c), took);
}

void spin_slept(struct fb_conn *c, struct fb_spin *s, uint64_t took)
{
    fb_spin_slept(s, most_of(c), took);
}
