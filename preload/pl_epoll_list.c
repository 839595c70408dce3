/*
 * pl_epoll_list.c - what is asked of an instance's lists by who has found nothing, or decides how to look next. Nothing
 * is tested here: pl_epoll_ready.c.
 *
 * Any thread; locks: see pl_epoll.h.
 */
#include "preload/pl_epoll.h"

#include "rsock/sys.h"

bool pl_ready_in_hand(struct pl_epoll *ep)
{
    if (atomic_load(&ep->in_hand)) {
        sys_yield();
        return true;
    }
    return atomic_load(&ep->nready) != 0; /* back on the list, since we have looked */
}

bool pl_ready_lazy(struct pl_epoll *ep)
{
    return atomic_load(&ep->nready) <= PL_LAZY_MOST && !atomic_load(&ep->asleep);
}

bool pl_ready_glance(struct pl_epoll *ep)
{
    bool yes = false;

    fb_lock(&ep->lock);
    for (struct pl_link *l = ep->ready.next; l != &ep->ready && !yes; l = l->next) {
        const struct pl_member *m = pl_of_ready(l);

        yes = m->stash || !m->hot || !m->stream ||
              fb_glance(m->stream, (short)(m->events & PL_EV_BITS));
    }
    fb_unlock(&ep->lock);
    return yes;
}

bool pl_ready_elsewhere(struct pl_epoll *ep)
{
    struct rsk_shard *common = rsk_shard_common();

    if (!atomic_load(&ep->elsewhere))
        return false;
    /* For edges, whose news has to come. */
    if (common)
        rsk_shard_drain_all(common);
    fb_lock(&ep->lock);
    for (struct pl_link *l = ep->hot_list.next; l != &ep->hot_list; l = l->next) {
        struct pl_member *m =
            (struct pl_member *)((char *)l - offsetof(struct pl_member, hot_link));

        if (m->elsewhere && !(m->events & EPOLLET))
            pl_ready_add(m);
    }
    fb_unlock(&ep->lock);
    return true;
}
