/*
 * pl_epoll_nest.c - an instance whose descriptor is itself polled, or registered in another one.
 *
 * The kernel says "readable" for our eventfd's edge, too, and knows nothing of members on rails. So
 * the question is answered by looking: at the ready list, and at the kernel's events by fetching
 * them. What cannot be fetched twice (edges, one-shots) is stashed with its member and is
 * reported by the next epoll_wait; for that each registration needs a cookie ("exact").
 *
 * Any application thread. nest is a leaf lock; pl_member_wake takes none.
 */
#include "preload/pl_epoll.h"

#include "rsock/sys.h"

static struct fb_lock nest;

void pl_nest_after_fork_child(void)
{
    nest = (struct fb_lock){0};
}

/* Bits of `armed`: the instance's own shard is armed; the common one is leant on; the wait has
 * parted, and a thread that is just arming takes that back itself. */
enum { ARMED_OWN = 1, ARMED_COMMON = 2, PARTED = 4 };

void pl_epoll_join(struct pl_epoll *ep)
{
    /* First, and part the other way round: see pl_epoll_readable. */
    atomic_fetch_add(&ep->asleep, 1);
    atomic_fetch_add(&ep->joined, 1);
}

/* As long as members' news come by the common shard. */
static void lean(struct pl_epoll *ep, _Atomic unsigned *armed)
{
    bool leans = atomic_load(armed) & ARMED_COMMON, wanted = atomic_load(&ep->elsewhere) != 0;

    if (wanted && !leans) {
        rsk_shard_lean(rsk_shard_common());
        if (atomic_fetch_or(armed, ARMED_COMMON) & (ARMED_COMMON | PARTED))
            rsk_shard_disarm(rsk_shard_common());
    } else if (leans && !wanted &&
               atomic_fetch_and(armed, ~(unsigned)ARMED_COMMON) & ARMED_COMMON) {
        rsk_shard_disarm(rsk_shard_common());
    }
}

bool pl_epoll_arm(struct pl_epoll *ep, _Atomic unsigned *armed)
{
    struct rsk_shard *shard = atomic_load(&ep->woven) ? ep->shard : NULL;
    bool news = false;

    if (shard) {
        /* Armed again, as each news uses it up; the count of before goes. */
        news = rsk_shard_arm(shard);
        if (atomic_fetch_or(armed, ARMED_OWN) & (ARMED_OWN | PARTED))
            rsk_shard_disarm(shard);
    }
    lean(ep, armed);
    /* Also what somebody has left on the list before this was joined. */
    return news || atomic_load(&ep->inbox) || atomic_load(&ep->nready);
}

void pl_epoll_part(struct pl_epoll *ep, _Atomic unsigned *armed)
{
    unsigned had = atomic_exchange(armed, PARTED);

    if (had & ARMED_OWN)
        rsk_shard_disarm(ep->shard);
    if (had & ARMED_COMMON)
        rsk_shard_disarm(rsk_shard_common());
    atomic_fetch_sub(&ep->joined, 1);
    if (atomic_fetch_sub(&ep->asleep, 1) > 1 && !pl_epoll_quiet(ep))
        pl_ready_kick(ep); /* we may have taken the wake-up of one that sleeps in epoll_wait */
}

/* One event of the kernel's. True: epoll_wait would report it. */
static bool fetched(struct pl_epoll *ep, const struct epoll_event *ev)
{
    struct pl_member *m;
    bool holds = false;

    if (ev->data.u64 >> 32 != atomic_load(&ep->tag))
        return true; /* not on our list: level-triggered, we trust */
    if ((uint32_t)ev->data.u64 == PL_COOKIE_WAKE) {
        /* Its edge has been taken: who wants to wake somebody has to give another one. */
        atomic_store(&ep->kicked, 0);
        return false;
    }
    fb_lock(&ep->lock);
    m = pl_member_of(ep, (uint32_t)ev->data.u64);
    if (m && m->hot) {
        pl_ready_add(m);
    } else if (m && m->events & (EPOLLET | EPOLLONESHOT)) {
        m->stash |= ev->events;
        pl_ready_add(m);
        holds = true;
    } else if (m) {
        holds = true; /* level: the kernel will say it again */
    }
    fb_unlock(&ep->lock);
    return holds;
}

static bool readable(struct pl_epoll *ep)
{
    struct epoll_event ev[16] = {0};
    int others = 0;

    pl_ctl_lock(ep);
    pl_reg_all_cookies(ep);
    fb_unlock(&ep->ctl);
    pl_ready_drain_all(ep);
    for (;;) {
        uint64_t flips = atomic_load(&ep->flips);
        bool holds = false;
        int n;

        if (pl_ready_collect(ep, NULL, 1) > 0)
            return true;
        n = sys_epoll_wait(ep->kfd, ev, 16, 0);
        if (n == 0 && atomic_load(&ep->flips) != flips)
            continue; /* who changed track between our list and the kernel's was on neither */
        if (n <= 0 && pl_ready_elsewhere(ep) && pl_ready_collect(ep, NULL, 1) > 0)
            return true;
        if (n == 0 && others++ < PL_OTHERS && pl_ready_in_hand(ep))
            continue;
        if (n <= 0)
            return false;
        for (int i = 0; i < n; i++)
            holds |= fetched(ep, &ev[i]);
        if (holds)
            return true;
    }
}

/* Whoever sleeps in epoll_wait is to hear of what has been drained here; it stays on the
 * list for him. */
bool pl_epoll_readable(struct pl_epoll *ep)
{
    bool holds = readable(ep);
    /* Before the other count: who is about to join or part does not hide one. */
    uint32_t joined = atomic_load(&ep->joined);

    if (holds && atomic_load(&ep->asleep) > joined)
        pl_ready_kick(ep);
    return holds;
}

/* ---- members that stand for an instance */

void pl_nest(struct pl_member *m, struct pl_epoll *inner)
{
    m->inner = inner;
    atomic_store(&m->inner_armed, 0);
    pl_epoll_join(inner);
    fb_lock(&nest);
    pl_link_add(&inner->parents, &m->parent);
    fb_unlock(&nest);
}

void pl_unnest(struct pl_member *m)
{
    fb_lock(&nest);
    pl_link_del(&m->parent);
    fb_unlock(&nest);
    pl_epoll_part(m->inner, &m->inner_armed);
}

void pl_nest_woven(struct pl_epoll *inner)
{
    fb_lock(&nest);
    for (struct pl_link *l = inner->parents.next; l != &inner->parents; l = l->next) {
        struct pl_member *m = (struct pl_member *)((char *)l - offsetof(struct pl_member, parent));

        pl_member_wake(&m->watcher, FB_EV_STATE);
    }
    fb_unlock(&nest);
}

/* ---- a stream that is waited for outside of its instance */

static void share_its(struct pl_epoll *ep, void *stream)
{
    struct rsk_shard *shard = atomic_load(&ep->shard);

    /* Neither elsewhere nor on the common one: it is here, and has a rail still. */
    if (shard && !atomic_load(&ep->share) && !fb_news_elsewhere(stream, shard) &&
        fb_news_elsewhere(stream, rsk_shard_common()))
        pl_epoll_share(ep);
}

void pl_epoll_waited_elsewhere(struct fb_stream *s)
{
    if (fb_news_elsewhere(s, rsk_shard_common()))
        pl_epoll_each(share_its, s);
}
