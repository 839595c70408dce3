/*
 * tx.c - the sending half of a stream: runs the sender's table of switch_fsm.h. All
 * functions are called with the tx lock held and none blocks, except that a boarding
 * attempt waits for the receiver's library (not its application) to acknowledge,
 * for a bounded time, at most once in a while (tx_board.c).
 *
 * Does not wait, wake pollers itself, or touch the receiving half.
 */
#include "ipoib_fallback/tx.h"

#include "config/log.h"
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/killed.h"
#include "ipoib_fallback/tap.h"

#include <errno.h>
#include <string.h>

/* Publishing in pieces lets the receiver copy out while the sender copies in. */
#define PIECE (32u * 1024)

static void tx_gate_set(struct fb_conn *c)
{
    bool up = c->x->tx.state != TX_T || c->x->tx.want || (c->x->tx.fin && !c->x->tx.fin_done) ||
              atomic_load(&c->x->swallowed);

    (void)atomic_exchange(&c->s.tx_gate, up);
    /* conn_untold takes no lock of ours: it stores the error, then raises the gate; we have lowered
     * that, now look. */
    if (!up && atomic_load(&c->x->swallowed))
        atomic_store(&c->s.tx_gate, 1);
}

void tx_want(struct fb_conn *c, bool want)
{
    c->x->tx.want = want && !c->x->tx.on_rail && !c->x->tx.fin && !conn_flag(c, CF_PINNED);
    tx_gate_set(c);
}

/* A call that has begun would go on in TCP, whatever is closed meanwhile. Shut down it would get
 * EPIPE, and the program SIGPIPE. New ones find the gate, and the number closed. */
void tx_fin(struct fb_conn *c)
{
    struct fb_tx *tx = &c->x->tx;

    if (!tx->fin || tx->fin_done || tx->state != TX_T)
        return;
    /* In any case: if no number is left to look again with, the kernel's close is
     * what sends FIN. */
    conn_ends(c);
    tx_want(c, false);
    if (atomic_load(&c->s.tx_in)) /* the same, the other way round, as in fb_tx_enter */
        return;
    tx->fin_done = true;
    fb_io.shutdown(c->fd, SHUT_WR);
    tx_gate_set(c);
}

void tx_pause(struct fb_conn *c)
{
    if (!c->x->tx.paused_at)
        c->x->tx.paused_at = fb_io.now();
}

static void pause_over(struct fb_conn *c)
{
    struct fb_pub_rail *show = c->x->show;
    uint64_t took;

    if (!c->x->tx.paused_at)
        return;
    took = fb_io.now() - c->x->tx.paused_at;
    c->x->tx.paused_at = 0;
    atomic_store_explicit(&show->pause_last, took, memory_order_relaxed);
    if (took > atomic_load_explicit(&show->pause_most, memory_order_relaxed))
        atomic_store_explicit(&show->pause_most, took, memory_order_relaxed);
}

uint8_t tx_to(struct fb_conn *c, enum fb_tx_event event)
{
    struct fb_step step = fb_tx_step(c->x->tx.state, event);
    char who[FB_WHO];

    if (step.next < 0) {
        log_error("stream %u: sender: %s cannot happen in %s (%s)", c->s.slot,
                  fb_tx_event_name(event), fb_tx_state_name(c->x->tx.state), conn_who(c, who));
        return 0;
    }
    if ((enum fb_tx_state)step.next != c->x->tx.state) {
        log_debug("stream %u: sender %s -> %s on %s", c->s.slot, fb_tx_state_name(c->x->tx.state),
                  fb_tx_state_name((enum fb_tx_state)step.next), fb_tx_event_name(event));
        c->x->tx.state = (uint8_t)step.next;
        tx_gate_set(c);
        /* What is owed keeps nobody waiting: there tx_leave says when the pause begins. */
        if (step.next == TX_T || step.next == TX_R)
            pause_over(c);
        else if (step.next != TX_L1)
            tx_pause(c);
    }
    return step.actions;
}

/* Control messages and flags that are for this half. */
void tx_serve(struct fb_conn *c)
{
    struct fb_tx *tx = &c->x->tx;
    uint32_t todo = atomic_exchange(&c->x->tx_todo, 0);
    struct rsk_rail *rail = c->x->rail;

    /* Before anything leads away from the rail: what is left then cannot be told from bytes sent to
     * a socket that was gone already, which TCP answers in another way. */
    if (todo & ~(uint32_t)TODO_PUSH)
        conn_killed(c);
    if (todo & TODO_MAIL) {
        bool echo, leave;
        uint64_t R;
        uint8_t X[16];
        bool handed;

        fb_lock(&c->x->ctl_lock);
        echo = c->x->mail.echo;
        leave = c->x->mail.leave_req;
        R = c->x->mail.leave_R;
        handed = c->x->mail.handed;
        memcpy(X, c->x->mail.echo_X, 16);
        c->x->mail.echo = c->x->mail.leave_req = c->x->mail.handed = false;
        fb_unlock(&c->x->ctl_lock);
        if (echo) {
            if (fb_same(X, tx->X, 16))
                tx_echo(c);
            else
                tx_leave(c, RSN_PEER_PROTOCOL, false);
        }
        if (leave && R >= tx->F && R <= c->s.pub->tx && tx->state == TX_R)
            tx->F = R;
        tx->handed = tx->handed || (handed && tx->state != TX_T);
        if (leave)
            tx_leave(c, RSN_PEER_LEFT, true);
    }
    if (todo & TODO_PEER) {
        uint64_t ack = atomic_load(&c->x->peer_rx); /* of an earlier rail: not above F */

        if (tx->state == TX_R && ack > tx->F && ack <= c->s.pub->tx)
            tx->F = ack;
        tx_leave(c, RSN_PEER_LEFT, false);
    }
    if (todo & TODO_LEAVE)
        tx_leave(c, (int)c->x->leave_why, true);
    if ((todo & TODO_FAIL) || (rail && rail->failed))
        tx_leave(c, rail && rail->failed ? (int)rail->failed : RSN_RAIL_FAILED, false);
    if (tx->state == TX_T && rail &&
        rail->failed) /* it may never have boarded, and then nobody else gives it back */
        link_release(c);
    if (tx->state == TX_R && rail && (todo & TODO_PUSH)) {
        if (rail->wire->tx_push(rail) < 0)
            tx_leave(c, RSN_RAIL_FAILED, false);
    } else if (todo & TODO_PUSH) {
        tx_push(c);
    }
}

void tx_serve_all(struct fb_conn *c)
{
    while (atomic_load(&c->x->tx_todo) && fb_trylock(&c->x->tx.lock)) {
        tx_serve(c);
        fb_unlock(&c->x->tx.lock);
    }
}

enum { TOGETHER = 64 }; /* buffers that make one piece */

/* What is left of a vector. */
struct rest {
    const struct iovec *v;
    int i, cnt;
    size_t off;
};

/* From the next of them into the ring, and they are done with: once it is told of, who has the
 * answer may give the vector back. */
__attribute__((noinline)) static size_t gather(struct rest *r, const struct iovec sp[2],
                                               enum rsk_way way)
{
    struct iovec some[TOGETHER];
    size_t n, left;
    int k = 1;

    some[0].iov_base = (char *)r->v[r->i].iov_base + r->off;
    some[0].iov_len = r->v[r->i].iov_len - r->off;
    for (; k < TOGETHER && r->i + k < r->cnt; k++)
        some[k] = r->v[r->i + k];
    n = left = fb_iov_copy(sp, 2, some, k, PIECE, way);
    for (; r->i < r->cnt && left >= r->v[r->i].iov_len - r->off; r->i++) {
        left -= r->v[r->i].iov_len - r->off;
        r->off = 0;
    }
    r->off += left;
    return n;
}

/* As much as the ring has room for. A small write is one piece, and so are small buffers; nothing
 * is allocated. */
static ssize_t put(struct fb_conn *c, struct rsk_rail *rail, const struct iovec *v, int cnt)
{
    struct iovec sp[2], one = {0};
    struct rest rest = {.v = v, .cnt = cnt};
    size_t done = 0;
    uint64_t at = c->s.pub->tx;
    bool in_place = rail->wire->read_in_place;
    enum rsk_way way = in_place && c->x->tx.past.on ? RSK_PAST : RSK_INTO;

    if (cnt == 1)
        one = v[0];
    while (rest.i < cnt) {
        size_t space = rail->wire->tx_space(rail, sp), n;

        if (space == 0)
            break;
        if (cnt == 1) {
            n = fb_iov_copy(sp, 2, &one, 1, PIECE, way);
            one.iov_base = (char *)one.iov_base + n;
            one.iov_len -= n;
            if (one.iov_len == 0)
                rest.i = 1;
        } else {
            n = gather(&rest, sp, way);
        }
        if (n == 0)
            continue;
        tx_gave(c, rail, n);
        done += n;
        if (atomic_load_explicit(&rail->failed, memory_order_relaxed))
            break;
    }
    if (done > RSK_COPY_PIECE && in_place && fb_past_sent(&c->x->tx.past, done))
        fb_past_turn(&c->x->tx.past, fb_io.now());
    if (conn_seen_wants(&c->s.tx_mark, at + done) && done)
        conn_seen_tx(c, at, v, cnt, done);
    if (done && tap_on(c))
        tap_copy(c, 0, rail->wire->path, at, v, cnt, done);
    return done ? (ssize_t)done : -EAGAIN;
}

/* What is to be done before the state is looked at. 0, or what is to be told. */
static int served(struct fb_conn *c)
{
    int n;

    if (atomic_load_explicit(&c->x->tx_todo, memory_order_acquire))
        tx_serve(c);
    if (!c->x->tx.err)
        return 0;
    c->x->tx.err = 0;
    n = conn_tell(c);
    return n ? n : -EPIPE; /* a receive has told it */
}

/* As tx_board. */
static ssize_t boarding(struct fb_conn *c, int fd, const struct iovec *v, int cnt, int flags)
{
    ssize_t n = tx_board(c, fd, v, cnt, flags);

    if (n == -EAGAIN)
        link_watch(c); /* for room */
    return n;
}

/* On the way back, with bytes of the application's to follow. 0: look at the state
 * again; or -errno. */
static int going_back(struct fb_conn *c)
{
    struct fb_tx *tx = &c->x->tx;

    if (tx->fin)
        return -EPIPE;
    tx->owed = false;
    tx_pause(c);
    if (tx_push(c) || tx->err || tx->state == TX_R)
        return 0;
    link_watch(c);
    return -EAGAIN;
}

/* An owed frame to a peer that has closed draws RST, so the send that it goes before would fail. In
 * TCP that send's own bytes would have drawn the RST, and would have been taken: so they are here.
 * Not if the connection was reset before, or if no frame was written (CF_PEER_CLOSED). */
static ssize_t back_with(struct fb_conn *c, int fd, const struct iovec *v, int cnt)
{
    struct fb_tx *tx = &c->x->tx;
    bool owed = tx->state == TX_L1 && tx->owed && !(fb_io.poll(fd, 0) & POLLHUP);
    int n = going_back(c);
    size_t size;

    if (n || !owed || tx->err || tx->state != TX_T || tx->frame_at != FB_FRAME ||
        !(fb_io.poll(fd, 0) & POLLHUP))
        return n;
    size = fb_iov_size(v, cnt);
    atomic_fetch_add_explicit(&c->s.pub->tx, size, memory_order_relaxed);
    return (ssize_t)size;
}

ssize_t tx_try(struct fb_conn *c, int fd, const struct iovec *v, int cnt, int flags, bool *plain)
{
    struct fb_tx *tx = &c->x->tx;

    *plain = false;
    for (;;) {
        struct rsk_rail *rail = c->x->rail;
        ssize_t n = served(c);

        if (n)
            return n;
        switch ((enum fb_tx_state)tx->state) {
        case TX_R:
            if (tx->fin)
                return -EPIPE;
            if (!rail || atomic_load_explicit(&rail->failed, memory_order_acquire)) {
                tx_leave(c, RSN_RAIL_FAILED, false);
                continue;
            }
            n = put(c, rail, v, cnt);
            if (n == -EAGAIN)
                tx_stalled(c);
            /* Who does not block is told by poll or epoll when there is room again, and an
             * edge-triggered one has asked before, when there was room: ask now. */
            if (n == -EAGAIN && ((flags & MSG_DONTWAIT) || c->s.nonblock) &&
                (rail->wire->arm(rail, RSK_TX, RSK_BY_SHARD) & (RSK_TX | RSK_FAIL)))
                continue;
            return n;
        case TX_T:
            if (tx->fin || !tx->want || !tx_may_board(c, fd)) {
                atomic_fetch_add(&c->s.tx_in, 1);
                *plain = true;
                return 0;
            }
            /* fall through */
        case TX_FX:
        case TX_W1:
            n = boarding(c, fd, v, cnt, flags);
            break;
        default:
            n = back_with(c, fd, v, cnt);
        }
        if (n)
            return n;
    }
}

int tx_back(struct fb_conn *c, int fd)
{
    struct fb_tx *tx = &c->x->tx;

    for (;;) {
        struct rsk_rail *rail = c->x->rail;
        int n = served(c);

        if (n)
            return n;
        switch ((enum fb_tx_state)tx->state) {
        case TX_T:
            return 0;
        case TX_R:
            tx_leave(c, RSN_CALL, true);
            continue;
        case TX_FX:
        case TX_W1:
            /* What was announced is gone through with; where that cannot be, it takes a byte of the
             * application's. */
            if (tx->state == TX_FX && (!rail || rail->failed))
                return -EIO;
            n = (int)boarding(c, fd, NULL, 0, 0);
            break;
        default:
            n = going_back(c);
        }
        if (n)
            return n;
    }
}

bool tx_has_room(struct rsk_rail *rail)
{
    struct iovec sp[2];

    return rail->wire->tx_space(rail, sp) >= rsk_much(rail, tx_most(rail));
}

bool tx_can_send(struct fb_conn *c, int fd)
{
    struct rsk_rail *rail = c->x->rail;

    switch ((enum fb_tx_state)c->x->tx.state) {
    case TX_T:
    case TX_FX:
    case TX_W1:
        return (fb_io.poll(fd, POLLOUT) & (POLLOUT | POLLHUP)) != 0;
    case TX_R:
        if (!rail || rail->failed || c->x->tx.fin)
            return true; /* the send will leave first, or says that it is the end */
        if (tx_has_room(rail))
            return true;
        /* Who only asks, and never tries, would otherwise wait for as long as the receiver
         * reads nothing. */
        tx_stalled(c);
        return false;
    default:
        if (c->x->tx.fin || c->x->tx.err)
            return true;
        if (c->x->tx.state == TX_L1 && c->x->tx.owed)
            return (fb_io.poll(fd, POLLOUT) & (POLLOUT | POLLHUP)) != 0;
        if (!tx_push(c) && c->x->tx.state == TX_R)
            return tx_can_send(c, fd);
        return c->x->tx.state == TX_T && (fb_io.poll(fd, POLLOUT) & (POLLOUT | POLLHUP)) != 0;
    }
}
