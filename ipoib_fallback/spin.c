/*
 * spin.c - for how long a wait spins before it sleeps: at most what is configured or measured, and
 * less of the latter where a CPU quota holds the process back (quota.h); and within that what the
 * last waits have taught (spin.h). wait.c does the spinning.
 */
#include "ipoib_fallback/stream.h"

#include "config/env.h"
#include "ipoib_fallback/processors.h"
#include "ipoib_fallback/quota.h"

/* ns for which a thread that was thrown off often spins briefly at first, and at most */
#define REST_FIRST 2000000000ull
#define REST_MOST  32000000000ull

/* What sleeping costs, of wires that wake by a futex and of those that are slow: no more than this
 * is spun, ns. On a translated machine it takes as long as the second, and on a virtual one whose
 * processors stop when they are idle half of the first. */
static const uint32_t limit[2] = {100000, 500000};

static _Atomic uint32_t measured[2]; /* 0: nothing yet */
/* 1 + the longest of the streams that have had a rail, unless measured. */
static _Atomic uint32_t configured;
static _Atomic bool by_measure[2]; /* one of those spins for as long as it pays */
static _Atomic bool slow_wire;     /* one of those was slow to wake */

/* Where a stream begins that spins for as long as it pays. */
static uint32_t measured_most(bool slow)
{
    uint32_t most = atomic_load_explicit(&measured[slow], memory_order_relaxed);

    return most ? most : cfg_stream_defaults.spin_ns;
}

/* The thread's waits for one stream: whether it was thrown off its processor often, and
 * what follows. */
static _Thread_local struct fb_crowd crowd;
static _Thread_local struct fb_rest rest;

static uint32_t allowed(bool slow)
{
    return quota_most(measured_most(slow), cfg_stream_defaults.spin_ns);
}

/* The same for a wait for one stream. */
static uint32_t allowed_here(bool slow)
{
    return rest.until && !slow ? cfg_stream_defaults.spin_ns : allowed(slow);
}

static uint32_t most_of(struct fb_conn *c)
{
    const struct cfg_stream *set = conn_config(c);

    if (__builtin_expect(atomic_load_explicit(&fb_one_processor, memory_order_relaxed), 0))
        return 0;
    return set->spin_auto ? allowed_here(conn_flag(c, CF_SLOW)) : set->spin_ns;
}

uint32_t fb_spin_most(void)
{
    uint32_t most = atomic_load_explicit(&configured, memory_order_relaxed);
    bool any = most != 0;

    most -= any;
    for (int slow = 0; slow < 2; slow++)
        if (atomic_load_explicit(&by_measure[slow], memory_order_relaxed)) {
            uint32_t other = allowed(slow);

            most = most > other ? most : other;
            any = true;
        }
    if (!any) /* no rail so far */
        return cfg.stream.spin_auto ? measured_most(false) : cfg.stream.spin_ns;
    return most;
}

bool fb_spin_slow(void)
{
    return atomic_load_explicit(&slow_wire, memory_order_relaxed);
}

void spin_joined(struct fb_conn *c, bool slow)
{
    const struct cfg_stream *set = conn_config(c);

    if (slow) {
        conn_set(c, CF_SLOW);
        atomic_store_explicit(&slow_wire, true, memory_order_relaxed);
    } else {
        atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_SLOW);
    }
    if (set->spin_auto)
        atomic_store_explicit(&by_measure[slow], true, memory_order_relaxed);
    else if (set->spin_ns >= atomic_load(&configured)) /* the progress thread alone writes it */
        atomic_store_explicit(&configured, set->spin_ns + 1, memory_order_relaxed);
}

/* The least that was seen, which forgets slowly: a peer that was busy says nothing of sleeping. */
void spin_measured(uint64_t answer, bool slow)
{
    uint32_t most = measured_most(slow),
             now = answer < limit[slow] ? (uint32_t)answer : limit[slow];

    if (now < cfg_stream_defaults.spin_ns)
        now = cfg_stream_defaults.spin_ns;
    atomic_store_explicit(&measured[slow],
                          now < most || !atomic_load(&measured[slow]) ? now
                                                                      : most + (now - most) / 8,
                          memory_order_relaxed);
}

uint32_t spin_budget(struct fb_conn *c, struct fb_spin *s)
{
    return fb_spin_next(s, most_of(c));
}

uint32_t spin_learnt(struct fb_conn *c, const struct fb_spin *s)
{
    return fb_spin_learnt(s, most_of(c));
}

void spin_served(struct fb_conn *c, struct fb_spin *s, uint64_t took)
{
    fb_spin_served(s, most_of(c), took);
}

void spin_slept(struct fb_conn *c, struct fb_spin *s, uint64_t took)
{
    fb_spin_slept(s, most_of(c), took);
}

void spin_long(void)
{
    quota_used();
}

/*
 * A long spin that is served looks like a success to who spins. But its processor may be what a
 * third one needs, a thread of the peer's that has been woken, say, and while there are fewer
 * processors than threads that spin or run, that one waits for the end of a time slice. (Over a
 * wire that is slow to wake who throws us off may be the device, which is software.)
 */
void spin_over(struct fb_conn *c, uint64_t now, uint64_t took)
{
    if (rest.until) {
        (void)fb_rests(&rest, now);
        return;
    }
    if (took <= cfg_stream_defaults.spin_ns || !conn_config(c)->spin_auto)
        return;
    quota_used();
    if (fb_spin_slow() || !fb_crowd_waited(&crowd))
        return;
    crowd_look(&crowd, now);
    if (crowd.trying) {
        crowd = (struct fb_crowd){0};
        fb_rest_begin(&rest, now, REST_FIRST, REST_MOST);
    }
}
