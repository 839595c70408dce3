/*
 * pl_epoll.c - epoll_create and epoll_ctl, and what the wrappers of descriptors tell us. The
 * kernel decides about every epoll_ctl: its result is the application's. We keep the same list
 * beside it, of all descriptors, because one that is registered before connect() becomes a tracked
 * stream later.
 *
 * Any application thread. Locks: pl_epoll.h.
 */
#include "preload/pl_epoll.h"
#include "preload/pl_own.h"

#include <errno.h>

#include "config/reason.h"
#include "rsock/fence.h"
#include "rsock/sys.h"

static void insert(struct pl_epoll *ep, struct pl_member *m)
{
    fb_lock(&ep->lock);
    pl_member_insert(ep, m);
    fb_unlock(&ep->lock);
}

/*
 * Numbers that were registered before anything of ours had them, and that connect() may yet make a
 * stream of: for others it need not look through the instances. Who registers one puts it on the
 * list, marks it, and looks once more what it is; who connects puts it into the table, and then
 * looks at the mark: one of the two sees the other. Above these all count as marked. A mark is
 * nothing any more once the number is another socket's.
 */
enum { MARKS = 65536 };
static _Atomic uint64_t marks[MARKS / 64];

static void mark(int fd)
{
    if (fd < MARKS)
        atomic_fetch_or(&marks[fd / 64], (uint64_t)1 << (fd % 64));
    rsk_fence();
}

static bool unmark(int fd)
{
    uint64_t bit = (uint64_t)1 << (fd % 64);

    return fd >= MARKS ||
           (atomic_load(&marks[fd / 64]) & bit && atomic_fetch_and(&marks[fd / 64], ~bit) & bit);
}

/* What is registered under one number, and may be connected under another one: the kernel goes on
 * telling under the first. */
bool pl_epoll_marked(int fd)
{
    rsk_fence();
    return pl_epoll_useful() &&
           (fd >= MARKS || atomic_load(&marks[fd / 64]) & (uint64_t)1 << (fd % 64));
}

void pl_epoll_unmark(int fd)
{
    if (fd < MARKS && atomic_load_explicit(&marks[fd / 64], memory_order_relaxed))
        unmark(fd);
}

/* ---- epoll_ctl, ctl held. Each returns the kernel's result; errno is the kernel's. */

static struct pl_member *new_member(struct pl_epoll *ep, int fd, const struct epoll_event *ev)
{
    struct pl_member *m = pl_member_new(ep, fd);

    if (!m)
        return NULL;
    m->events = ev->events;
    m->data = ev->data.u64;
    insert(ep, m);
    return m;
}

/* What the kernel has of a hot member that is all on its rail: nothing that it could tell of, under
 * a number that is the stream's still. */
static bool is_stub(const struct pl_member *m, int fd)
{
    return m->hot && m->stream && !m->inner && m->kevents == (uint32_t)EPOLLET &&
           pl_at(fd) == m->file;
}

/* Nor does it need more for these events. */
static bool stays_stub(const struct pl_member *m, const struct epoll_event *ev)
{
    const struct pl_epoll *ep = m->ep;

    return !(ev->events & ((uint32_t)EPOLLEXCLUSIVE | (uint32_t)EPOLLWAKEUP)) &&
           ev->data.u64 >> 32 != atomic_load(&ep->tag) &&
           m->kdata == pl_cookie_data(ep, m->cookie) && !atomic_load(&ep->pinned) &&
           !fb_plain(m->stream) &&
           !((uint32_t)fb_kernel_events(m->stream, (short)(ev->events & PL_EV_BITS)) & PL_EV_BITS);
}

/* The application's registration of a hot member; lock held. */
static void registers(struct pl_member *m, const struct epoll_event *ev)
{
    m->events = ev->events;
    m->data = ev->data.u64;
    m->stash = m->told = 0;
    atomic_store_explicit(&m->armed, 1, memory_order_relaxed);
}

/*
 * Programs that wait for one thing at a time (redis-benchmark, many libevent users) remove and add
 * a socket for each message. A stub is only parked: it stays, nothing is reported, and adding it
 * again asks the kernel nothing. To the application it is not there. It goes for good when its
 * number is closed or its stream goes back to TCP.
 */
static void park(struct pl_member *m)
{
    pl_ready_del(m);
    m->parked = true;
    m->events = 0;
    m->stash = 0;
}

/* The calls on a stub that stays one, which are most of all on rails: in one section, and
 * without the kernel. False: it is not that, and nothing has happened. Takes the place of ctl:
 * see pl_ctl_lock. */
static __attribute__((noinline)) bool on_stub(struct pl_epoll *ep, int op, int fd,
                                              const struct epoll_event *ev)
{
    bool is, kick = false;
    struct pl_member *m;

    fb_lock(&ep->lock);
    m = pl_member_find(ep, fd);
    is = m && is_stub(m, fd) && m->parked == (op == EPOLL_CTL_ADD) && !fb_lock_held(&ep->ctl) &&
         (op == EPOLL_CTL_DEL || stays_stub(m, ev));
    if (is && op == EPOLL_CTL_DEL) {
        park(m);
    } else if (is) {
        registers(m, ev);
        m->counts = true;
        m->parked = false;
        kick = !atomic_load(&ep->asleep) || !pl_ready_has_nothing(m);
        if (kick)
            pl_ready_add(m); /* something may hold that no news will tell of */
    }
    fb_unlock(&ep->lock);
    if (kick && atomic_load(&ep->asleep))
        pl_ready_kick(ep);
    return is;
}

static bool revive(struct pl_member *m, int epfd, const struct epoll_event *ev,
                   const struct pl_file *target)
{
    struct pl_epoll *ep = m->ep;

    if (target != m->file || fb_plain(m->stream) || ev->events & EPOLLEXCLUSIVE ||
        atomic_load(&ep->pinned)) {
        sys_epoll_ctl(epfd, EPOLL_CTL_DEL, m->fd, NULL);
        pl_reg_detach(m);
        return false;
    }
    fb_lock(&ep->lock);
    registers(m, ev);
    m->parked = false;
    fb_unlock(&ep->lock);
    pl_reg_update(m, epfd);
    return true;
}

/* If fd is no file of ours, a new descriptor of the library's may have the number for a moment
 * (rsock/own.h): waits until that is over, so that it is not registered. */
static int kernel_add(int epfd, int fd, struct epoll_event *ev, const struct pl_file *target)
{
    int r;

    if (target)
        return pl_real.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, ev);
    rsk_own_take();
    r = pl_real.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, ev);
    rsk_own_taken();
    return r;
}

/* target: what fd is, with a reference that is given away. */
static int add(struct pl_epoll *ep, int epfd, int fd, struct epoll_event *ev,
               struct pl_file *target)
{
    struct pl_member *m, *old = pl_member_find(ep, fd);
    struct epoll_event kernel = *ev;
    struct pl_reg reg;
    int r;

    if (old && old->parked) {
        if (revive(old, epfd, ev, target)) {
            pl_put(target);
            return 0;
        }
        old = NULL;
    }
    m = new_member(ep, fd, ev);
    /* Connected since it was looked up, maybe by who has not seen it on the list. */
    if (m && !target && fd >= 0) {
        mark(fd);
        pl_made_registered(fd);
        target = pl_at(fd) ? pl_get(fd) : NULL;
    }
    if (m) {
        if (target && target->kind == PL_STREAM)
            pl_reg_counts(m, target->stream);
        reg = pl_reg_wanted(m);
        /* Events on the rail come from the ready list, once it is bound. EXCLUSIVE never is,
         * not even where nobody hands the stream back any more, and what the kernel has of it
         * cannot be modified. */
        if (target && target->kind == PL_STREAM && !fb_plain(target->stream) &&
            !(ev->events & EPOLLEXCLUSIVE)) {
            atomic_store(&ep->touched, true);
            reg = (struct pl_reg){.events = EPOLLET, .data = pl_cookie_data(ep, m->cookie)};
        }
        m->kevents = kernel.events = reg.events;
        m->kdata = kernel.data.u64 = reg.data;
    }
    r = kernel_add(epfd, fd, &kernel, target);
    if (r < 0) {
        if (m)
            pl_reg_detach(m);
        goto out;
    }
    /* Not there any more, or the kernel would have said so: it went without our seeing it. */
    if (old)
        pl_reg_detach(old);
    r = 0;
    if (!m) {
        if (target && target->kind == PL_STREAM)
            fb_pin(target->stream, RSN_NO_MEMORY, false);
        goto out;
    }
    if (target) {
        pl_reg_bind(m, target, epfd);
        target = NULL;
    }
    pl_reg_update(m, epfd);
out:
    if (target)
        pl_put(target);
    return r;
}

static void late_bind(struct pl_member *m, int epfd, int fd)
{
    struct pl_file *f = m->file ? NULL : pl_get(fd);

    if (f)
        pl_reg_bind(m, f, epfd);
}

static int mod(struct pl_epoll *ep, int epfd, int fd, struct epoll_event *ev)
{
    struct pl_member *m = pl_member_find(ep, fd);
    struct epoll_event kernel = *ev;
    uint32_t events, armed;
    struct pl_reg reg;
    uint64_t data;
    int r;

    if (m && m->parked && !(ev->events & EPOLLEXCLUSIVE)) {
        errno = ENOENT;
        return -1;
    }
    if (!m || ev->events & EPOLLEXCLUSIVE)
        return pl_real.epoll_ctl(epfd, EPOLL_CTL_MOD, fd, ev);
    late_bind(m, epfd, fd);
    /* Before the kernel's call: another thread may get the event before it returns. */
    fb_lock(&ep->lock);
    events = m->events;
    data = m->data;
    armed = atomic_load(&m->armed);
    registers(m, ev);
    fb_unlock(&ep->lock);
    if (m->stream)
        pl_reg_counts(m, m->stream);
    reg = pl_reg_wanted(m);
    pl_reg_before(m, reg);
    kernel.events = reg.events;
    kernel.data.u64 = reg.data;
    r = pl_real.epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &kernel);
    if (r == 0) {
        pl_reg_after(m, reg);
        return 0;
    }
    fb_lock(&ep->lock);
    m->events = events;
    m->data = data;
    ep->updating = false;
    atomic_store(&m->armed, armed);
    fb_unlock(&ep->lock);
    if (errno == ENOENT || errno == EBADF)
        pl_reg_detach(m); /* closed behind our back */
    return r;
}

static int del(struct pl_epoll *ep, int epfd, int fd, struct epoll_event *ev)
{
    struct pl_member *m = pl_member_find(ep, fd);
    int r;

    if (m && m->parked) {
        errno = ENOENT;
        return -1;
    }
    r = pl_real.epoll_ctl(epfd, EPOLL_CTL_DEL, fd, ev);
    if (m && (r == 0 || errno == ENOENT || errno == EBADF))
        pl_reg_detach(m);
    return r;
}

static __attribute__((noinline)) int do_ctl(struct pl_epoll *ep, int epfd, int op, int fd,
                                            struct epoll_event *ev)
{
    struct pl_file *target = NULL;
    int r, saved = errno, failed;

    if (op == EPOLL_CTL_ADD) {
        target = pl_get(fd);
        /* What cannot be served on a rail has left before it is registered. */
        if (target && target->kind == PL_STREAM && !fb_plain(target->stream) &&
            (ev->events & EPOLLEXCLUSIVE || atomic_load(&ep->pinned)))
            fb_pin(target->stream, RSN_EPOLL, true);
    }
    pl_ctl_lock(ep);
    /* Data that looks like ours: ours changes. */
    if (op != EPOLL_CTL_DEL && ev->data.u64 >> 32 == atomic_load(&ep->tag))
        pl_reg_retag(ep);
    if (op == EPOLL_CTL_ADD)
        r = add(ep, epfd, fd, ev, target);
    else
        r = op == EPOLL_CTL_MOD ? mod(ep, epfd, fd, ev) : del(ep, epfd, fd, ev);
    failed = errno;
    fb_unlock(&ep->ctl);
    errno = r < 0 ? failed : saved;
    return r;
}

/* An instance that another program has left us: only the kernel can serve it. */
static void leave_to_unknown(int fd)
{
    PL_HELD f = pl_get_stream(fd);

    if (f)
        fb_pin(f->stream, RSN_EPOLL, true);
}

PL_EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
    pl_ready();
    PL_HELD f = pl_hold(epfd);

    if (!f && op == EPOLL_CTL_ADD && pl_epoll_useful())
        leave_to_unknown(fd);
    if (!f || f->kind != PL_EPOLL ||
        (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL) ||
        (!ev && op != EPOLL_CTL_DEL))
        return pl_real.epoll_ctl(epfd, op, fd, ev);
    if (atomic_load_explicit(&pl_epoll_of(f)->hot, memory_order_relaxed) &&
        on_stub(pl_epoll_of(f), op, fd, ev))
        return 0;
    return do_ctl(pl_epoll_of(f), epfd, op, fd, ev);
}

PL_EXPORT int epoll_create(int size)
{
    int fd;

    pl_ready();
    fd = PL_NUMBERED(pl_real.epoll_create(size));
    if (fd >= 0)
        pl_epoll_created(fd);
    return fd;
}

PL_EXPORT int epoll_create1(int flags)
{
    int fd;

    pl_ready();
    fd = PL_NUMBERED(pl_real.epoll_create1(flags));
    if (fd >= 0)
        pl_epoll_created(fd);
    return fd;
}

/* ---- told by the wrappers of descriptors */

/* Is the number really registered, with this file behind it? Asked without changing anything. */
static bool registered(int epfd, int fd)
{
    struct epoll_event ev = {.events = EPOLLET};

    if (sys_epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == -EEXIST)
        return true;
    sys_epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
    return false;
}

/* A number of the instance, or -1. */
static int number_of(struct pl_epoll *ep)
{
    struct pl_file *f;
    int fd = -1;

    if (ep->kfd >= 0)
        return ep->kfd;
    f = pl_get(ep->number);
    if (f && f->kind == PL_EPOLL && pl_epoll_of(f) == ep)
        fd = ep->number;
    if (f)
        pl_put(f);
    return fd;
}

static void bind_in(struct pl_epoll *ep, void *arg)
{
    struct pl_file *f = arg;
    struct pl_member *m;
    int epfd;

    if (!atomic_load(&ep->nmembers))
        return;
    pl_ctl_lock(ep);
    m = pl_member_find(ep, f->fd);
    if (m && !m->file) {
        epfd = number_of(ep);
        if (epfd < 0) {
            fb_pin(f->stream, RSN_EPOLL, false);
        } else if (!registered(epfd, f->fd)) {
            pl_reg_detach(m);
        } else {
            late_bind(m, epfd, f->fd);
            pl_reg_update(m, epfd);
        }
    }
    fb_unlock(&ep->ctl);
}

void pl_epoll_stream_tracked(struct pl_file *f)
{
    if (f && pl_epoll_useful() && unmark(f->fd))
        pl_epoll_each(bind_in, f);
}

/* A duplicate keeps the kernel's registration alive, under a number that nobody can modify any
 * more: it gets what the application asked, for good. ctl held. */
static void leave_behind(struct pl_member *m, int epfd)
{
    struct epoll_event ev = {.events = m->events};

    ev.data.u64 = m->data;
    if (m->parked || (m->events & EPOLLONESHOT && !atomic_load(&m->armed)))
        sys_epoll_ctl(epfd, EPOLL_CTL_DEL, m->fd, NULL);
    else if (m->kevents != ev.events || m->kdata != ev.data.u64)
        sys_epoll_ctl(epfd, EPOLL_CTL_MOD, m->fd, &ev);
}

void pl_epoll_forget_members(struct pl_file *f, bool stays)
{
    /* Of a nested instance that has another number: the kernel alone can tell of it by this one. */
    const bool nested = f->kind == PL_EPOLL && atomic_load(&pl_epoll_of(f)->numbers) > 1;
    struct pl_member *m;

    if (nested)
        pl_epoll_give(f);
    while (pl_member_some(f, &m, 1) == 1) {
        struct pl_epoll *ep = m->ep;
        bool dup = nested || (m->stream && atomic_load(&m->stream->fds) > 1);

        /* Also who may yet board: that registration would tell of the switch, and of
         * nothing after it. */
        if (dup && m->stream &&
            !(atomic_load(&m->stream->flags) & FB_PINNED && fb_plain(m->stream)))
            fb_pin(m->stream, RSN_EPOLL, true);
        pl_ctl_lock(ep);
        if (!m->dead) {
            /* It may live on under a number of ours until its end has been said (linger.c), or for
             * as long as the progress thread's question about it takes. */
            bool ours = m->stream && !dup && !stays &&
                        (fb_may_linger(m->stream) || fb_may_be_found(m->stream));

            /* A forked child's copy keeps the registration, too, and nobody would know what its
             * events under a cookie mean. Without a copy the registration ends with the number:
             * given back to the application before that, it would cause one more event. */
            if (ep->kfd >= 0 && ours)
                sys_epoll_ctl(ep->kfd, EPOLL_CTL_DEL, m->fd, NULL);
            else if (ep->kfd >= 0 && (dup || stays || (m->stream && fb_shared(m->stream))))
                leave_behind(m, ep->kfd);
            pl_reg_detach(m);
        }
        fb_unlock(&ep->ctl);
        pl_member_put(m);
        pl_epoll_free(ep);
    }
}
