/*
 * linger.c - after the application has closed: the residue goes into TCP, then FIN, and the peer's
 * frames are taken out of the socket so that the kernel's close does not find unread bytes and
 * reset the connection. Ends at FIN_WAIT2 (everything of ours has arrived) if the peer knows that
 * no frame may follow, else at the peer's end, or after a minute. What has not gone into TCP yet
 * has four, and anew whenever some of it goes: the kernel, too, keeps the bytes of a closed socket
 * for longer than that minute if the peer lives. But a child that may still ask for the connection
 * is waited for: it would receive frames for bytes. Progress thread.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/reach.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/tx.h"

#include "config/log.h"
#include "rsock/loop.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define LINGER_NS   60000000000ull /* the kernel's tcp_fin_timeout */
#define SHUT_NS     2000000000ull
#define STUCK_NS    240000000000ull
#define PAUSE_FIRST 500000ull
#define PAUSE_MOST  100000000ull
#define PAUSE_CHILD 5000000000ull

bool conn_lingers(struct fb_conn *c)
{
    int fd = c->fd;

    return fd >= 0 && (c->x->tx.state != TX_T || (c->x->rx.end == 0 && fb_io.waits(fd)));
}

/* One that would draw RST from a closed socket. */
static bool frame_may_come(struct fb_conn *c)
{
    return !c->x->closed_shared && !conn_flag(c, CF_TOLD_CLOSED) && c->x->rx.state != RX_t &&
           c->x->rx.end == 0;
}

/* A half that is shut for reading always says that it is at its end. The peer is not at his before
 * his FIN is here; but he may owe no frame after all, which is not waited for as long as others. */
static bool shut_alone(struct fb_conn *c)
{
    return c->shut && fb_io.now() < c->x->linger_until - LINGER_NS + SHUT_NS &&
           !(fb_io.poll(c->fd, 0) & POLLHUP);
}

/* Takes what lies in the socket: frames are ours, application bytes mean that the peer writes to a
 * closed socket. Returns false when the connection must be reset, as TCP would. */
static bool strip(struct fb_conn *c, bool *ended)
{
    char scratch[512];
    struct iovec v = {scratch, sizeof(scratch)};
    bool alone;
    ssize_t n;

    *ended = false;
    fb_lock(&c->x->rx.lock);
    if (c->x->rx.state == RX_r || c->x->rx.state == RX_q2) {
        atomic_store(&c->x->anchor_news, 1);
        if (!c->x->rail)
            rx_anchor(c, c->fd);
    }
    /* Another process's bytes stay where they are: only a frame before them is taken. */
    if (c->x->closed_shared) {
        (void)rx_readable(c, c->fd);
        *ended = c->x->rx.end != 0;
        rx_unlock(c);
        return true;
    }
    alone = shut_alone(c); /* before the look: a frame may come between, and FIN */
    n = rx_try(c, c->fd, &v, 1, 0);
    if (n == 0 && alone && frame_may_come(c))
        n = -EAGAIN;
    rx_unlock(c);
    if (n == -EAGAIN)
        return true;
    *ended = n <= 0;
    return n <= 0;
}

/* Nothing of ours is under way any more, and nothing that the peer sends can do harm: a frame to a
 * closed socket draws RST, and takes from the peer what its application has not read. */
static bool finished(struct fb_conn *c)
{
    if (c->x->closed_shared)
        return c->x->rx.state == RX_t || rx_front_alone(c); /* the end is another process's */
    return !fb_io.waits(c->fd) && (conn_flag(c, CF_TOLD_CLOSED) || c->x->rx.state == RX_t);
}

/* A child may still ask for what is before a frame. */
static bool awaited(struct fb_conn *c)
{
    return c->x->closed_shared && heir_linked(c);
}

static void finish(struct fb_conn *c, bool reset)
{
    bool others;
    int fd;

    fb_lock(&c->x->tx.lock);
    fb_lock(&c->x->rx.lock);
    link_unwatch(c);
    fd = c->fd;
    c->fd = -1;
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_LINGER);
    rx_unlock(c);
    tx_unlock(c);
    if (fd >= 0 && reset)
        fb_io.abort(fd);
    /* Those who are believed to have it as well may have closed it meanwhile, or never had it.
     * Then this close is the last, and SO_LINGER must not make this thread wait in it: others is
     * false if it would. */
    others = heir_held(c) && !(fd >= 0 && fb_io.lingers(fd));
    if (fd >= 0)
        fb_io.close(fd, others);
    heir_let_go(c);
    reach_over(c);
    log_debug("stream %u: closed%s", c->s.slot, reset ? " with a reset" : "");
    link_no_linger_timer(c);
    if (c->x->rail)
        link_release(c);
}

static void linger_step(struct fb_conn *c);

static void linger_timer(void *arg)
{
    struct fb_conn *c = arg;

    link_timer_fired(c);
    linger_step(c);
    fb_put(&c->s);
}

/* See link_lock. */
static bool busy(struct fb_conn *c)
{
    bool yes = !fb_trylock(&c->x->tx.lock);

    if (yes)
        return true;
    yes = !fb_trylock(&c->x->rx.lock);
    if (!yes)
        rx_unlock(c);
    tx_unlock(c);
    return yes;
}

static void linger_step(struct fb_conn *c)
{
    bool ended = false, drained, over, late, stuck, vain;

    if (busy(c)) {
        link_linger_timer(c, PAUSE_FIRST, linger_timer);
        return;
    }

    if (!conn_flag(c, CF_LINGER) || c->fd < 0) {
        /* Reset or plain at close: nothing to wait for. */
        finish(c, false);
        return;
    }
    if (!c->x->linger_until) {
        c->x->linger_until = fb_io.now() + LINGER_NS;
        c->x->linger_pause = PAUSE_FIRST;
    }
    conn_mail(c);
    fb_lock(&c->x->tx.lock);
    drained = tx_push(c) || c->x->tx.state == TX_T;
    if (c->x->tx.cur != c->x->linger_cur || !c->x->linger_stuck) {
        c->x->linger_cur = c->x->tx.cur;
        c->x->linger_stuck = fb_io.now() + STUCK_NS;
    }
    tx_fin(c);
    tx_unlock(c);
    if (!strip(c, &ended)) {
        finish(c, true);
        return;
    }
    over = ended || finished(c);
    late = fb_io.now() > c->x->linger_until;
    stuck = !drained && (fb_io.now() > c->x->linger_stuck || (late && c->x->closed_shared));
    /* The kernel has bytes of ours yet, and goes on with them for longer: a frame that comes behind
     * us would cost the peer those. */
    vain = late && !awaited(c) &&
           (!frame_may_come(c) || fb_io.now() > c->x->linger_stuck || !fb_io.waits(c->fd));
    /* SO_LINGER is others' as well as ours: what may make our close wait goes first, as long
     * as it may take. */
    if (!stuck && drained && over && !late && heir_held(c) && fb_io.lingers(c->fd))
        over = vain = false;
    if (stuck || (drained && (over || vain))) {
        /* If a part of a frame has come the connection is reset: the rest of it would draw a reset
         * in any case; or it is no frame, but bytes of a peer that knows of the close and writes
         * all the same. It is also reset if another program has it, which will not get all of its
         * bytes, and must learn of that. */
        bool part = c->x->rx.frame_at > 0 || (c->x->closed_shared && !over);

        finish(c, !drained || (!ended && part));
        return;
    }
    link_watch(c);
    link_linger_timer(c, late ? PAUSE_CHILD : c->x->linger_pause, linger_timer);
    if (c->x->linger_pause < PAUSE_MOST)
        c->x->linger_pause *= 2;
}

static void linger_job(void *arg)
{
    struct fb_conn *c = arg;

    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_LINGER_JOB);
    if (conn_flag(c, CF_CLOSED))
        linger_step(c);
    fb_put(&c->s);
}

void link_linger(struct fb_conn *c)
{
    link_post_once(c, CF_LINGER_JOB, JOB_LINGER, linger_job);
}
