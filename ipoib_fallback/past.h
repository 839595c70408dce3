/*
 * past.h - whether a stream's large sends are copied past the caches (RSK_PAST). Where sender and
 * receiver have no cache in common each line of the ring goes from the one's to the other's twice,
 * by way of memory controllers, and writing it to memory at once is two to three times faster;
 * where they have one it is half as fast (tests/bench/LOG.md). Which it is changes when a thread
 * moves to another processor, and no counter says it. So a stream that goes slowly enough tries
 * both, some turns each, and keeps for a while what was faster from end to end. One that is as fast
 * as only a common cache is never tries; for one that waits for its application, or its reader's,
 * there is no difference, and it goes back.
 *
 * Under the tx lock.
 */
#ifndef FB_PAST_H
#define FB_PAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FB_PAST_TURN (2u << 20) /* bytes; more than a ring full */
/* ns for a turn: some 10 GB/s, too fast for another way to be tried */
#define FB_PAST_FAST  200000u
#define FB_PAST_IDLE  8000000u /* ns for a turn: something else is slow; it begins anew */
#define FB_PAST_TRIAL 8u       /* turns; the best counts, as whatever else runs makes them slower */
#define FB_PAST_KEPT  500u     /* turns for which the outcome of a trial is kept */
#define FB_PAST_PAYS  1.15     /* so much faster it has to be */

struct fb_past {
    uint64_t since;  /* ns: this turn's beginning; 0: there was none */
    uint64_t bytes;  /* so far in this turn */
    uint32_t best;   /* ns: the fastest turn of those that are looked at; 0: none yet */
    uint32_t plain;  /* the same of the plain turns before a trial */
    uint8_t turns;   /* that are looked at, so far */
    uint16_t kept;   /* turns that are left before any is */
    bool on, trying; /* large sends go past the caches; to find out whether that is better */
};

/* So many turns have been looked at. */
static inline void fb_past_judge(struct fb_past *p)
{
    if (p->trying) {
        p->trying = false;
        p->on = p->best * FB_PAST_PAYS < p->plain;
        p->kept = FB_PAST_KEPT;
    } else if (p->best > FB_PAST_FAST) {
        p->plain = p->best;
        p->on = p->trying = true;
    }
    p->turns = 0;
    p->best = 0;
}

/* A large send has put so many bytes into the ring. True: a turn is over, and fb_past_turn is
 * to be called. */
static inline bool fb_past_sent(struct fb_past *p, size_t bytes)
{
    p->bytes += bytes;
    return p->bytes >= FB_PAST_TURN || !p->since;
}

static inline void fb_past_turn(struct fb_past *p, uint64_t now)
{
    uint64_t took = now - p->since;

    /* A send may be of many turns. */
    if (took < FB_PAST_IDLE)
        took = took * FB_PAST_TURN / p->bytes;
    p->bytes = 0;
    if (took >= FB_PAST_IDLE) { /* or there was none */
        *p = (struct fb_past){0};
    } else if (p->kept) {
        p->kept--;
        p->on = p->on && p->kept; /* then plain ones, to compare with */
    } else {
        if (!p->best || took < p->best)
            p->best = (uint32_t)took;
        if (++p->turns == FB_PAST_TRIAL)
            fb_past_judge(p);
    }
    p->since = now;
}

#endif
