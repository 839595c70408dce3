/*
 * pl_epoll_wait.c - epoll_wait, epoll_pwait, epoll_pwait2. An instance without hot members goes
 * to libc, and what comes back is looked at only if data of ours may be in it. With hot members:
 * drain the shard, collect the ready list, ask the kernel without waiting; then spin; then sleep in
 * the kernel's epoll_wait, where the shard's descriptors and our eventfd are, too.
 *
 * What is not exact costs a loop, never an entry of the application's array: our own events are
 * taken out before it is returned. EINTR is returned as it comes, as epoll_wait always does.
 *
 * Any application thread; locks: pl_epoll.h, none held in a sleep.
 */
#include "preload/pl_epoll.h"
#include "preload/pl_own.h"

#include <errno.h>
#include <pthread.h>

#include "config/env.h"
#include "rsock/sys.h"

enum how { WAIT, PWAIT, PWAIT2 };

struct call {
    int epfd;
    struct epoll_event *out;
    int max;
    enum how how;
    int ms;
    const struct timespec *ts;
    const sigset_t *mask;
};

static int real_call(const struct call *c)
{
    switch (c->how) {
    case WAIT:
        return pl_real.epoll_wait(c->epfd, c->out, c->max, c->ms);
    case PWAIT:
        return pl_real.epoll_pwait(c->epfd, c->out, c->max, c->ms, c->mask);
    case PWAIT2:
        break;
    }
    return pl_real.epoll_pwait2(c->epfd, c->out, c->max, c->ts, c->mask);
}

/* The same with the time that remains. Count or -errno; -EINTR at once if a handler has run since
 * the call began. A cancellation point: see sleep.c. */
__attribute__((noinline)) static int cancellable(const struct call *c, uint64_t deadline,
                                                 uint32_t signals)
{
    struct timespec ts;
    struct rsk_cancel cancel;
    int n;

    cancel = rsk_cancel_open();
    if (c->how == PWAIT2)
        n = (int)RSK_SLEEP(&rsk_sig.seen, signals, SYS_epoll_pwait2, c->epfd, c->out, c->max,
                           pl_remaining(deadline, &ts), c->mask, 8);
    else
        n = (int)RSK_SLEEP(&rsk_sig.seen, signals, SYS_epoll_pwait, c->epfd, c->out, c->max,
                           pl_remaining_ms(deadline), c->mask, 8);
    rsk_cancel_close(cancel);
    return n;
}

static bool at_once(const struct call *c)
{
    return c->how == PWAIT2 ? c->ts && !c->ts->tv_sec && !c->ts->tv_nsec : c->ms == 0;
}

/* ---- one look at everything */

/* Events of the kernel's, without waiting, behind `have` that were collected when flips was
 * `before` or later. Count or -errno. */
static int look_kernel(struct pl_epoll *ep, const struct call *c, int have, uint64_t before,
                       bool *ours)
{
    for (;;) {
        uint64_t since = have ? before : atomic_load(&ep->flips);
        int n = sys_epoll_wait(c->epfd, c->out + have, c->max - have, 0), left = 0;

        if (n > 0)
            left = pl_filter(ep, c->out + have, n, since, have, ours);
        atomic_store_explicit(&ep->kernel_had, left > 0, memory_order_relaxed);
        if (n <= 0)
            return n;
        /* Only ours, and the array was full of them: there may be more behind. Levels that were put
         * off are still there. */
        if (left || have || n < c->max - have)
            return left;
    }
}

/* brief: if nothing is found the caller looks again. It spins first, where most find something
 * before the kernel need be asked, or sleeps in the kernel at once, which asks it. So the kernel
 * need not be asked here, unless it had something the last time.
 * *missed: another thread was draining the shard, and what came where it had been already is not
 * told yet. */
static int look(struct pl_epoll *ep, const struct call *c, uint64_t now, bool brief, bool *missed)
{
    bool ours = false, asked = pl_ready_kernels_turn(ep);
    int n = 0, k;
    uint64_t since;

    *missed = pl_ready_drain(ep) < 0;
    /* One that has just left: the kernel must know its registration before it is asked. */
    if (asked)
        pl_ready_settle(ep);
    since = atomic_load(&ep->flips);
    if (asked) {
        n = look_kernel(ep, c, 0, 0, &ours);
        if (n < 0)
            return n;
        atomic_store_explicit(&ep->both, n == c->max, memory_order_relaxed);
    }
    k = pl_ready_collect_behind(ep, c->out + n, c->max - n, n ? since : UINT64_MAX,
                                brief && pl_spins() && pl_ready_lazy(ep));
    n += k;
    if (n == c->max)
        atomic_fetch_add_explicit(&ep->ahead, (uint32_t)k, memory_order_relaxed);
    if (asked || n == c->max)
        return n;
    brief = brief && !atomic_load_explicit(&ep->kernel_had, memory_order_relaxed);
    if (n == 0 && brief && !pl_spins())
        return 0;
    /* Another thread may have asked since `now`. */
    if ((n > 0 || brief) &&
        (int64_t)(now - atomic_load_explicit(&ep->kernel_at, memory_order_relaxed)) < PL_KERNEL_NS)
        return n;
    atomic_store_explicit(&ep->kernel_at, now, memory_order_relaxed);
    k = look_kernel(ep, c, n, since, &ours);
    if (k < 0)
        return n ? n : k;
    /* Hints: only if there is nothing else, or a member could be reported twice. */
    if (n + k == 0 && ours)
        return pl_ready_collect(ep, c->out, c->max);
    return n + k;
}

/* Spins from `now` on as long as it may pay. *at: its last look. Count, 0: in vain, or -errno. */
static int spin(struct pl_epoll *ep, const struct call *c, uint64_t now, uint64_t until,
                uint64_t *at)
{
    uint64_t kernel_at = pl_spin_kernel_at(now, now);
    struct rsk_shard *common = rsk_shard_common();

    while (now < until) {
        bool closer = true;
        int n = 0;

        pl_ready_drain(ep);
        if (common && atomic_load_explicit(&ep->elsewhere, memory_order_relaxed))
            rsk_shard_drain(common);
        if (atomic_load_explicit(&ep->inbox, memory_order_relaxed) ||
            atomic_load_explicit(&ep->nready, memory_order_relaxed)) {
            bool lazy = pl_ready_lazy(ep);

            if (lazy && !atomic_load_explicit(&ep->inbox, memory_order_relaxed))
                n = pl_ready_glance(ep, c->out, c->max, &closer);
            if (!n && closer)
                n = pl_ready_collect_behind(ep, c->out, c->max, UINT64_MAX, lazy);
        }
        if (!n && now >= kernel_at) {
            bool ours = false;

            atomic_store_explicit(&ep->kernel_at, now, memory_order_relaxed);
            n = look_kernel(ep, c, 0, 0, &ours);
            if (!n && ours)
                n = pl_ready_collect(ep, c->out, c->max);
            kernel_at = pl_spin_kernel_at(now, sys_now());
        }
        *at = now;
        if (n)
            return n;
        if (rsk_sig.pending)
            return 0;
        sys_pause_cpu();
        now = sys_now();
    }
    return 0;
}

/* Once in a wait: *began says whether it has. *ended: as spin's *at, if it found something. */
static int spin_once(struct pl_epoll *ep, const struct call *c, uint64_t now, uint64_t deadline,
                     uint64_t *began, uint64_t *ended)
{
    uint64_t until = now + pl_spin_budget(atomic_load(&ep->hot));
    int n;

    if (*began)
        return 0;
    *began = now;
    n = spin(ep, c, now, until < deadline ? until : deadline, ended);
    if (n == 0)
        *ended = 0;
    return n;
}

/* ---- sleeping */

struct sleep {
    struct pl_block block; /* first: a handler may longjmp out of the sleep */
    struct pl_epoll *ep;   /* reference */
    bool counted, armed;
    bool leans; /* on the common shard, by which members get their news */
};

static void end_sleep(struct sleep *s)
{
    if (s->armed)
        rsk_shard_disarm(s->ep->shard);
    if (s->leans)
        rsk_shard_disarm(rsk_shard_common());
    if (s->counted) {
        atomic_fetch_sub(&s->ep->resting, 1);
        atomic_fetch_sub(&s->ep->asleep, 1);
    }
    s->armed = s->leans = s->counted = false;
}

/* A sleeper that a jump or a cancel ends may have been woken: the wake-up is for the others. */
static void wake_another(struct pl_epoll *ep)
{
    if (!atomic_load(&ep->asleep))
        return;
    atomic_store(&ep->kicked, 0); /* the one that would have come for it does not */
    pl_ready_kick(ep);
}

static void undo(struct pl_block *b)
{
    struct sleep *s = (struct sleep *)b;

    end_sleep(s);
    wake_another(s->ep);
    pl_epoll_free(s->ep);
}

static void put_sleep(struct sleep **s)
{
    if (*s)
        pl_block_put(&(*s)->block);
}

/* Who finds something at once does without. frame: of who has it put. NULL: no memory. */
static struct sleep *new_sleep(struct pl_epoll *ep, const void *frame)
{
    struct sleep *s = (struct sleep *)pl_block_get(sizeof *s, frame, NULL);

    if (!s)
        return NULL;
    pl_epoll_get(ep);
    s->ep = ep;
    s->counted = s->armed = s->leans = false;
    s->block.undo = undo;
    return s;
}

/* Others sleep, and we return to our caller with the shard's news used up: arm it for them, and if
 * anything is ready, wake one, who will do the same. One is also woken if none of them keeps it
 * armed, because all have slept since before there was a rail (who wakes will arm it), and if there
 * is no progress thread any more, as they sleep for too long then. */
static void pass_baton(struct pl_epoll *ep)
{
    if (!atomic_load(&ep->asleep))
        return;
    if (atomic_load(&ep->woven)) {
        if (rsk_shard_arm(ep->shard))
            pl_ready_drain_all(ep);
        rsk_shard_disarm(ep->shard);
    }
    if (atomic_load(&ep->inbox) || atomic_load(&ep->nready) || atomic_load(&ep->ndirty) ||
        (atomic_load(&ep->hot) && ((!atomic_load(&ep->resting) && !atomic_load(&ep->joined)) ||
                                   fb_sleep_most() != UINT64_MAX)))
        pl_ready_kick(ep);
}

/* Sleeps in the kernel. Count, 0 when it is time to look again, or -errno. */
static int rest(struct sleep *s, const struct call *c, uint64_t deadline, uint32_t signals)
{
    struct pl_epoll *ep = s->ep;
    uint64_t since;
    bool ours = false;
    int n;

    atomic_fetch_add(&ep->asleep, 1); /* before the last look: see pl_epoll_ready.c */
    atomic_fetch_add(&ep->resting, 1);
    s->counted = true;
    s->armed = atomic_load(&ep->woven);
    if (s->armed && rsk_shard_arm(ep->shard))
        pl_ready_drain_all(ep);
    s->leans = atomic_load(&ep->elsewhere) != 0;
    if (s->leans)
        rsk_shard_lean(rsk_shard_common());
    since = atomic_load(&ep->flips);
    n = pl_ready_collect(ep, c->out, c->max);
    if (n == 0) {
        uint64_t most = fb_sleep_most();

        if (most != UINT64_MAX && deadline > sys_now() + most)
            deadline = sys_now() + most;
        n = RSK_OPENED(cancellable(c, deadline, signals));
        if (pl_block_lost(&s->block))
            return -EINTR;
        end_sleep(s);
        if (n > 0) {
            n = pl_filter(ep, c->out, n, since, 0, &ours);
            atomic_store_explicit(&ep->kernel_had, n > 0, memory_order_relaxed);
        }
        if (n >= 0 && n < c->max)
            n += pl_ready_collect_behind(ep, c->out + n, c->max - n, n ? since : UINT64_MAX, false);
    }
    end_sleep(s);
    return n;
}

/* For an instance with hot members, or after the kernel returned nothing but ours. */
__attribute__((noinline)) static int serve(struct pl_epoll *ep, const struct call *c,
                                           uint64_t deadline, uint32_t signals)
{
    pthread_testcancel(); /* though nothing may have to be waited for */
    struct sleep *s __attribute__((cleanup(put_sleep))) = NULL;
    bool brief = !at_once(c) && atomic_load(&ep->hot);
    uint64_t began = 0, ended = 0;
    int n, saved = errno, others = 0;

    for (;;) {
        /* Of a look's begin: what it decides may as well be late by one. */
        uint64_t now = sys_now(), flips = atomic_load(&ep->flips);
        bool missed, was_brief = brief;

        fb_alone();
        brief = false;
        n = look(ep, c, now, was_brief, &missed);
        if (n != 0)
            break;
        if (now >= deadline) {
            if (was_brief)
                continue;
            /* Who changed track between our list and the kernel's was on neither. */
            if (atomic_load(&ep->flips) != flips)
                continue;
            if (missed)
                pl_ready_drain_all(ep);
            if (pl_ready_elsewhere(ep) || missed)
                n = pl_ready_collect(ep, c->out, c->max);
            if (n == 0 && others++ < PL_OTHERS && pl_ready_in_hand(ep))
                continue;
            break;
        }
        if (!rsk_sig.pending && rsk_sig.seen == signals) {
            n = spin_once(ep, c, now, deadline, &began, &ended);
            if (n != 0)
                break;
        }
        /* A handler may leave the wait, or fork and return in the child, where the instance is
         * the parent's. */
        if (!s && !(s = new_sleep(ep, __builtin_frame_address(0)))) {
            n = -ENOMEM;
            break;
        }
        rsk_section_pause();
        if (pl_block_lost(&s->block)) {
            n = -EINTR;
            break;
        }
        if (rsk_sig.seen != signals) {
            if (was_brief) /* what the kernel has comes first */
                continue;
            n = -EINTR;
            break;
        }
        n = spin_once(ep, c, now, deadline, &began, &ended);
        if (n != 0)
            break;
        n = rest(s, c, deadline, signals);
        if (n != 0)
            break;
    }
    if (n > 0 && atomic_load(&ep->hot)) {
        pl_spin_ready((unsigned)n);
        if (began)
            pl_spin_result(began, ended);
    }
    if (!s || !pl_block_lost(&s->block))
        pass_baton(ep);
    errno = saved;
    return n;
}

/* ---- the calls */

struct counted {
    struct pl_epoll *ep;
    bool sleeps;
    struct rsk_pass pass;
};

static void lower(void *ep, void *sleeps)
{
    if (sleeps)
        atomic_fetch_sub(&((struct pl_epoll *)ep)->asleep, 1);
}

static void abandon(void *ep, void *sleeps)
{
    lower(ep, sleeps);
    wake_another(ep);
}

static void uncount(struct counted *c)
{
    if (!c->pass.open || rsk_window_close(&c->pass))
        lower(c->ep, c->sleeps ? c : NULL);
}

/* The kernel alone, unless the instance is not quiet: then *served is set. */
static int plain_wait(struct pl_epoll *ep, const struct call *c, bool *served)
{
    /* Also in an instance that has never seen a stream: another thread may add one meanwhile. */
    struct counted counted __attribute__((cleanup(uncount))) = {ep, !at_once(c), {0}};
    int n;

    if (counted.sleeps)
        atomic_fetch_add(&ep->asleep, 1);
    if (!pl_epoll_quiet(ep)) {
        *served = true;
        return 0;
    }
    rsk_window_open(&counted.pass, __builtin_frame_address(0), abandon, ep,
                    counted.sleeps ? ep : NULL);
    n = real_call(c);
    /* A handler that forked came with events: they are about registrations of the parent's. */
    if (n > 0 && rsk_pass_forked(&counted.pass)) {
        errno = EINTR;
        n = -1;
    }
    return n;
}

static int do_wait(struct pl_epoll *ep, const struct call *c)
{
    uint64_t since = atomic_load(&ep->flips), deadline;
    uint32_t signals = rsk_sig.seen;
    bool served = atomic_load(&ep->hot) != 0, ours = false;
    int n = 0;

    /* A call that the kernel refuses, it shall refuse. */
    if (c->max <= 0 || !c->out || (c->how == PWAIT2 && c->ts && !pl_ts_valid(c->ts)))
        return RSK_OPENED(real_call(c));
    deadline = c->how == PWAIT2 ? pl_deadline_ts(c->ts) : pl_deadline_ms(c->ms);
    if (!served)
        n = plain_wait(ep, c, &served);
    if (!served) {
        if (n < 0)
            return n;
        if (n > 0)
            n = pl_filter(ep, c->out, n, since, 0, &ours);
        if (n > 0) {
            if (ours)
                pass_baton(ep);
            return n;
        }
        if (!ours && pl_epoll_quiet(ep))
            return 0;
    }
    return (int)pl_ret(serve(ep, c, deadline, signals));
}

static int wait_call(const struct call *c)
{
    pl_ready();
    PL_HELD f = pl_hold(c->epfd);

    if (!f)
        return real_call(c);
    if (f->kind != PL_EPOLL)
        return RSK_OPENED(real_call(c));
    return do_wait(pl_epoll_of(f), c);
}

PL_EXPORT int epoll_wait(int epfd, struct epoll_event *ev, int max, int timeout)
{
    return wait_call(
        &(struct call){.epfd = epfd, .out = ev, .max = max, .how = WAIT, .ms = timeout});
}

PL_EXPORT int epoll_pwait(int epfd, struct epoll_event *ev, int max, int timeout,
                          const sigset_t *mask)
{
    return wait_call(&(struct call){
        .epfd = epfd, .out = ev, .max = max, .how = PWAIT, .ms = timeout, .mask = mask});
}

PL_EXPORT int epoll_pwait2(int epfd, struct epoll_event *ev, int max,
                           const struct timespec *timeout, const sigset_t *mask)
{
    return wait_call(&(struct call){
        .epfd = epfd, .out = ev, .max = max, .how = PWAIT2, .ts = timeout, .mask = mask});
}
