/*
 * wait.c - blocking receive and send on a half that is not plain. A thread waits
 * where the bytes will come from: on the ring by spinning a little and then on a futex
 * word (the peer's process wakes it itself on shm), on the anchor in the
 * kernel's own recv(MSG_PEEK). No lock is held while asleep.
 *
 * Signals: handlers run in the windows of this file's sleeps, or after the call (rsock/section.h). One
 * that ran before a sleep has begun keeps the sleep from beginning, one that runs in it ends it; then the half is
 * looked at once more, and EINTR is for who finds nothing (sleep.h).
 */
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/sleep.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/stream.h"
#include "ipoib_fallback/tap.h"

#include "config/env.h"
#include "rsock/loop.h"

#include <errno.h>

#define PIECES   16
#define ALONE_NS 10000000u /* without a progress thread */

enum where { ON_WORD, ON_ANCHOR, ON_NOTHING };

struct wait {
    enum where where;
    _Atomic uint32_t *word;
    uint32_t val;
    struct rsk_rail *rail; /* referenced */
    unsigned event;
    uint32_t changes; /* conn_wake has run since: look again */
    bool frames;      /* what comes on the anchor is looked at before the next byte is read */
    bool spun;
    uint64_t begin;    /* of the spin before this sleep */
    uint64_t timeout;  /* ns; 0 = none */
    uint64_t deadline; /* monotonic ns; 0 = none, or nothing has been waited for yet */
    bool
        timed; /* there is one, and it is ours to keep: the kernel would count anew for each of its calls */
    struct fb_signals signals;
    bool cut; /* EINTR if the next look finds nothing */
};

/* A moving window over the application's vector. */
struct cursor {
    const struct iovec *v;
    int cnt;
    size_t off, left;
};

static int window(const struct cursor *u, struct iovec part[PIECES])
{
    size_t off = u->off;
    int n = 0;

    for (int i = 0; i < u->cnt && n < PIECES; i++) {
        if (u->v[i].iov_len > off) {
            part[n].iov_base = (char *)u->v[i].iov_base + off;
            part[n++].iov_len = u->v[i].iov_len - off;
        }
        off = 0;
    }
    return n;
}

static void advance(struct cursor *u, size_t n)
{
    u->left -= n;
    while (n > 0) {
        size_t have = u->v->iov_len - u->off;

        if (n < have) {
            u->off += n;
            return;
        }
        n -= have;
        u->v++;
        u->cnt--;
        u->off = 0;
    }
}

static bool spin(struct fb_conn *c, struct wait *w, struct fb_spin *budget)
{
    uint32_t b = spin_budget(c, budget);
    uint64_t begin, now;
    unsigned bits;

    if (b == 0 || rsk_sig.pending)
        return false;
    w->begin = begin = sys_now();
    for (unsigned i = 0;; i++) {
        bits = w->rail->wire->poll(w->rail);
        if (bits & RSK_CTL) {
            conn_mail(c);
            conn_serve(c);
        }
        if ((bits & (w->event | RSK_FAIL)) || atomic_load(w->word) != w->val) {
            spin_served(c, budget, sys_now() - begin);
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
    return false; /* what it teaches, the sleep's end will show */
}

/* Sleeps. 0: look again; -EINTR; -EAGAIN: the socket's time-out has passed. */
static int sleep_on_word(struct fb_conn *c, struct wait *w, struct fb_raised *up)
{
    struct timespec ts, *limit = NULL;
    bool alone = !rsk_loop_running();
    int r;

    if (w->deadline || alone) {
        uint64_t now = sys_now(), left = ALONE_NS;

        if (w->deadline && now >= w->deadline)
            return -EAGAIN;
        if (w->deadline && (!alone || w->deadline - now < left))
            left = w->deadline - now;
        ts.tv_sec = (time_t)(left / 1000000000u);
        ts.tv_nsec = (long)(left % 1000000000u);
        limit = &ts;
    }
    sleep_open(up, __builtin_frame_address(0));
    r = sleep_futex(w->word, w->val, limit, w->signals.seen);
    if (alone) {
        /* A filter or a namespace does not let there be a progress thread, and nobody else looks. */
        sleep_raised_end(up);
        atomic_store(&c->x->anchor_news, 1);
        conn_todo_rx(c, TODO_ANCHOR);
        conn_todo_tx(c, TODO_PUSH);
        conn_serve(c);
    } else if (r == -ETIMEDOUT) {
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

/* rx lock held. What a thread that found nothing waits on. The word is read before the last look (arm
 * looks again after its fence), every waker changes the word after what it tells of. */
static void rx_prepare(struct fb_conn *c, struct wait *w)
{
    struct rsk_rail *rail = c->x->rail;

    w->rail = NULL;
    w->changes = atomic_load(&c->x->changes);
    w->event = RSK_RX;
    w->word = &c->x->rx_futex;
    w->frames = false;
    switch ((enum fb_rx_state)c->x->rx.state) {
    case RX_r:
    case RX_q2:
        w->where = ON_WORD;
        w->frames = true;
        if (rail && !rail->failed && !c->x->rx.frozen) {
            w->word = rail->rx_word;
            w->rail = rail;
            rsk_rail_get(rail);
        }
        w->val = atomic_load(w->word);
        break;
    default:
        /* In t the kernel wakes each of several receivers; nobody else tells them. */
        if (c->x->rx.state != RX_t && atomic_load(&c->s.rx_in)) {
            w->where = ON_WORD;
            w->val = atomic_load(w->word);
        } else {
            w->where = ON_ANCHOR;
            atomic_fetch_add(&c->x->peekers, 1);
        }
    }
}

/* While a call sleeps another thread may close the number it came with, which then means another
 * file: false if no number of the stream's is left. */
static bool still_open(struct fb_conn *c, int *fd)
{
    if (conn_flag(c, CF_CLOSED))
        return false;
    if (c->fd >= 0 && *fd != c->fd && *fd != conn_alt(c, 0) && *fd != conn_alt(c, 1) &&
        *fd != conn_alt(c, 2))
        *fd = c->fd;
    return true;
}

/* A socket's time-out is for the whole call, also if the stream changes track in it. Where a filter may forbid poll the
 * kernel keeps it. */
static void has_timeout(struct wait *w, uint64_t timeout)
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
    if (w->timeout && !w->deadline)
        w->deadline = sys_now() + w->timeout;
}

static int rx_wait(struct fb_conn *c, int fd, struct wait *w)
{
    struct fb_raised up __attribute__((cleanup(sleep_raised_end))) = {.rail = w->rail};
    int r = 0;

    if (w->where == ON_ANCHOR) {
        ssize_t n;

        up.count = &c->x->peekers;
        sleep_open(&up, __builtin_frame_address(0));
        n = timed(w) ? sleep_poll(fd, POLLIN, w->deadline, w->signals.seen)
                     : sleep_peek(fd, w->signals.seen);
        if (n >= 0)
            sys_yield(); /* a frame may have to wait for another thread that is just waking up */
        else if (n != -EAGAIN && n != -EINTR)
            conn_untold(c, (int)n); /* taken by looking: for the next look */
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
            r = sleep_on_word(c, w, &up);
        slept(c, w, &c->x->spin_rx);
    }
    return r;
}

/* rx lock held, and given back. 0: look again; or the call's end. */
static int rx_sleep(struct fb_conn *c, int fd, struct wait *w)
{
    int r;

    begin_to_wait(w);
    rx_prepare(c, w);
    rx_unlock(c);
    r = rx_wait(c, fd, w);
    w->cut = r == -EINTR;
    return w->cut ? 0 : r;
}

ssize_t fb_recvv(struct fb_stream *s, int fd, const struct iovec *v, int cnt, int flags)
{
    struct fb_conn *c = conn_of(s);
    struct cursor u = {v, cnt, 0, fb_iov_size(v, cnt)};
    struct wait w = {.signals = sleep_signals()};
    ssize_t done = 0;
    bool nonblock;

    if (u.left == 0) { /* as TCP: waits for something, and takes nothing */
        char byte;
        struct iovec one = {&byte, 1};
        ssize_t n = fb_recvv(s, fd, &one, 1, (flags & ~MSG_WAITALL) | MSG_PEEK);

        return n > 0 ? 0 : n;
    }
    if ((flags & ~(MSG_PEEK | MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL)) ||
        (flags & (MSG_PEEK | MSG_WAITALL)) == (MSG_PEEK | MSG_WAITALL))
        fb_pin(s, RSN_CALL, true);
    conn_settings(c);
    nonblock = (flags & MSG_DONTWAIT) || s->nonblock;
    if (!nonblock)
        has_timeout(&w, c->x->rcv_timeout);
    for (;;) {
        struct iovec part[PIECES];
        int n = window(&u, part), r;
        /* Nothing more is waited for. */
        bool enough = done && !(flags & MSG_WAITALL);
        uint8_t state;
        ssize_t got;

        if (!still_open(c, &fd))
            return done || c->x->rx.shut ? done
                                         : -EBADF; /* who shut it first has woken us with 0 */
        fb_lock(&c->x->rx.lock);
        state = c->x->rx.state;
        if (c->x->rx.state == RX_t && atomic_load(&c->x->rx_todo) == 0) {
            rx_unlock(c);
            if (!fb_rx_enter(s))
                continue;
            got =
                sleep_recv(s, fd, part, n,
                           (flags & ~MSG_WAITALL) | (enough || w.cut || w.timed ? MSG_DONTWAIT : 0),
                           &w.signals);
            got = fb_rx_leave(s, fd, got, part, n, flags);
            if (got == FB_RETRY)
                continue;
            if (got == -EINTR && sleep_ended(&w.signals, got, c->x->rcv_timeout) == 0)
                continue;
            if (got == -EAGAIN && w.timed && !enough && !w.cut) {
                fb_lock(&c->x->rx.lock);
                /* What has come since is no news any more: another look, with the lock. */
                if (c->x->rx.state != RX_t || atomic_load(&c->x->rx_todo)) {
                    rx_unlock(c);
                    continue;
                }
                r = rx_sleep(c, fd, &w);
                if (r < 0)
                    return done ? done : r;
                continue;
            }
        } else {
            got = rx_try(c, fd, part, n, flags);
            if (got == -EAGAIN && !nonblock && !enough && !w.cut) {
                r = rx_sleep(c, fd, &w);
                if (r < 0)
                    return done ? done : r;
                continue;
            }
            rx_unlock(c);
        }
        if (got == -EAGAIN && w.cut)
            got = -EINTR;
        if (got <= 0) {
            if (tap_on(c))
                tap_end_of(c, got);
            /* What ended a MSG_WAITALL that has bytes is for the next call. */
            if (done && got < 0 && got != -EAGAIN && got != -EINTR && got != -EFAULT)
                conn_untold(c, (int)got);
            return done ? done : got;
        }
        done += got;
        advance(&u, (size_t)got);
        if (u.left == 0 || (flags & MSG_PEEK)) /* the next look would show the same bytes */
            return done;
        if (flags & MSG_WAITALL)
            continue;
        /* One call takes all that is there: beyond the pieces of one look, and where kernel and ring meet. But where
         * a filter may forbid to look into the kernel (fb_rx_enter_for_good), what the ring had is enough. */
        if ((size_t)got < fb_iov_size(part, n) &&
            (state == RX_r || state == RX_t || hold_for_good()))
            return done;
    }
}

static void tx_prepare(struct fb_conn *c, struct wait *w)
{
    struct rsk_rail *rail = c->x->rail;

    w->rail = NULL;
    w->changes = atomic_load(&c->x->changes);
    w->event = RSK_TX;
    w->where = ON_WORD;
    w->word = &c->x->tx_futex;
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
            r = sleep_on_word(c, w, &up);
        slept(c, w, &c->x->spin_tx);
    }
    return r;
}

/* On TCP. 0: look again; or the call's end. */
static int until_writable(int fd, struct wait *w)
{
    struct fb_raised up __attribute__((cleanup(sleep_raised_end))) = {0};
    int r;

    begin_to_wait(w);
    if (!timed(w))
        return 0;
    sleep_open(&up, __builtin_frame_address(0));
    r = sleep_poll(fd, POLLOUT, w->deadline, w->signals.seen);
    if (r == -EAGAIN)
        return r;
    w->cut = sleep_ended(&w->signals, r, w->deadline) == -EINTR;
    return 0;
}

/* A blocking sender usually finds TCP's buffer full; a boarding attempt needs room for the frame. It
 * would wait in the kernel anyway, so it waits here until there is some, for a moment. */
static void make_room(struct fb_conn *c, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    struct timespec ts = {0, 5000000};

    if (c->x->tx.want && c->x->tx.state == TX_T && fb_io.now() >= c->x->tx.not_before)
        sys_ppoll(&p, 1, &ts, NULL);
}

ssize_t fb_sendv(struct fb_stream *s, int fd, const struct iovec *v, int cnt, int flags)
{
    struct fb_conn *c = conn_of(s);
    struct cursor u = {v, cnt, 0, fb_iov_size(v, cnt)};
    struct wait w = {.signals = sleep_signals()};
    ssize_t done = 0;
    bool nonblock;

    if (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR | MSG_CONFIRM | MSG_DONTROUTE))
        fb_pin(s, RSN_CALL, true);
    conn_settings(c);
    nonblock = (flags & MSG_DONTWAIT) || s->nonblock;
    if (u.left == 0)
        return fb_io.send(fd, v, cnt, flags | MSG_NOSIGNAL);
    if (!nonblock) {
        make_room(c, fd);
        has_timeout(&w, c->x->snd_timeout);
    }
    for (;;) {
        struct iovec part[PIECES];
        int n = window(&u, part), r;
        ssize_t got;
        bool plain;

        if (!still_open(c, &fd))
            return done ? done : -EBADF;
        fb_lock(&c->x->tx.lock);
        got = tx_try(c, fd, part, n, flags, &plain);
        if (got == -EAGAIN && !nonblock && !w.cut) {
            begin_to_wait(&w);
            tx_prepare(c, &w);
            tx_unlock(c);
            r = tx_wait(c, &w);
            w.cut = r == -EINTR;
            if (r < 0 && !w.cut)
                return done ? done : r;
            continue;
        }
        tx_unlock(c);
        if (plain) {
            got = sleep_send(s, fd, part, n,
                             flags | MSG_NOSIGNAL | (w.cut || w.timed ? MSG_DONTWAIT : 0),
                             &w.signals);
            fb_tx_leave(s, got, part, n, flags);
            if (got == -EINTR && sleep_ended(&w.signals, got, c->x->snd_timeout) == 0)
                continue;
            if (got == -EAGAIN && w.timed && !w.cut) {
                r = until_writable(fd, &w);
                if (r < 0)
                    return done ? done : r;
                continue;
            }
        }
        if (got == -EAGAIN && w.cut)
            got = -EINTR;
        if (got < 0) {
            /* Another thread may just be taking the error from the anchor: rx_ended. */
            if (got == -EPIPE) {
                fb_lock(&c->x->rx.lock);
                rx_unlock(c);
            }
            if (done && got != -EAGAIN && got != -EINTR && got != -EPIPE)
                conn_untold(c, (int)got);
            return done ? done : conn_told(c, got);
        }
        done += got;
        advance(&u, (size_t)got);
        if (u.left == 0)
            return done;
        /* A blocking one ended early for a signal or an error, which the next call tells. */
        if (plain && !w.timed && (size_t)got < fb_iov_size(part, n))
            return done;
    }
}
