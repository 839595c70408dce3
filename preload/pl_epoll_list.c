/*
 * pl_epoll_list.c - an instance's lists, and what is asked of them by who has found nothing, or
 * decides how to look next. Nothing is tested here: pl_epoll_ready.c.
 *
 * Any thread; locks: see pl_epoll.h.
 */
#include "preload/pl_epoll.h"

#include "rsock/sys.h"

/* Changes the length of a list; lock held. A plain store is enough: a thread that is about to sleep
 * counts itself in `asleep`, then takes the lock. If it takes it after us it sees the length; if
 * before, whoever looks at `asleep` after our unlock sees it. If it looks without the lock
 * (pl_epoll_quiet) one of the two sees the other as well, because the unlock, which releases, and
 * the look at `asleep` keep their order on x86-64 and arm64 (RCsc). */
void pl_count(_Atomic uint32_t *length, int more)
{
    uint32_t now = atomic_load_explicit(length, memory_order_relaxed) + (uint32_t)more;

    atomic_store_explicit(length, now, memory_order_relaxed);
}

static void put_on(struct pl_link *list, struct pl_link *l, _Atomic uint32_t *length)
{
    if (l->next)
        return;
    pl_link_add(list, l);
    pl_count(length, 1);
}

static void take_off(struct pl_link *l, _Atomic uint32_t *length)
{
    if (!l->next)
        return;
    pl_link_del(l);
    pl_count(length, -1);
}

void pl_ready_add(struct pl_member *m)
{
    struct pl_epoll *ep = m->ep;

    if (!m->dead && !m->parked)
        put_on(&ep->ready, &m->ready, &ep->nready);
}

void pl_ready_del(struct pl_member *m)
{
    take_off(&m->ready, &m->ep->nready);
}

void pl_dirty_add(struct pl_member *m)
{
    struct pl_epoll *ep = m->ep;

    put_on(&ep->dirty, &m->dirty, &ep->ndirty);
}

void pl_dirty_del(struct pl_member *m)
{
    take_off(&m->dirty, &m->ep->ndirty);
}

/* The kernel's descriptors must not starve behind a busy ready list: at every 16th call they are
 * asked before the list, and otherwise after it while the array has room, PL_KERNEL_NS after the
 * last time at the latest. Where both can fill the array, the kernel has its turn whenever all of
 * the list have had theirs. */
enum { KERNEL_CALLS = 16 };

bool pl_ready_kernels_turn(struct pl_epoll *ep)
{
    uint32_t calls = atomic_load_explicit(&ep->calls, memory_order_relaxed);
    uint32_t ahead = atomic_load_explicit(&ep->ahead, memory_order_relaxed);

    /* Two threads that count at once may count one call. */
    atomic_store_explicit(&ep->calls, calls + 1, memory_order_relaxed);
    if (calls % KERNEL_CALLS && (!atomic_load_explicit(&ep->both, memory_order_relaxed) ||
                                 ahead < atomic_load(&ep->nready)))
        return false;
    atomic_store_explicit(&ep->ahead, 0, memory_order_relaxed);
    return true;
}

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
