/*
 * worth.c - see worth.h.
 */
#include "ipoib_fallback/worth.h"

#include "ipoib_fallback/find.h"
#include "ipoib_fallback/heir.h"

#include <string.h>

/* What one stream says, at most: one that has lived for hours shall not outweigh hundreds. */
#define MOST 1024
/* The share of what was known that each stream makes it forget: 1/16. */
#define FORGETS 16
/* A later bound has to have gained so much more: what is long over fades away, and is never
 * quite forgotten. */
#define MARGIN (WORTH_COST_ALONE / 2)

#define PEERS 256u
/* Where another address has the same place the last one has it. */
static struct peer {
    _Atomic uint32_t id;                  /* of the address and the port; 0: nobody's */
    _Atomic uint32_t open;                /* streams of CF_COUNTED */
    _Atomic int32_t gained[WORTH_BOUNDS]; /* calls, the last streams' together */
} peers[PEERS];
static _Atomic bool used; /* they have pages */

/* A bound of some address's has been another than its settings'. */
static _Atomic bool learned;

/* Accepted streams, long enough to be asked for, that have ended without a rail since somebody has
 * asked for one. */
static _Atomic uint32_t unasked;
/* As many as say that nobody will. */
#define UNASKED 64

static uint32_t id_of(struct fb_conn *c)
{
    struct rsk_tuple t = conn_tuple(c);

    memset(t.src, 0, sizeof(t.src));
    t.src_port = 0;
    return find_name(&t) | 1;
}

static struct peer *peer_of(struct fb_conn *c)
{
    uint32_t id = id_of(c);
    struct peer *p = &peers[id >> 1 & (PEERS - 1)];

    if (atomic_load_explicit(&p->id, memory_order_relaxed) == id)
        return p;
    atomic_store_explicit(&used, true, memory_order_relaxed);
    atomic_store_explicit(&p->open, 0, memory_order_relaxed);
    for (unsigned i = 0; i < WORTH_BOUNDS; i++)
        atomic_store_explicit(&p->gained[i], 0, memory_order_relaxed);
    atomic_store_explicit(&p->id, id, memory_order_relaxed);
    return p;
}

/* Any other value was somebody's wish. */
static bool by_default(struct fb_conn *c)
{
    const struct cfg_stream *set = conn_config(c);

    return set->board_calls == cfg_stream_defaults.board_calls &&
           set->board_bytes == cfg_stream_defaults.board_bytes;
}

static bool learns(struct fb_conn *c)
{
    return c->s.role == FB_CONNECTED && (conn_flag(c, CF_ADDRESSES) || atomic_load(&c->target)) &&
           by_default(c);
}

unsigned worth_shift(struct fb_conn *c)
{
    unsigned best = 0;
    struct peer *p;
    int32_t most;

    if (!learns(c))
        return 0;
    p = peer_of(c);
    if (conn_set(c, CF_COUNTED))
        atomic_fetch_add_explicit(&p->open, 1, memory_order_relaxed);
    most = atomic_load_explicit(&p->gained[0], memory_order_relaxed);
    for (unsigned i = 1; i < WORTH_BOUNDS; i++) {
        int32_t gained = atomic_load_explicit(&p->gained[i], memory_order_relaxed);

        if (gained > most + MARGIN) {
            best = i;
            most = gained;
        }
    }
    if (best)
        atomic_store_explicit(&learned, true, memory_order_relaxed);
    return best;
}

bool worth_learned(void)
{
    return atomic_load_explicit(&learned, memory_order_relaxed);
}

void worth_asked(void)
{
    atomic_store_explicit(&unasked, 0, memory_order_relaxed);
}

unsigned worth_unasked(struct fb_conn *c)
{
    return atomic_load_explicit(&unasked, memory_order_relaxed) >= UNASKED && by_default(c)
               ? WORTH_BOUNDS - 1
               : 0;
}

/* It is open no more. Is another one? */
static bool last_one(struct fb_conn *c, struct peer *p)
{
    uint32_t open = atomic_load_explicit(&p->open, memory_order_relaxed);

    if (!conn_flag(c, CF_COUNTED) || open == 0) /* another address, or process, has counted since */
        return open == 0;
    while (!atomic_compare_exchange_weak_explicit(&p->open, &open, open - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
        if (open == 0)
            return true;
    return open == 1;
}

/* In calls: the settings say how many bytes are worth as much. */
static uint64_t length_of(const struct fb_conn *c, const struct cfg_stream *set)
{
    uint64_t calls = (uint64_t)c->s.calls + c->x->rx.calls + c->x->tx.calls;
    uint64_t bytes = (c->s.pub->rx + c->s.pub->tx) * set->board_calls / set->board_bytes;

    return calls > bytes ? calls : bytes;
}

void worth_ended(struct fb_conn *c, bool shared)
{
    const struct cfg_stream *set = conn_config(c);
    uint32_t bound = set->board_calls;
    uint64_t length;
    struct peer *p;
    int32_t cost;

    if (c->s.role == FB_ACCEPTED && c->s.calls >= bound && !(c->x->rx.calls | c->x->tx.calls) &&
        by_default(c) && !worth_unasked(c))
        atomic_fetch_add_explicit(&unasked, 1, memory_order_relaxed);
    if (!learns(c))
        return;
    length = length_of(c, set);
    if (length < bound && !conn_flag(c, CF_COUNTED)) /* no bound would have boarded it */
        return;
    p = peer_of(c);
    cost = last_one(c, p) ? WORTH_COST_ALONE : WORTH_COST;
    if (length < bound || shared)
        return;
    for (unsigned i = 0; i < WORTH_BOUNDS; i++, bound *= 2) {
        int32_t gained = atomic_load_explicit(&p->gained[i], memory_order_relaxed);

        gained -= gained / FORGETS;
        if (length >= bound)
            gained += (int32_t)(length - bound > MOST ? MOST : length - bound) - cost;
        atomic_store_explicit(&p->gained[i], gained, memory_order_relaxed);
    }
}

void worth_forked(void)
{
    for (unsigned i = 0; i < PEERS && atomic_load_explicit(&used, memory_order_relaxed); i++)
        atomic_store_explicit(&peers[i].open, 0, memory_order_relaxed);
}

void worth_forget(void)
{
    for (unsigned i = 0; i < PEERS; i++)
        atomic_store_explicit(&peers[i].id, 0, memory_order_relaxed);
    atomic_store(&learned, false);
    worth_asked();
}
