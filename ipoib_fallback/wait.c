/*
 * wait.c - how a receive or send that has found nothing waits (wait.h): for what comes by a ring it
 * spins a little and then sleeps on a futex word (the peer's process wakes it itself on shm), for
 * what comes on the anchor in the kernel's own recv(MSG_PEEK), or in poll if there is a time-out,
 * or the socket does not block any more. No lock is held while asleep. Application threads.
 *
 * Signals: handlers run in the windows of this file's sleeps, or after the call (rsock/section.h).
 * One that ran before a sleep has begun keeps the sleep from beginning, one that runs in it ends
 * it; then the half is looked at once more, and EINTR is for who finds nothing (sleep.h).
 */
#include "ipoib_fallback/wait.h"

#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/stream.h"

#include "config/env.h"
#include "rsock/loop.h"
#include "rsock/waitv.h"

#include <errno.h>

#define ALONE_NS 10000000u     /* where there has never been a progress thread */
#define GUARD_NS 5000000000ull /* on a guarded word alone */

static bool spin(struct fb_conn *c, struct wait *w, struct fb_spin *budget)
{
    uint32_t b = spin_budget(c, budget), spent = FB_SPIN_GET(budget, spent);
    uint64_t begin, now;
    unsigned bits;

    FB_SPIN_SET(budget, spent, 0);
    if (b == 0 || rsk_sig.pending)
        return false;
    now = sys_now();
    w->begin = begin = now - spent;
    for (unsigned i = 0;; i++) {
        bits = w->rail->wire->poll(w->rail, w->event | RSK_CTL);
        if (bits & RSK_CTL) {
            conn_mail(c);
            conn_serve(c);
        }
        if ((bits & (w->event | RSK_FAIL)) || atomic_load(w->word) != w->val) {
            /* Whoever waits for what has come shall not wait for the clock. What is missing are at
             * most fifteen looks, which the next spin takes in any case. */
            spin_served(c, budget, now - begin);
            spin_over(c, now, now - begin);
            w->begin = 0;
            return true;
        }
        sys_pause_cpu();
        if ((i & 15) == 15) {
            now = sys_now();
            if (now - begin >= b || rsk_sig.pending) /* a handler waits for us to sleep */
                break;
        }
    }
    spin_over(c, now, now - begin);
    return false; /* what it teaches, the sleep's end will show */
}

/* Sleeps, for `most` ns if not 0. 0: look again; -EINTR; -EAGAIN: the socket's
 * time-out has passed. */
static int sleep_on_word(struct fb_conn *c, struct wait *w, struct fb_raised *up, uint64_t most)
{
    struct timespec ts, *limit = NULL;
    bool alone = !rsk_loop_running(), guarded = w->rail && w->rail->guarded;
    int r;

    if (alone && !most)
        most = fb_sleep_most() < ALONE_NS ? fb_sleep_most() : ALONE_NS;
    if (guarded && !rsk_waitv_usable()) {
        guarded = false;
        if (!most)
            most = GUARD_NS;
    }
    if (w->deadline || most) {
        uint64_t now = sys_now(), left = most;

        if (w->deadline && now >= w->deadline)
            return -EAGAIN;
        if (w->deadline && (!most || w->deadline - now < left))
            left = w->deadline - now;
        ts.tv_sec = (time_t)(left / 1000000000u);
        ts.tv_nsec = (long)(left % 1000000000u);
        limit = &ts;
    }
    sleep_open(up, __builtin_frame_address(0));
    r = guarded ? sleep_futexes(w->word, w->val, w->own, w->own_val, limit, w->signals.seen)
                : sleep_futex(w->word, w->val, limit, w->signals.seen);
    if (alone) {
        /* A filter, a namespace or a limit does not let there be a progress thread, and
         * nobody else looks. */
        sleep_close(up, &w->signals);
        if (w->signals.forked)
            return -EINTR;
        fb_alone();
        atomic_store(&c->x->anchor_news, 1);
        conn_todo_rx(c, TODO_ANCHOR);
        conn_todo_tx(c, TODO_PUSH);
        conn_serve(c);
    } else if (r == -ETIMEDOUT && !most) {
        return -EAGAIN;
    }
    return sleep_ended(&w->signals, r == -EINTR ? r : 0, w->deadline);
}

/* The next wait may spin again, for as long as this one would have had to. */
static void slept(struct fb_conn *c, struct wait *w, struct fb_spin *budget)
{
    if (w->begin)
        spin_slept(c, budget, sys_now() - w->begin);
    w->begin = 0;
    w->spun = false;
}

/* Does this thread sleep on the anchor? In t the kernel wakes each of several receivers, and nobody
 * else tells them; a half whose rail has been given back hears of nothing but TCP (rx_unheard). */
static bool on_anchor(const struct fb_conn *c, const struct rsk_rail *rail)
{
    switch ((enum fb_rx_state)c->x->rx.state) {
    case RX_t:
        return true;
    case RX_r:
    case RX_q2:
        if (rail || c->x->rx.by_call)
            return false;
        /* fall through */
    default:
        return atomic_load(&c->s.rx_in) == 0;
    }
}

static bool rx_on_rail(const struct fb_conn *c)
{
    return c->x->rx.state == RX_r || c->x->rx.state == RX_q2;
}

/* rx lock held. The word is read before the last look (arm looks again after its fence), every
 * waker changes the word after what it tells of. */
static void rx_word(struct fb_conn *c, struct wait *w)
{
    struct rsk_rail *rail = c->x->rail;

    w->rail = NULL;
    w->word = w->own = &c->x->rx_futex;
    w->own_val = atomic_load(w->own);
    if (rx_on_rail(c) && rail && !rail->failed && !c->x->rx.frozen) {
        w->word = rail->rx_word;
        w->rail = rail;
        rsk_rail_get(rail);
    }
    w->val = atomic_load(w->word);
}

/* rx lock held. What a thread that found nothing waits on. */
static void rx_prepare(struct fb_conn *c, struct wait *w)
{
    w->rail = NULL;
    w->changes = atomic_load(&c->x->changes);
    w->event = RSK_RX;
    w->frames = rx_on_rail(c);
    if (on_anchor(c, c->x->rail)) {
        w->where = ON_ANCHOR;
        atomic_fetch_add(&c->x->peekers, 1);
        return;
    }
    w->where = ON_WORD;
    rx_word(c, w);
}

void wait_limit(struct wait *w, uint64_t timeout)
{
    w->timeout = timeout;
    w->timed = timeout && !hold_for_good();
}

/* A filter may have come during the call. */
static bool timed(struct wait *w)
{
    if (w->timed && hold_for_good())
        w->timed = false;
    return w->timed;
}

static void begin_to_wait(struct wait *w)
{
    w->signals.ran = false;
    if (w->timeout && !w->deadline)
        w->deadline = sys_now() + w->timeout;
}

static int rx_wait(struct fb_conn *c, int fd, struct wait *w)
{
    struct fb_raised up __attribute__((cleanup(sleep_raised_end))) = {.rail = w->rail};
    int r = 0;

    if (w->where == ON_ANCHOR) {
        bool by_poll;
        ssize_t n;

        w->marks = w->marks && !hold_for_good();
        by_poll = timed(w) || w->marks;
        up.count = &c->x->peekers;
        sleep_open(&up, __builtin_frame_address(0));
        n = by_poll ? 0 : sleep_peek(fd, w->signals.seen);
        /* EAGAIN: another thread has changed the socket's mode, or its time-out. Ours are
         * those of before. */
        if (by_poll || (n == -EAGAIN && !hold_for_good()))
            n = sleep_poll(fd, w->marks ? POLLIN | POLLPRI : POLLIN, w->deadline, w->signals.seen);
        /* At most once: it may be ahead of bytes that are still on their way. */
        if (w->marks && n > 0 && !(n & POLLIN))
            w->marks = false;
        if (n >= 0)
            sys_yield(); /* a frame may have to wait for another thread that is just waking up */
        else if (n == -EBADF || n == -ENOTSOCK)
            return (int)n; /* closed where nobody sees it */
        else if (n != -EAGAIN && n != -EINTR)
            conn_untold(c, (int)n); /* taken by looking: for the next look */
        sleep_close(&up, &w->signals);
        return n == -EAGAIN ? -EAGAIN : sleep_ended(&w->signals, n, w->deadline);
    }
    if (w->rail && !w->spun) {
        w->spun = true;
        spin(c, w, &c->x->spin_rx);
    } else {
        atomic_fetch_add(&c->x->rx_waiters, 1);
        up.count = &c->x->rx_waiters;
        /* conn_wake counts, then looks for waiters; we are a waiter, then look at the count. */
        if (atomic_load(&c->x->changes) == w->changes && !atomic_load(&c->x->rx_todo) &&
            !(w->frames && atomic_load(&c->x->anchor_news)) &&
            (!w->rail || (!w->rail->wire->arm(w->rail, RSK_RX, RSK_BY_FUTEX) && !w->rail->failed)))
            r = sleep_on_word(c, w, &up, 0);
        slept(c, w, &c->x->spin_rx);
    }
    sleep_close(&up, &w->signals);
    return r;
}

/* r: how a wait has ended. What the call does then. */
static int waited(struct wait *w, int r)
{
    if (w->signals.forked)
        return -EINTR;
    w->cut = r == -EINTR || (w->some && w->signals.ran);
    return w->cut ? 0 : r;
}

int wait_rx(struct fb_conn *c, int fd, struct wait *w)
{
    begin_to_wait(w);
    rx_prepare(c, w);
    rx_unlock(c);
    return waited(w, rx_wait(c, fd, w));
}

/* Whoever has bytes is not told of those that follow, except by the wish on shm, which is
 * fulfilled for each. */
int wait_more(struct fb_conn *c, struct wait *w)
{
    struct fb_raised up __attribute__((cleanup(sleep_raised_end))) = {0};
    int r;

    begin_to_wait(w);
    w->some = true;
    fb_lock(&c->x->rx.lock);
    rx_word(c, w);
    rx_unlock(c);
    up.rail = w->rail;
    if (w->rail)
        (void)w->rail->wire->arm(w->rail, RSK_RX, RSK_BY_FUTEX);
    w->more_ms = w->more_ms >= 4 ? 8 : w->more_ms ? (uint8_t)(2 * w->more_ms) : 1;
    r = sleep_on_word(c, w, &up, 1000000u * w->more_ms);
    sleep_close(&up, &w->signals);
    return waited(w, r);
}

static void tx_prepare(struct fb_conn *c, struct wait *w)
{
    struct rsk_rail *rail = c->x->rail;

    w->rail = NULL;
    w->changes = atomic_load(&c->x->changes);
    w->event = RSK_TX;
    w->where = ON_WORD;
    w->word = w->own = &c->x->tx_futex;
    w->own_val = atomic_load(w->own);
    if (c->x->tx.state == TX_R && rail && !rail->failed) {
        w->word = rail->tx_word;
        w->rail = rail;
        rsk_rail_get(rail);
    }
    w->val = atomic_load(w->word);
}

static int tx_wait(struct fb_conn *c, struct wait *w)
{
    struct fb_raised up __attribute__((cleanup(sleep_raised_end))) = {.rail = w->rail};
    int r = 0;

    if (w->rail && !w->spun) {
        w->spun = true;
        spin(c, w, &c->x->spin_tx);
    } else {
        atomic_fetch_add(&c->x->tx_waiters, 1);
        up.count = &c->x->tx_waiters;
        if (atomic_load(&c->x->changes) == w->changes && !atomic_load(&c->x->tx_todo) &&
            (!w->rail || (!w->rail->wire->arm(w->rail, RSK_TX, RSK_BY_FUTEX) && !w->rail->failed)))
            r = sleep_on_word(c, w, &up, 0);
        slept(c, w, &c->x->spin_tx);
    }
    sleep_close(&up, &w->signals);
    return r;
}

int wait_tx(struct fb_conn *c, struct wait *w)
{
    begin_to_wait(w);
    tx_prepare(c, w);
    tx_unlock(c);
    return waited(w, tx_wait(c, w));
}

int wait_writable(int fd, struct wait *w)
{
    struct fb_raised up __attribute__((cleanup(sleep_raised_end))) = {0};
    int r;

    begin_to_wait(w);
    if (hold_for_good()) { /* one has come during the call */
        w->timed = false;
        return 0;
    }
    sleep_open(&up, __builtin_frame_address(0));
    r = sleep_poll(fd, POLLOUT, w->deadline, w->signals.seen);
    sleep_close(&up, &w->signals);
    if (w->signals.forked)
        return -EINTR;
    if (r == -EAGAIN)
        return r;
    w->cut = sleep_ended(&w->signals, r, w->deadline) == -EINTR || (w->some && w->signals.ran);
    return 0;
}
