/*
 * pl_epoll_filter.c - what the kernel's epoll has returned, before the application gets it: our own
 * events are taken out, one-shots are claimed, and what was fetched of a registration that is not
 * the present one is judged anew.
 *
 * Any application thread; locks: pl_epoll.h.
 */
#include "preload/pl_epoll.h"

/* What lies in the array in front of what is judged, and ep->flips before that. */
struct fetched {
    struct epoll_event *array;
    int before;
    uint64_t since;
};

static bool other_has(struct pl_epoll *ep, uint64_t data)
{
    for (uint32_t i = 0; i < ep->buckets; i++)
        for (const struct pl_member *m = ep->bucket[i]; m; m = m->hash_next)
            if (!m->hot && m->data == data)
                return true;
    return false;
}

/* An event of a registration that was the application's own when it was fetched, of a member that
 * has become hot since: it may be nothing but our SWITCH frame. lock held. */
static bool outdated(struct pl_epoll *ep, uint64_t data, uint64_t since)
{
    /* The latest are at the tail. */
    for (struct pl_link *l = ep->hot_list.prev; l != &ep->hot_list; l = l->prev) {
        struct pl_member *m =
            (struct pl_member *)((char *)l - offsetof(struct pl_member, hot_link));

        if (m->flip <= since)
            return false;
        if (m->data != data)
            continue;
        pl_ready_add(m);
        return !other_has(ep, data);
    }
    return false;
}

/* Does an event still hold that was fetched when its member may have been a stub? It was a hint
 * then, perhaps of a frame that has been taken since; the registration is the application's again,
 * and tells of what comes. So the kernel is asked, and all that holds is told, as the kernel does
 * (a stub is asked for less). A level is left to the next call if the array may have it already
 * (before: events in front of this one). A one-shot that the kernel has used up for nothing is
 * registered anew. lock held. */
static bool holds(struct pl_member *m, struct epoll_event *ev, int before)
{
    uint32_t now;

    if (before && !(m->events & (EPOLLET | EPOLLONESHOT)))
        return false;
    now = pl_ready_kernel(m, m->events | EPOLLERR | EPOLLHUP);
    if (!(ev->events & now)) {
        if (m->events & EPOLLONESHOT) {
            atomic_store(&m->again, true);
            pl_dirty_add(m);
        }
        return false;
    }
    ev->events = now;
    return true;
}

/* An edge of a member that was reported from the ready list in this wait, and has become
 * plain since: joins the entry that the array has of it already, as the array names a
 * registration once. */
static bool joins(const struct pl_member *m, uint32_t events, const struct fetched *f)
{
    if (m->cooled <= f->since || m->events & EPOLLONESHOT)
        return false;
    for (int i = 0; i < f->before; i++)
        if (f->array[i].data.u64 == m->data) {
            f->array[i].events |= events;
            return true;
        }
    return false;
}

/* One event under a cookie. True: the application gets it. tally: of the member's stream, where it
 * is wanted (counted). lock held. */
static bool claimed(struct pl_epoll *ep, struct epoll_event *ev, const struct fetched *f,
                    struct fb_tally tally)
{
    struct pl_member *m = pl_member_of(ep, (uint32_t)ev->data.u64);
    uint32_t armed = 1;

    if (!m)
        return false;
    /* On a rail by now: only a hint. Or about to be, and registered as plain: the kernel may
     * have given its one-shot, or the only edge, for this event, so it is registered anew, and
     * looked at then. */
    if (m->hot || (m->stream && !fb_plain(m->stream))) {
        if (!m->hot) {
            if (m->events & (EPOLLONESHOT | EPOLLET))
                atomic_store(&m->again, true);
            pl_dirty_add(m);
        }
        pl_ready_add(m);
        return false;
    }
    ev->events &= m->events | EPOLLERR | EPOLLHUP; /* MOD may have come between */
    if (!ev->events)
        return false;
    if (m->cooled > f->since && m->stream && !holds(m, ev, f->before))
        return false;
    if (pl_told(m, ev->events, tally))
        return false;
    if (m->events & EPOLLONESHOT && !atomic_compare_exchange_strong(&m->armed, &armed, 0))
        return false;
    if (m->events & EPOLLET)
        pl_tell(m, ev->events, tally);
    if (joins(m, ev->events, f))
        return false;
    ev->data.u64 = m->data;
    return true;
}

/* The member of a cookie, with a reference, if it waits for edges that the kernel reports. */
static struct pl_member *counted(struct pl_epoll *ep, uint32_t cookie)
{
    struct pl_member *m;

    fb_lock(&ep->lock);
    m = pl_member_of(ep, cookie);
    if (m && m->stream && !m->hot && m->events & EPOLLET)
        pl_member_get(m);
    else
        m = NULL;
    fb_unlock(&ep->lock);
    return m;
}

static bool claim(struct pl_epoll *ep, struct epoll_event *ev, const struct fetched *f)
{
    struct pl_member *m = counted(ep, (uint32_t)ev->data.u64);
    struct fb_tally tally = m ? fb_tally(m->stream, m->fd) : (struct fb_tally){0};
    bool keep;

    fb_lock(&ep->lock);
    keep = claimed(ep, ev, f, tally);
    fb_unlock(&ep->lock);
    if (m)
        pl_member_put(m);
    return keep;
}

int pl_filter(struct pl_epoll *ep, struct epoll_event *ev, int n, uint64_t since, int before,
              bool *ours)
{
    const struct fetched f = {ev - before, before, since};
    uint32_t tag = atomic_load(&ep->tag);
    bool flipped;
    int left = 0;

    if (!atomic_load(&ep->touched))
        return n;
    /* Members that became hot while we were in the kernel must be known before we judge. */
    pl_ready_settle(ep);
    flipped = atomic_load(&ep->flips) != since;
    for (int i = 0; i < n; i++) {
        bool keep = true;

        if (ev[i].data.u64 >> 32 == tag) {
            *ours = true;
            if ((uint32_t)ev[i].data.u64 == PL_COOKIE_WAKE)
                continue;
            keep = claim(ep, &ev[i], &f);
        } else if (flipped) {
            fb_lock(&ep->lock);
            keep = !outdated(ep, ev[i].data.u64, since);
            fb_unlock(&ep->lock);
            *ours |= !keep;
        }
        if (keep)
            ev[left++] = ev[i];
    }
    return left;
}
