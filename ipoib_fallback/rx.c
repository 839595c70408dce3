/*
 * rx.c - the receiving half of a stream: runs the receiver's table of switch_fsm.h
 * and reads kernel, ring and kernel as one stream without the frames between. All
 * functions are called with the rx lock held and none blocks.
 *
 * Does not write to the anchor or the tx half; what that half should do is left in tx_todo.
 */
#include "ipoib_fallback/rx.h"

#include "config/log.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/killed.h"
#include "ipoib_fallback/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

void rx_count(struct fb_conn *c, const struct iovec *v, int cnt, size_t n)
{
    /* In t another receiver may be counting without the lock. */
    uint64_t at = atomic_fetch_add_explicit(&c->s.pub->rx, n, memory_order_relaxed);

    conn_seen_rx(c, at, v, cnt, n);
    if (tap_on(c))
        tap_copy(c, TAP_RX, FB_PATH_TCP, at, v, cnt, n);
}

/* TCP ends a receive that has bytes before urgent data; the kernel does not know of those that
 * came by a rail. */
bool rx_at_mark(struct fb_conn *c, int fd)
{
    const struct fb_rx *rx = &c->x->rx;

    return (rx->state == RX_t || rx->state == RX_gS || rx->state == RX_f2 ||
            (rx->state == RX_sk && c->s.pub->rx >= rx->V && rx->skip == 0)) &&
           !rx_front_left(c) && !hold_for_good() && fb_io.at_mark(fd);
}

ssize_t rx_goes_on(struct fb_conn *c, int fd)
{
    short p;
    int inq;

    if (hold_for_good()) /* a filter may forbid everything but to receive */
        return SSIZE_MAX;
    /* Before the mark: behind an end none comes. */
    p = fb_io.poll(fd, POLLRDHUP);
    if (rx_at_mark(c, fd))
        return -EINTR;
    inq = fb_io.inq(fd); /* counts up to a mark */
    if (inq > 0)
        return inq;
    return p & (POLLRDHUP | POLLHUP | POLLERR) ? SSIZE_MAX : -EAGAIN;
}

/* Application bytes from the kernel, at most limit of them. */
ssize_t rx_kernel_read(struct fb_conn *c, int fd, const struct iovec *v, int cnt, uint64_t limit,
                       int flags)
{
    ssize_t n = flags & RX_GOES_ON ? rx_goes_on(c, fd) : SSIZE_MAX;

    if (n < 0)
        return n;
    if (n != SSIZE_MAX && limit > (uint64_t)n)
        limit = (uint64_t)n;
    n = fb_io.recv(fd, v, cnt, limit, (flags & MSG_PEEK) | MSG_DONTWAIT);
    if (n == 0)
        conn_killed(c);
    n = conn_told(c, n);
    if (n == -ECONNRESET)
        conn_reset_told(c);
    if (n > 0 && !(flags & MSG_PEEK))
        rx_count(c, v, cnt, (size_t)n);
    return n;
}

ssize_t rx_ring_read(struct fb_conn *c, struct rsk_rail *rail, const struct iovec *v, int cnt,
                     uint64_t limit, int flags)
{
    struct fb_pub *pub = c->s.pub;
    struct iovec have[3] = {0}; /* what was shown, and the rest of the ring */
    size_t total = rail->wire->rx_peek(rail, have + 1), done;
    bool copy = (flags & MSG_PEEK) || pub->rx < c->x->rx.shown_to;

    if (total > limit)
        total = (size_t)limit;
    if (__builtin_expect(copy, 0))
        rx_shown(c, pub->rx, have, total, flags & MSG_PEEK ? fb_iov_size(v, cnt) : 0,
                 rail->rx_size);
    done = fb_iov_copy(v, cnt, have + !copy, 2 + copy, total, RSK_OUT_OF);
    if (done && !(flags & MSG_PEEK)) {
        /* Also what goes by the ring: after it the next rail is to be proved. */
        if (conn_seen_wants(&c->s.rx_mark, pub->rx + done))
            conn_seen_rx(c, pub->rx, v, cnt, done);
        rx_took(c, rail, done);
        if (tap_on(c))
            tap_copy(c, TAP_RX, rail->wire->path, pub->rx - done, v, cnt, done);
    }
    return (ssize_t)done;
}

/* A receive that finds nothing takes the socket's error, also if it comes between a look and the
 * receive; then a send of the application's that sleeps in the kernel would be told EPIPE, with
 * SIGPIPE. So nothing is received unless it is there. What poll says first is the end of
 * whatever is counted after it. An error alone is none: a notice in the error queue, or a reset
 * that is just coming, of which there is news once more. Behind FIN receives say 0 whatever the
 * error, so does this. */
ssize_t rx_look(struct fb_conn *c, int fd, const struct iovec *v, int cnt, uint64_t limit,
                int flags)
{
    ssize_t n;
    short p;

    if (hold_for_good()) { /* a filter may forbid everything but to receive */
        n = fb_io.recv(fd, v, cnt, limit, flags | MSG_DONTWAIT);
        if (n < 0 && n != -EAGAIN && n != -EINTR)
            conn_untold(c, (int)n);
        return n;
    }
    p = fb_io.poll(fd, POLLRDHUP);
    /* A reset in the middle of the look would not be told from FIN. */
    if ((p & (POLLRDHUP | POLLERR | POLLHUP)) == (POLLRDHUP | POLLERR))
        p = fb_io.poll(fd, POLLRDHUP);
    if (fb_io.inq(fd) > 0)
        return fb_io.recv(fd, v, cnt, limit, flags | MSG_DONTWAIT);
    if (p & POLLHUP)
        return -EPIPE;
    return (p & POLLRDHUP) && !c->shut ? 0 : -EAGAIN;
}

/* How many bytes of the overlap can go while the ring is unread: those that are read, since the
 * others may still be handed over (rx_freeze); and of the others as many as the sender needs room
 * for, if there is more to come. One byte stays: by that the kernel knows, if this process is
 * killed, that something was unread. */
static uint64_t to_skip(struct fb_conn *c, int fd)
{
    const struct fb_rx *rx = &c->x->rx;
    uint64_t at = c->s.pub->rx, first = rx->V - rx->skip, n = at > first ? at - first : 0;
    int inq = fb_io.inq(fd);
    uint64_t there = inq > 0 ? (uint64_t)inq : 0, room;

    if (there < rx->skip) {
        room = fb_io.room(fd);
        if (there > room && there - room > n)
            n = there - room;
    }
    return n < there ? n : there > 0 ? there - 1 : 0;
}

/* Discards the overlap: bytes of TCP that the ring has shown already, or will. */
void rx_skip(struct fb_conn *c, int fd)
{
    struct fb_rx *rx = &c->x->rx;

    while (rx->skip > 0) {
        char scratch[1024] = {0}; /* the stack may be a small one */
        struct iovec v = {scratch, sizeof(scratch)};
        uint64_t most = c->s.pub->rx < rx->V ? to_skip(c, fd) : rx->skip;
        ssize_t n;

        if (most == 0)
            return; /* and if that is the end: once the ring is read */
        n = rx_look(c, fd, &v, 1, most, 0);
        if (n > 0) {
            c->x->own_rx += (uint64_t)n;
            rx->skip -= (uint64_t)n;
            continue;
        }
        if (n == -EAGAIN || n == -EINTR || (n == 0 && c->shut))
            return;
        /* FIN or an error: clean only if nothing beyond V was ever accepted. */
        conn_killed(c);
        rx_at_end(c, n, rx->V == rx->E);
        rx->skip = 0;
        return;
    }
}

/* n: what TCP says, 0 or an error, before a RESUME. What the sender put on the rail and arrived is
 * delivered, also of what it was asked to send again by TCP. */
void rx_over(struct fb_conn *c, ssize_t n)
{
    struct fb_rx *rx = &c->x->rx;
    struct rsk_rail *rail = c->x->rail;

    if (rail) {
        rx->V = rail->wire->rx_freeze(rail);
        rx->frozen = false;
    }
    /* What conn_killed has found is told without this. A rail that has been given back had
     * failed, perhaps under a send: then FIN does not say that nothing is missing, and of a reset
     * nobody expects it. */
    rx_at_end(c, n,
              conn_killed(c) ||
                  (rx->outlives && (rail || n == -EPIPE) && rx->frame_at == 0 && !rx->frozen));
}

/* n: as rx_look says it. */
static const char *what_ended(ssize_t n, char words[static 64])
{
    char number[CFG_ERRNO_WORDS];

    if (n == 0)
        return "the peer has ended the connection";
    if (n == -EPIPE) /* what it was the kernel says to the next call */
        return "the connection has ended";
    snprintf(words, 64, "the connection has ended: %s", cfg_errno_words((int)-n, number));
    return words;
}

void rx_anchor(struct fb_conn *c, int fd)
{
    struct fb_rx *rx = &c->x->rx;
    char words[64];

    /* Also for a half that is plain: it receives by itself, but the other half must know. */
    if (!rx->by_call)
        conn_killed(c);
    while (!rx->by_call) {
        struct iovec v = {(char *)&rx->frame + rx->frame_at, FB_FRAME - rx->frame_at};
        ssize_t n;

        switch ((enum fb_rx_state)rx->state) {
        case RX_gS:
        case RX_f2:
            rx_look_again(c);
            if (rx->end != 0 || c->s.pub->rx < rx->S || c->s.rx_in || rx_switch(c, fd) == 0)
                return;
            continue;
        case RX_sk:
            rx_skip(c, fd);
            if (rx->skip == 0 && rx->end == 0 && c->s.pub->rx == rx->V &&
                (rx->handed || rx->V == rx->E))
                rx_caught_up(c);
            /* fall through */
        case RX_t:
            rx_shut(c);
            return;
        default:
            break;
        }
        if (rx->end != 0)
            return;
        atomic_store(&c->x->anchor_news, 0); /* before looking: later news sets it again */
        n = rx_look(c, fd, &v, 1, v.iov_len, 0);
        /* After SHUT_RD the frames still come. */
        if (n == -EAGAIN || n == -EINTR || (n == 0 && c->shut))
            return;
        if (n > 0) {
            c->x->own_rx += (uint64_t)n;
            rx->frame_at = (uint8_t)(rx->frame_at + n);
            if (rx->frame_at < FB_FRAME)
                rx_to(c, RE_PART);
            else
                rx_take_frame(c);
            continue;
        }
        rx_over(c, n);
        log_info("stream %u: %s, %llu bytes of the rail are unread", c->s.slot,
                 what_ended(n, words), (unsigned long long)(rx->V - c->s.pub->rx));
        /* The progress thread need not have heard of it. */
        atomic_fetch_or(&c->x->anchor_bits, POLLRDHUP);
        /* Nobody reads the other direction either; what becomes of it the kernel says. On shm no
         * failure of the rail would tell, and a full ring would stay full. */
        conn_todo_tx(c, TODO_PEER);
        link_serve(c);
        conn_wake(c, RSK_RX | RSK_TX | FB_EV_STATE);
        return;
    }
}

/* A half has gone on its rail: what TCP has behind the ring is there as well. */
static void look_behind(struct fb_conn *c, int fd)
{
    if (!hold_for_good()) /* a filter may forbid to look */
        rx_anchor(c, fd);
}

ssize_t rx_try(struct fb_conn *c, int fd, const struct iovec *v, int cnt, int flags)
{
    struct fb_rx *rx = &c->x->rx;
    bool asked = false, fetched = false;

    for (;;) {
        struct rsk_rail *rail = c->x->rail;
        uint64_t at;
        ssize_t n;

        if (atomic_load_explicit(&c->x->rx_todo, memory_order_acquire))
            rx_serve(c);
        if (__builtin_expect(rx->by_call, 0))
            return -EAGAIN;
        if (__builtin_expect(rx->front != NULL, 0) &&
            (n = (ssize_t)rx_front_read(c, v, cnt, flags)) > 0)
            return (flags & MSG_PEEK) && rx->state == RX_sk
                       ? n + (ssize_t)rx_overlap_peek(c, fd, v, cnt, (size_t)n)
                       : n;
        at = atomic_load_explicit(&c->s.pub->rx, memory_order_relaxed);
        switch ((enum fb_rx_state)rx->state) {
        case RX_t:
            return rx_kernel_read(c, fd, v, cnt, UINT64_MAX, flags);
        case RX_gS:
        case RX_f2:
            if (rx->end != 0)
                return rx_take_end(c, fd);
            if (atomic_load(&c->s.rx_in))
                return -EAGAIN; /* a plain receive from before the guard: its bytes come first */
            if (at < rx->S) {
                if (rx_robbed(c, fd, 0))
                    continue;
                n = rx_kernel_read(c, fd, v, cnt, rx->S - at, flags);
                if (n > 0 && rx_robbed(c, fd, 0) && rx->end != 0) /* at this moment */
                    continue;
                if ((flags & MSG_PEEK) && n > 0 && (uint64_t)n == rx->S - at)
                    n += (ssize_t)rx_ahead_peek(c, fd, v, cnt);
                return n;
            }
            if (rx_switch(c, fd) == 0)
                return c->shut ? 0 : -EAGAIN;
            look_behind(c, fd);
            continue;
        case RX_r:
        case RX_q2:
            if (rail && !rx->frozen) {
                uint64_t limit = rx->end != 0 ? rx->V - at : UINT64_MAX;

                n = rx_ring_read(c, rail, v, cnt, limit, flags);
                if (__builtin_expect(atomic_load_explicit(&rail->failed, memory_order_relaxed), 0))
                    link_release(c);
                if (n > 0)
                    return n;
            }
            if (rx->end != 0) {
                link_release(c);
                return rx_take_end(c, fd);
            }
            if (rx_unheard(c, rail, asked)) {
                asked = true;
                rx_anchor(c, fd);
                continue;
            }
            if (!fetched && rx_fetch(c, rail)) {
                fetched = true;
                continue;
            }
            return c->shut ? 0 : -EAGAIN;
        case RX_sk:
            if (at < rx->V && rail) {
                n = rx_ring_read(c, rail, v, cnt, rx->V - at, flags);
                /* At once: whoever is killed after this has read everything. */
                if (c->s.pub->rx == rx->V && rx->end == 0 && !hold_for_good())
                    rx_skip(c, fd);
                if (n > 0)
                    return flags & MSG_PEEK ? n + (ssize_t)rx_overlap_peek(c, fd, v, cnt, (size_t)n)
                                            : n;
            }
            if (at < rx->V)
                return rx_broken(c, "bytes that had arrived are not in the ring any more");
            rx_skip(c, fd);
            if (rx->end != 0)
                return rx_take_end(c, fd);
            if (rx->skip > 0)
                return c->shut ? 0 : -EAGAIN;
            if (at == rx->E || rx->handed) {
                rx_caught_up(c);
                continue;
            }
            /* No frame comes before this half is plain: the next look shows what is
             * beyond E as well. */
            n = rx_kernel_read(c, fd, v, cnt, flags & MSG_PEEK ? UINT64_MAX : rx->E - at, flags);
            if (n == 0 && !c->shut) {
                rx_ended(c, -ECONNRESET);
                return rx_take_end(c, fd);
            }
            if (n == -EAGAIN && c->shut)
                return 0; /* also before the kernel has heard of it */
            if (n > 0 && c->s.pub->rx == rx->E)
                rx_caught_up(c);
            return n;
        default:
            return -EINVAL;
        }
    }
}

int rx_readable(struct fb_conn *c, int fd)
{
    struct fb_rx *rx = &c->x->rx;
    bool asked = false, fetched = false;

    for (;;) {
        struct rsk_rail *rail = c->x->rail;
        struct iovec have[2];
        uint64_t at;
        short p;

        if (atomic_load_explicit(&c->x->rx_todo, memory_order_acquire))
            rx_serve(c);
        if (rx->by_call)
            return 0;
        if (rx_front_left(c))
            return 1;
        at = atomic_load_explicit(&c->s.pub->rx, memory_order_relaxed);
        switch ((enum fb_rx_state)rx->state) {
        case RX_gS:
        case RX_f2:
            if (rx->end != 0)
                return 1;
            if (atomic_load(&c->s.rx_in))
                return 0;
            if (at >= rx->S) {
                if (rx_switch(c, fd) == 0)
                    return 0;
                look_behind(c, fd);
                continue;
            }
            break;
        case RX_r:
        case RX_q2:
            if (rail && !rx->frozen && rail->wire->rx_peek(rail, have) > 0 &&
                (rx->end == 0 || at < rx->V))
                return 1;
            if (rx->end != 0 || c->shut)
                return 1;
            if (rx_unheard(c, rail, asked)) {
                asked = true;
                rx_anchor(c, fd);
                continue;
            }
            if (!fetched && rx_fetch(c, rail)) {
                fetched = true;
                continue;
            }
            return 0;
        case RX_sk:
            if (at < rx->V || c->shut)
                return 1;
            rx_skip(c, fd);
            if (rx->end != 0)
                return 1;
            if (rx->skip > 0)
                return 0;
            if (at == rx->E) {
                rx_caught_up(c);
                continue;
            }
            break;
        default:
            break;
        }
        p = fb_io.poll(fd, POLLIN | POLLRDHUP);
        if (p & POLLRDHUP) { /* once it was said it stays so: fb_ready */
            atomic_fetch_or(&c->x->anchor_bits, POLLRDHUP);
            conn_killed(c);
        }
        if (__builtin_expect(rx->state == RX_gS && conn_flag(c, CF_RCVLOWAT), 0) &&
            (p & (POLLIN | POLLRDHUP | POLLHUP)) == POLLIN)
            return rx_enough(c, fd);
        return (p & (POLLIN | POLLHUP)) != 0;
    }
}

bool rx_unread(struct fb_conn *c, int fd)
{
    struct fb_rx *rx = &c->x->rx;
    struct rsk_rail *rail = c->x->rail;
    struct iovec have[2];
    int inq = fb_io.inq(fd);

    if (rx_front_left(c))
        return true;
    switch ((enum fb_rx_state)rx->state) {
    case RX_t:
        return inq > 0;
    case RX_gS:
        return inq > 0 && c->s.pub->rx < rx->S;
    case RX_r:
    case RX_q2:
        return rx->frozen ? rx->more : rail && rail->wire->rx_peek(rail, have) > 0;
    case RX_sk:
        return c->s.pub->rx < rx->V ||
               (inq > 0 && (uint64_t)inq > rx->skip && c->s.pub->rx < rx->E);
    default:
        return false;
    }
}
