/*
 * tx_leave.c - the sending half on its way back from the rail: RESUME, the residue F..E from the
 * ring, FIN. Also how a frame is tagged and written, which boarding needs as well. Never blocks:
 * what TCP has no room for is pushed on later (tx_push).
 */
#include "ipoib_fallback/tx.h"

#include "config/log.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/killed.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

/* Count; 0: no room; < 0: the end, and tx->err. An error that the kernel holds is the application's
 * to hear of, from whichever call it makes next; a send of ours would take it away, and a receive
 * would look like a clean end. So none is tried, and the half becomes plain: tx_dead. Only one that
 * comes right after the look is taken; or one that ends nothing (ICMP's, with IP_RECVERR), which is
 * kept, and the send is tried once more. */
static ssize_t write_anchor(struct fb_conn *c, const struct iovec *v, int cnt)
{
    const short reset = POLLERR | POLLHUP;
    struct fb_tx *tx = &c->x->tx;
    ssize_t n = -EPIPE;

    for (int i = 0; i < 2 && !atomic_load(&c->x->killed); i++) {
        if ((fb_io.poll(c->fd, 0) & reset) == reset)
            break;
        n = fb_io.send(c->fd, v, cnt, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0 || n == -EAGAIN || n == -EPIPE || (fb_io.poll(c->fd, 0) & POLLHUP))
            break;
        conn_untold(c, (int)n);
    }
    if (n == -EAGAIN || n == -EINTR || n == -ENOBUFS)
        return 0;
    if (n < 0) {
        tx->err = (int)n;
        if (n != -EPIPE)
            conn_untold(c, (int)n);
        return n;
    }
    c->x->own_tx += (uint64_t)n;
    return n;
}

/* Writes what is left of the frame. 1: whole; 0: no room; < 0: the anchor's error. */
static int write_frame(struct fb_conn *c)
{
    struct fb_tx *tx = &c->x->tx;

    while (tx->frame_at < FB_FRAME) {
        struct iovec v = {(char *)&tx->frame + tx->frame_at, FB_FRAME - tx->frame_at};
        ssize_t n = write_anchor(c, &v, 1);

        if (n <= 0)
            return (int)n;
        tx->frame_at = (uint8_t)(tx->frame_at + n);
        if (tx->frame_at < FB_FRAME)
            tx_to(c, TE_PART);
    }
    return 1;
}

/* Nagle would hold a frame back for 50 ms, TCP_CORK for 170 ms (HARD-CASES 3), and MSG_MORE with
 * what came before it. */
int tx_write_frame(struct fb_conn *c)
{
    int r = write_frame(c);

    fb_io.push(c->fd);
    return r;
}

void tx_cork(struct fb_conn *c)
{
    int on = (c->x->tx.cork & FB_CORK_ON) != 0;

    if (!c->x->tx.cork)
        return;
    c->x->tx.cork = 0;
    sys_setsockopt(c->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
}

void tx_tag_frame(struct fb_conn *c, struct fb_frame *f)
{
    /* N is the receiver's nonce: only the rail's other end knows it. */
    memcpy(f->N, c->s.role == FB_CONNECTED ? c->x->nonce1 : c->x->nonce0, 16);
    f->version = FB_PROTO_VERSION;
    f->epoch = c->x->epoch;
    fb_tag(c->x->nonce0, c->x->nonce1, f, FB_FRAME_TAGGED, f->tag);
}

/* The highest F that is known: a failed rail's credit words still count, since what the receiver
 * has consumed it has consumed. */
static void refresh_F(struct fb_conn *c)
{
    struct rsk_rail *rail = c->x->rail;

    if (rail) {
        uint64_t f = rail->wire->tx_freed(rail);

        if (f > c->x->tx.F && f <= c->x->tx.E)
            c->x->tx.F = f;
    }
}

/* If the peer was killed: makes calls on our socket say what they do after RST, but for the error,
 * which is in `swallowed`. Before the half is plain: from then on a send asks the kernel alone,
 * which would take one more byte. */
static void as_after_reset(struct fb_conn *c)
{
    if (atomic_load(&c->x->killed))
        fb_io.shutdown(c->fd, SHUT_WR);
}

/* After an error of the anchor nothing more can be delivered: the half is plain, and the kernel
 * tells the application. */
static void anchor_dead(struct fb_conn *c)
{
    struct fb_tx *tx = &c->x->tx;
    char number[CFG_ERRNO_WORDS];

    if (tx->err == -EPIPE)
        log_info("stream %u: the connection has ended while it was leaving", c->s.slot);
    else
        log_info("stream %u: the connection has ended while it was leaving: %s", c->s.slot,
                 cfg_errno_words(-tx->err, number));
    if (tx->err == -EPIPE)
        tx->err = 0; /* the kernel says it again each time */
    as_after_reset(c);
    if (tx->state == TX_L1 || tx->state == TX_L2)
        tx_to(c, TE_WHOLE);
    if (tx->state == TX_W2) {
        tx_to(c, TE_WHOLE);
        tx->on_rail = true;
        tx->E = tx->F = tx->S;
        tx_to(c, TE_LEAVE);
        tx_to(c, TE_WHOLE);
    }
    if (tx->state == TX_L3)
        tx_to(c, TE_DRAINED);
    if (tx->state == TX_W1)
        tx_to(c, TE_GIVEUP);
}

static void now_plain(struct fb_conn *c)
{
    struct fb_tx *tx = &c->x->tx;

    atomic_store(&c->s.pub->path_tx, FB_PATH_TCP);
    atomic_fetch_add(&c->x->show->switches, 1);
    if (tx->fin && !tx->fin_done) {
        tx->fin_done = true;
        conn_ends(c);
        fb_io.shutdown(c->fd, SHUT_WR);
        /* rx_take_frame's comes too late behind our FIN; this one makes the receive of the peer's
         * frame acknowledge it. */
        if (c->x->rx.state != RX_t && !hold_for_good())
            fb_io.acknowledge(c->fd);
        tx_want(c, false); /* and the gate goes down */
    }
    conn_wake(c, RSK_TX | FB_EV_STATE);
    link_release(c);
}

void tx_dead(struct fb_conn *c)
{
    anchor_dead(c);
    now_plain(c);
}

/* F..E from the ring into TCP. True when all is there. */
static bool push_residue(struct fb_conn *c)
{
    struct fb_tx *tx = &c->x->tx;
    struct rsk_rail *rail = c->x->rail;
    bool any = tx->cur < tx->E;

    while (tx->cur < tx->E) {
        struct iovec v[2];
        size_t have = rail ? rail->wire->tx_kept(rail, tx->cur, tx->E, v) : 0;
        char who[FB_WHO];
        ssize_t n;

        if (have == 0) {
            log_error(
                "stream %u: bytes %llu to %llu are not in the ring any more: the connection is lost (%s)",
                c->s.slot, (unsigned long long)tx->cur, (unsigned long long)tx->E,
                conn_who(c, who));
            /* No byte after them may pass for one of them: to the receiver an end before
             * E is a reset. */
            fb_io.shutdown(c->fd, SHUT_WR);
            tx->err = -ECONNRESET;
            conn_untold(c, -ECONNRESET);
            return false;
        }
        n = write_anchor(c, v, v[1].iov_len ? 2 : 1);
        if (n <= 0) {
            conn_no_room(c);
            return false;
        }
        tx->cur += (uint64_t)n;
    }
    if (any && !(fb_io.poll(c->fd, POLLOUT) & POLLOUT))
        conn_no_room(c);
    return true;
}

bool tx_push(struct fb_conn *c)
{
    struct fb_tx *tx = &c->x->tx;

    if (tx->state == TX_W2 && tx_write_switch(c) < 0) {
        tx_dead(c);
        return true;
    }
    if (tx->state == TX_L1 && tx->owed)
        return false;
    if (tx->state == TX_L1 && tx->frame_at == 0)
        refresh_F(c);
    if (tx->state == TX_L1 && tx->frame_at == 0 && tx->F == tx->E && conn_flag(c, CF_PEER_CLOSED)) {
        /* Nobody is left to read a frame: it would draw RST, which takes from this end what the
         * peer sent before. FIN, or what the application insists on sending, goes without. */
        tx_to(c, TE_WHOLE);
        tx->cur = tx->F;
    } else if (tx->state == TX_L1 && tx->frame_at == 0) {
        memset(&tx->frame, 0, sizeof(tx->frame));
        tx->frame.c = FB_RESUME_C;
        tx->frame.type = FF_RESUME;
        tx->frame.flags = tx->frame_flags;
        tx->frame.u.re.F = tx->F;
        tx->frame.u.re.E = tx->E;
        tx->frame.u.re.ack = c->s.pub->rx;
        tx_tag_frame(c, &tx->frame);
    }
    if (tx->state == TX_L1 || tx->state == TX_L2) {
        int r = tx_write_frame(c);

        if (r == 0)
            return false;
        if (r < 0) {
            tx_dead(c);
            return true;
        }
        tx_to(c, TE_WHOLE);
        tx->cur = tx->F;
        if (tx->frame.flags & FF_CLOSED)
            conn_set(c, CF_TOLD_CLOSED);
    }
    if (tx->state == TX_L3) {
        if (push_residue(c)) {
            /* Behind a frame that is not acknowledged yet Nagle would hold them back. */
            if (tx->E > tx->F)
                fb_io.push(c->fd);
            as_after_reset(c);
            tx_to(c, TE_DRAINED);
        } else if (tx->err)
            anchor_dead(c);
        else
            return false;
        now_plain(c);
    }
    return tx->state == TX_T;
}

void tx_leave(struct fb_conn *c, int reason, bool force)
{
    struct fb_tx *tx = &c->x->tx;
    struct rsk_rail *rail = c->x->rail;
    uint8_t actions;

    tx_want(c, false);
    if (tx->state == TX_T)
        return;
    if ((tx->state == TX_FX || tx->state == TX_W1) && tx->fin) {
        tx_to(c, TE_GIVEUP); /* a FIN at S says as much as a byte that is not c */
        now_plain(c);
        return;
    }
    if ((tx->state == TX_L1) && tx->owed && (force || tx->fin)) {
        tx->owed = false;
        tx_pause(c);
        tx_push(c);
        link_watch(c);
        return;
    }
    if (tx->state == TX_L1 && tx->owed && (!rail || rail->failed))
        tx_owes(c);
    actions = tx_to(c, TE_LEAVE);
    if (actions & TA_LATER) {
        tx->later = true;
        tx->why = (uint16_t)reason;
    }
    if (!(actions & TA_STOP))
        return;
    tx->why = (uint16_t)reason;
    tx_cork(c);
    tx->E = c->s.pub->tx;
    if (rail) {
        rail->wire->tx_stop(rail);
        refresh_F(c);
    } else {
        tx->F = tx->E;
    }
    tx->frame_at = 0;
    tx->owed = tx->F == tx->E && !force && !tx->fin;
    if (!tx->owed)
        tx_pause(c);
    conn_reason(c, reason);
    log_info("stream %u: sender leaves the rail: %s, F %llu E %llu%s", c->s.slot,
             cfg_reason_name(reason), (unsigned long long)tx->F, (unsigned long long)tx->E,
             tx->owed ? ", owed" : "");
    conn_wake(c, FB_EV_STATE);
    if (!tx_push(c)) {
        if (tx->owed && rail && !rail->failed) {
            struct rsk_msg m = {.type = FM_OWED, .epoch = c->x->epoch, .a = tx->F};

            rail->wire->ctl_send(rail, &m);
        } else if (tx->owed) {
            tx_owes(c);
        }
        link_watch(c);
        link_release(c);
    }
}
