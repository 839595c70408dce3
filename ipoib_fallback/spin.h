/*
 * spin.h - how long a wait spins before it sleeps, learnt from the waits before it.
 *
 * A wait that a spin has served makes the budget twice what it took. One that slept, and would have
 * been served by a longer spin, claims the same; but it may have been served only because it slept:
 * its peer needs this very CPU. Then every spin fails, however long, and two ends that spin in turn
 * are slower than two that sleep. So a claim is put to the test by the next wait: if that has to
 * sleep as well, sleeps teach nothing for a while, which is longer each time. A wait that took
 * longer than any spin may halves the budget, down to next to nothing. And now and then one spins
 * for the whole of what is allowed: below the peer's usual answer time no shorter spin could find
 * out. The more often that was in vain, the less often it is tried.
 *
 * The state is one stream's half or one thread's. Several threads may use it at once: what gets
 * lost is a lesson.
 */
#ifndef FB_SPIN_H
#define FB_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fb_spin {
    _Atomic uint32_t ns; /* the budget; 0: nothing has been learnt */
    _Atomic uint16_t waits;
    _Atomic uint16_t deaf;   /* so many more sleeps teach nothing */
    _Atomic uint8_t claimed; /* the budget is what a sleep's end has made it */
    _Atomic uint8_t doubt;   /* claims that were wrong, since a spin last served */
    _Atomic uint8_t whole;   /* this wait spins for the whole of what is allowed */
    _Atomic uint8_t vain;    /* such waits that had to sleep, since a spin last served */
    _Atomic uint32_t spent;  /* the wait that begins now has spun for so many ns: quick.c */
};

#define FB_SPIN_EVERY 64u
#define FB_SPIN_DOUBT 2u
#define FB_SPIN_VAIN  4u
#define FB_SPIN_LEAST 100u /* ns */

#define FB_SPIN_GET(s, field)    atomic_load_explicit(&(s)->field, memory_order_relaxed)
#define FB_SPIN_SET(s, field, v) atomic_store_explicit(&(s)->field, (v), memory_order_relaxed)

/* For how many ns the waits before have taught to spin, of at most `most`. */
static inline uint32_t fb_spin_learnt(const struct fb_spin *s, uint32_t most)
{
    uint32_t ns = FB_SPIN_GET(s, ns);

    return ns && ns < most ? ns : most;
}

/* For how many the next wait does. */
static inline uint32_t fb_spin_next(struct fb_spin *s, uint32_t most)
{
    uint16_t waits = FB_SPIN_GET(s, waits);
    uint8_t doubt = FB_SPIN_GET(s, doubt), vain = FB_SPIN_GET(s, vain);
    bool whole = waits % (FB_SPIN_EVERY << (doubt > vain ? doubt : vain)) == 0;

    FB_SPIN_SET(s, waits, (uint16_t)(waits + 1));
    FB_SPIN_SET(s, whole, whole);
    return whole ? most : fb_spin_learnt(s, most);
}

static inline void fb_spin_raise(struct fb_spin *s, uint32_t most, uint64_t took)
{
    uint64_t want = 2 * took + 1000;
    uint32_t ns = FB_SPIN_GET(s, ns);

    if (want > most)
        want = most;
    FB_SPIN_SET(s, ns, ns > want ? ns : (uint32_t)want);
}

/* It found what it waited for, after so many ns. */
static inline void fb_spin_served(struct fb_spin *s, uint32_t most, uint64_t took)
{
    if (took > most) /* somebody else had the CPU meanwhile */
        return;
    fb_spin_raise(s, most, took);
    FB_SPIN_SET(s, claimed, 0);
    FB_SPIN_SET(s, doubt, 0);
    FB_SPIN_SET(s, vain, 0);
    FB_SPIN_SET(s, deaf, 0);
}

/* It had to sleep, and spinning and sleeping together took so many ns. */
static inline void fb_spin_slept(struct fb_spin *s, uint32_t most, uint64_t took)
{
    uint32_t ns = FB_SPIN_GET(s, ns), least = most < FB_SPIN_LEAST ? most : FB_SPIN_LEAST;
    uint16_t deaf = FB_SPIN_GET(s, deaf);
    uint8_t doubt = FB_SPIN_GET(s, doubt), vain = FB_SPIN_GET(s, vain);

    if (FB_SPIN_GET(s, whole) && took >= most && vain < FB_SPIN_VAIN)
        FB_SPIN_SET(s, vain, (uint8_t)(vain + 1));
    if (FB_SPIN_GET(s, claimed)) {
        doubt = doubt < FB_SPIN_DOUBT ? (uint8_t)(doubt + 1) : doubt;
        FB_SPIN_SET(s, claimed, 0);
        FB_SPIN_SET(s, doubt, doubt);
        FB_SPIN_SET(s, deaf, (uint16_t)(FB_SPIN_EVERY << doubt));
        FB_SPIN_SET(s, ns, least);
    } else if (took >= most) {
        ns = ns ? ns / 2 : most / 2;
        FB_SPIN_SET(s, ns, ns > least ? ns : least);
    } else if (deaf) {
        FB_SPIN_SET(s, deaf, (uint16_t)(deaf - 1));
    } else {
        fb_spin_raise(s, most, took);
        FB_SPIN_SET(s, claimed, 1);
    }
}

/*
 * Whether long spins pay for a thread that waits for many streams. Each of them may find what it
 * waits for, and still take a processor that the peers need: pgbench, which mostly waits, takes one
 * of two processors from four servers. No single wait shows that. So where waits are long both ways
 * are tried by turns, for a while each, and the one in which more streams became ready is kept for
 * two seconds. That is the brief one, unless the long one is better by more than a seventh, and in
 * each of its turns, because the time of a long spin may be somebody else's. Where the brief one is
 * kept again and again, it is kept for longer each time.
 *
 * The same by turns with no spin at all instead of brief ones is tried by a thread in a
 * crowd: fb_crowd.
 */
struct fb_trial {
    uint64_t since;  /* when this turn began */
    uint64_t ns[2];  /* by turns with long spins, and with brief ones, or none */
    uint32_t got[2]; /* and what became ready in them */
    uint32_t ready;  /* in this one */
    double least;    /* the lowest rate, per ns, of a turn with long spins */
    uint8_t turn;    /* turns so far; FB_TRIALS: all, and one way is kept */
    uint8_t lengthy; /* the last waits were mostly long */
    uint8_t again;   /* how often in a row the brief one has been kept */
    bool brief;
};

struct fb_trial_rule {
    double weight; /* what brief spins, or none, have made ready counts so much more */
    bool each;     /* each turn of long ones has to be better than the others on the whole */
};

#define FB_TRIALS     6u
#define FB_TRIAL_NS   16000000u
#define FB_TRIAL_KEEP 2000000000u
#define FB_TRIAL_MORE 2u /* it is kept for so many times twice that, at most */

static const struct fb_trial_rule fb_trial_brief = {1.15, true}, fb_trial_none = {0.8, false};

/* n streams became ready for the thread. */
static inline void fb_trial_ready(struct fb_trial *t, unsigned n)
{
    t->ready += n;
}

/* A wait took so many ns, where a brief spin has `brief`. True: fb_trial_turn is to be called. */
static inline bool fb_trial_waited(struct fb_trial *t, uint64_t took, uint32_t brief)
{
    if (took > brief)
        t->lengthy = t->lengthy > 200 ? t->lengthy : (uint8_t)(t->lengthy + 8);
    else if (t->lengthy && --t->lengthy == 0)
        *t = (struct fb_trial){0};
    return t->lengthy;
}

/* All turns have been taken: which is kept. */
static inline void fb_trial_decide(struct fb_trial *t, const struct fb_trial_rule *rule)
{
    double of_long = t->got[0] / (double)t->ns[0], of_brief = t->got[1] / (double)t->ns[1];

    t->brief = rule->weight * of_brief >= of_long || (rule->each && t->least <= of_brief);
    if (!t->brief || !rule->each)
        t->again = 0;
    else if (t->again < FB_TRIAL_MORE + 1)
        t->again++;
}

/* True: what was kept has been kept for long enough, and it begins anew. */
static inline bool fb_trial_turn(struct fb_trial *t, uint64_t now, const struct fb_trial_rule *rule)
{
    uint64_t took = now - t->since, keep = (uint64_t)FB_TRIAL_KEEP << (t->again ? t->again - 1 : 0);
    double rate;
    bool over = false;

    if (!t->since) {
        t->since = now;
        t->ready = 0;
        return false;
    }
    if (took < (t->turn == FB_TRIALS ? keep : FB_TRIAL_NS))
        return false;
    if (t->turn == FB_TRIALS) {
        *t = (struct fb_trial){.lengthy = t->lengthy, .again = t->again};
        over = true;
    } else if (took < 4 * FB_TRIAL_NS) { /* else it was idle, which says nothing */
        rate = t->ready / (double)took;
        if (!t->brief && (t->turn == 0 || rate < t->least))
            t->least = rate;
        t->ns[t->brief] += took;
        t->got[t->brief] += t->ready;
        t->turn++;
        t->brief = t->turn % 2;
        if (t->turn == FB_TRIALS)
            fb_trial_decide(t, rule);
    }
    t->since = now;
    t->ready = 0;
    return over;
}

/*
 * Whether a thread that waits for several streams shall spin at all. Where it and the peers that it
 * asks are more than the processors, what it waits for comes from who wants its processor, and the
 * scheduler takes that away from it: a spin finds what it waited for, and all have lost (pgbench:
 * tests/bench/LOG.md). The waits look as if they were served; only the kernel knows how often the
 * thread was thrown off. So that is looked at now and then, and where it was often for a while, no
 * spin at all is tried by turns.
 */
struct fb_crowd {
    uint64_t since;     /* it was thrown off often in all that went by since; 0: it is not */
    uint64_t lost, ran; /* as of the last look: how often so far, and ns of its processor time */
    uint32_t waits;     /* since the last look */
    bool looked;        /* there is a last look */
    bool trying;        /* and nothing is looked at meanwhile */
    struct fb_trial trial;
};

#define FB_CROWD_EVERY 64u       /* waits between two looks */
#define FB_CROWD_WAITS 16u       /* often: once in so many waits, at least, */
#define FB_CROWD_RAN   1000000u  /* and in so many ns of the thread's running */
#define FB_CROWD_FOR   50000000u /* ns */

/* Such a wait is over, and it has spun. True: fb_crowd_look is to be called. */
static inline bool fb_crowd_waited(struct fb_crowd *c)
{
    return !c->trying && ++c->waits >= FB_CROWD_EVERY;
}

/* The thread has been thrown off its processor `lost` times in its life, and has run
 * for `ran` ns. */
static inline void fb_crowd_look(struct fb_crowd *c, uint64_t now, uint64_t lost, uint64_t ran)
{
    uint64_t times = lost - c->lost;
    bool often =
        c->looked && times * FB_CROWD_WAITS >= c->waits && times * FB_CROWD_RAN >= ran - c->ran;

    c->lost = lost;
    c->ran = ran;
    c->waits = 0;
    c->looked = true;
    if (!often)
        c->since = 0;
    else if (!c->since)
        c->since = now;
    else if (now - c->since >= FB_CROWD_FOR)
        *c = (struct fb_crowd){.trying = true};
}

/* A wait of the thread's is over, whatever it was for. */
static inline void fb_crowd_turn(struct fb_crowd *c, uint64_t now)
{
    if (fb_trial_turn(&c->trial, now, &fb_trial_none))
        c->trying = false;
}

/* Its next wait for several streams does not spin. */
static inline bool fb_crowd_rests(const struct fb_crowd *c)
{
    return c->trying && c->trial.brief;
}

/* For a while waits spin only briefly, because long spins did harm. If they do again soon
 * afterwards it is for twice as long. */
struct fb_rest {
    uint64_t until;  /* 0: they may spin for long */
    uint64_t ended;  /* when the last rest was over, */
    uint64_t length; /* and how long it was, ns; 0: there was none */
};

static inline void fb_rest_begin(struct fb_rest *r, uint64_t now, uint64_t first, uint64_t most)
{
    if (!r->length || now - r->ended > r->length) /* all went well for longer than that */
        r->length = first;
    else if (r->length < most)
        r->length *= 2;
    r->until = now + r->length;
}

/* Does it go on? */
static inline bool fb_rests(struct fb_rest *r, uint64_t now)
{
    if (r->until && now >= r->until) {
        r->until = 0;
        r->ended = now;
    }
    return r->until != 0;
}

/* ---- spin.c ---- */

struct fb_conn;

/* A peer's library has answered after so many ns (slow: on a wire that is slow to wake): see
 * fb_spin_most. */
void spin_measured(uint64_t answer, bool slow);
/* How long this wait of the stream's half may spin, in ns; 0: not at all. */
uint32_t spin_budget(struct fb_conn *, struct fb_spin *);
/* For how long the waits before have taught to spin; not the beginning of a wait. */
uint32_t spin_learnt(struct fb_conn *, const struct fb_spin *);
/* It has spun for so many ns, and that was enough; it has spun and slept. */
void spin_served(struct fb_conn *, struct fb_spin *, uint64_t took);
void spin_slept(struct fb_conn *, struct fb_spin *, uint64_t took);
/* A wait of this thread's for one stream has spun for so many ns up to now, whether that was
 * enough or not. */
void spin_over(struct fb_conn *, uint64_t now, uint64_t took);
/* One for several streams has spun for more than cfg_stream_defaults.spin_ns. */
void spin_long(void);
/* The stream has a rail: waits for several streams may spin for as long as it may. */
void spin_joined(struct fb_conn *, bool slow);

/* ---- crowd.c ---- */

/* Looks how often the calling thread was thrown off its processor so far; not where there may be a
 * filter for system calls. */
void crowd_look(struct fb_crowd *, uint64_t at);

#endif
