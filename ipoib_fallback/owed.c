/*
 * owed.c - what did not go at once, and nobody would come back for. Progress thread, except what
 * the headers name.
 *
 * A RESUME that is owed on a rail that has failed. It would wait for the next bytes of its
 * direction; but the other end may have to hand the stream over, and has no rail any more to ask
 * for it (LEAVE_REQ). So it is written after a while, unless the peer is at its end, to whom a
 * frame would draw RST.
 *
 * A LEAVE_REQ that the rail had no room for: the stream is not read on until its sender has left,
 * and the sender has not been asked to. Or an ECHO: on verbs nothing that the sender puts into its
 * ring is sent before it has that.
 */
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/tx.h"

#include "rsock/loop.h"

#include <errno.h>
#include <string.h>

#define DELAY_NS 100000000u
#define AGAIN_NS 2000000u

static void send_echo(struct fb_conn *c)
{
    struct rsk_rail *rail = c->x->rail;
    struct rsk_msg m = {.type = FM_ECHO, .epoch = c->x->epoch};
    int err = 0;

    memcpy(m.data, c->x->rx.X, 16);
    if (rail && !rail->failed)
        err = rail->wire->ctl_send(rail, &m);
    atomic_store(&c->x->rx.unechoed, err == -EAGAIN);
    if (err == -EAGAIN)
        tx_owes(c);
    else if (err < 0)
        conn_todo_tx(c, TODO_FAIL);
}

void rx_echo(struct fb_conn *c, const struct fb_frame *f)
{
    if (!c->x->rail || c->x->rx.begun)
        return;
    c->x->rx.begun = true;
    memcpy(c->x->rx.X, f->u.sw.X, 16);
    send_echo(c);
}

void rx_ask_back(struct fb_conn *c, uint64_t R, int reason)
{
    struct rsk_rail *rail = c->x->rail;
    struct rsk_msg m = {
        .type = FM_LEAVE_REQ, .epoch = c->x->epoch, .a = R, .reason = (uint16_t)reason};

    c->x->rx.unasked = 0;
    if (!rail || rail->failed || rail->wire->ctl_send(rail, &m) != -EAGAIN)
        return;
    /* An idle stream stays on its rail, and is looked at again. */
    if (reason != RSN_IDLE) {
        c->x->rx.unasked = (uint16_t)(reason + 1);
        tx_owes(c);
    }
}

static void ask_again(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;

    if (atomic_load(&rx->unechoed))
        send_echo(c);
    if (!rx->unasked)
        return;
    if (rx->end == 0 && (rx->frozen || (rx->state == RX_sk && rx->handed)))
        rx_ask_back(c, rx->V, rx->unasked - 1);
    else if (rx->end == 0 && rx->state == RX_gS && rx->asked)
        rx_ask_back(c, rx->S, rx->unasked - 1);
    else /* it has left meanwhile */
        rx->unasked = 0;
}

static void ask(void *arg)
{
    struct fb_conn *c = arg;

    if (!link_lock(c, &c->x->rx.lock, ask))
        return;
    ask_again(c);
    rx_unlock(c);
    fb_put(&c->s);
}

static void due(void *arg)
{
    struct fb_conn *c = arg;

    if (!link_lock(c, &c->x->tx.lock, due))
        return;
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_OWES);
    if ((!c->x->rail || c->x->rail->failed) && c->x->tx.state == TX_L1 && c->x->tx.owed &&
        c->fd >= 0 && c->x->rx.end == 0 && !conn_flag(c, CF_PEER_CLOSED) &&
        !(fb_io.poll(c->fd, POLLRDHUP) & (POLLRDHUP | POLLHUP)))
        tx_leave(c, c->x->tx.why, true);
    tx_unlock(c);
    ask(c);
}

static void begin(void *arg)
{
    struct fb_conn *c = arg;

    if (!rsk_timer_add(c->x->rx.unasked || c->x->rx.unechoed ? AGAIN_NS : DELAY_NS, due, c))
        due(c);
}

void tx_owes(struct fb_conn *c)
{
    if (!conn_flag(c, CF_OWES))
        link_post_once(c, CF_OWES, JOB_OWES, begin);
}
