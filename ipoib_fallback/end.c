/*
 * end.c - ends of streams: close, shutdown. Every end is the kernel's own: the stream leaves the
 * rail first, so that FIN and RST mean what they mean in TCP.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/killed.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/stream.h"
#include "ipoib_fallback/tap.h"
#include "ipoib_fallback/tx.h"
#include "ipoib_fallback/worth.h"

#include "config/log.h"
#include "rsock/sys.h"

#include <errno.h>

void fb_dup(struct fb_stream *s, int newfd)
{
    struct fb_conn *c = conn_of(s);

    atomic_fetch_add(&s->fds, 1);
    for (int i = 0; i < 3; i++) {
        int none = 0;

        if (atomic_compare_exchange_strong(&c->x->alt_fd[i], &none, newfd + 1))
            return;
    }
    /* More numbers than are kept apart: none of ours could be sure to be open. */
    fb_pin(s, RSN_CALL, true);
}

/* One of several numbers goes: the library's own calls use another one from now on. */
static void one_less(struct fb_conn *c, int fd)
{
    int other = -1;

    fb_lock(&c->x->tx.lock);
    fb_lock(&c->x->rx.lock);
    link_drop(c, fd);
    for (int i = 0; i < 3; i++) {
        if (conn_alt(c, i) == fd)
            c->x->alt_fd[i] = 0;
        else if (conn_alt(c, i) >= 0)
            other = i;
    }
    if (c->fd == fd) {
        c->fd = other >= 0 ? conn_alt(c, other) : -1; /* -1: the stream is pinned (fb_dup) */
        if (other >= 0)
            c->x->alt_fd[other] = 0;
        c->s.pub->fd = c->fd;
    }
    rx_unlock(c);
    tx_unlock(c);
    if (conn_flag(c, CF_LINKED))
        link_watch(c);
}

void end_pass_frame(struct fb_conn *c, int fd)
{
    if (hold_for_good()) /* a filter may forbid to look */
        return;
    fb_lock(&c->x->rx.lock);
    if (fd >= 0 && (c->x->rx.state == RX_gS || c->x->rx.state == RX_f2))
        (void)rx_readable(c, fd);
    rx_unlock(c);
}

bool end_tells_of_close(struct fb_conn *c)
{
    const struct fb_tx *tx = &c->x->tx;

    return conn_flag(c, CF_TOLD_CLOSED) || tx->state == TX_W2 ||
           (tx->state == TX_L1 && tx->frame_at == 0);
}

bool end_frame_is_due(struct fb_conn *c)
{
    const struct rsk_rail *rail = c->x->rail;

    return c->x->rx.frozen && c->x->rx.end == 0 && rail && !rail->failed &&
           (c->x->rx.state == RX_r || c->x->rx.state == RX_q2);
}

/* There is no number on which the progress thread could finish: what is left goes, and the peer's
 * frame comes, while the application's own is open. Both locks are held, and given up meanwhile. */
static void push_here(struct fb_conn *c, int fd)
{
    uint64_t until = fb_io.now() + END_NS;

    while ((c->x->tx.state != TX_T || end_frame_is_due(c)) && fb_io.now() < until &&
           !(fb_io.poll(fd, 0) & POLLHUP)) {
        rx_unlock(c);
        tx_unlock(c);
        fb_io.wait(c->x->tx.state == TX_T ? -1 : fd, POLLOUT, 200000);
        conn_mail(c);
        fb_lock(&c->x->tx.lock);
        tx_push(c);
        fb_lock(&c->x->rx.lock);
        atomic_store(&c->x->anchor_news, 1);
        rx_anchor(c, fd);
    }
}

enum ending {
    NUMBER_GOES,  /* the kernel's close of it follows */
    NUMBER_STAYS, /* as the kernel's alone */
    IS_OVER       /* it stays, and its connection is no more: the next one's socket is the same */
};

static void close_number(struct fb_stream *s, int fd, enum ending how)
{
    struct fb_conn *c = conn_of(s);
    bool reset = false, shared;
    int kept = -1;

    if (atomic_fetch_sub(&s->fds, 1) > 1) {
        one_less(c, fd);
        return;
    }
    conn_set(c, CF_CLOSED);
    if (!fb_may_linger(s)) {
        worth_ended(c, heir_held(c));
        heir_let_go(c);
        if (tap_on(c) && !heir_held(c))
            tap_mark(c, TAP_FIN, 0);
        return;
    }
    shared = heir_held(c);
    if (how != IS_OVER)
        end_pass_frame(c, fd);
    fb_lock(&c->x->tx.lock);
    fb_lock(&c->x->rx.lock);
    worth_ended(c, shared);
    link_drop(c, fd);
    c->x->closed_shared = shared;
    if (how == IS_OVER || (conn_plain(c) && !c->x->rail)) {
        reset = how == IS_OVER;
        c->fd = -1;
    } else if (!shared && (rx_unread(c, fd) || fb_io.aborts(fd))) {
        /* As TCP: unread bytes at close reset the connection, unsent ones are lost. */
        fb_io.abort(fd);
        reset = true;
        c->fd = -1;
    } else {
        kept = fb_io.keep(fd);
        if (kept >= 0) {
            conn_set(c, CF_LINGER);
            /* Before FIN, and before the table forgets the number: another thread's call on it
             * would get EPIPE, put its bytes between those that follow, or take a frame. */
            if (how == NUMBER_GOES)
                fb_io.vacate(fd);
        }
        c->fd = kept >= 0 ? kept : fd;
        c->x->tx.want = false;
        /* Another process may hold it: then this is no end, neither for the peer nor
         * for the kernel. */
        if (!shared)
            c->x->tx.frame_flags |= FF_FIN | FF_CLOSED;
        if (!shared && !c->x->tx.fin) {
            c->x->tx.fin = true;
            tx_fin(c);
        }
        if (c->x->tx.state != TX_T)
            tx_leave(c, RSN_ENDING, true);
        /* Whoever goes on has the kernel's socket only, and if it is nobody the kernel's close is
         * the end: the peer must not owe us anything, nor have bytes on their way here. And who has
         * left already tells it of the close by no frame: its own would draw RST, while the kernel
         * may still have bytes for it. */
        if (shared || !end_tells_of_close(c))
            rx_freeze(c, RSN_ENDING);
        if (kept < 0) {
            push_here(c, fd);
            /* No number is left to finish on: what did not fit now is lost, and the
             * peer must know. */
            reset = c->x->tx.state != TX_T;
            if (reset)
                fb_io.abort(fd);
            link_drop(c, fd); /* it may have been watched again meanwhile */
            c->fd = -1;
        }
    }
    rx_unlock(c);
    tx_unlock(c);
    if (reset)
        log_debug("stream %u: closed with a reset", c->s.slot);
    if (tap_on(c) && !shared)
        tap_mark(c, reset ? TAP_RESET : TAP_FIN, 0);
    conn_wake(c, RSK_RX | RSK_TX | FB_EV_STATE); /* calls in flight end: their number is gone */
    link_linger(c);
}

void fb_close(struct fb_stream *s, int fd)
{
    close_number(s, fd, NUMBER_GOES);
}

/* The child of a fork between fb_close and the kernel's close may have the number: so it is noted
 * here how many forks there were (heir.c). A stream that never had to do with a rail has told its
 * children already that it lets go, and memory that it never used is not touched for this. */
void fb_closed(struct fb_stream *s)
{
    struct fb_conn *c = conn_of(s);
    uint32_t forks = atomic_load(&heir_forks);

    if (!conn_flag(c, CF_CLOSED))
        return;
    if (forks != c->born && fb_may_linger(s))
        atomic_store(&c->x->forks_then, forks);
    given_closed(c);
}

void fb_forget(struct fb_stream *s, int fd)
{
    close_number(s, fd, NUMBER_STAYS);
}

int fb_disconnect(struct fb_stream *s, int fd, const void *to, socklen_t len)
{
    struct fb_conn *c = conn_of(s);
    int r;

    if (!fb_may_linger(s)) {
        fb_pin(s, RSN_ENDING, false);
        return sys_connect(fd, to, len);
    }
    atomic_store(&c->x->disconnected, true); /* first: the pin wakes who sleeps */
    fb_pin(s, RSN_ENDING, false);
    /* The reset is for the application's next call: nobody here looks at the socket once it is
     * there, and takes it. */
    fb_lock(&c->x->tx.lock);
    fb_lock(&c->x->rx.lock);
    r = sys_connect(fd, to, len);
    if (r == 0)
        c->fd = -1;
    else
        atomic_store(&c->x->disconnected, false);
    rx_unlock(c);
    tx_unlock(c);
    return r;
}

void fb_disconnected(struct fb_stream *s, int fd)
{
    close_number(s, fd, IS_OVER);
}

/* Another process may have read what is still to come, as far as is known here. */
static int shut_reading(struct fb_conn *c, int fd)
{
    bool at_once;
    int r;

    fb_lock(&c->x->rx.lock);
    at_once = c->fd < 0 || hold_for_good();
    at_once = at_once || (c->x->rx.state == RX_t && conn_shared(c));
    if (at_once || !atomic_load(&c->x->rx.late)) {
        atomic_store(&c->x->rx.late, false);
        r = fb_io.shutdown(fd, SHUT_RD);
    } else {
        r = rx_shut(c);
    }
    rx_unlock(c);
    if (atomic_load(&c->x->rx.late))
        link_watch(c);
    return r;
}

/* One that has moved bytes is not, unless it has sent them with its SYN (TCP_FASTOPEN_CONNECT):
 * then CF_FIN stays, and so does the next connection on TCP. */
static bool may_be_connecting(const struct fb_stream *s, int how)
{
    return s->role == FB_CONNECTED &&
           (how == SHUT_RD || atomic_load_explicit(&s->calls, memory_order_relaxed) == 0);
}

int fb_shutdown(struct fb_stream *s, int fd, int how)
{
    struct fb_conn *c = conn_of(s);
    uint32_t flags;
    bool here;
    int r = 0;

    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
        return -EINVAL;
    if (how != SHUT_RD && tap_on(c))
        tap_mark(c, TAP_FIN, 0);
    /* Once it has asked for a rail, one may come at any moment, unless it is pinned: then under the
     * lock. Who makes it asks for the flag. */
    flags = atomic_fetch_or(&c->s.flags, how != SHUT_RD ? CF_FIN : 0);
    here = fb_plain(s) && conn_without_rail(flags);
    if (how != SHUT_WR) {
        if (!here)
            end_pass_frame(c, fd);
        /* From here on fb_ready says what is shut, until the kernel does. With SHUT_RDWR that is
         * both directions: who looks sees neither without the other. */
        if (!here)
            atomic_store(&c->x->rx.late, true);
        atomic_store(&c->shut, true);
    }
    if (here) {
        r = fb_io.shutdown(fd, how);
        /* If it was connecting, that is over, and the kernel has forgotten it: it can be
         * connected anew. */
        if (may_be_connecting(s, how) &&
            (fb_io.poll(fd, POLLRDHUP) & (POLLHUP | POLLRDHUP)) == POLLHUP) {
            atomic_store(&c->shut, false);
            atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_FIN);
        }
        return r;
    }
    if (how != SHUT_RD) {
        fb_lock(&c->x->tx.lock);
        if (!c->x->tx.fin) {
            if (c->x->tx.state == TX_T) {
                c->x->tx.fin = c->x->tx.fin_done = true;
                c->x->tx.want = false;
                if (!c->x->rail)
                    conn_reason(c, RSN_ENDING);
                conn_ends(c);
                r = fb_io.shutdown(fd, SHUT_WR);
            } else {
                if (fb_io.poll(fd, 0) & POLLHUP) /* reset: the kernel's error */
                    r = fb_io.shutdown(fd, SHUT_WR);
                c->x->tx.frame_flags |= FF_FIN;
                c->x->tx.fin = true;
                tx_leave(c, RSN_ENDING, true);
            }
        } else if (c->x->tx.fin_done) {
            r = fb_io.shutdown(fd, SHUT_WR); /* it knows whether there is still a connection */
        }
        tx_unlock(c);
        link_watch(c);
        link_release(c);
    }
    if (how != SHUT_WR) {
        int read = shut_reading(c, fd);

        /* else it may be over by now, which the kernel does not tell of one call */
        if (how == SHUT_RD)
            r = read;
        conn_wake(c, RSK_RX);
    }
    return r;
}

bool fb_shut_late(const struct fb_stream *s)
{
    return atomic_load(&conn_of((struct fb_stream *)s)->x->rx.late);
}
