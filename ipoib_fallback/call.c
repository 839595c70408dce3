/*
 * call.c - the receive and the send of a half that is not plain, blocking or not: look at ring
 * and kernel, wait (wait.h), look again, until the call has what its flags ask for.
 * Application threads.
 */
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/quick.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/stream.h"
#include "ipoib_fallback/tap.h"
#include "ipoib_fallback/tx.h"
#include "ipoib_fallback/wait.h"

#include <errno.h>
#include <limits.h>

/* A moving window over the application's vector. */
struct cursor {
    const struct iovec *v;
    int cnt;
    size_t off, left;
};

static int window(const struct cursor *u, struct iovec part[FB_PIECES])
{
    size_t off = u->off;
    int n = 0;

    for (int i = 0; i < u->cnt && n < FB_PIECES; i++) {
        if (u->v[i].iov_len > off) {
            part[n].iov_base = (char *)u->v[i].iov_base + off;
            part[n++].iov_len = u->v[i].iov_len - off;
        }
        off = 0;
    }
    return n;
}

/* The buffers up to so many bytes. Returns how many that are. */
static int cut(struct iovec part[], int n, size_t most)
{
    for (int i = 0; i < n; i++) {
        if (part[i].iov_len >= most) {
            part[i].iov_len = most;
            return i + 1;
        }
        most -= part[i].iov_len;
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

/* While a call sleeps another thread may close the number it came with, which then means another
 * file: false if no number of the stream's is left. */
static bool still_open(struct fb_conn *c, int *fd)
{
    if (conn_flag(c, CF_CLOSED) || c->x->disconnected)
        return false;
    if (c->fd >= 0 && *fd != c->fd && *fd != conn_alt(c, 0) && *fd != conn_alt(c, 1) &&
        *fd != conn_alt(c, 2))
        *fd = c->fd;
    return true;
}

/* MSG_PEEK with MSG_WAITALL, as TCP: waits until all that is wanted is there, or nothing
 * more can come. */
enum { PEEK_ALL = MSG_PEEK | MSG_WAITALL };
#define PEEK_ALL_MOST 2048 /* half of the smallest ring */

/* A look has shown fewer bytes. True: look again. */
static bool waits_for_more(struct fb_conn *c, int fd, struct wait *w)
{
    if (w->cut || w->ends)
        return false;
    /* What came before the end may have come after the look. */
    w->ends = fb_ready(&c->s, fd, POLLRDHUP | POLLPRI) != 0;
    if (w->ends)
        conn_todo_rx(c, TODO_ANCHOR);
    return w->ends || wait_more(c, w) == 0;
}

/* The kernel has said EAGAIN. A call that began blocking goes on: another thread has changed the
 * socket's mode or its time-out, which is for calls that begin later. But where a filter may forbid
 * poll the kernel keeps our time-out, and EAGAIN may say that it is over. */
static bool goes_on(bool nonblock)
{
    return !nonblock && !hold_for_good();
}

/* In t; most: what rx_goes_on has said, or SSIZE_MAX. FB_RETRY: it is not in t any more, or that is
 * to be looked at. */
static ssize_t from_kernel(struct fb_conn *c, int fd, const struct iovec *part, int n, ssize_t most,
                           int flags, struct fb_signals *signals)
{
    ssize_t got;

    if (most == -EAGAIN && (flags & MSG_DONTWAIT)) {
        conn_no_data(c);
        return -EAGAIN;
    }
    if (!fb_rx_enter(&c->s))
        return FB_RETRY;
    got = sleep_recv(&c->s, fd, part, n, flags, signals);
    return signals->forked ? got : fb_rx_leave(&c->s, fd, got, part, n, flags);
}

static ssize_t receive(struct fb_conn *c, int fd, const struct iovec *v, int cnt, int flags,
                       bool some);

/* As TCP: waits for something, takes nothing, and once it has waited it says nothing of how that
 * has ended either. */
static ssize_t receive_none(struct fb_conn *c, int fd, int flags, bool some)
{
    char byte;
    struct iovec one = {&byte, 1};
    ssize_t n;

    flags = (flags & ~MSG_WAITALL) | MSG_PEEK;
    n = receive(c, fd, &one, 1, flags | MSG_DONTWAIT, some);
    if (n != -EAGAIN || flags & MSG_DONTWAIT || c->s.nonblock || c->x->rcv_past)
        return n > 0 ? 0 : n;
    n = receive(c, fd, &one, 1, flags, true); /* each handler ends it */
    if (n == -EBADF)
        return n;
    if (n < 0 && n != -EAGAIN && n != -EINTR && n != -EPIPE)
        conn_untold(c, (int)n);
    return n == -EPIPE ? n : 0;
}

/* Whose number is gone, by close or by connect() to nobody. */
static ssize_t gone(const struct fb_conn *c)
{
    return c->x->disconnected ? -EPIPE : -EBADF;
}

__attribute__((noinline)) static ssize_t receive(struct fb_conn *c, int fd, const struct iovec *v,
                                                 int cnt, int flags, bool some)
{
    struct fb_stream *s = &c->s;
    struct cursor u = {v, cnt, 0, fb_iov_size(v, cnt)};
    struct wait w = {.signals = sleep_signals(), .some = some};
    ssize_t done = 0, shown = 0; /* by a look that wanted more */
    bool nonblock;

    if (u.left == 0)
        return receive_none(c, fd, flags, some);
    conn_settings(c);
    nonblock = (flags & MSG_DONTWAIT) || s->nonblock;
    if ((flags & ~(MSG_PEEK | MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL)) ||
        ((flags & PEEK_ALL) == PEEK_ALL && !nonblock && u.left > PEEK_ALL_MOST))
        fb_pin_rx(s, RSN_CALL);
    if (!nonblock)
        wait_limit(&w, c->x->rcv_timeout);
    for (;;) {
        struct iovec rest[FB_PIECES];
        /* A look shows all at once: a second one would show the same bytes. */
        const struct iovec *part = flags & MSG_PEEK ? v : rest;
        int n = flags & MSG_PEEK ? cnt : window(&u, rest), r;
        /* Nothing more is waited for. */
        bool enough = done && !(flags & MSG_WAITALL);
        uint8_t state;
        ssize_t got;

        if (w.spun && !done && (got = rx_quick(c, v, cnt, flags)) > 0)
            return got;
        if (!still_open(c, &fd))
            return done || shown || c->shut ? done + shown
                                            : gone(c); /* who shut it first has woken us with 0 */
        fb_lock(&c->x->rx.lock);
        state = c->x->rx.state;
        if (c->x->rx.state == RX_t && atomic_load(&c->x->rx_todo) == 0) {
            bool looks = nonblock || enough || w.cut || w.timed || w.marks;
            ssize_t most = done ? rx_goes_on(c, fd) : SSIZE_MAX;

            rx_unlock(c);
            if (most == -EINTR)
                return done;
            if (done && most >= 0)
                n = cut(rest, n, (size_t)most);
            got = from_kernel(c, fd, part, n, most,
                              (flags & ~MSG_WAITALL) | (looks ? MSG_DONTWAIT : 0), &w.signals);
            if (w.signals.forked) /* what the child has got it was given by the kernel alone */
                return got > 0 ? done + got : done ? done : got;
            if (got == FB_RETRY)
                continue;
            if (got == -EINTR && !some && sleep_ended(&w.signals, got, c->x->rcv_timeout) == 0)
                continue;
            if (got == -EAGAIN && !enough && !w.cut && (w.timed || w.marks || goes_on(nonblock))) {
                fb_lock(&c->x->rx.lock);
                /* What has come since is no news any more: another look, with the lock. */
                if (c->x->rx.state != RX_t || atomic_load(&c->x->rx_todo)) {
                    rx_unlock(c);
                    continue;
                }
                r = wait_rx(c, fd, &w);
                if (r < 0)
                    return done ? done : r;
                continue;
            }
        } else {
            got = rx_try(c, fd, part, n, (flags & ~RX_GOES_ON) | (done ? RX_GOES_ON : 0));
            if (got == -EAGAIN && !nonblock && !enough && !w.cut) {
                r = wait_rx(c, fd, &w);
                if (r < 0)
                    return done ? done : r;
                continue;
            }
            if (got == -EAGAIN ||
                (got > 0 && !(flags & MSG_PEEK) && (size_t)got < fb_iov_size(part, n)))
                conn_no_data_here(c);
            rx_unlock(c);
        }
        if (got == -EBADF && conn_flag(c, CF_CLOSED))
            continue; /* closed since the look at it: the end is as it is for who slept */
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
        if ((flags & PEEK_ALL) == PEEK_ALL && !nonblock && (size_t)got < fb_iov_size(part, n) &&
            waits_for_more(c, fd, &w)) {
            shown = got;
            continue;
        }
        done += got;
        w.some = true;
        advance(&u, (size_t)got);
        if (u.left == 0 || (flags & MSG_PEEK)) /* the next look would show the same bytes */
            return done;
        if (flags & MSG_WAITALL) {
            /* poll keeps to SO_RCVLOWAT, a receive to what it lacks. */
            w.marks = !nonblock && !hold_for_good() && !conn_flag(c, CF_RCVLOWAT);
            continue;
        }
        /* One call takes all that is there: beyond the pieces of one look, and where kernel and
         * ring meet. But where a filter may forbid to look into the kernel (fb_rx_enter_for_good),
         * what the ring had is enough. */
        if ((size_t)got < fb_iov_size(part, n) &&
            (state == RX_r || state == RX_t || hold_for_good()))
            return done;
    }
}

bool fb_at_mark(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    bool yes;

    fb_lock(&c->x->rx.lock);
    yes = rx_at_mark(c, fd);
    rx_unlock(c);
    return yes;
}

ssize_t fb_recvv(struct fb_stream *s, int fd, const struct iovec *v, int cnt, int flags)
{
    struct fb_conn *c = conn_of(s);
    ssize_t n;

    if (__builtin_expect((flags & MSG_PEEK) && c->x->rx.peeks && fb_iov_size(v, cnt), 0) &&
        (n = rx_peek_from(c, fd, v, cnt, flags)) != FB_RETRY)
        return n;
    n = rx_quick(c, v, cnt, flags);
    return n ? n : receive(c, fd, v, cnt, flags, false);
}

ssize_t fb_peekv(struct fb_stream *s, int fd, const struct iovec *v, int cnt, int flags)
{
    return receive(conn_of(s), fd, v, cnt, MSG_PEEK | flags, false);
}

ssize_t fb_recv_on(struct fb_stream *s, int fd, const struct iovec *v, int cnt, int flags)
{
    struct fb_conn *c = conn_of(s);
    ssize_t n = rx_quick(c, v, cnt, flags);

    return n ? n : receive(c, fd, v, cnt, flags, true);
}

/* A blocking sender usually finds TCP's buffer full; a boarding attempt needs room for the frame.
 * It would wait in the kernel anyway, so it waits here until there is some, for a moment. */
static void make_room(struct fb_conn *c, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    struct timespec ts = {0, 5000000};

    if (c->x->tx.want && c->x->tx.state == TX_T && fb_io.now() >= c->x->tx.not_before)
        sys_ppoll(&p, 1, &ts, NULL);
}

/* What tcp_sendmsg does not look at: programs hand the flags of their receives over, or name what
 * is for others. */
#define TX_IGNORED \
    (MSG_EOR | MSG_CONFIRM | MSG_DONTROUTE | MSG_WAITALL | MSG_PEEK | MSG_TRUNC | MSG_CTRUNC)

/* Has a send that moved bytes ended with an error that is the next call's? */
static bool ends_after_bytes(ssize_t done, ssize_t got)
{
    return done && got < 0 && got != -EAGAIN && got != -EINTR && got != -EPIPE && got != -EFAULT;
}

int fb_pin_tx(struct fb_stream *s, int fd, int reason, int flags)
{
    struct fb_conn *c = conn_of(s);
    struct wait w = {.signals = sleep_signals()};
    bool nonblock;
    int r;

    if (conn_flag(c, CF_PINNED) && !fb_gate_is_up(s, false)) {
        conn_reason(c, reason);
        return 0;
    }
    fb_pin(s, reason, false);
    if (!conn_flag(c, CF_LINKED))
        return 0;
    conn_settings(c);
    nonblock = (flags & MSG_DONTWAIT) || s->nonblock;
    if (!nonblock)
        wait_limit(&w, c->x->snd_timeout);
    do {
        if (!still_open(c, &fd))
            return -EBADF;
        fb_lock(&c->x->tx.lock);
        r = tx_back(c, fd);
        if (r != -EAGAIN || nonblock || w.cut) {
            if (r == -EAGAIN)
                conn_no_room(c);
            tx_unlock(c);
            return r == -EAGAIN && w.cut ? -EINTR : r;
        }
        r = wait_tx(c, &w);
    } while (r == 0);
    return r;
}

/* Is the socket what it was when this call began, which began blocking? */
static bool as_it_began(struct fb_conn *c, const struct wait *w)
{
    conn_settings(c);
    return !c->s.nonblock && c->x->snd_timeout == w->timeout;
}

__attribute__((noinline)) static ssize_t send_all(struct fb_conn *c, int fd, const struct iovec *v,
                                                  int cnt, int flags, bool some)
{
    struct fb_stream *s = &c->s;
    struct cursor u = {v, cnt, 0, fb_iov_size(v, cnt)};
    struct wait w = {.signals = sleep_signals(), .some = some};
    ssize_t done = 0;
    bool nonblock;

    if (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | TX_IGNORED)) {
        int r = fb_pin_tx(s, fd, RSN_CALL, flags);

        if (r < 0)
            return r;
    }
    conn_settings(c);
    nonblock = (flags & MSG_DONTWAIT) || s->nonblock;
    /* The kernel's answer, which is an error on an ended stream, or one that will be. */
    if (u.left == 0) {
        ssize_t n = fb_io.send(fd, v, cnt, flags | MSG_NOSIGNAL);

        fb_lock(&c->x->tx.lock);
        if (n == 0 && c->x->tx.fin)
            n = -EPIPE;
        tx_unlock(c);
        return conn_told(c, n);
    }
    if (!nonblock) {
        make_room(c, fd);
        wait_limit(&w, c->x->snd_timeout);
    }
    for (;;) {
        struct iovec rest[FB_PIECES];
        /* All that fits goes in one piece, as in the kernel: another thread's call does not
         * come in between. */
        const struct iovec *part = done ? rest : v;
        int n = done ? window(&u, rest) : cnt, r;
        ssize_t got;
        bool plain;

        if (!still_open(c, &fd))
            return done ? done : gone(c);
        fb_lock(&c->x->tx.lock);
        got = tx_try(c, fd, part, n, flags, &plain);
        if (got == -EAGAIN && !nonblock && !w.cut) {
            r = wait_tx(c, &w);
            if (r < 0)
                return done ? done : r;
            continue;
        }
        if (got == -EAGAIN)
            conn_no_room(c);
        tx_unlock(c);
        if (plain) {
            got = sleep_send(s, fd, part, n,
                             flags | MSG_NOSIGNAL | (w.cut || w.timed ? MSG_DONTWAIT : 0),
                             &w.signals);
            if (w.signals.forked)
                return got > 0 ? done + got : done ? done : got;
            /* Kept while the call is still counted: who looks for it finds the one or the other. */
            if (ends_after_bytes(done, got)) {
                conn_untold(c, (int)got);
                got = -EAGAIN;
                w.cut = true;
            }
            fb_tx_leave(s, got, part, n);
            if (got == -EINTR && !w.some && sleep_ended(&w.signals, got, c->x->snd_timeout) == 0)
                continue;
            if (got == -EAGAIN && !w.cut && (w.timed || goes_on(nonblock))) {
                r = wait_writable(fd, &w);
                if (r < 0)
                    return done ? done : r;
                continue;
            }
        }
        if (got == -EPIPE && conn_flag(c, CF_CLOSED))
            continue; /* as in receive() */
        if (got == -EAGAIN && w.cut)
            got = -EINTR;
        if (got < 0) {
            /* Another thread may just be taking the error from the anchor: rx_ended. */
            if (got == -EPIPE) {
                fb_lock(&c->x->rx.lock);
                rx_unlock(c);
            }
            if (ends_after_bytes(done, got))
                conn_untold(c, (int)got);
            return done ? done : conn_told(c, got);
        }
        done += got;
        w.some = true;
        if ((size_t)got == u.left)
            return done; /* somebody who has the answer to it may have given v back */
        advance(&u, (size_t)got);
        /* A blocking one ended early for a signal or an error, which the next call tells. */
        if (plain && !w.timed && (size_t)got < fb_iov_size(part, n) &&
            (!goes_on(nonblock) || as_it_began(c, &w)))
            return done;
    }
}

ssize_t fb_sendv(struct fb_stream *s, int fd, const struct iovec *v, int cnt, int flags)
{
    struct fb_conn *c = conn_of(s);
    size_t n = tx_quick(c, v, cnt, flags);

    return n ? (ssize_t)n : send_all(c, fd, v, cnt, flags, false);
}

ssize_t fb_send_on(struct fb_stream *s, int fd, const struct iovec *v, int cnt, int flags)
{
    struct fb_conn *c = conn_of(s);
    size_t n = tx_quick(c, v, cnt, flags);

    return n ? (ssize_t)n : send_all(c, fd, v, cnt, flags, true);
}
