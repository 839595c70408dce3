/*
 * pl_epoll_reg.c - what the kernel has registered for a member, and what it should have:
 *
 *   plain      what the application asked, under the application's data; under a cookie if it is a
 *              one-shot (delivery is claimed here, so the armed state lives with us), if its edges
 *              are counted (pl_told), if the instance is nested or polled ("exact"), or might be
 *              once it is too late to modify it (edges of an EPOLLEXCLUSIVE one)
 *   hot        EPOLLET with what the kernel can still tell, under a cookie: hints that put the
 *              member on the ready list
 *   fired      a one-shot that was reported while plain: untouched, MOD would arm it again
 *
 * All under the instance's ctl lock; see pl_epoll.h.
 */
#include "preload/pl_epoll.h"

#include "config/reason.h"
#include "rsock/sys.h"

/* Bits that say how to report, not what. */
#define KEEP_FLAGS ((uint32_t)EPOLLWAKEUP)

static bool is_served(const struct pl_member *m)
{
    if (m->inner)
        return pl_epoll_special(m->inner);
    return m->stream && !fb_plain(m->stream);
}

static uint32_t hints(struct pl_member *m)
{
    short asked = (short)(m->events & PL_EV_BITS);

    if (m->inner)
        return (uint32_t)asked;
    return (uint16_t)fb_kernel_events(m->stream, asked);
}

void pl_reg_counts(struct pl_member *m, const struct fb_stream *s)
{
    if (m->events & EPOLLET && fb_may_change(s))
        m->counts = true;
}

struct pl_reg pl_reg_wanted(struct pl_member *m)
{
    struct pl_epoll *ep = m->ep;
    bool one_shot = m->events & EPOLLONESHOT;
    bool counts = m->events & EPOLLET && m->counts;
    bool cookie = m->events & EPOLLEXCLUSIVE
                      ? m->events & EPOLLET
                      : (one_shot || counts || ep->exact) &&
                            !atomic_load_explicit(&ep->pinned, memory_order_relaxed);

    if (is_served(m))
        return (struct pl_reg){
            .events = (hints(m) & PL_EV_BITS) | EPOLLET | (m->events & KEEP_FLAGS),
            .data = pl_cookie_data(ep, m->cookie),
            .hot = true,
        };
    if (one_shot && !atomic_load(&m->armed))
        return (struct pl_reg){m->kevents, m->kdata, m->hot};
    if (cookie)
        atomic_store(&ep->touched, true);
    return (struct pl_reg){
        .events = m->events,
        .data = cookie ? pl_cookie_data(ep, m->cookie) : m->data,
    };
}

/* Does its news come by another shard? Then the instance whose shard that is, if any, lets the
 * progress thread drain it as well. `lock` not held. */
static bool news_elsewhere(struct pl_member *m)
{
    bool yes = m->stream && fb_news_elsewhere(m->stream, m->ep->shard);

    if (yes)
        pl_epoll_waited_elsewhere(m->stream);
    return yes;
}

/* lock held */
static void set_elsewhere(struct pl_member *m, bool elsewhere)
{
    if (elsewhere != m->elsewhere)
        atomic_fetch_add(&m->ep->elsewhere, elsewhere ? 1 : (uint32_t)-1);
    m->elsewhere = elsewhere;
}

void pl_reg_before(struct pl_member *m, struct pl_reg reg)
{
    struct pl_epoll *ep = m->ep;
    bool elsewhere;

    if (!reg.hot) {
        /* An event of the new registration is not to be taken for one of a hot member:
         * pl_ready_settle. */
        if (m->hot) {
            fb_lock(&ep->lock);
            ep->updating = true;
            fb_unlock(&ep->lock);
        }
        return;
    }
    m->counts = true;
    elsewhere = news_elsewhere(m);
    fb_lock(&ep->lock);
    set_elsewhere(m, elsewhere);
    if (m->hot) {
        fb_unlock(&ep->lock);
        return;
    }
    m->hot = true;
    m->flip = atomic_fetch_add(&ep->flips, 1) + 1;
    pl_link_add(&ep->hot_list, &m->hot_link);
    atomic_fetch_add(&ep->hot, 1);
    fb_unlock(&ep->lock);
}

static void cool(struct pl_member *m)
{
    if (!m->hot)
        return;
    m->hot = false;
    m->cooled = atomic_fetch_add(&m->ep->flips, 1) + 1;
    set_elsewhere(m, false);
    pl_link_del(&m->hot_link);
    atomic_fetch_sub(&m->ep->hot, 1);
}

void pl_reg_after(struct pl_member *m, struct pl_reg reg)
{
    struct pl_epoll *ep = m->ep;

    m->kevents = reg.events;
    m->kdata = reg.data;
    if (!reg.hot && !m->hot)
        return;
    fb_lock(&ep->lock);
    if (reg.hot)
        pl_ready_add(m); /* something may hold that no news will tell of */
    else
        cool(m);
    ep->updating = false;
    fb_unlock(&ep->lock);
    if (reg.hot && atomic_load(&ep->asleep))
        pl_ready_kick(ep);
}

static int kernel_mod(struct pl_member *m, int epfd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = {.events = events, .data.u64 = data};

    return sys_epoll_ctl(epfd, EPOLL_CTL_MOD, m->fd, &ev);
}

void pl_reg_update(struct pl_member *m, int epfd)
{
    struct pl_reg reg;
    bool cools, elsewhere, again;

    if (m->dead)
        return;
    if (m->parked && !is_served(m)) {
        /* On its way back to TCP the stub has nothing more to stand in for. */
        sys_epoll_ctl(epfd, EPOLL_CTL_DEL, m->fd, NULL);
        pl_reg_detach(m);
        return;
    }
    if (m->parked) { /* on another rail, maybe, when it is added again */
        elsewhere = news_elsewhere(m);
        fb_lock(&m->ep->lock);
        set_elsewhere(m, elsewhere);
        fb_unlock(&m->ep->lock);
        return;
    }
    reg = pl_reg_wanted(m);
    cools = m->hot && !reg.hot;
    again = atomic_exchange(&m->again, false) && atomic_load(&m->armed);
    pl_reg_before(m, reg);
    /* Who cools is told anew in any case: a hint of it may have been taken from the kernel, and
     * not looked at. An error: closed behind our back, the number is no member any more.
     * Nothing to repair. */
    if (cools || again || reg.events != m->kevents || reg.data != m->kdata)
        (void)kernel_mod(m, epfd, reg.events, reg.data);
    pl_reg_after(m, reg);
}

/* ---- members come and go */

static void bind_stream(struct pl_member *m, struct pl_file *f, int epfd)
{
    struct pl_epoll *ep = m->ep;
    struct fb_stream *s = f->stream;
    bool another = f->members != NULL;
    int reason;

    /* EXCLUSIVE cannot be modified. */
    if (fb_epoll_elsewhere(ep->id))
        atomic_store(&ep->pinned, true);
    if (m->events & EPOLLEXCLUSIVE || atomic_load(&ep->pinned)) {
        fb_pin(s, RSN_EPOLL, false);
        pl_put(f);
        return;
    }
    reason = pl_epoll_touch(ep, epfd);
    if (reason) {
        fb_pin(s, reason, false);
        pl_put(f);
        return;
    }
    fb_get(s);
    m->stream = s;
    m->file = f;
    pl_member_link(f, m);
    /* In two instances: the first one's shard (pl_epoll_waited_elsewhere). */
    fb_watch(s, &m->watcher, another ? NULL : ep->shard);
}

void pl_reg_bind(struct pl_member *m, struct pl_file *f, int epfd)
{
    if (f->kind == PL_STREAM) {
        bind_stream(m, f, epfd);
    } else if (f->kind == PL_EPOLL) {
        /* Also before the inner one has a stream: then it must be able to wake our waiters. */
        int reason = pl_epoll_touch(m->ep, epfd);

        if (reason) {
            pl_epoll_pin(pl_epoll_of(f), reason);
            pl_put(f);
            return;
        }
        m->file = f;
        pl_member_link(f, m);
        pl_nest(m, pl_epoll_of(f));
    } else {
        pl_put(f);
    }
}

void pl_reg_detach(struct pl_member *m)
{
    struct pl_epoll *ep = m->ep;

    if (m->file)
        pl_member_unlink(m->file, m);
    /* After these two wake() is not called any more. */
    if (m->stream)
        fb_unwatch(m->stream, &m->watcher, atomic_load(&ep->shard));
    if (m->inner)
        pl_unnest(m);
    fb_lock(&ep->lock);
    pl_ready_absorb(ep); /* it may be on the inbox */
    cool(m);
    pl_ready_del(m);
    pl_dirty_del(m);
    pl_member_remove(ep, m);
    m->dead = true;
    fb_unlock(&ep->lock);
    pl_member_put(m);
}

/* ---- all at once */

static void update_one(struct pl_member *m, void *arg)
{
    if (m->parked)
        return; /* its own change of state will see to it; the list must not change here */
    pl_reg_update(m, *(int *)arg);
}

void pl_reg_update_all(struct pl_epoll *ep, int epfd)
{
    /* ctl is held: nobody else changes the list, and lock is only taken inside. */
    pl_member_each(ep, update_one, &epfd);
}

void pl_reg_all_cookies(struct pl_epoll *ep)
{
    if (ep->exact)
        return;
    ep->exact = true;
    atomic_store(&ep->touched, true);
    pl_reg_update_all(ep, ep->kfd);
}

static void retag_one(struct pl_member *m, void *arg)
{
    uint32_t old = *(uint32_t *)arg;
    struct epoll_event ev = {.events = m->kevents, .data.u64 = pl_cookie_data(m->ep, m->cookie)};

    if (m->kdata >> 32 != old || (uint32_t)m->kdata != m->cookie)
        return;
    if (m->events &
        EPOLLEXCLUSIVE) { /* cannot be modified: an edge that it has told may come once more */
        m->kdata = ev.data.u64;
        sys_epoll_ctl(m->ep->kfd, EPOLL_CTL_DEL, m->fd, NULL);
        sys_epoll_ctl(m->ep->kfd, EPOLL_CTL_ADD, m->fd, &ev);
        return;
    }
    /* A one-shot that has fired is silent until MOD, and MOD gives it the new tag. */
    if (!(m->events & EPOLLONESHOT) || m->hot || atomic_load(&m->armed))
        (void)kernel_mod(m, m->ep->kfd, m->kevents, pl_cookie_data(m->ep, m->cookie));
    m->kdata = pl_cookie_data(m->ep, m->cookie);
}

void pl_reg_retag(struct pl_epoll *ep)
{
    uint32_t old = atomic_load(&ep->tag);

    atomic_store(&ep->tag, old + 0x9e3779b9u ? old + 0x9e3779b9u : 1);
    if (ep->kfd < 0)
        return;
    pl_shard_retag(ep);
    pl_member_each(ep, retag_one, &old);
}
