/*
 * sleep.c - the sleeps of a blocking receive or send (sleep.h). Application threads, no lock held.
 *
 * They are cancellation points, as recv and send are: each is a function of its own, see
 * rsk_cancel_open.
 */
#include "ipoib_fallback/sleep.h"

#include "ipoib_fallback/stream.h"
#include "rsock/waitv.h"

#include <pthread.h>

/* signal(7): a handler without SA_RESTART ends the call, and so does any if the socket has a
 * time-out. One that we have not seen was set by a raw system call, and the kernel has decided. */
int sleep_ended(struct fb_signals *s, ssize_t r, uint64_t limited)
{
    uint32_t seen = rsk_sig.seen;
    bool ran = seen != s->seen;

    s->seen = seen;
    s->ran = ran;
    if (rsk_sig.cut != s->cut || (ran && limited))
        return -EINTR;
    return r == -EINTR && !ran ? -EINTR : 0;
}

__attribute__((noinline)) ssize_t sleep_peek(int fd, uint32_t seen)
{
    char b;
    struct rsk_cancel cancel;
    ssize_t n;

    cancel = rsk_cancel_open();
    n = RSK_SLEEP(&rsk_sig.seen, seen, SYS_recvfrom, fd, &b, 1, MSG_PEEK, 0, 0);
    rsk_cancel_close(cancel);
    return n;
}

__attribute__((noinline)) int sleep_poll(int fd, short events, uint64_t deadline, uint32_t seen)
{
    struct pollfd p = {.fd = fd, .events = events};
    uint64_t now = sys_now(), left = now < deadline ? deadline - now : 0;
    struct timespec ts = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    struct rsk_cancel cancel;
    int r;

    if (deadline && !left) /* though it says that there is room: the kernel has no memory for it */
        return -EAGAIN;
    cancel = rsk_cancel_open();
    r = (int)RSK_SLEEP(&rsk_sig.seen, seen, SYS_ppoll, &p, 1, deadline ? &ts : NULL, NULL, 0, 0);
    rsk_cancel_close(cancel);
    return r == 0 ? -EAGAIN : r > 0 ? p.revents : r;
}

__attribute__((noinline)) int sleep_futex(_Atomic uint32_t *word, uint32_t val,
                                          const struct timespec *limit, uint32_t seen)
{
    struct rsk_cancel cancel;
    int r;

    cancel = rsk_cancel_open();
    r = (int)RSK_SLEEP(&rsk_sig.seen, seen, SYS_futex, word, FUTEX_WAIT, val, limit, 0, 0);
    rsk_cancel_close(cancel);
    return r;
}

int sleep_futexes(_Atomic uint32_t *word, uint32_t val, _Atomic uint32_t *own, uint32_t own_val,
                  const struct timespec *limit, uint32_t seen)
{
    /* Both as conn_wake_word() wakes them. */
    struct futex_waitv v[2] = {
        {.uaddr = (uintptr_t)word, .val = val, .flags = FUTEX_32},
        {.uaddr = (uintptr_t)own, .val = own_val, .flags = FUTEX_32},
    };
    struct timespec at, *until = NULL;

    if (limit) {
        uint64_t ns =
            sys_now_kernel() + (uint64_t)limit->tv_sec * 1000000000u + (uint64_t)limit->tv_nsec;

        at = (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
        until = &at;
    }
    return rsk_waitv(v, 2, until, seen);
}

/* ---- what is raised ---- */

static void lower(void *count, void *rail)
{
    if (count)
        atomic_fetch_sub((_Atomic uint32_t *)count, 1);
    if (rail)
        rsk_rail_put(rail);
}

void sleep_open(struct fb_raised *r, const void *frame)
{
    rsk_window_open(&r->pass, frame, lower, r->count, r->rail);
}

void sleep_raised_end(struct fb_raised *r)
{
    if (!r->pass.open || rsk_window_close(&r->pass))
        lower(r->count, r->rail);
    r->count = NULL;
    r->rail = NULL;
}

void sleep_close(struct fb_raised *r, struct fb_signals *signals)
{
    bool opened = r->pass.open;

    sleep_raised_end(r);
    signals->forked |= opened && rsk_pass_forked(&r->pass);
}

/* ---- the kernel's own calls ---- */

struct plain {
    struct fb_stream *s;
    void (*lower)(void *, void *);
    _Atomic uint32_t *in;
    struct fb_signals *signals;
    struct rsk_pass pass;
};

static void lower_rx(void *s, void *unused)
{
    (void)unused;
    (void)fb_rx_leave(s, -1, -EINTR, NULL, 0, 0);
}

static void lower_tx(void *s, void *unused)
{
    (void)unused;
    fb_tx_leave(s, -EINTR, NULL, 0);
}

static void plain_open(struct plain *p, const void *frame, struct fb_signals *signals)
{
    rsk_window_open(&p->pass, frame, p->lower, p->s, NULL);
    rsk_sig.stop_was = signals->seen;
    rsk_sig.stop = &rsk_sig.seen; /* for fb_io's functions */
}

/* A window that was taken for dead has been lowered: as if it had not been. */
static void plain_close(struct plain *p)
{
    rsk_sig.stop = NULL;
    if (!rsk_window_close(&p->pass)) {
        if (rsk_pass_forked(&p->pass))
            p->signals->forked = true;
        else
            atomic_fetch_add(p->in, 1);
    }
}

/* Cancelled in it. */
static void plain_end(struct plain *p)
{
    if (p->pass.open) {
        plain_close(p);
        p->lower(p->s, NULL);
    }
}

static __attribute__((noinline)) ssize_t cancellable(bool rx, int fd, const struct iovec *v,
                                                     int cnt, int flags)
{
    struct rsk_cancel cancel;
    ssize_t n;

    cancel = rsk_cancel_open();
    n = rx ? fb_io.recv(fd, v, cnt, UINT64_MAX, flags) : fb_io.send(fd, v, cnt, flags);
    rsk_cancel_close(cancel);
    return n;
}

static ssize_t plain_call(bool rx, struct fb_stream *s, int fd, const struct iovec *v, int cnt,
                          int flags, struct fb_signals *signals)
{
    struct plain p __attribute__((cleanup(plain_end))) = {
        s, rx ? lower_rx : lower_tx, rx ? &s->rx_in : &s->tx_in, signals, {0}};
    ssize_t n;

    plain_open(&p, __builtin_frame_address(0), signals);
    n = cancellable(rx, fd, v, cnt, flags);
    plain_close(&p);
    return n;
}

ssize_t sleep_recv(struct fb_stream *s, int fd, const struct iovec *v, int cnt, int flags,
                   struct fb_signals *signals)
{
    return plain_call(true, s, fd, v, cnt, flags, signals);
}

ssize_t sleep_send(struct fb_stream *s, int fd, const struct iovec *v, int cnt, int flags,
                   struct fb_signals *signals)
{
    return plain_call(false, s, fd, v, cnt, flags, signals);
}
