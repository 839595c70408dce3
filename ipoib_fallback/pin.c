/*
 * pin.c - streams that leave their rail on the process's account, and whose kernel's socket then
 * has all of them: pin, hand over to another process, leave-all. A hand-over waits for what the
 * peer's library has to send again.
 *
 * Called by the application on any thread, and by heir.c on the progress thread,
 * which does not wait.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/stream.h"
#include "ipoib_fallback/tx.h"

#include "config/log.h"

#define WAIT_NS   5000000000ull /* a hand-over waits for the peer's library at most this long */
#define UNREAD_NS 20000000ull   /* for this process's own application not even that long */

/* Waits for the locks: whoever holds them may be boarding at this moment. tx: TODO_LEAVE, or
 * TODO_PEER, by which a frame may stay owed. */
static void leave_by(struct fb_conn *c, int reason, unsigned tx)
{
    atomic_store(&c->x->leave_why, (uint32_t)reason);
    conn_todo_tx(c, tx);
    fb_lock(&c->x->rx.lock);
    /* Who has gone sends nothing again: then what the ring has is read from it. */
    if (c->fd >= 0)
        rx_anchor(c, c->fd);
    conn_todo_rx(c, TODO_LEAVE);
    rx_serve(c);
    rx_unlock(c);
    fb_lock(&c->x->tx.lock);
    tx_serve(c);
    tx_unlock(c);
    conn_serve(c);
}

void end_leave(struct fb_conn *c, int reason)
{
    leave_by(c, reason, TODO_LEAVE);
}

/* What is at S has come: SWITCH, or what shows that there is none, or the end. Or it does not come
 * before something is read. */
static bool told_at_S(struct fb_conn *c)
{
    uint64_t before = c->x->rx.S - c->s.pub->rx;
    int n;

    if (c->fd < 0)
        return true;
    n = fb_io.inq(c->fd);
    return (n > 0 && ((uint64_t)n > before || (uint64_t)n >= fb_io.room(c->fd))) ||
           (fb_io.poll(c->fd, POLLRDHUP) & (POLLRDHUP | POLLHUP)) != 0;
}

/* Are there unread bytes that only the application can take? Those before a switch, those in front,
 * and those that are in the ring alone because TCP had no room for them once more. While a switch
 * is only announced the answer is yes where the receiving half alone is waited for (`of` is
 * RSK_RX). Else it waits for told_at_S(), since the sender may yet show that there is no switch. */
static bool unread(struct fb_conn *c, unsigned of)
{
    const struct fb_rx *rx = &c->x->rx;
    uint64_t at;
    bool yes;

    fb_lock(&c->x->rx.lock);
    at = c->s.pub->rx;
    yes = rx_front_left(c) ||
          (rx->state == RX_gS && at < rx->S && (of == RSK_RX || told_at_S(c))) ||
          (rx->state == RX_sk && rx->end == 0 && at < rx->V && rx->V - rx->skip > at);
    rx_unlock(c);
    return yes;
}

/* Somebody is to have the socket without this library. */
static void missed(struct fb_conn *c)
{
    char who[FB_WHO];
    uint64_t left;

    if (fb_plain_rx(&c->s))
        return;
    fb_lock(&c->x->rx.lock);
    left = rx_front_left(c);
    rx_unlock(c);
    if (left)
        log_warn(
            "stream %u: who uses it without this library misses %llu bytes that a child has asked for (%s)",
            c->s.slot, (unsigned long long)left, conn_who(c, who));
}

/* After a hand-over: bytes that TCP has to bring before the stream is where its sender left it.
 * What splice or another process has taken since is not counted as read. */
static bool behind(struct fb_conn *c)
{
    bool yes;

    fb_lock(&c->x->rx.lock);
    yes = c->s.pub->rx < c->x->rx.E && rx_owed_by_tcp(c);
    rx_unlock(c);
    return yes;
}

/* Is the first of it there, or the end? After SHUT_RD poll says so always; an end without it is
 * waited for in vain, as long as the caller waits. */
static bool has_come(struct fb_conn *c)
{
    const short reset = POLLERR | POLLHUP;
    short ready = fb_io.poll(c->fd, POLLIN);

    if (atomic_load(&c->shut))
        return fb_io.inq(c->fd) > 0 || (ready & reset) == reset;
    return (ready & (POLLIN | POLLHUP)) != 0;
}

/* Handed over, and the first of what follows is in the socket: to whoever has it then, or to its
 * close, bytes are unread, as they were. All of it, if nothing can follow once the kernel knows
 * what is shut. */
static bool follows(struct fb_conn *c)
{
    if (c->fd < 0)
        return true;
    if (behind(c))
        return !atomic_load(&c->x->rx.late) && has_come(c);
    /* The rest may have come since that was looked at. */
    fb_lock(&c->x->rx.lock);
    rx_shut(c);
    rx_unlock(c);
    return true;
}

bool end_settled(struct fb_conn *c, int reason)
{
    conn_mail(c);
    if (c->fd >= 0) {
        fb_lock(&c->x->rx.lock);
        atomic_store(&c->x->anchor_news, 1);
        rx_anchor(c, c->fd);
        rx_freeze(c, reason); /* SWITCH may have come only now */
        /* Or its sender has given it up, which is behind what is unread, or what somebody
         * else has read. */
        if (c->x->rx.state == RX_gS && c->s.pub->rx < c->x->rx.S && !atomic_load(&c->s.rx_in) &&
            !rx_robbed(c, c->fd, 0))
            (void)rx_ahead_count(c, c->fd);
        rx_shut(c);
        rx_unlock(c);
    }
    conn_todo_tx(c, TODO_PUSH);
    conn_serve(c);
    if (conn_plain(c))
        return follows(c);
    /* At its end the peer says nothing more, and the kernel tells the application. */
    return c->fd < 0 || (c->x->rx.end != 0 && c->x->tx.state == TX_T);
}

void end_unsettled(struct fb_conn *c)
{
    fb_lock(&c->x->rx.lock);
    if (atomic_exchange(&c->x->rx.late, false) && c->fd >= 0)
        fb_io.shutdown(c->fd, SHUT_RD);
    rx_unlock(c);
}

bool end_in_order(struct fb_conn *c)
{
    const struct fb_rx *rx = &c->x->rx;
    bool yes;

    fb_lock(&c->x->rx.lock);
    yes = !rx_front_left(c) &&
          (rx->state == RX_t || (rx->end != 0 && (rx->state == RX_gS || c->s.pub->rx >= rx->V)));
    rx_unlock(c);
    return yes;
}

/* For who only receives. */
static bool rx_settled(struct fb_conn *c)
{
    return c->x->rx.end != 0 || (end_in_order(c) && follows(c));
}

/* Waits until `until`, but for bytes that this process's own application has not read only
 * until `vain`. */
static bool settle(struct fb_conn *c, int reason, unsigned of, uint64_t until, uint64_t vain)
{
    for (;;) {
        /* What is to be sent does not wait for this process's application. Asked first: what comes
         * after that is looked at. */
        bool in_vain = (!(of & RSK_TX) || c->x->tx.state == TX_T) && unread(c, of);

        if (end_settled(c, reason) || (of == RSK_TX && c->x->tx.state == TX_T) ||
            (of == RSK_RX && rx_settled(c)))
            return true;
        if (in_vain && of == RSK_RX) /* that is who asks */
            until = 0;
        if (fb_io.now() >= (in_vain && until > vain ? vain : until)) {
            end_unsettled(c);
            return false;
        }
        fb_alone();
        /* An error that is no end would end each wait at once, and so would what is unread. */
        fb_io.wait(c->x->rx.state == RX_t || fb_io.poll(c->fd, 0) || unread(c, RSK_RX) ? -1 : c->fd,
                   POLLIN, 500000);
    }
}

bool end_settle(struct fb_conn *c, int reason, unsigned of, uint64_t until)
{
    return settle(c, reason, of, until, fb_io.now() + UNREAD_NS);
}

/* wait: for which halves, RSK_RX and RSK_TX. tx: as leave_by's. */
static void pin_until(struct fb_conn *c, int reason, unsigned wait, unsigned tx, uint64_t until)
{
    bool pinned_now = conn_set(c, CF_PINNED);
    char who[FB_WHO];

    if (reason == RSN_SHARED)
        heir_disown(c);
    if (reason == RSN_BYPASSED)
        missed(c);
    if (!conn_flag(c, CF_LINKED)) {
        conn_reason(c, reason);
        return;
    }
    /* Again: who is pinned does not board. */
    if (!pinned_now && fb_plain(&c->s) && !atomic_load(&c->x->rx.late)) {
        conn_reason(c, reason);
        link_release(c);
        return;
    }
    leave_by(c, reason, tx);
    if (wait && (!conn_plain(c) || atomic_load(&c->x->rx.late)) &&
        !end_settle(c, reason, wait, until) && !unread(c, wait))
        log_warn("stream %u: the peer did not hand the stream back in time: %s (%s)", c->s.slot,
                 cfg_reason_name(reason), conn_who(c, who));
    conn_reason(c, reason);
    link_release(c);
}

static void pin(struct fb_conn *c, int reason, unsigned wait, unsigned tx)
{
    pin_until(c, reason, wait, tx, fb_io.now() + WAIT_NS);
}

uint64_t fb_pin_time(void)
{
    return fb_io.now() + WAIT_NS;
}

void fb_pin_by(struct fb_stream *s, int reason, uint64_t until)
{
    pin_until(conn_of(s), reason, RSK_RX | RSK_TX, TODO_LEAVE, until);
}

void fb_pin(struct fb_stream *s, int reason, bool wait)
{
    pin(conn_of(s), reason, wait ? RSK_RX | RSK_TX : 0, TODO_LEAVE);
}

/* A peer that has closed answers a frame with RST, by which receives here would fail. */
void fb_pin_rx(struct fb_stream *s, int reason)
{
    struct fb_conn *c = conn_of(s);

    /* Who reads past the library may have come to the end of what there is: the next edge is
     * one. */
    if (conn_flag(c, CF_LINKED))
        conn_no_data(c);
    /* For each piece that is spliced, say. */
    if (conn_flag(c, CF_PINNED) && fb_plain_rx(s) && !atomic_load(&c->x->rx.late))
        return;
    pin(c, reason, RSK_RX, TODO_PEER);
}

bool fb_hand_over(struct fb_stream *s, int reason, unsigned directions)
{
    return fb_hand_over_by(s, reason, directions, fb_pin_time());
}

bool fb_hand_over_by(struct fb_stream *s, int reason, unsigned directions, uint64_t until)
{
    struct fb_conn *c = conn_of(s);

    /* For ever, as far as can be known: its close here is not its end. What is in front others
     * may be reading. */
    if (reason == RSN_SHARED) {
        conn_give_away(c);
        (void)rx_front_wait(c, until);
    }
    pin_until(c, reason, directions, TODO_LEAVE, until);
    /* A child's that has never had a rail of its own may have something in front. */
    return (!(directions & RSK_TX) || !conn_flag(c, CF_LINKED) || c->x->tx.state == TX_T) &&
           (!(directions & RSK_RX) || fb_plain_rx(s) || end_in_order(c));
}

void fb_maybe_shared(struct fb_stream *s)
{
    conn_give_away(conn_of(s));
    missed(conn_of(s));
}

struct everyone {
    int reason;
    enum fb_heirs heirs;
    uint64_t until, vain;
};

static void leave_first(struct fb_conn *c, void *arg)
{
    struct everyone *e = arg;

    if (e->heirs != FB_NOBODY) {
        conn_set(c, CF_PINNED);
        conn_give_away(c);
        if (!conn_flag(c, CF_LINKED) && c->s.pub->reason == RSN_NEW)
            conn_reason(c, RSN_SHARED);
    }
    if (conn_flag(c, CF_LINKED) && !conn_flag(c, CF_CLOSED))
        end_leave(c, e->reason);
}

/* Each has asked for what it is to be answered before the time begins that all have together. */
static void leave_ask(struct fb_conn *c, void *arg)
{
    if (conn_flag(c, CF_LINKED) && !conn_flag(c, CF_CLOSED))
        (void)end_settled(c, ((struct everyone *)arg)->reason);
}

static void leave_wait(struct fb_conn *c, void *arg)
{
    struct everyone *e = arg;
    char who[FB_WHO];

    /* The child could not know of it. */
    if (e->heirs != FB_NOBODY && !conn_flag(c, CF_CLOSED) && !rx_front_wait(c, e->until)) {
        log_error(
            "stream %u: another process would miss what a child has asked for: it is reset (%s)",
            c->s.slot, conn_who(c, who));
        sys_reset(c->fd);
    }
    if (!conn_flag(c, CF_LINKED) || conn_flag(c, CF_CLOSED) ||
        settle(c, e->reason, RSK_RX | RSK_TX, e->until, e->vain))
        return;
    if (e->heirs == FB_CHILD_ALONE) {
        log_error(
            "stream %u: the child that goes on alone would miss what is not in TCP yet: it is "
            "reset (%s)",
            c->s.slot, conn_who(c, who));
        sys_reset(c->fd);
    } else if (!unread(c, RSK_RX | RSK_TX)) {
        log_warn("stream %u: the peer did not hand the stream back in time: %s (%s)", c->s.slot,
                 cfg_reason_name(e->reason), conn_who(c, who));
    }
}

void fb_leave_all(int reason, enum fb_heirs heirs)
{
    struct everyone e = {reason, heirs, 0, 0};

    conn_each(leave_first, &e);
    conn_each(leave_ask, &e);
    e.until = fb_io.now() + WAIT_NS;
    e.vain = fb_io.now() + UNREAD_NS; /* once, and not for each */
    conn_each(leave_wait, &e);
}
