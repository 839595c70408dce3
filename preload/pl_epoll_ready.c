/*
 * pl_epoll_ready.c - news of hot members: from wake() over the inbox to the ready list, and from
 * there, tested, to the application.
 *
 * The ready list holds what *may* be ready. Testing one (pl_ready_collect) ends in one of:
 *   level      reported, and to the tail of the list; or not ready, armed and off the list, or, for
 *              who spins next and looks at it himself (pl_ready_lazy), not armed and to the tail:
 *              its peer then tells nobody
 *   edge       reported if anything holds, armed and off the list until the next news
 *   one shot   claimed by compare-and-swap, reported, off the list until MOD
 * "Armed" is fb_arm: the engine tells of the next news, or says at once that something holds.
 *
 * Nothing is lost between a waker and a sleeper: wake() pushes, then looks at `asleep`; a sleeper
 * counts itself in `asleep`, then looks at the inbox (all sequentially consistent).
 *
 * Any thread; locks: see pl_epoll.h.
 */
#include "preload/pl_epoll.h"

#include "rsock/sys.h"

/* The instance whose shard this thread drains right now and whose ready list it collects next. */
static _Thread_local struct pl_epoll *draining;

void pl_ready_kick(struct pl_epoll *ep)
{
    uint64_t one = 1;

    /* One edge is enough until somebody has come for it (pl_ready_absorb). */
    if (ep->efd < 0 || atomic_exchange(&ep->kicked, 1))
        return;
    sys_write(ep->efd, &one, sizeof one);
}

/* Under the engine's locks: takes none, calls nothing of the engine's. */
void pl_member_wake(struct fb_watcher *watcher, unsigned events)
{
    struct pl_member *m = (struct pl_member *)watcher;
    struct pl_epoll *ep = atomic_load_explicit(&m->ep, memory_order_relaxed);
    struct pl_member *head;

    atomic_fetch_or(&m->pending, events);
    if (!atomic_exchange(&m->inboxed, 1)) {
        head = atomic_load_explicit(&ep->inbox, memory_order_relaxed);
        do
            m->inbox_next = head;
        while (!atomic_compare_exchange_weak(&ep->inbox, &head, m));
    }
    if (draining != ep && atomic_load(&ep->asleep))
        pl_ready_kick(ep);
}

static int drain_by(struct pl_epoll *ep, int (*drain)(struct rsk_shard *))
{
    struct pl_epoll *outer = draining;
    int n;

    if (!ep->shard)
        return 0;
    draining = ep;
    n = drain(ep->shard);
    draining = outer;
    return n;
}

int pl_ready_drain(struct pl_epoll *ep)
{
    return drain_by(ep, rsk_shard_drain);
}

int pl_ready_drain_all(struct pl_epoll *ep)
{
    return drain_by(ep, rsk_shard_drain_all);
}

/* ---- up to date */

static struct pl_member *of_dirty(struct pl_link *l)
{
    return (struct pl_member *)((char *)l - offsetof(struct pl_member, dirty));
}

void pl_ready_absorb(struct pl_epoll *ep)
{
    struct pl_member *m, *next, *in_order = NULL;

    /* Before the inbox is taken: whoever still sees it set has pushed before. */
    if (atomic_load(&ep->kicked))
        atomic_store(&ep->kicked, 0);
    if (!atomic_load(&ep->inbox))
        return;
    for (m = atomic_exchange(&ep->inbox, NULL); m; m = next) {
        next = m->inbox_next;
        m->inbox_next = in_order;
        in_order = m;
    }
    for (m = in_order; m; m = next) {
        uint32_t pending;

        /* Read before inboxed is cleared: then it may be pushed again. */
        next = m->inbox_next;
        atomic_store(&m->inboxed, 0);
        pending = atomic_exchange(&m->pending, 0);
        if (m->dead)
            continue;
        /* Between two waits it may have been on a rail that was full, and be plain again: TCP was
         * not, and has no edge to give but for a new registration. (What is received by TCP is an
         * edge in any case, and would be told once more.) */
        if ((pending & (FB_EV_STATE | RSK_TX)) == (FB_EV_STATE | RSK_TX) && !m->hot &&
            m->events & EPOLLET && m->events & (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND))
            atomic_store(&m->again, true);
        if (pending & FB_EV_STATE)
            pl_dirty_add(m);
        if (m->hot)
            pl_ready_add(m);
    }
}

/* Brings the registrations up to date of those whose streams changed track. */
static __attribute__((noinline)) void update_dirty(struct pl_epoll *ep)
{
    pl_ctl_lock(ep);
    for (;;) {
        struct pl_member *m;

        fb_lock(&ep->lock);
        m = ep->dirty.next == &ep->dirty ? NULL : of_dirty(ep->dirty.next);
        if (m)
            pl_dirty_del(m);
        ep->updating = m != NULL;
        fb_unlock(&ep->lock);
        if (!m)
            break;
        /* It cannot be detached meanwhile: ctl is held. */
        pl_reg_update(m, ep->kfd);
    }
    fb_unlock(&ep->ctl);
}

/* Locks it, settled. */
static void lock_settled(struct pl_epoll *ep)
{
    fb_lock(&ep->lock);
    pl_ready_absorb(ep);
    /* Wait for another one at work: what it makes hot must be hot before we look at events. */
    if (__builtin_expect(ep->dirty.next == &ep->dirty && !ep->updating, 1))
        return;
    fb_unlock(&ep->lock);
    update_dirty(ep);
    fb_lock(&ep->lock);
}

void pl_ready_settle(struct pl_epoll *ep)
{
    lock_settled(ep);
    fb_unlock(&ep->lock);
}

/* ---- testing */

/* What of its earlier reports is still so. */
static uint32_t still_told(const struct pl_member *m, struct fb_tally t)
{
    uint32_t out = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND, never = EPOLLERR | EPOLLPRI, so = 0;

    if (t.in && t.in == m->tally.in)
        so |= ~(out | never);
    if (t.out && t.out == m->tally.out)
        so |= out;
    return m->told & so;
}

bool pl_told(const struct pl_member *m, uint32_t events, struct fb_tally t)
{
    return !(events & ~still_told(m, t));
}

void pl_tell(struct pl_member *m, uint32_t events, struct fb_tally t)
{
    m->told = still_told(m, t) | events;
    m->tally = t;
}

uint32_t pl_ready_kernel(const struct pl_member *m, uint32_t events)
{
    static const struct timespec zero;
    struct pollfd p = {.fd = m->fd, .events = (short)(events & PL_EV_BITS)};

    return sys_ppoll(&p, 1, &zero, NULL) > 0
               ? (uint32_t)p.revents & PL_EV_BITS & ~(uint32_t)POLLNVAL
               : 0;
}

/* What of `events` holds now. No lock held; the caller has a reference. */
static uint32_t test(struct pl_member *m, uint32_t events, uint32_t stash)
{
    if (stash)
        return pl_ready_kernel(m, events);
    if (m->inner)
        return pl_epoll_readable(m->inner) ? events & (EPOLLIN | EPOLLRDNORM) : 0;
    return (uint16_t)fb_ready(m->stream, m->fd, (short)events);
}

/* Asks to be told of the next news; what holds already. */
static uint32_t arm(struct pl_member *m, uint32_t events)
{
    if (m->inner)
        return pl_epoll_arm(m->inner, &m->inner_armed) && pl_epoll_readable(m->inner)
                   ? events & (EPOLLIN | EPOLLRDNORM)
                   : 0;
    return (uint16_t)fb_arm(m->stream, m->fd, (short)events);
}

/* One from the list. */
struct probe {
    struct pl_member *m; /* reference */
    uint32_t flags, events, stash;
    uint32_t found; /* what holds of events */
    bool hot, edge;
    bool unarmed; /* nothing was found, and it is on the list for who looks at its ring */
    struct fb_tally tally;
};

/* Takes up to `most` members off the list, and moves those to the tail that became hot after
 * `since`. *todo: how many may still be looked at. Ends at a member that this pass has reported,
 * and put to the tail: all before it have had their turn. lock held. */
static unsigned take(struct pl_epoll *ep, struct probe p[], unsigned most, uint64_t since,
                     uint32_t pass, uint32_t *todo)
{
    unsigned n = 0;

    for (; n < most && *todo && ep->ready.next != &ep->ready; --*todo) {
        struct pl_member *m = pl_of_ready(ep->ready.next);
        uint32_t stash = m->stash;

        if (m->pass == pass)
            break;
        pl_ready_del(m);
        if (m->hot && m->flip > since) {
            pl_ready_add(m);
            continue;
        }
        m->stash = 0;
        /* A one-shot that has been reported; or plain again, and nothing fetched for it: the
         * kernel reports it. */
        if ((m->events & EPOLLONESHOT && !atomic_load(&m->armed)) || (!m->hot && !stash))
            continue;
        pl_member_get(m);
        p[n++] = (struct probe){.m = m,
                                .flags = m->events,
                                .events = pl_ready_asked(m),
                                .stash = stash,
                                .hot = m->hot,
                                .edge = m->hot && m->events & EPOLLET};
    }
    return n;
}

static bool claim(struct pl_member *m)
{
    uint32_t armed = 1;

    return !(m->events & EPOLLONESHOT) || atomic_compare_exchange_strong(&m->armed, &armed, 0);
}

/* Reports what was found, if anything; true if it went into *out, or would have. lock held. */
static bool report(const struct probe *p, struct epoll_event *out, uint32_t pass)
{
    struct pl_member *m = p->m;
    uint32_t found = p->found;

    if (p->unarmed) {
        m->stash |= p->stash;
        pl_ready_add(m);
        return false;
    }
    /* A one-shot's event that was fetched by a thread that only asked (pl_epoll_nest.c), and that
     * holds no more: to the kernel it has been reported, so it is registered anew. */
    if (!p->found && p->stash && !p->hot && m->events & EPOLLONESHOT && !m->dead &&
        atomic_load(&m->armed)) {
        atomic_store(&m->again, true);
        pl_dirty_add(m);
        return false;
    }
    found &= pl_ready_asked(m); /* MOD may have come between */
    if (!p->found || m->dead || m->parked || !found || pl_told(m, found, p->tally))
        return false;
    if (!out) {
        m->stash |= p->stash;
        pl_ready_add(m);
        return true;
    }
    if (!claim(m))
        return false;
    out->events = found;
    out->data.u64 = m->data;
    m->pass = pass;
    pl_tell(m, found, p->tally);
    if (!(p->flags & (EPOLLET | EPOLLONESHOT)) && m->hot)
        pl_ready_add(m);
    return true;
}

/* examine's answer, if a look at the ring gives it. */
static bool is_seen(struct probe *p, bool lazy)
{
    struct pl_member *m = p->m;
    enum fb_sight see;

    if (!p->hot || !m->stream)
        return false;
    see = p->edge ? fb_sight_arm(m->stream, m->fd, (short)p->events, &p->tally)
                  : fb_sight(m->stream, (short)p->events);
    if (see == FB_NONE && !p->edge) {
        p->unarmed = lazy && pl_ready_stays_unarmed(m);
        if (!p->unarmed)
            see = fb_sight_arm(m->stream, m->fd, (short)p->events, NULL);
    }
    if (see == FB_SOME)
        p->found = p->events & (EPOLLIN | EPOLLRDNORM);
    return see == FB_SOME || see == FB_NONE;
}

/* Finds out what holds, and arms it where nothing does, or an edge. No lock held. */
static void examine(struct probe *p, bool lazy)
{
    struct pl_member *m = p->m;

    if (!is_seen(p, lazy)) {
        p->found = test(m, p->events, p->hot ? 0 : p->stash);
        if (!p->found && p->hot)
            p->found = arm(m, p->events) & p->events;
        /* Armed before it is counted: what comes after the count is news, and nothing else is. */
        if (p->found && p->edge && m->stream) {
            p->found |= arm(m, p->events) & p->events;
            p->tally = fb_tally(m->stream, m->fd);
        }
    }
    if (p->found)
        atomic_store_explicit(&m->idle, 0, memory_order_relaxed);
}

/* Of a nested instance news is a new edge from here on; something that came between the test
 * and this, too. */
static __attribute__((noinline)) void edge_of_inner(const struct probe *p)
{
    struct pl_member *m = p->m;
    uint32_t more = arm(m, p->events) & p->events & ~p->found;

    if (!more || p->flags & EPOLLONESHOT)
        return;
    fb_lock(&m->ep->lock);
    pl_ready_add(m);
    fb_unlock(&m->ep->lock);
}

int pl_ready_collect(struct pl_epoll *ep, struct epoll_event *out, int max)
{
    return pl_ready_collect_behind(ep, out, max, UINT64_MAX, false);
}

int pl_ready_collect_behind(struct pl_epoll *ep, struct epoll_event *out, int max, uint64_t since,
                            bool lazy)
{
    struct probe p[PL_TOGETHER];
    uint32_t todo, pass;
    int n = 0;

    lock_settled(ep);
    /* Each at most once: those that stay ready go to the tail. */
    todo = atomic_load(&ep->nready);
    pass = pl_ready_pass(ep);
    n = pl_ready_collect_in_place(ep, out, max, since, lazy, pass, &todo);
    for (;;) {
        unsigned most = max - n < PL_TOGETHER ? (unsigned)(max - n) : PL_TOGETHER, some;

        some = n < max ? take(ep, p, most, since, pass, &todo) : 0;
        pl_count(&ep->in_hand, (int)some);
        fb_unlock(&ep->lock);
        if (!some)
            break;
        for (unsigned i = 0; i < some; i++)
            examine(&p[i], lazy);
        fb_lock(&ep->lock);
        for (unsigned i = 0; i < some; i++)
            if (report(&p[i], out ? &out[n] : NULL, pass))
                n++;
        pl_count(&ep->in_hand, -(int)some);
        fb_unlock(&ep->lock);
        for (unsigned i = 0; i < some; i++) {
            if (__builtin_expect(p[i].edge && !p[i].m->stream && p[i].found && out, 0))
                edge_of_inner(&p[i]);
            pl_member_put(p[i].m);
        }
        if (!todo || n == max)
            break;
        fb_lock(&ep->lock);
        /* Another thread has collected since: a member that we have reported may come again, and if
         * the other has reported it as well, we would not know it by its `pass`. */
        if (n && ep->pass != pass) {
            fb_unlock(&ep->lock);
            break;
        }
    }
    /* Who sleeps has counted himself before his last look, which does not see what was off
     * the list then. */
    if (lazy && atomic_load(&ep->asleep) && atomic_load(&ep->nready))
        pl_ready_kick(ep);
    if (__builtin_expect(atomic_load_explicit(&ep->ndirty, memory_order_relaxed) != 0, 0))
        pl_ready_settle(ep); /* what is to be registered anew is so before the caller sleeps */
    return n;
}
