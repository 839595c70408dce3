/*
 * rx_frame.c - the receiving half's frames and guard: when SWITCH may be taken out
 * of TCP, what a frame must be, what an announcement needs. The rx lock is held.
 */
#include "ipoib_fallback/rx.h"

#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/killed.h"

#include "config/log.h"

#include <errno.h>
#include <string.h>

static void rx_gate_set(struct fb_conn *c)
{
    atomic_store(&c->s.rx_gate, c->x->rx.state != RX_t);
}

uint8_t rx_to(struct fb_conn *c, enum fb_rx_event event)
{
    struct fb_step step = fb_rx_step(c->x->rx.state, event);
    char who[FB_WHO];

    if (step.next < 0) {
        log_error("stream %u: receiver: %s cannot happen in %s (%s)", c->s.slot,
                  fb_rx_event_name(event), fb_rx_state_name(c->x->rx.state), conn_who(c, who));
        return 0;
    }
    if ((enum fb_rx_state)step.next != c->x->rx.state) {
        log_debug("stream %u: receiver %s -> %s on %s", c->s.slot, fb_rx_state_name(c->x->rx.state),
                  fb_rx_state_name((enum fb_rx_state)step.next), fb_rx_event_name(event));
        c->x->rx.state = (uint8_t)step.next;
        if (c->x->rx.peeks && step.next == RX_t)
            rx_peeks_end(c);
        rx_gate_set(c);
        conn_wake(c, RSK_RX | FB_EV_STATE);
    }
    return step.actions;
}

int rx_broken(struct fb_conn *c, const char *what)
{
    char who[FB_WHO];

    log_error("stream %u: %s: the connection is reset (%s)", c->s.slot, what, conn_who(c, who));
    rx_ended(c, -ECONNRESET);
    c->x->rx.V = c->s.pub->rx;
    c->x->rx.skip = 0;
    conn_reason(c, RSN_PEER_PROTOCOL);
    conn_wake(c, RSK_RX);
    return -ECONNRESET;
}

void rx_no_switch(struct fb_conn *c)
{
    struct rsk_rail *rail = c->x->rail;

    if (!rx_front_no_switch(c))
        rx_to(c, RE_NOTC);
    if (rail && rail->failed) /* it was kept for the case that there had been one */
        link_release(c);
}

bool rx_frame_ours(struct fb_conn *c, const struct fb_frame *f, uint8_t type)
{
    uint8_t tag[16];

    if (f->type != type || f->version != FB_PROTO_VERSION || f->epoch != c->x->epoch)
        return false;
    if (!fb_same(f->N, c->s.role == FB_CONNECTED ? c->x->nonce0 : c->x->nonce1, 16))
        return false;
    fb_tag(c->x->nonce0, c->x->nonce1, f, FB_FRAME_TAGGED, tag);
    return fb_same(tag, f->tag, 16);
}

static bool frame_ours(struct fb_conn *c, uint8_t type)
{
    return rx_frame_ours(c, &c->x->rx.frame, type);
}

static void ring_begins(struct fb_conn *c)
{
    if (c->x->rail && !c->x->rx.begun)
        c->x->rail->wire->rx_start(c->x->rail, c->x->rx.S);
}

void rx_begin(struct fb_conn *c, const struct fb_frame *f)
{
    ring_begins(c);
    rx_echo(c, f);
}

static int take_switch(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;
    struct rsk_rail *rail = c->x->rail;

    if (!frame_ours(c, FF_SWITCH) || rx->frame.u.sw.S != rx->S)
        return rx_broken(c, "the bytes at an announced switch are not the frame");
    rx->V = rx->S;
    rx->frozen = rx->handed = false;
    rx->on_rail = true;
    ring_begins(c);
    rx->outlives = rail && rail->wire->outlives_sender;
    if (rail) {
        atomic_store(&c->s.pub->path_rx, rail->wire->path);
        log_info("stream %u: receiving on %s from byte %llu", c->s.slot, rail->where,
                 (unsigned long long)rx->S);
    }
    atomic_fetch_add(&c->x->show->switches, 1);
    conn_boarded(c);
    atomic_store(&c->x->tx.turned, true);
    /* A RESUME may lie in TCP already, and its edge may be gone: look once. */
    atomic_store(&c->x->anchor_news, 1);
    rx_to(c, RE_WHOLE);
    rx_echo(c, &rx->frame);
    link_watch(c);
    if (conn_flag(c, CF_PINNED)) /* since the announcement */
        rx_freeze(c, c->s.pub->reason);
    return 0;
}

static int take_resume(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;
    struct rsk_rail *rail = c->x->rail;
    uint64_t F = rx->frame.u.re.F, E = rx->frame.u.re.E, at = c->s.pub->rx;

    if (!frame_ours(c, FF_RESUME) && conn_flag(c, CF_TOLD_CLOSED)) {
        /* It knows that no frame may follow our close, and its application writes on: TCP resets.
         * The kernel would not, if all of it is read. */
        fb_io.abort(c->fd);
        log_info("stream %u: the peer writes to a closed socket", c->s.slot);
        rx_ended(c, -ECONNRESET);
        rx->V = at;
        return -ECONNRESET;
    }
    if (!frame_ours(c, FF_RESUME))
        return rx_broken(c, "bytes on the anchor of a boarded stream are not a frame");
    /* Handed over: whoever reads the socket next has the stream from R on in TCP alone. */
    rx->handed = rx->frozen;
    if (rx->frozen)
        rx->V = at;
    else if (rail)
        rx->V = rail->wire->rx_freeze(rail);
    if (F > at || F > rx->V || rx->V > E)
        return rx_broken(c, "a RESUME frame contradicts what has arrived");
    rx->F = F;
    rx->E = E;
    rx->skip = rx->V - F;
    rx->frozen = false;
    atomic_store(&c->x->peer_rx, rx->frame.u.re.ack);
    if (rx->frame.flags & FF_CLOSED)
        rx->peer_closed = true;
    atomic_store(&c->s.pub->path_rx, FB_PATH_TCP);
    atomic_fetch_add(&c->x->show->switches, 1);
    log_info("stream %u: the sender left the rail: F %llu, V %llu, E %llu, read %llu", c->s.slot,
             (unsigned long long)F, (unsigned long long)rx->V, (unsigned long long)E,
             (unsigned long long)at);
    rx_to(c, RE_WHOLE);
    if (rx->peer_closed)
        atomic_fetch_or(&c->s.flags, CF_PINNED | CF_PEER_CLOSED);
    conn_todo_tx(c, TODO_PEER);
    return 0;
}

int rx_take_frame(struct fb_conn *c)
{
    c->x->rx.frame_at = 0;
    /* Or what its sender's application sends next waits, unless it has set TCP_NODELAY, for as long
     * as we delay the acknowledgement. */
    if (!hold_for_good())
        fb_io.acknowledge(c->fd);
    if (c->x->rx.state == RX_gS || c->x->rx.state == RX_f2)
        return take_switch(c);
    return take_resume(c);
}

void rx_look_again(struct fb_conn *c)
{
    if (!c->x->rx.unshown)
        return;
    if (sleepers_gone(c)) {
        c->x->rx.unshown = false;
        conn_wake(c, RSK_RX);
    } else {
        link_watch(c);
    }
}

int rx_switch(struct fb_conn *c, int fd)
{
    struct fb_rx *rx = &c->x->rx;

    if (rx->state == RX_gS) {
        uint8_t b;
        struct iovec v = {&b, 1};
        ssize_t n = rx_look(c, fd, &v, 1, 1, MSG_PEEK);

        if (n == -EAGAIN || n == -EINTR || (n == 0 && c->shut))
            return 0;
        if (n <= 0) {
            conn_killed(c);
            rx_at_end(c, n, true);
            return 1;
        }
        /* Beyond S: an announcement that came late, while bytes were being read that followed
         * it. */
        if (b != rx->c || c->s.pub->rx > rx->S) {
            if (!rx_robbed(c, fd, 0))
                rx_no_switch(c);
            return 1;
        }
    }
    /* Threads that went to sleep in the kernel before the guard, or in f2, are woken by these very
     * bytes: they stay in the queue until each of them has been awake (HARD-CASES 1). */
    if (atomic_load(&c->x->peekers) || !sleepers_gone(c)) {
        link_watch(c);
        return 0;
    }
    for (;;) {
        struct iovec v = {(char *)&rx->frame + rx->frame_at, FB_FRAME - rx->frame_at};
        ssize_t n = rx_look(c, fd, &v, 1, v.iov_len, 0);

        if (n == -EAGAIN || n == -EINTR || (n == 0 && c->shut))
            return 0;
        if (n <= 0) {
            /* Nothing beyond S was accepted by a sender that did not finish the frame. */
            conn_killed(c);
            rx_at_end(c, n, true);
            return 1;
        }
        c->x->own_rx += (uint64_t)n;
        rx->frame_at = (uint8_t)(rx->frame_at + n);
        if (rx->frame_at == FB_FRAME) {
            rx_take_frame(c);
            return 1;
        }
        rx_to(c, RE_PART);
    }
}

void rx_caught_up(struct fb_conn *c)
{
    bool front = c->x->rx.front != NULL;

    if (!rx_front_over(c))
        return;
    rx_shut(c); /* before the kernel alone is asked */
    rx_to(c, RE_CAUGHT);
    if (front && conn_plain(c) && !c->x->rail) /* it is pinned: that is so for good */
        heir_settled(c);
    link_release(c);
    link_watch(c);
}

bool rx_owed_by_tcp(struct fb_conn *c)
{
    const struct fb_rx *rx = &c->x->rx;
    uint64_t at = c->s.pub->rx;
    int inq;

    if (rx->end != 0)
        return false;
    switch ((enum fb_rx_state)rx->state) {
    case RX_r:
    case RX_q2:
        return true;
    case RX_sk:
        inq = fb_io.inq(c->fd);
        return inq < 0 || (uint64_t)inq < rx->skip + rx->E - (at > rx->V ? at : rx->V);
    case RX_t: /* After a hand-over. The application may be reading it. */
        return fb_io.received(c->fd) + conn_rail_rx(c) < rx->E + c->x->own_rx;
    default:
        return false; /* threads may sleep in the kernel's receive, whom it has to wake */
    }
}

/* Do threads sleep in the kernel's receive because the rail has been given back? They wait for a
 * frame that the peer owes, but does not write by itself to an end that has sent FIN: then only the
 * kernel's shutdown wakes them. */
static bool sleep_without_a_rail(const struct fb_conn *c)
{
    return c->x->rx.state == RX_r && c->x->rx.frame_at == 0 && !c->x->rail &&
           atomic_load(&c->x->peekers) > 0;
}

/* With both directions shut the kernel answers whatever comes with RST, which this end then gets
 * for an error. So it hears that there is no more reading when what the sender still owes has come.
 * A reset connection owes nothing, and what shutdown says of it is the kernel's to say. */
int rx_shut(struct fb_conn *c)
{
    if (!atomic_load(&c->x->rx.late) || c->fd < 0 || hold_for_good())
        return 0;
    if (rx_owed_by_tcp(c) && !sleep_without_a_rail(c) && !(fb_io.poll(c->fd, 0) & POLLHUP))
        return 0;
    atomic_store(&c->x->rx.late, false);
    return fb_io.shutdown(c->fd, SHUT_RD);
}

/* The kernel has given more or less than is counted: 0, or why there is no guard. */
static int unaccounted(struct fb_conn *c, uint32_t in, uint64_t received)
{
    /* The receive under way has taken them, or another process has: that cannot be told apart now.
     * Where several threads receive, its bytes may come before some that another thread has counted
     * already, so that nobody knows which of them is at S. And it may have been an earlier receive
     * that never came back (`lost`). */
    if (in > 0 && (conn_shared(c) || c->s.rx_mark == FB_NO_DIGEST || atomic_load(&c->x->lost)))
        return RSN_GUARD_REFUSED;
    if (in > 0 && received > conn_krx(c))
        return 0; /* it has taken them */
    atomic_store(&c->x->lost, true);
    log_info("stream %u: the kernel has given %llu bytes, we took %llu", c->s.slot,
             (unsigned long long)received, (unsigned long long)conn_krx(c));
    return RSN_BYPASSED;
}

/* The gate goes up first, then the calls in flight are counted; a caller counts first, then looks
 * at the gate (fb_rx_enter): one of the two sees the other. */
int rx_guard(struct fb_conn *c)
{
    uint64_t sent, received;
    uint32_t in;
    int reason = 0;

    /* Shut both ways: the kernel would answer the frame with RST. */
    if (conn_flag(c, CF_PINNED | CF_CLOSED | CF_RCVLOWAT) || c->x->rx.end != 0 ||
        c->x->rx.peer_closed || (c->shut && conn_flag(c, CF_FIN)))
        return RSN_GUARD_REFUSED;
    (void)atomic_exchange(&c->s.rx_gate, 1);
    in = atomic_load(&c->s.rx_in);
    if (in > 1 || atomic_load(&c->s.rx_odd) || !sleepers_collect(c) ||
        (in == 1 && (c->x->rx.must_see_n > 0 || atomic_load(&c->x->peekers))))
        reason = RSN_GUARD_REFUSED;
    else if (!fb_io.counters(c->fd, &sent, &received))
        reason = RSN_NOT_ESTABLISHED;
    else if (received != conn_krx(c))
        reason = unaccounted(c, in, received);
    if (reason)
        rx_gate_set(c);
    return reason;
}

void rx_serve(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;
    uint32_t todo = atomic_exchange(&c->x->rx_todo, 0);
    struct rsk_rail *rail = c->x->rail;

    if (todo & TODO_MAIL) {
        struct rsk_msg m = {.epoch = c->x->epoch};
        bool ann;
        uint64_t S;
        uint8_t first;

        fb_lock(&c->x->ctl_lock);
        /* Who is not proved may not ask for anything; proved() serves what came too early. */
        ann = c->x->mail.ann && conn_flag(c, CF_PROVED);
        if (ann)
            c->x->mail.ann = false;
        S = c->x->mail.ann_S;
        m.att = c->x->mail.ann_att;
        first = c->x->mail.ann_c;
        fb_unlock(&c->x->ctl_lock);
        if (ann && rail) {
            int reason = RSN_GUARD_REFUSED;

            if (rx->state == RX_t)
                reason = rx_guard(c);
            else if (rx->state == RX_gS && !rx->begun && !conn_flag(c, CF_PINNED | CF_CLOSED))
                reason = 0;
            /* It came late: its sender waits no longer, and what it sent instead has been read. */
            if (reason == 0 && c->s.pub->rx > S)
                reason = RSN_NO_ACK;
            if (reason == 0) {
                rx->S = S;
                rx->c = first;
                rx->att = m.att;
                rx_to(c, RE_ANN);
                m.type = FM_ACK;
                m.a = c->s.pub->rx;
                m.b = 1; /* it is said */
            } else {
                if (rx->state == RX_t)
                    rx_gate_set(c);
                m.type = FM_NAK;
                m.reason = (uint16_t)reason;
                log_info("stream %u: an announcement is refused: %s", c->s.slot,
                         cfg_reason_name(reason));
            }
            rail->wire->ctl_send(rail, &m);
        }
    }
    if (todo & TODO_LEAVE)
        rx_freeze(c, (int)c->x->leave_why);
    if ((todo & TODO_FAIL) && (rx->state == RX_r || rx->state == RX_q2))
        link_release(c);
    if (todo & TODO_ANCHOR)
        rx_anchor(c, c->fd);
}

/* The sender has left already. Of what it has sent again, the bytes that are unread stay in TCP for
 * whoever reads on there; if they are still there. True: for the first time. */
static bool hand_back(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;
    uint64_t at = c->s.pub->rx;
    bool first;

    if (at < rx->V) {
        if (rx->V - rx->skip > at)
            return false;
        rx->skip -= rx->V - at;
        rx->V = at;
    }
    first = !rx->handed;
    rx->handed = true;
    rx_skip(c, c->fd);
    if (rx->skip == 0 && rx->end == 0)
        rx_caught_up(c);
    return first;
}

void rx_freeze(struct fb_conn *c, int reason)
{
    struct fb_rx *rx = &c->x->rx;
    struct rsk_rail *rail = c->x->rail;
    uint64_t R = c->s.pub->rx;
    struct iovec have[2];

    if (rx->state == RX_sk && reason != RSN_IDLE && rx->end == 0 && hand_back(c))
        rx_ask_back(c, R, reason); /* so that it knows */
    if ((rx->state != RX_r && rx->state != RX_q2) || rx->frozen || rx->end != 0)
        return;
    /* An idle stream stays with us: what arrives until the sender has left is read from the ring,
     * and an end before E is known for what it is. */
    if (reason != RSN_IDLE) {
        rx->frozen = true;
        rx->V = R;
        rx->more = rail && rail->wire->rx_peek(rail, have) > 0;
    }
    rx_ask_back(c, R, reason);
}

void rx_serve_all(struct fb_conn *c)
{
    while (atomic_load(&c->x->rx_todo) && fb_trylock(&c->x->rx.lock)) {
        rx_serve(c);
        fb_unlock(&c->x->rx.lock);
    }
    /* What was found may concern the other half, whose thread may sleep. A caller that holds the tx
     * lock serves it when it unlocks. */
    if (atomic_load(&c->x->tx_todo) && fb_trylock(&c->x->tx.lock)) {
        tx_serve(c);
        tx_unlock(c);
    }
}
