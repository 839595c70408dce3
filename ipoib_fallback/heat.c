/*
 * heat.c - who has the rails, when more streams want one than there are. Each second, for as long
 * as one of those that were refused moves bytes, the bytes that each stream has moved are counted.
 * Then the hottest that wait get the room that there is, and the rails of the coldest: of one that
 * is idle, or of one that carries less than a quarter of theirs. A factor of four, because a change
 * costs both of them, and because a stream that gets a rail becomes faster by it, which must not
 * make it look hotter than one that did not.
 *
 * Where it is the other end that has no room, this end gives back what it has there of the
 * coldest in the same way, and asks for as many of the hottest that wait, and one more: others
 * may have given back theirs. The rest do not ask, because a question costs more than it is worth
 * if the answer is no.
 *
 * Progress thread; called by budget.c.
 */
#include "ipoib_fallback/heat.h"

#include "ipoib_fallback/budget.h"

#include "config/rules.h"

#include <string.h>

#define SECOND 1000000000ull
/* In a second: some thirty round trips of 64 bytes, what a change costs. */
#define LEAST 4096u
/* For so long a stream keeps its rail: one second shows what it moves there. */
#define STAYS (2 * SECOND)

/* Looks for which a stream that was asked for by its other end, and refused, is thought to want a
 * rail. Who asks once soon asks again. */
#define ASKED_LATELY 4
/* looks: who has been told so long ago to give its rail back does not answer */
#define OVERDUE 10
/* As many may change in a second: with each the application's threads wait for a moment. */
enum { MOST = 64 };

struct entry {
    uint64_t heat;  /* bytes a second */
    uint64_t since; /* idle since; 0: it is not */
    uint32_t slot, gen;
};

/* The first of their order, in order. */
struct list {
    struct entry entry[MOST];
    uint32_t n;
};

static uint32_t beat; /* counts the looks */
static uint64_t beat_at, beat_ns;
static struct list wait, cold;
static uint32_t leaving; /* streams that still have a rail, and were told to give it back */

/* What there is too little of: rails of a rule or of the process, or of the process at
 * the other end. */
struct limit {
    const struct cfg_use *use; /* NULL: the process's */
    bool there;
    struct rsk_tuple peer; /* where; its source is 0 */
};

/* Those who shall have the room that comes, hottest first; and what they are short of. */
static struct list chosen;
static struct limit limit;
static uint32_t freed; /* there: so many may ask */

/* Before: does a come before b. */
static void insert(struct list *l, struct entry e,
                   bool (*before)(const struct entry *, const struct entry *))
{
    uint32_t i = l->n;

    if (i == MOST && !before(&e, &l->entry[MOST - 1]))
        return;
    if (i == MOST)
        i--;
    else
        l->n++;
    for (; i > 0 && before(&e, &l->entry[i - 1]); i--)
        l->entry[i] = l->entry[i - 1];
    l->entry[i] = e;
}

static bool hotter(const struct entry *a, const struct entry *b)
{
    return a->heat > b->heat;
}

/* Of two that are as cold the one that has been idle for longer. */
static bool colder(const struct entry *a, const struct entry *b)
{
    if (a->heat != b->heat)
        return a->heat < b->heat;
    return a->since && (!b->since || a->since < b->since);
}

static bool waits(struct fb_conn *c)
{
    return !c->x->rail && !c->x->budgeted && c->x->rdv == RDV_NONE &&
           c->s.pub->reason == RSN_BUDGET && conn_flag(c, CF_ASKED) &&
           !conn_flag(c, CF_PINNED | CF_CLOSED);
}

void heat_begin(void)
{
    uint64_t now = fb_io.now();

    beat_ns = now - beat_at;
    beat_at = now;
    /* After a pause nobody's last look was the last one. */
    beat += beat_ns < 4 * SECOND ? 1 : 2;
    wait.n = cold.n = chosen.n = leaving = 0;
}

bool heat_count(struct fb_conn *c)
{
    uint64_t bytes = c->s.pub->tx + c->s.pub->rx, moved = bytes - c->x->heat_bytes, rate;
    bool known = c->x->heat_beat == beat - 1 && beat_ns;

    c->x->heat_bytes = bytes;
    c->x->heat_beat = beat;
    /* A peer that has stopped takes its time: then others have to go. */
    leaving += c->x->rail && c->x->gave_up && beat - c->x->gave_up <= 2;
    if (c->x->rail && c->x->gave_up && beat - c->x->gave_up > OVERDUE)
        budget_overdue(c);
    if (!known) {
        c->x->heat = 0;
        return waits(c); /* the next look will know */
    }
    rate = (uint64_t)((double)moved * SECOND / (double)beat_ns);
    /* So that one second does not decide. What was nothing is no half. */
    c->x->heat = c->x->heat ? (c->x->heat + rate) / 2 : rate;
    if (!moved || !waits(c) ||
        (c->s.role == FB_ACCEPTED && beat - c->x->refused_beat > ASKED_LATELY))
        return false;
    insert(&wait, (struct entry){c->x->heat, 0, c->s.slot, c->gen}, hotter);
    return true;
}

void heat_refused(struct fb_conn *c)
{
    c->x->refused_beat = beat;
}

/* ---- whose rails there are to be had ---- */

static struct limit limit_of(struct fb_conn *c)
{
    struct limit l = {0};

    if (!c->x->refused_there) {
        l.use = budget_of(c);
        return l;
    }
    l.there = true;
    l.peer = c->x->tuple;
    memset(l.peer.src, 0, sizeof(l.peer.src));
    l.peer.src_port = 0;
    return l;
}

static bool same(const struct limit *a, const struct limit *b)
{
    return a->use == b->use && a->there == b->there &&
           memcmp(&a->peer, &b->peer, sizeof(a->peer)) == 0;
}

/* Would its rail be of use to them? */
static bool counts(struct fb_conn *c)
{
    const struct rsk_tuple *t = &c->x->tuple;

    if (!limit.there)
        return !limit.use || conn_config(c)->use == limit.use;
    return c->s.role == FB_CONNECTED && t->family == limit.peer.family &&
           t->dst_port == limit.peer.dst_port &&
           memcmp(t->dst, limit.peer.dst, sizeof(t->dst)) == 0;
}

static void victim(struct fb_conn *c, void *unused)
{
    uint64_t since;

    (void)unused;

    /* Also one of which a direction has not boarded, or will not: it has the memory. */
    if (!conn_flag(c, CF_LINKED) || !c->x->rail || c->x->gave_up ||
        conn_flag(c, CF_PINNED | CF_CLOSED) || c->x->heat_beat != beat)
        return;
    if (!counts(c))
        return;
    since = budget_idle_since(c);
    if (since && fb_io.now() - since < SECOND)
        since = 0;
    if (!since && beat_at - c->x->up_at < STAYS)
        return;
    insert(&cold, (struct entry){c->x->heat, since, c->s.slot, c->gen}, colder);
}

/* The next of the coldest gives his up for one that is so hot. */
static bool make_room(uint64_t heat, uint32_t *at)
{
    for (; *at < cold.n; ++*at) {
        const struct entry *v = &cold.entry[*at];
        struct fb_conn *c;
        bool left;

        if (heat / 4 < v->heat + (v->since ? 0 : LEAST / 4))
            return false; /* nor do the others */
        c = conn_of_slot(v->slot, v->gen);
        left = c && budget_leave(c, v->since ? RSN_IDLE : RSN_BUDGET);
        if (left)
            c->x->gave_up = beat;
        if (c)
            fb_put(&c->s);
        if (left) {
            ++*at;
            return true;
        }
    }
    return false;
}

/* Streams may wait for room in several budgets: the hottest's whose budget is not the one of
 * the last look. */
static struct limit next_limit(void)
{
    struct limit first = {0};

    for (uint32_t i = 0; i < wait.n; i++) {
        struct fb_conn *c = conn_of_slot(wait.entry[i].slot, wait.entry[i].gen);
        struct limit l;

        if (!c)
            continue;
        l = limit_of(c);
        fb_put(&c->s);
        if (i == 0)
            first = l;
        if (!same(&l, &limit))
            return l;
    }
    return first;
}

void heat_end(void)
{
    uint32_t room = 0, at = 0;
    bool first = true;

    if (!wait.n)
        return;
    limit = next_limit();
    freed = 1;
    for (uint32_t i = 0; i < wait.n; i++) {
        struct fb_conn *c = conn_of_slot(wait.entry[i].slot, wait.entry[i].gen);
        struct limit l = {0};
        bool ours = c && (l = limit_of(c), same(&l, &limit));

        if (ours && first) {
            room = limit.there ? freed : budget_room(limit.use, c) + leaving;
            conn_each(victim, NULL);
            first = false;
        }
        if (c)
            fb_put(&c->s);
        if (!ours)
            continue;
        if (room > 0)
            room--;
        else if (!make_room(wait.entry[i].heat, &at))
            break;
        chosen.entry[chosen.n++] = wait.entry[i];
    }
    heat_room();
}

uint32_t heat_reserved(const struct cfg_use *of)
{
    return !limit.there && of == limit.use ? chosen.n : 0;
}

void heat_freed(void)
{
    freed++;
}

bool heat_taken(struct fb_conn *c)
{
    for (uint32_t i = 0; i < chosen.n; i++)
        if (chosen.entry[i].slot == c->s.slot && chosen.entry[i].gen == c->gen) {
            chosen.n--;
            for (; i < chosen.n; i++)
                chosen.entry[i] = chosen.entry[i + 1];
            return true;
        }
    return false;
}

static bool may_ask(struct fb_conn *c)
{
    if (!limit.there)
        return budget_room(limit.use, c) > 0;
    if (freed == 0)
        return false;
    freed--;
    return true;
}

/* Who has accepted its connection is asked by the other end. */
void heat_room(void)
{
    struct list call = chosen;

    for (uint32_t i = 0; i < call.n; i++) {
        struct fb_conn *c = conn_of_slot(call.entry[i].slot, call.entry[i].gen);

        if (!c)
            continue;
        if (c->s.role == FB_CONNECTED && waits(c) && may_ask(c))
            rdv_now(c);
        fb_put(&c->s);
    }
}

void heat_forget(void)
{
    beat += 2;
    wait.n = cold.n = chosen.n = 0;
    limit = (struct limit){0};
}
