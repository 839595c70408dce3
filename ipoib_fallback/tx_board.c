/*
 * tx_board.c - a boarding attempt, inside a send with at least one byte in hand:
 * fix S, announce it with a first byte c that the application's next byte is not,
 * wait a short while for the receiver's library to confirm, write SWITCH. Without
 * the confirmation a plain byte goes instead, which tells the receiver at S that
 * there was no switch; a late confirmation carries an old `att` and is ignored.
 */
#include "ipoib_fallback/tx.h"

#include "config/env.h"
#include "config/log.h"
#include "ipoib_fallback/tap.h"

#include <errno.h>
#include <string.h>

/* An attempt waits for twice as long as the peer's library took to answer in the proof,
 * but at least: */
#define WAIT_FIRST  500000u /* ns; doubles with each attempt that came to nothing */
#define WAIT_MOST   16000000u
#define PAUSE_FIRST 1000000u /* ns before the next attempt; doubles likewise */
#define PAUSE_MOST  1000000000u
/* So long may a receiver take for a byte that lies before the ring's; and so many times
 * RAILSOCK_STALL for all of them. */
#define BEHIND_NS   125u
#define BEHIND_MOST 20u
/* What is waited in vain may be a tenth of the process's time, and a second of it at once:
 * peers whose libraries hold their answers back would keep a server's only thread from its
 * other connections. */
#define VAIN_SHARE   10u
#define VAIN_AT_ONCE (1000000000ull * VAIN_SHARE)

/* Monotonic ns: then what has been waited in vain is made up for. */
static _Atomic uint64_t vain_until;

void tx_board_forget(void)
{
    atomic_store(&vain_until, 0);
}

static bool may_wait(void)
{
    return cfg.test_switch || atomic_load(&vain_until) < fb_io.now() + VAIN_AT_ONCE;
}

/* Two threads at once may count for one. */
static void waited_in_vain(uint64_t began)
{
    uint64_t now = fb_io.now(), from = atomic_load(&vain_until);

    atomic_store(&vain_until, (from > now ? from : now) + (now - began) * VAIN_SHARE);
}

bool tx_may_board(struct fb_conn *c, int fd)
{
    struct rsk_rail *rail = c->x->rail;
    uint64_t sent, received;
    short room;

    if (!rail || rail->failed || c->x->tx.on_rail)
        return false;
    if (atomic_load(&c->s.tx_in) != 0 || fb_io.now() < c->x->tx.not_before)
        return false;
    /* The answer to the request that has just been held up by its switch is not held up
     * by another one. */
    if (atomic_exchange(&c->x->tx.turned, false))
        return false;
    room = fb_io.poll(fd, POLLOUT | POLLRDHUP);
    if ((room & POLLRDHUP) && !c->shut) {
        /* Nor will it ever board again: the next send need not ask. */
        tx_want(c, false);
        conn_reason(c, RSN_ENDING);
        link_release(c);
        return false;
    }
    if (!(room & POLLOUT))
        return false;
    if (!fb_io.counters(fd, &sent, &received))
        return false;
    if (sent != conn_ktx(c) && !fb_io.given(fd, c->s.role == FB_CONNECTED, &sent))
        return false;
    if (sent != conn_ktx(c)) {
        log_info("stream %u: the kernel has sent %llu bytes, we %llu", c->s.slot,
                 (unsigned long long)sent, (unsigned long long)conn_ktx(c));
        conn_set(c, CF_PINNED);
        conn_reason(c, RSN_BYPASSED);
        tx_want(c, false);
        link_release(c); /* nobody else will */
        return false;
    }
    return true;
}

static int announce(struct fb_conn *c, uint8_t first)
{
    struct rsk_rail *rail = c->x->rail;
    struct rsk_msg m = {.type = FM_ANN, .epoch = c->x->epoch};

    c->x->tx.S = c->s.pub->tx;
    c->x->tx.c = (uint8_t)~first;
    c->x->tx.att++;
    c->x->tx.echoed = false;
    c->x->tx.frame_at = 0;
    if (sys_getrandom(c->x->tx.X, sizeof(c->x->tx.X)) != (int)sizeof(c->x->tx.X))
        return -EAGAIN;
    m.att = c->x->tx.att;
    m.a = c->x->tx.S;
    m.b = c->x->tx.c;
    return rail->wire->ctl_send(rail, &m);
}

enum answer { ANSWER_ACK, ANSWER_NAK, ANSWER_NONE };

/* The receiver has read R bytes. The others before S come first, and a slow one takes its time for
 * them (stall.c). */
static void behind(struct fb_conn *c, uint64_t R)
{
    uint64_t bytes = R < c->x->tx.S ? c->x->tx.S - R : 0;
    uint64_t most = BEHIND_MOST * conn_config(c)->stall_ns;

    c->x->tx.behind_until = fb_io.now() + (bytes < most / BEHIND_NS ? bytes * BEHIND_NS : most);
}

static enum answer look_for_answer(struct fb_conn *c, uint16_t *reason)
{
    enum answer a = ANSWER_NONE;
    uint64_t R;

    fb_lock(&c->x->ctl_lock);
    R = c->x->mail.ack_R;
    if (c->x->mail.ack && c->x->mail.ack_att == c->x->tx.att)
        a = ANSWER_ACK;
    else if (c->x->mail.nak && c->x->mail.nak_att == c->x->tx.att) {
        a = ANSWER_NAK;
        *reason = c->x->mail.nak_reason;
    }
    fb_unlock(&c->x->ctl_lock);
    if (a == ANSWER_ACK)
        behind(c, R);
    return a;
}

/* With the tx lock, so by trying: who has it serves it. */
static void try_rx(struct fb_conn *c)
{
    if (atomic_load(&c->x->rx_todo) && fb_trylock(&c->x->rx.lock)) {
        rx_serve(c);
        rx_unlock(c);
    }
}

/* The tx lock stays held: no other send of this stream may pass, and the receiver's answer
 * depends on its library alone. The rx half is served by trying, since the peer may be asking us
 * at this moment. */
static enum answer await(struct fb_conn *c, uint16_t *reason)
{
    struct rsk_rail *rail = c->x->rail;
    uint64_t budget = (2ull * c->x->answer_ns > WAIT_FIRST ? 2ull * c->x->answer_ns : WAIT_FIRST)
                      << (c->x->tx.tries < 5 ? c->x->tx.tries : 5);
    uint64_t begin = fb_io.now(), now = begin;
    enum answer a;

    if (budget > WAIT_MOST)
        budget = WAIT_MOST;
    /* Tests want many switches, also where everybody has to wait for a processor. */
    if (cfg.test_switch && 64ull * c->x->answer_ns > budget)
        budget =
            64ull * c->x->answer_ns < 20 * WAIT_MOST ? 64ull * c->x->answer_ns : 20 * WAIT_MOST;
    *reason = RSN_NO_ACK;
    for (;;) {
        if (rail->wire->poll(rail, RSK_CTL))
            conn_mail(c);
        a = look_for_answer(c, reason);
        if (a != ANSWER_NONE || rail->failed)
            return a;
        try_rx(c);
        if (now - begin >= budget) {
            waited_in_vain(begin);
            return ANSWER_NONE;
        }
        if (now - begin > 20000)
            sys_yield(); /* the peer's progress thread may need this very CPU */
        else
            sys_pause_cpu();
        now = fb_io.now();
    }
}

static void put_off(struct fb_conn *c, uint16_t reason)
{
    uint64_t pause = (uint64_t)PAUSE_FIRST << (c->x->tx.tries < 10 ? c->x->tx.tries : 10);

    c->x->tx.tries++;
    c->x->tx.not_before = fb_io.now() + (pause < PAUSE_MOST ? pause : PAUSE_MOST);
    atomic_fetch_add(&c->x->show->retries, 1);
    conn_reason(c, reason);
}

/* A byte other than c at S: the receiver sees that there was no switch. */
static ssize_t plain_instead(struct fb_conn *c, int fd, const struct iovec *v, int cnt, int flags)
{
    ssize_t n = fb_io.send(fd, v, cnt, flags | MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n <= 0)
        return n == 0 ? -EAGAIN : n;
    tx_to(c, TE_GIVEUP);
    conn_seen_tx(c, c->s.pub->tx, v, cnt, (uint64_t)n);
    if (tap_on(c))
        tap_copy(c, 0, FB_PATH_TCP, c->s.pub->tx, v, cnt, (size_t)n);
    c->s.pub->tx += (uint64_t)n;
    return n;
}

static ssize_t board(struct fb_conn *c, int fd, const struct iovec *v, int cnt, int flags)
{
    struct rsk_rail *rail = c->x->rail;
    uint8_t first = 0;
    uint16_t reason = RSN_RAIL_FAILED;
    bool alive = rail && !rail->failed, guarded = true;
    char who[FB_WHO];

    for (int i = 0; i < cnt; i++)
        if (v[i].iov_len) {
            first = *(const uint8_t *)v[i].iov_base;
            break;
        }
    if (c->x->tx.state == TX_W1) {
        int r = tx_write_switch(c);

        if (r < 0)
            tx_dead(c);
        return r == 0 ? -EAGAIN : 0;
    }
    if (c->x->tx.state == TX_T) {
        if (!alive || !may_wait() || announce(c, first) < 0) {
            put_off(c, RSN_NO_ACK); /* nothing was announced: it is simply not the time */
            return 0;
        }
        tx_to(c, TE_BOARD);
    }
    if (alive) {
        switch (await(c, &reason)) {
        case ANSWER_ACK: {
            int r;

            tx_to(c, TE_ACK);
            r = tx_write_switch(c);
            if (r < 0)
                tx_dead(c);
            if (r != 0)
                return 0;
            if (c->x->tx.state != TX_W1)
                return -EAGAIN; /* partly written: it must be finished */
            break;
        }
        case ANSWER_NAK:
            guarded = false;
            break;
        case ANSWER_NONE:
            break;
        }
    }
    put_off(c, reason);
    if (cnt == 0) {
        if (guarded)
            return -EAGAIN;
        tx_to(c, TE_GIVEUP); /* after a NAK any byte will do */
        return 0;
    }
    if (c->x->tx.c == first && guarded) {
        /* Announced before, the kernel refused a byte after it had said POLLOUT, and the
         * next byte is c. An answer will come while the rail lives; after that nothing would
         * be understood. */
        if (c->x->tx.state == TX_W1 || (alive && !rail->failed))
            return -EAGAIN;
        log_error("stream %u: cannot undo an announced switch (%s)", c->s.slot, conn_who(c, who));
        return -ECONNRESET;
    }
    return plain_instead(c, fd, v, cnt, flags);
}

/* The thread that waited for the answer has polled the rail itself, and the progress thread was not
 * told of messages. From here on it is: the ECHO is for it, and so is an answer that comes late. */
static void left_alone(struct fb_conn *c)
{
    struct rsk_rail *rail = c->x->rail;

    for (int i = 0; i < 4 && rail; i++) {
        if (!(rail->wire->arm(rail, RSK_CTL, RSK_BY_LOOP) & RSK_CTL))
            return;
        conn_mail(c);
        try_rx(c);
    }
}

ssize_t tx_board(struct fb_conn *c, int fd, const struct iovec *v, int cnt, int flags)
{
    ssize_t n = board(c, fd, v, cnt, flags);

    left_alone(c);
    return n;
}

static void tx_open(struct fb_conn *c)
{
    struct rsk_rail *rail = c->x->rail;

    if (c->x->tx.state != TX_R || !rail || rail->failed)
        return;
    if (rail->wire->tx_open(rail) < 0)
        conn_todo_tx(c, TODO_FAIL);
    /* Who filled the ring before this, and asked to be told of room, asked a wire that had sent
     * nothing yet: such a wire has nobody to ask. Let them ask again. */
    conn_wake(c, RSK_TX);
}

void tx_echo(struct fb_conn *c)
{
    c->x->tx.echoed = true;
    tx_open(c);
}

/* The rail's ring takes over at S. The rail may have failed since the ACK: then it is
 * left at once. */
static void start(struct fb_conn *c)
{
    struct rsk_rail *rail = c->x->rail;

    c->x->tx.on_rail = true;
    c->x->tx.want = false;
    c->x->tx.F = c->x->tx.S;
    c->x->tx.frame_at = 0;
    if (rail) {
        rail->tx_limit = fb_io.bound(c->fd);
        rail->wire->tx_start(rail, c->x->tx.S);
        atomic_store(&c->s.pub->path_tx, rail->wire->path);
        log_info("stream %u: sending on %s from byte %llu", c->s.slot, rail->where,
                 (unsigned long long)c->x->tx.S);
    }
    atomic_fetch_add(&c->x->show->switches, 1);
    conn_boarded(c);
    /* No byte of ours carries acknowledgements any more. As long as the peer's come by TCP, the
     * kernel is not to wait for one: Nagle would hold the peer's next. */
    fb_io.acknowledge(c->fd);
    /* In shared memory what is published outlives a sender that dies before the ECHO, as it would
     * in TCP. Whose memory it is was shown by the kernel before the rail was given to us. */
    if (c->x->tx.echoed || (rail && rail->wire->outlives_sender))
        tx_open(c);
    if (c->x->tx.later || !rail || rail->failed)
        tx_leave(c, c->x->tx.later ? c->x->tx.why : RSN_RAIL_FAILED, c->x->tx.later);
    link_watch(c);
    conn_wake(c, RSK_TX | FB_EV_STATE);
}

int tx_write_switch(struct fb_conn *c)
{
    struct fb_tx *tx = &c->x->tx;

    if (tx->frame_at == 0) {
        memset(&tx->frame, 0, sizeof(tx->frame));
        tx->frame.c = tx->c;
        tx->frame.type = FF_SWITCH;
        tx->frame.u.sw.S = tx->S;
        memcpy(tx->frame.u.sw.X, tx->X, 16);
        tx_tag_frame(c, &tx->frame);
    }
    switch (tx_write_frame(c)) {
    case 1:
        tx_to(c, TE_WHOLE);
        start(c);
        return 1;
    case 0:
        return 0;
    default:
        return tx->err;
    }
}
