/*
 * pl_epoll_ready.c - news of hot members: from wake() over the inbox to the ready list, and from
 * there, tested, to the application.
 *
 * The ready list holds what *may* be ready. Testing one (pl_ready_collect) ends in one of:
 *   level      reported, and to the tail of the list; or not ready, armed and off the list, or, for who spins next and
 *              looks at it himself (pl_ready_lazy), not armed and to the tail: its peer then tells nobody
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

/* ---- the lists */

void pl_ready_add(struct pl_member *m)
{
    struct pl_epoll *ep = m->ep;

    if (m->dead || m->parked || m->ready.next)
        return;
    pl_link_add(&ep->ready, &m->ready);
    atomic_fetch_add(&ep->nready, 1);
}

void pl_ready_del(struct pl_member *m)
{
    if (!m->ready.next)
        return;
    pl_link_del(&m->ready);
    atomic_fetch_sub(&m->ep->nready, 1);
}

void pl_dirty_add(struct pl_member *m)
{
    struct pl_epoll *ep = m->ep;

    if (m->dirty.next)
        return;
    pl_link_add(&ep->dirty, &m->dirty);
    atomic_fetch_add(&ep->ndirty, 1);
}

void pl_dirty_del(struct pl_member *m)
{
    if (!m->dirty.next)
        return;
    pl_link_del(&m->dirty);
    atomic_fetch_sub(&m->ep->ndirty, 1);
}

static struct pl_member *of_ready(struct pl_link *l)
{
    return (struct pl_member *)((char *)l - offsetof(struct pl_member, ready));
}

static struct pl_member *of_dirty(struct pl_link *l)
{
    return (struct pl_member *)((char *)l - offsetof(struct pl_member, dirty));
}

void pl_ready_absorb(struct pl_epoll *ep)
{
    struct pl_member *m, *next, *in_order = NULL;

    /* Before the inbox is taken: whoever still sees it set has pushed before. */
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
        if (pending & FB_EV_STATE)
            pl_dirty_add(m);
        if (m->hot)
            pl_ready_add(m);
    }
}

void pl_ready_settle(struct pl_epoll *ep)
{
    bool dirty;

    fb_lock(&ep->lock);
    pl_ready_absorb(ep);
    /* Wait for another one at work: what it makes hot must be hot before we look at events. */
    dirty = ep->dirty.next != &ep->dirty || ep->updating;
    fb_unlock(&ep->lock);
    if (!dirty)
        return;
    fb_lock(&ep->ctl);
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

struct probe {
    uint32_t flags, events, stash;
    uint64_t flip;
    bool hot, off; /* off: a one-shot that has been reported */
};

/* Takes the first off the list, with a reference. */
static struct pl_member *next_ready(struct pl_epoll *ep, struct probe *p)
{
    struct pl_member *m = NULL;

    fb_lock(&ep->lock);
    if (ep->ready.next != &ep->ready) {
        m = of_ready(ep->ready.next);
        pl_ready_del(m);
        pl_member_get(m);
        p->flags = m->events;
        p->events = (m->events & PL_EV_BITS) | EPOLLERR | EPOLLHUP;
        p->stash = m->stash;
        p->hot = m->hot;
        p->flip = m->flip;
        p->off = m->events & EPOLLONESHOT && !atomic_load(&m->armed);
        m->stash = 0;
    }
    fb_unlock(&ep->lock);
    return m;
}

static bool claim(struct pl_member *m)
{
    uint32_t armed = 1;

    return !(m->events & EPOLLONESHOT) || atomic_compare_exchange_strong(&m->armed, &armed, 0);
}

/* Reports what was found; true if it went into *out. */
static bool report(struct pl_member *m, const struct probe *p, uint32_t found,
                   struct fb_tally tally, struct epoll_event *out)
{
    bool done = false;

    fb_lock(&m->ep->lock);
    found &= (m->events & PL_EV_BITS) | EPOLLERR | EPOLLHUP; /* MOD may have come between */
    if (m->dead || m->parked || !found || pl_told(m, found, tally)) {
        /* nothing */
    } else if (!out) {
        m->stash |= p->stash;
        pl_ready_add(m);
        done = true;
    } else if (claim(m)) {
        out->events = found;
        out->data.u64 = m->data;
        done = true;
        pl_tell(m, found, tally);
        if (!(p->flags & (EPOLLET | EPOLLONESHOT)) && m->hot)
            pl_ready_add(m);
    }
    fb_unlock(&m->ep->lock);
    return done;
}

static void put_back(struct pl_member *m, const struct probe *p)
{
    fb_lock(&m->ep->lock);
    m->stash |= p->stash;
    pl_ready_add(m);
    fb_unlock(&m->ep->lock);
}

/* Nothing was found, and it is on the list for who looks at its ring, unless it has been so for long. */
static bool stays_unarmed(struct pl_member *m, uint32_t events)
{
    uint8_t idle = atomic_load_explicit(&m->idle, memory_order_relaxed);

    if (!m->stream || idle >= PL_LAZY_TIMES || !fb_glances(m->stream, (short)events))
        return false;
    atomic_store_explicit(&m->idle, (uint8_t)(idle + 1), memory_order_relaxed);
    return true;
}

/* One member from the list. True if it was put into *out (or would have been). */
static bool examine(struct pl_member *m, const struct probe *p, struct epoll_event *out, bool lazy)
{
    bool done, edge = p->hot && p->flags & EPOLLET;
    uint32_t found, more;
    struct fb_tally tally = {0};

    /* Plain again, and nothing fetched for it: the kernel reports it. */
    if (p->off || (!p->hot && !p->stash))
        return false;
    found = test(m, p->events, p->hot ? 0 : p->stash);
    if (!found && p->hot && lazy && !edge && stays_unarmed(m, p->events)) {
        put_back(m, p);
        return false;
    }
    if (found)
        atomic_store_explicit(&m->idle, 0, memory_order_relaxed);
    if (!found && p->hot)
        found = arm(m, p->events) & p->events;
    /* Armed before it is counted: what comes after the count is news, and nothing else is. */
    if (found && edge && m->stream) {
        found |= arm(m, p->events) & p->events;
        tally = fb_tally(m->stream, m->fd);
    }
    done = found && report(m, p, found, tally, out);
    if (!found || !out || !edge || m->stream)
        return done;
    /* From here on news is a new edge; something that came between the test and this, too. */
    more = arm(m, p->events) & p->events & ~found;
    if (more && !(p->flags & EPOLLONESHOT)) {
        fb_lock(&m->ep->lock);
        pl_ready_add(m);
        fb_unlock(&m->ep->lock);
    }
    return done;
}

int pl_ready_collect(struct pl_epoll *ep, struct epoll_event *out, int max)
{
    return pl_ready_collect_behind(ep, out, max, UINT64_MAX, false);
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
        const struct pl_member *m = of_ready(l);

        yes = m->stash || !m->hot || !m->stream ||
              fb_glance(m->stream, (short)(m->events & PL_EV_BITS));
    }
    fb_unlock(&ep->lock);
    return yes;
}

int pl_ready_collect_behind(struct pl_epoll *ep, struct epoll_event *out, int max, uint64_t since,
                            bool lazy)
{
    uint32_t todo;
    int n = 0;

    pl_ready_settle(ep);
    /* Each at most once: those that stay ready go to the tail. */
    for (todo = atomic_load(&ep->nready); todo > 0 && n < max; todo--) {
        struct probe p = {0};
        struct pl_member *m = next_ready(ep, &p);

        if (!m)
            break;
        if (p.hot && p.flip > since)
            put_back(m, &p);
        else if (examine(m, &p, out ? &out[n] : NULL, lazy))
            n++;
        pl_member_put(m);
    }
    /* Who sleeps has counted himself before his last look, which does not see what was off the list then. */
    if (lazy && atomic_load(&ep->asleep) && atomic_load(&ep->nready))
        pl_ready_kick(ep);
    return n;
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
