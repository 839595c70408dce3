/*
 * quota.h - for how long waits may spin where a control group limits the processor time (cpu.max,
 * cpu.cfs_quota_us): containers.
 *
 * A brief spin costs no more than the sleep that it saves. A longer one, which pays where sleeping
 * is dear, takes its time from what the group may use. When that is gone, the kernel holds back all
 * threads of the group for the rest of the period, tens of milliseconds, and the longest answers
 * are a thousand times as long as those that the spins have made shorter. So for as long as waits
 * do spin for long, the group's own count of the time that it was held back for is looked at. While
 * it grows fast, waits spin briefly for a while, which is longer each time. Who was told for how
 * many microseconds to spin goes on.
 */
#ifndef FB_QUOTA_H
#define FB_QUOTA_H

#include "ipoib_fallback/spin.h"

#define FB_QUOTA_LOOK   250000000u     /* ns between two looks, while somebody spins for long */
#define FB_QUOTA_RARELY 5000000000ull  /* the same where there is no quota: it may be set later */
#define FB_QUOTA_SHARE  20u            /* held back for one in so many parts of the time is much, */
#define FB_QUOTA_LOOKS  3u             /* and that in so many looks on end is too much */
#define FB_QUOTA_REST   10000000000ull /* waits spin briefly for so long, then for twice as long, */
#define FB_QUOTA_MOST   320000000000ull /* and at most for so long */

struct fb_quota {
    uint64_t at;         /* of the last look, as fb_io.now(); 0: none that says anything */
    uint64_t held;       /* for how many ns in all the group had been held back by then */
    struct fb_rest rest; /* of long spins */
    uint8_t often;       /* looks on end that found it held back for much of the time */
};

/* A look: by now the group has been held back for `held` ns in all, UINT64_MAX: it has no quota.
 * Returns after how many ns to look again. */
static inline uint64_t fb_quota_look(struct fb_quota *q, uint64_t now, uint64_t held)
{
    uint64_t since = q->at ? now - q->at : 0;
    bool known = since && held != UINT64_MAX && held >= q->held;
    bool much = known && held - q->held >= since / FB_QUOTA_SHARE;

    q->at = held == UINT64_MAX ? 0 : now;
    q->held = held;
    q->often = much && !q->rest.until ? (uint8_t)(q->often + 1) : 0;
    if (q->rest.until) {
        if (fb_rests(&q->rest, now))
            return q->rest.until - now;
        /* all through it: long spins were not the reason, so it is no reason for longer rests */
        if (much)
            q->rest.length = 0;
    } else if (q->often == FB_QUOTA_LOOKS) {
        fb_rest_begin(&q->rest, now, FB_QUOTA_REST, FB_QUOTA_MOST);
        return q->rest.length;
    }
    return held == UINT64_MAX ? FB_QUOTA_RARELY : FB_QUOTA_LOOK;
}

/* ---- quota.c ---- */

enum fb_quota_state {
    QUOTA_ASLEEP, /* nobody has spun for long for a while, and nobody looks */
    QUOTA_UNUSED, /* nobody has since the last look */
    QUOTA_USED,   /* somebody has; it is looked at again */
    QUOTA_RESTS   /* nobody may */
};

extern _Atomic uint8_t fb_quota_state; /* enum fb_quota_state */

/* A wait wants to spin for at most `most` ns: for how many it may; not for less than `brief`. Any
 * thread, as quota_used: also in a signal handler. */
static inline uint32_t quota_most(uint32_t most, uint32_t brief)
{
    return most > brief &&
                   atomic_load_explicit(&fb_quota_state, memory_order_relaxed) == QUOTA_RESTS
               ? brief
               : most;
}

void quota_first(void);

/* A wait has spun for more than `brief`. */
static inline void quota_used(void)
{
    if (__builtin_expect(atomic_load_explicit(&fb_quota_state, memory_order_relaxed) != QUOTA_USED,
                         0))
        quota_first();
}

void quota_forget(void); /* forked child */

#endif
