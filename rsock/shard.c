/*
 * shard.c - a list of parts, the lock of the one that drains, the count of those that
 * sleep. The list only grows, so that anybody reads it without a lock.
 *
 * Lock rank: `drain` is the innermost lock but for those of the wires (verbs_int.h); nothing else
 * is taken under it, except by notify(), which may not take tx or rx locks (wire.h). The add lock
 * is only held across fd_added and rsk_shard_each, so that orphan can wait for them.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "rsock/fence.h"
#include "rsock/shard_part.h"
#include "rsock/sys.h"

struct rsk_shard {
    struct rsk_shard_part *_Atomic parts;
    _Atomic uint32_t drain; /* 0 free, 1 held, 2 held and somebody waits in rsk_shard_lock */
    _Atomic uint32_t armed; /* sleepers: arm without disarm */
    _Atomic uint32_t refs;  /* with HOOKED */
    pthread_mutex_t add;    /* fd_added and its caller, rsk_shard_each */
    rsk_shard_fd_fn *fd_added;
    void *arg;
    void (*lonely)(void *); /* once HOOKED is set */
    void *lonely_arg;
};

#define HOOKED (1u << 31) /* rsk_shard_on_lonely has been called */

struct rsk_shard *rsk_shard_new(rsk_shard_fd_fn *fd_added, void *arg)
{
    struct rsk_shard *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    pthread_mutex_init(&s->add, NULL);
    s->fd_added = fd_added;
    s->arg = arg;
    atomic_init(&s->refs, 1);
    return s;
}

struct rsk_shard *rsk_shard_get(struct rsk_shard *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void rsk_shard_on_lonely(struct rsk_shard *s, void (*fn)(void *), void *arg)
{
    s->lonely_arg = arg;
    s->lonely = fn;
    atomic_fetch_or_explicit(&s->refs, HOOKED, memory_order_release);
}

bool rsk_shard_is_lonely(const struct rsk_shard *s)
{
    return (atomic_load_explicit(&s->refs, memory_order_acquire) & ~HOOKED) == 1;
}

void rsk_shard_put(struct rsk_shard *s)
{
    struct rsk_shard_part *p, *next;
    void (*lonely)(void *);
    void *arg;
    uint32_t had;

    if (!s)
        return;
    had = atomic_load_explicit(&s->refs, memory_order_acquire);
    do {
        /* Read before: whoever holds the last reference may free it as soon as ours is gone. And
         * what is set meanwhile changes the count. */
        lonely = had == (HOOKED | 2) ? s->lonely : NULL;
        arg = lonely ? s->lonely_arg : NULL;
    } while (!atomic_compare_exchange_weak_explicit(&s->refs, &had, had - 1, memory_order_acq_rel,
                                                    memory_order_acquire));
    if (lonely)
        lonely(arg);
    if ((had & ~HOOKED) != 1)
        return;
    for (p = atomic_load_explicit(&s->parts, memory_order_acquire); p; p = next) {
        next = p->next;
        p->free(p);
    }
    pthread_mutex_destroy(&s->add);
    free(s);
}

void rsk_shard_orphan(struct rsk_shard *s)
{
    pthread_mutex_lock(&s->add);
    s->fd_added = NULL;
    pthread_mutex_unlock(&s->add);
}

/* ---- the drain lock */

static bool try_lock(struct rsk_shard *s)
{
    uint32_t free_ = 0;

    return atomic_compare_exchange_strong_explicit(&s->drain, &free_, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

void rsk_shard_lock(struct rsk_shard *s)
{
    if (try_lock(s))
        return;
    /* From here on as "somebody waits": whoever unlocks then wakes, once too often at most. */
    while (atomic_exchange_explicit(&s->drain, 2, memory_order_acquire) != 0)
        sys_futex(&s->drain, FUTEX_WAIT_PRIVATE, 2, NULL);
}

void rsk_shard_unlock(struct rsk_shard *s)
{
    if (atomic_exchange_explicit(&s->drain, 0, memory_order_release) == 2)
        sys_futex(&s->drain, FUTEX_WAKE_PRIVATE, 1, NULL);
}

/* ---- draining and sleeping */

static int drain_locked(struct rsk_shard *s)
{
    struct rsk_shard_part *p;
    int n = 0;

    for (p = atomic_load_explicit(&s->parts, memory_order_acquire); p; p = p->next)
        n += p->drain(p);
    rsk_shard_unlock(s);
    return n;
}

/* Without the lock, as there is mostly nothing to be done under it. A drain that has cleared a
 * part's word took the lock before: either it still holds it, which the caller sees, or it has
 * given it back and told all that there was. */
static bool all_quiet(struct rsk_shard *s)
{
    struct rsk_shard_part *p;

    for (p = atomic_load_explicit(&s->parts, memory_order_acquire); p; p = p->next)
        if (!p->quiet || !p->quiet(p))
            return false;
    return true;
}

int rsk_shard_drain(struct rsk_shard *s)
{
    if (all_quiet(s))
        return atomic_load_explicit(&s->drain, memory_order_acquire) ? -1 : 0;
    return try_lock(s) ? drain_locked(s) : -1;
}

/*
 * Why rsk_shard_drain is not enough before a sleep: two threads have armed; the first, in a drain,
 * has passed a part, and is preempted before it unlocks; news comes for that part and fires; the
 * second wakes, is turned away, arms, is turned away again and sleeps; the first unlocks, finds
 * nothing on its list and sleeps. Nobody is told of the news.
 */
int rsk_shard_drain_all(struct rsk_shard *s)
{
    if (!atomic_load_explicit(&s->parts, memory_order_acquire))
        return 0;
    rsk_shard_lock(s);
    return drain_locked(s);
}

static bool arm_parts(struct rsk_shard *s)
{
    struct rsk_shard_part *p;
    bool news = false;

    for (p = atomic_load_explicit(&s->parts, memory_order_acquire); p; p = p->next)
        news |= p->arm(p);
    return news;
}

bool rsk_shard_arm(struct rsk_shard *s)
{
    atomic_fetch_add_explicit(&s->armed, 1, memory_order_seq_cst);
    rsk_fence(); /* pairs with the one in rsk_shard_add: it sees our count or we its part */
    return arm_parts(s);
}

uint32_t rsk_shard_armed(const struct rsk_shard *s)
{
    return atomic_load(&s->armed);
}

void rsk_shard_lean(struct rsk_shard *s)
{
    if (s && rsk_shard_arm(s))
        (void)rsk_shard_drain_all(s);
}

void rsk_shard_disarm(struct rsk_shard *s)
{
    struct rsk_shard_part *p;

    if (!s || atomic_fetch_sub_explicit(&s->armed, 1, memory_order_seq_cst) != 1)
        return;
    for (p = atomic_load_explicit(&s->parts, memory_order_acquire); p; p = p->next)
        p->disarm(p);
    /*
     * Somebody may have armed between our count and our disarming, and sleep by now with the
     * parts disarmed. Fence, then look at the count: pairs with arm's "count, fence, arm" -
     * either we see the count here, or its arming came after our disarming.
     */
    rsk_fence();
    if (atomic_load_explicit(&s->armed, memory_order_relaxed) == 0)
        return;
    for (p = atomic_load_explicit(&s->parts, memory_order_acquire); p; p = p->next)
        if (p->arm(p) && p->fire)
            p->fire(p); /* what came while it was disarmed told nobody */
}

void rsk_shard_fds(struct rsk_shard *s, void (*fn)(void *fd))
{
    for (struct rsk_shard_part *p = atomic_load_explicit(&s->parts, memory_order_acquire); p;
         p = p->next)
        fn((void *)(intptr_t)p->fd);
}

bool rsk_shard_each(struct rsk_shard *s, bool (*fn)(void *arg, int fd))
{
    struct rsk_shard_part *p;
    bool all = true;

    pthread_mutex_lock(&s->add);
    p = s->fd_added ? atomic_load_explicit(&s->parts, memory_order_acquire) : NULL;
    for (; p; p = p->next)
        all &= fn(s->arg, p->fd);
    pthread_mutex_unlock(&s->add);
    return all;
}

/* ---- for the wires */

struct rsk_shard_part *rsk_shard_find(struct rsk_shard *s, const struct rsk_wire *wire,
                                      uint64_t key)
{
    struct rsk_shard_part *p;

    for (p = atomic_load_explicit(&s->parts, memory_order_acquire); p; p = p->next)
        if (p->wire == wire && p->key == key)
            return p;
    return NULL;
}

void rsk_shard_add(struct rsk_shard *s, struct rsk_shard_part *p)
{
    pthread_mutex_lock(&s->add);
    /* Reported first: a part that is armed before its descriptor is watched could fire unseen. */
    if (s->fd_added)
        s->fd_added(s->arg, p->fd);
    p->next = atomic_load_explicit(&s->parts, memory_order_relaxed);
    atomic_store_explicit(&s->parts, p, memory_order_release);
    pthread_mutex_unlock(&s->add);
    rsk_fence(); /* pairs with the one in rsk_shard_arm */
    if (atomic_load_explicit(&s->armed, memory_order_relaxed) && p->arm(p) && p->fire)
        p->fire(p);
}
