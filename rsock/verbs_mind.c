/*
 * verbs_mind.c - the progress thread looks after parts that nobody drains.
 *
 * While a part's timer does not run ("not minded") every CQ of it is armed, so the next
 * completion makes its descriptor fire, which this thread watches as well. Whoever consumes
 * that event without being this thread asks for the timer. The timer leaves a part alone that
 * an application thread has drained since the last look; else it drains, has unposted bytes
 * posted, arms, and stops. So an application that computes holds nothing up for more than 20 ms,
 * and an idle part costs nothing.
 *
 * While the timer runs this thread does not watch the descriptor: an application that sleeps in its
 * epoll instance arms for each of its sleeps, and each message would wake both. Only for who sleeps
 * by futex, and has nobody but this thread, it does: unwatch() clears `watched`, then looks for
 * sleepers; who sleeps counts himself, then looks at `watched`.
 *
 * The common shard's descriptor is watched by the loop itself.
 */
#include <errno.h>
#include <sys/eventfd.h>

#include "rsock/verbs_int.h"

static const uint64_t LOOK_NS = 20 * 1000000, SOON_NS = 1000000;

static int kick_fd = -1;

static void on_timer(void *arg);
static void on_fd(void *arg, uint32_t events);

/* In ns, or as soon as it would have looked anyway. */
static void again(struct vb_part *p, uint64_t ns)
{
    uint64_t at = sys_now() + ns;

    atomic_store(&p->minding, true);
    if (p->timer && p->timer_at <= at)
        return;
    if (p->timer)
        rsk_timer_cancel(p->timer);
    p->timer_at = at;
    p->timer = rsk_timer_add(ns, on_timer, p);
    if (!p->timer) { /* no memory: as it is without one, who next uses the arming up asks again */
        atomic_store(&p->minding, false);
        atomic_store(&p->due_wanted, false);
        (void)vb_part_arm(p);
    }
}

void vb_mind_watch(struct vb_part *p)
{
    if (p->common || !p->channel)
        return;
    /* Edge-triggered, and an edge for what is there already. */
    if (!p->watch)
        p->watch = rsk_watch_fd(p->base.fd, EPOLLIN | EPOLLET, true, on_fd, p);
    atomic_store(&p->watched, p->watch != NULL);
}

static void unwatch(struct vb_part *p)
{
    if (!p->watch)
        return;
    rsk_unwatch(p->watch);
    p->watch = NULL;
    atomic_store(&p->watched, false);
    if (atomic_load(&p->sleepers))
        vb_mind_watch(p);
}

void vb_mind_watch_ask(struct vb_part *p)
{
    if (p->common || atomic_load(&p->watched))
        return;
    if (!atomic_exchange(&p->watch_wanted, true))
        vb_kick();
}

/* Bytes that wait for message credit: have the peer say when there is some, and the layer above
 * post, for only it may take the tx lock. */
static void push_unposted(struct vb_part *p)
{
    for (unsigned i = 0; i < vb_rails_high; i++) {
        struct vb_rail *r = atomic_load_explicit(&vb_rails[i], memory_order_relaxed);

        if (!r || r->part != p || r->state != VB_UP ||
            atomic_load_explicit(&r->base.failed, memory_order_relaxed))
            continue;
        vb_due(r, 0);
        if (!atomic_load(&r->open) || atomic_load(&r->stopped) ||
            atomic_load(&r->posted) == atomic_load(&r->tx))
            continue;
        vb_due(r, VB_DUE_WAIT_MESSAGES);
        vb_tell(r, RSK_TX);
    }
}

/* Credit that the peer gave back by a plain write: nothing tells of it. True: still some due, for
 * which the pauses grow: a peer may never give any. */
static bool retry_due(struct vb_part *p)
{
    bool left = false, still;

    if (!atomic_exchange(&p->due_wanted, false)) {
        p->due_ns = 0;
        return false;
    }
    p->retrying = true;
    for (unsigned i = 0; i < vb_rails_high; i++) {
        struct vb_rail *r = atomic_load_explicit(&vb_rails[i], memory_order_relaxed);

        if (!r || r->part != p)
            continue;
        vb_due(r, 0);
        still = (atomic_load(&r->due) & ~(unsigned)VB_DUE_SOON) && !atomic_load(&r->base.failed);
        atomic_store(&r->pausing, still);
        left |= still;
    }
    p->retrying = false;
    /* due_wanted may be set again: by another thread, or by one of the rails above, for which
     * this thread does not kick. And who asks while it is set does not kick either. So the timer
     * has to go on. */
    left |= atomic_load(&p->due_wanted);
    if (left)
        atomic_store(&p->due_wanted, true);
    if (!left)
        p->due_ns = 0;
    else if (p->due_ns < LOOK_NS)
        p->due_ns = p->due_ns ? 2 * p->due_ns : SOON_NS;
    return left;
}

void vb_mind_due(struct vb_part *p, bool anew)
{
    bool asks = !atomic_exchange(&p->due_wanted, true);

    /* Whoever is at it looks without that. */
    if (rsk_loop_is_self() && p->retrying)
        return;
    /* One to whom no credit comes shall not make others wait for theirs. */
    if (anew && atomic_load(&p->due_ns) > SOON_NS)
        asks |= !atomic_exchange(&p->due_anew, true);
    if (asks)
        vb_kick();
}

static uint64_t next_look(const struct vb_part *p)
{
    return p->due_ns && p->due_ns < LOOK_NS ? p->due_ns : LOOK_NS;
}

static void on_timer(void *arg)
{
    struct vb_part *p = arg;
    uint32_t drains = atomic_load_explicit(&p->drains, memory_order_relaxed);
    bool found, left;

    p->timer = NULL;
    vb_lock(&p->life);
    if (!p->shard || !p->channel)
        goto out;
    left = retry_due(p);
    if (drains != p->seen_drains) {
        p->seen_drains = drains;
        push_unposted(p); /* who drains may not be who has bytes to post */
        again(p, next_look(p));
        goto out;
    }
    /* First "not minded", then arm: a drain that consumes this arming sees it and asks. */
    atomic_store(&p->minding, false);
    found = rsk_shard_drain(p->shard) > 0;
    push_unposted(p);
    vb_mind_watch(p);
    if (vb_part_arm(p))
        again(p, 0);
    else if (found || left || (!p->common && !p->watch)) /* no memory for the watch */
        again(p, next_look(p));
out:
    vb_unlock(&p->life);
}

static void on_fd(void *arg, uint32_t events)
{
    struct vb_part *p = arg;

    (void)events;
    vb_lock(&p->life);
    if (p->shard && p->channel) {
        /* If the thread that drained it has left that to us (RSK_BY_LOOP), or there are futex
         * sleepers, nobody else may tell them: it drains at once. Else the shard's owner has a
         * moment to come first, also one whose drain is already past this news. */
        bool mine = atomic_exchange(&p->left, false) || atomic_load(&p->sleepers);

        if (mine && rsk_shard_drain(p->shard) >= 0) {
            /* told */
        } else {
            if (!atomic_load(&p->minding)) {
                p->seen_drains = atomic_load_explicit(&p->drains, memory_order_relaxed);
                again(p, SOON_NS);
            }
            if (!atomic_load(&p->sleepers) && atomic_load(&p->minding))
                unwatch(p);
        }
    }
    vb_unlock(&p->life);
}

void vb_mind_start(struct vb_part *p)
{
    if (atomic_load(&p->minding) || !p->channel)
        return;
    p->seen_drains = atomic_load_explicit(&p->drains, memory_order_relaxed);
    again(p, LOOK_NS);
}

void vb_mind_end(struct vb_part *p)
{
    if (p->watch)
        rsk_unwatch(p->watch);
    if (p->timer)
        rsk_timer_cancel(p->timer);
    p->watch = NULL;
    p->timer = NULL;
    atomic_store(&p->watched, false);
    atomic_store(&p->minding, false);
}

/* ---- the kick */

static void on_kick(void *arg, uint32_t events)
{
    uint64_t n;

    (void)arg, (void)events;
    sys_read(kick_fd, &n, sizeof n);
    vb_probe_kicked();
    for (unsigned i = 0; i < vb_rails_high; i++) {
        struct vb_rail *r = atomic_load_explicit(&vb_rails[i], memory_order_relaxed);

        if (!r)
            continue;
        if (atomic_load(&r->down))
            vb_rail_down(r);
        if (r->state != VB_UP)
            vb_setup_step(r);
    }
    for (struct vb_part *p = vb_parts; p; p = p->next) {
        if (atomic_exchange(&p->due_anew, false))
            p->due_ns = 0;
        if (atomic_load(&p->due_wanted) && p->channel)
            again(p, p->due_ns ? p->due_ns : SOON_NS);
        if (atomic_exchange(&p->mind_wanted, false))
            vb_mind_start(p);
        if (atomic_exchange(&p->watch_wanted, false))
            vb_mind_watch(p);
    }
}

int vb_kick_open(void)
{
    if (kick_fd >= 0)
        return 0;
    kick_fd = rsk_own_fd(sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (kick_fd < 0)
        return kick_fd;
    if (!rsk_watch_fd(kick_fd, EPOLLIN, false, on_kick, NULL)) {
        rsk_own_close(kick_fd);
        kick_fd = -1;
        return -ENOMEM;
    }
    return 0;
}

void vb_kick(void)
{
    const uint64_t one = 1;

    sys_write(kick_fd, &one, sizeof one);
}

void vb_kick_forget(void)
{
    kick_fd = -1;
}
