/*
 * pl_epoll_life.c - an instance from epoll_create to the last close, and at fork.
 *
 * Nothing is opened before a tracked stream is registered. Then the instance gets three things of
 * its own: a second number for the kernel's instance (the application's may be closed and
 * used again while a state change of a stream has to be registered), an eventfd that is
 * written and never read (EPOLLET: each write is one wake-up of one thread), and a shard on which
 * its streams board.
 */
#include "preload/pl_epoll.h"
#include "preload/pl_signal.h"

#include "config/env.h"
#include "config/reason.h"
#include "rsock/own.h"
#include "rsock/sys.h"

static struct fb_lock registry_lock;
static struct pl_link registry = {&registry, &registry};

/* By the environment alone: the rules are not read before there is a connection. */
bool pl_epoll_useful(void)
{
    return cfg.stream.mode != CFG_TCP && !cfg.stream.board_never;
}

void pl_epoll_created(int fd)
{
    struct pl_epoll *ep;
    uint32_t tag = 0;

    if (!pl_epoll_useful())
        return;
    pl_signals_on();
    ep = pl_epoll_alloc();
    if (!ep)
        return;
    sys_getrandom(&tag, sizeof tag);
    atomic_init(&ep->tag, tag ? tag : 1);
    atomic_init(&ep->refs, 1);
    atomic_init(&ep->numbers, 1);
    ep->kfd = ep->efd = -1;
    ep->number = fd;
    fb_lock(&registry_lock);
    pl_link_add(&registry, &ep->registry);
    fb_unlock(&registry_lock);
    if (!pl_install(fd, PL_EPOLL, ep))
        pl_epoll_free(ep);
}

void pl_epoll_get(struct pl_epoll *ep)
{
    atomic_fetch_add_explicit(&ep->refs, 1, memory_order_relaxed);
}

void pl_epoll_number(struct pl_epoll *ep)
{
    pl_epoll_get(ep);
    atomic_fetch_add(&ep->numbers, 1);
}

void pl_epoll_no_number(struct pl_epoll *ep)
{
    atomic_fetch_sub(&ep->numbers, 1);
    pl_epoll_free(ep);
}

bool pl_epoll_tryget(struct pl_epoll *ep)
{
    uint32_t refs = atomic_load_explicit(&ep->refs, memory_order_relaxed);

    while (refs)
        if (atomic_compare_exchange_weak(&ep->refs, &refs, refs + 1))
            return true;
    return false;
}

void pl_epoll_each(void (*fn)(struct pl_epoll *, void *), void *arg)
{
    struct pl_epoll *ep, *held = NULL;

    fb_lock(&registry_lock);
    for (struct pl_link *l = registry.next; l != &registry; l = l->next) {
        ep = (struct pl_epoll *)l; /* its first member */
        if (!pl_epoll_tryget(ep))
            continue;
        fb_unlock(&registry_lock);
        if (held)
            pl_epoll_free(held);
        fn(ep, arg);
        held = ep; /* keeps its place on the list until we have gone on */
        fb_lock(&registry_lock);
    }
    fb_unlock(&registry_lock);
    if (held)
        pl_epoll_free(held);
}

/* ---- its descriptors */

static int why(int err)
{
    switch (err) {
    case -EMFILE:
    case -ENFILE:
        return RSN_LIMIT_FD;
    case -ENOSPC:
        return RSN_WATCHES;
    default:
        return RSN_NO_MEMORY;
    }
}

int pl_epoll_touch(struct pl_epoll *ep, int epfd)
{
    int kfd, efd, err;

    if (ep->shard)
        return 0;
    if (ep->kfd < 0) {
        kfd = rsk_own_fd(sys_fcntl(epfd, F_DUPFD_CLOEXEC, 3));
        efd = kfd < 0 ? kfd : rsk_own_fd(sys_eventfd(0, O_NONBLOCK | O_CLOEXEC));
        if (efd < 0) {
            rsk_own_close(kfd);
            return why(efd);
        }
        atomic_store(&ep->touched, true);
        ep->kfd = kfd;
        /* Without it nobody who sleeps is told of anything. */
        err = pl_shard_weave(ep, efd);
        if (err) {
            ep->kfd = -1;
            rsk_own_close(efd);
            rsk_own_close(kfd);
            return why(err);
        }
        ep->efd = efd;
    }
    ep->shard = rsk_shard_new(pl_shard_fd_added, ep);
    if (!ep->shard)
        return RSN_NO_MEMORY;
    atomic_store(&ep->woven, true);
    pl_nest_woven(ep);
    return 0;
}

/* ---- the end */

static void detach_one(struct pl_member *m, void *arg)
{
    (void)arg;
    pl_reg_detach(m);
}

void pl_epoll_free(struct pl_epoll *ep)
{
    if (atomic_fetch_sub_explicit(&ep->refs, 1, memory_order_acq_rel) != 1)
        return;
    pl_ctl_lock(ep);
    pl_member_each(ep, detach_one, NULL);
    fb_unlock(&ep->ctl);
    /* Rails are left there, whose streams may be waited for elsewhere when nobody finds this
     * instance any more. */
    if (ep->shard && !rsk_shard_is_lonely(ep->shard))
        pl_epoll_share(ep);
    fb_lock(&registry_lock);
    pl_link_del(&ep->registry);
    fb_unlock(&registry_lock);
    if (ep->shard) {
        rsk_shard_orphan(ep->shard); /* pl_shard_fd_added is not called any more */
        rsk_shard_put(ep->shard);
    }
    rsk_own_close(ep->efd);
    rsk_own_close(ep->kfd);
    fb_epoll_gone(ep->id);
    pl_epoll_release(ep);
}

/* ---- served by the kernel alone */

static void pin_member(struct pl_member *m, void *arg)
{
    if (m->stream)
        fb_pin(m->stream, *(int *)arg, false);
}

void pl_epoll_pin(struct pl_epoll *ep, int reason)
{
    pl_ctl_lock(ep);
    atomic_store(&ep->pinned, true);
    pl_member_each(ep, pin_member, &reason);
    fb_unlock(&ep->ctl);
}

/* Another process will hold the instance: it must not see our data, nor take our wake-ups. */
static void cross(struct pl_epoll *ep, void *arg)
{
    (void)arg;
    if (!atomic_load(&ep->touched))
        return;
    pl_epoll_pin(ep, RSN_EPOLL);
    pl_ready_settle(ep);
    pl_ctl_lock(ep);
    if (ep->kfd >= 0) {
        /* A one-shot that fires right now is armed once too often by this: one more event. */
        pl_reg_update_all(ep, ep->kfd);
        /* Streams still on their way to TCP need it to wake their waiters; the other process
         * then lives with a spurious event. */
        if (!atomic_load(&ep->hot))
            pl_shard_unweave(ep);
    }
    fb_unlock(&ep->ctl);
}

void pl_epoll_cross(struct pl_file *f)
{
    if (f->kind == PL_EPOLL)
        cross(pl_epoll_of(f), NULL);
}

enum { SETTLED_AT_ONCE = 32 };

struct on_rails {
    struct fb_stream *some[SETTLED_AT_ONCE];
    int n;
    uint32_t at, from; /* members looked at, and before that others have been waited for */
};

static void note_on_rails(struct pl_member *m, void *arg)
{
    struct on_rails *on = arg;

    if (on->n == SETTLED_AT_ONCE || on->at++ < on->from || !m->stream || fb_plain(m->stream))
        return;
    fb_get(m->stream);
    on->some[on->n++] = m->stream;
}

void pl_epoll_give(struct pl_file *f)
{
    const uint64_t until = fb_pin_time();
    struct pl_epoll *ep = pl_epoll_of(f);
    struct on_rails on = {.from = 0};

    pl_epoll_pin(ep, RSN_EPOLL);
    do {
        on.n = 0;
        on.at = 0;
        pl_ctl_lock(ep);
        pl_member_each(ep, note_on_rails, &on);
        fb_unlock(&ep->ctl);
        on.from = on.at;
        for (int i = 0; i < on.n; i++) {
            fb_pin_by(on.some[i], RSN_EPOLL, until);
            fb_put(on.some[i]);
        }
    } while (on.n == SETTLED_AT_ONCE && sys_now() < until);
    cross(ep, NULL);
}

struct wanted {
    uint64_t id;
    bool found, hot;
};

static void cross_wanted(struct pl_epoll *ep, void *arg)
{
    struct wanted *w = arg;

    if (ep->id != w->id)
        return;
    w->found = true;
    atomic_store(&ep->pinned, true);
    cross(ep, NULL);
    w->hot = atomic_load(&ep->hot) != 0;
}

bool pl_epoll_asked(uint64_t id)
{
    struct wanted w = {.id = id};

    pl_epoll_each(cross_wanted, &w);
    if (!w.found) /* the child was late, and there will be no such instance any more */
        fb_epoll_gone(id);
    return !w.hot;
}

void pl_epoll_cross_all(void)
{
    pl_epoll_each(cross, NULL);
}

void pl_epoll_after_fork_child(void)
{
    /* The descriptors are closed by rsk_own_after_fork_child. Locks may be held by threads that do
     * not exist here; whatever they protect is forgotten. */
    registry_lock = (struct fb_lock){0};
    registry.next = registry.prev = &registry;
    pl_pool_after_fork_child();
    pl_nest_after_fork_child();
    pl_wait_after_fork_child();
}
