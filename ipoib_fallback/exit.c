/*
 * exit.c - the process ends, or goes on as another program: what its streams have to say goes
 * before the kernel closes them all.
 *
 * Called by the application on any thread.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/killed.h"
#include "ipoib_fallback/pubfile.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/stream.h"
#include "ipoib_fallback/tx.h"

#include "rsock/loop.h"

/* Can both locks be had by then? Their holder may never give them back: it may be this very thread,
 * in the handler of a fault in a buffer, which ends the process. Then the stream ends as if the
 * process had been killed. */
static bool in_reach(struct fb_conn *c, uint64_t until)
{
    for (;;) {
        if (fb_trylock(&c->x->tx.lock)) {
            bool both = fb_trylock(&c->x->rx.lock);

            if (both)
                rx_unlock(c);
            tx_unlock(c);
            if (both)
                return true;
        }
        if (fb_io.now() >= until)
            return false;
        fb_io.wait(-1, 0, 200000);
    }
}

static void end_first(struct fb_conn *c, void *arg)
{
    conn_set(c, CF_PINNED);
    c->x->out_of_reach = conn_flag(c, CF_LINKED) && !in_reach(c, *(uint64_t *)arg);
    if (c->x->out_of_reach)
        return;
    if (!conn_flag(c, CF_LINKED) || conn_flag(c, CF_CLOSED))
        return;
    c->x->goes_on = heir_held(c);
    if (c->x->goes_on) { /* no end */
        end_leave(c, RSN_ENDING);
        return;
    }
    end_pass_frame(c, c->fd);
    fb_lock(&c->x->tx.lock);
    fb_lock(&c->x->rx.lock);
    if (c->fd >= 0 && rx_unread(c, c->fd)) {
        /* As fb_close: what the peer's application has not got yet lies in its ring, or is lost. */
        fb_io.abort(c->fd);
        conn_set(c, CF_RESET);
    } else if (c->x->tx.state != TX_T) {
        conn_ends(c); /* everything is read */
        c->x->tx.frame_flags |= FF_FIN | FF_CLOSED;
        tx_leave(c, RSN_ENDING, true);
    }
    if (!conn_flag(c, CF_RESET) && !end_tells_of_close(c))
        rx_freeze(c, RSN_ENDING);
    rx_unlock(c);
    tx_unlock(c);
}

void end_give_up(struct fb_conn *c)
{
    fb_lock(&c->x->tx.lock);
    if (c->fd >= 0 && c->x->tx.handed && c->x->tx.state != TX_T)
        fb_io.abort(c->fd);
    tx_unlock(c);
}

/* The residue must be in the kernel, and the peer's frames out of it: a socket that the kernel
 * closes with unread bytes is reset, and a reset can cost the peer our last bytes. */
static void end_wait(struct fb_conn *c, void *arg)
{
    uint64_t until = *(uint64_t *)arg;

    if (!conn_flag(c, CF_LINKED) || conn_flag(c, CF_RESET) || c->x->out_of_reach)
        return;
    if (c->x->goes_on) {
        bool settled = end_settle(c, RSN_ENDING, RSK_RX | RSK_TX, until);

        /* Children that come later could not get what is in front. */
        if (!settled && rx_front_wait(c, until))
            settled = end_settle(c, RSN_ENDING, RSK_RX | RSK_TX, until);
        else if (!settled && !heir_held(c) && c->fd >= 0)
            fb_io.abort(c->fd);
        if (!settled && !heir_held(c))
            end_give_up(c);
        if (settled && end_in_order(c))
            heir_settled(c);
        return;
    }
    if (conn_shared(c) && c->fd < 0) { /* only what is in front keeps it */
        if (rx_front_wait(c, until) && (conn_plain(c) || rx_front_alone(c)))
            heir_settled(c);
        return;
    }
    while (c->fd >= 0 && fb_io.now() < until) {
        bool done;

        fb_lock(&c->x->tx.lock);
        done = tx_push(c) || c->x->tx.state == TX_T;
        tx_unlock(c);
        fb_lock(&c->x->rx.lock);
        atomic_store(&c->x->anchor_news, 1);
        rx_anchor(c, c->fd);
        done = done && !end_frame_is_due(c);
        rx_unlock(c);
        if (done && (!conn_flag(c, CF_LINGER)))
            return;
        if (done && !conn_lingers(c))
            return;
        fb_io.wait(c->x->tx.state == TX_T ? -1 : c->fd, POLLIN | POLLOUT, 200000);
    }
    end_give_up(c);
}

/* Is its close not the kernel's alone yet? */
static bool is_closing(struct fb_conn *c)
{
    bool yes;

    fb_lock(&c->x->tx.lock);
    fb_lock(&c->x->rx.lock);
    yes = c->fd >= 0 && (c->x->closed_shared || c->x->tx.state != TX_T || end_frame_is_due(c));
    rx_unlock(c);
    tx_unlock(c);
    return yes;
}

struct over {
    uint64_t until;
    bool ends;
};

static void close_over(struct fb_conn *c, void *arg)
{
    const struct over *o = arg;

    if (!conn_flag(c, CF_LINKED) || !conn_flag(c, CF_CLOSED))
        return;
    /* Not again where it was in vain, as for each place in which a program is looked for. */
    while (!c->x->over_in_vain && is_closing(c)) {
        c->x->over_in_vain = fb_io.now() >= o->until;
        link_linger(c);
        fb_io.wait(-1, 0, 200000);
    }
    if (o->ends && !c->x->closed_shared)
        end_give_up(c);
}

void fb_closed_over(bool ends)
{
    struct over o = {fb_io.now() + END_NS, ends};

    if (rsk_loop_running())
        conn_each(close_over, &o);
}

void fb_exit(void)
{
    uint64_t until = fb_io.now() + END_NS, locks = until - END_NS * 3 / 4;

    conn_each(end_first, &locks);
    conn_each(end_wait, &until);
    fb_pub_remove();
}
