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

#include <errno.h>
#include <string.h>

/* Publishing in pieces lets the receiver copy out while the sender copies in. */
#define PIECE (32u * 1024)

static void tx_gate_set(struct fb_conn *c)
{
    bool up = c->tx.state != TX_T || c->tx.want || (c->tx.fin && !c->tx.fin_done);

    atomic_store(&c->s.tx_gate, up);
}

void tx_want(struct fb_conn *c, bool want)
{
    c->tx.want = want && !c->tx.on_rail && !c->tx.fin && !conn_flag(c, CF_PINNED);
    tx_gate_set(c);
}

uint8_t tx_to(struct fb_conn *c, enum fb_tx_event event)
{
    struct fb_step step = fb_tx_step(c->tx.state, event);

    if (step.next < 0) {
        log_error("stream %u: sender: %s cannot happen in %s", c->slot, fb_tx_event_name(event),
                  fb_tx_state_name(c->tx.state));
        return 0;
    }
    if ((enum fb_tx_state)step.next != c->tx.state) {
        log_debug("stream %u: sender %s -> %s on %s", c->slot, fb_tx_state_name(c->tx.state),
                  fb_tx_state_name((enum fb_tx_state)step.next), fb_tx_event_name(event));
        c->tx.state = (uint8_t)step.next;
        tx_gate_set(c);
    }
    return step.actions;
}

/* The rail's ring takes over at S. The rail may have failed since the ACK: then it is left at once. */
static void start(struct fb_conn *c)
{
    struct rsk_rail *rail = c->rail;

    c->tx.on_rail = true;
    c->tx.want = false;
    c->tx.F = c->tx.S;
    c->tx.frame_at = 0;
    if (rail) {
        rail->wire->tx_start(rail, c->tx.S);
        atomic_store(&c->s.pub->path_tx, rail->wire->path);
        log_info("stream %u: sending on %s from byte %llu", c->slot, rail->where,
                 (unsigned long long)c->tx.S);
    }
    atomic_fetch_add(&c->s.pub->switches, 1);
    conn_boarded(c);
    if (c->tx.echoed)
        tx_echo(c);
    if (c->tx.later || !rail || rail->failed)
        tx_leave(c, c->tx.later ? c->tx.why : RSN_RAIL_FAILED, c->tx.later);
    link_watch(c);
    conn_wake(c, RSK_TX | FB_EV_STATE);
}

void tx_echo(struct fb_conn *c)
{
    struct rsk_rail *rail = c->rail;

    c->tx.echoed = true;
    if (c->tx.state != TX_R || !rail || rail->failed)
        return;
    if (rail->wire->tx_open(rail) < 0)
        conn_todo_tx(c, TODO_FAIL);
    /* Who filled the ring before this, and asked to be told of room, asked a wire that had sent nothing
     * yet: such a wire has nobody to ask. Let them ask again. */
    conn_wake(c, RSK_TX);
}

/* Writes what is left of the frame. 1: whole; 0: no room; < 0: the anchor's error. */
static int write_frame(struct fb_conn *c)
{
    struct fb_tx *tx = &c->tx;

    while (tx->frame_at < FB_FRAME) {
        struct iovec v = {(char *)&tx->frame + tx->frame_at, FB_FRAME - tx->frame_at};
        ssize_t n = fb_io.send(c->fd, &v, 1, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n == -EAGAIN || n == -EINTR || n == -ENOBUFS)
            return 0;
        if (n < 0) {
            tx->err = (int)n;
            if (n != -EPIPE)
                atomic_store(&c->swallowed, (int)n);
            return (int)n;
        }
        c->ktx += (uint64_t)n;
        tx->frame_at = (uint8_t)(tx->frame_at + n);
        if (tx->frame_at < FB_FRAME)
            tx_to(c, TE_PART);
    }
    return 1;
}

/* Nagle would hold a frame back for 50 ms, TCP_CORK for 170 ms (HARD-CASES 3): NODELAY around it. */
static int write_frame_now(struct fb_conn *c)
{
    bool had = fb_io.nodelay(c->fd, true);
    int r = write_frame(c);

    if (!had)
        fb_io.nodelay(c->fd, false);
    return r;
}

static void tag_frame(struct fb_conn *c, struct fb_frame *f)
{
    /* N is the receiver's nonce: only the rail's other end knows it. */
    memcpy(f->N, c->s.role == FB_CONNECTED ? c->nonce1 : c->nonce0, 16);
    f->version = FB_PROTO_VERSION;
    f->epoch = c->epoch;
    fb_tag(c->nonce0, c->nonce1, f, FB_FRAME_TAGGED, f->tag);
}

int tx_write_switch(struct fb_conn *c)
{
    struct fb_tx *tx = &c->tx;

    if (tx->frame_at == 0) {
        memset(&tx->frame, 0, sizeof(tx->frame));
        tx->frame.c = tx->c;
        tx->frame.type = FF_SWITCH;
        tx->frame.u.sw.S = tx->S;
        memcpy(tx->frame.u.sw.X, tx->X, 16);
        tag_frame(c, &tx->frame);
    }
    switch (write_frame_now(c)) {
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

/* The highest F that is known: a failed rail's credit words still count, since what the receiver has
 * consumed it has consumed. */
static void refresh_F(struct fb_conn *c)
{
    struct rsk_rail *rail = c->rail;

    if (rail) {
        uint64_t f = rail->wire->tx_freed(rail);

        if (f > c->tx.F && f <= c->tx.E)
            c->tx.F = f;
    }
}

/* After an error of the anchor nothing more can be delivered: the half is plain, and the kernel
 * tells the application. */
static void anchor_dead(struct fb_conn *c)
{
    struct fb_tx *tx = &c->tx;

    log_info("stream %u: the TCP connection ended while it was leaving (%d)", c->slot, tx->err);
    if (tx->err == -EPIPE)
        tx->err = 0; /* the kernel says it again each time */
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
    tx->gone = true;
}

static void now_plain(struct fb_conn *c)
{
    struct fb_tx *tx = &c->tx;

    atomic_store(&c->s.pub->path_tx, FB_PATH_TCP);
    atomic_fetch_add(&c->s.pub->switches, 1);
    if (tx->fin && !tx->fin_done) {
        tx->fin_done = true;
        fb_io.shutdown(c->fd, SHUT_WR);
        tx_gate_set(c);
    }
    conn_wake(c, RSK_TX | FB_EV_STATE);
    link_release(c);
}

/* F..E from the ring into TCP. True when all is there. */
static bool push_residue(struct fb_conn *c)
{
    struct fb_tx *tx = &c->tx;
    struct rsk_rail *rail = c->rail;

    while (tx->cur < tx->E) {
        struct iovec v[2];
        size_t have = rail ? rail->wire->tx_kept(rail, tx->cur, tx->E, v) : 0;
        ssize_t n;

        if (have == 0) {
            log_error("stream %u: bytes %llu to %llu are not in the ring any more", c->slot,
                      (unsigned long long)tx->cur, (unsigned long long)tx->E);
            tx->err = -ECONNRESET;
            return false;
        }
        n = fb_io.send(c->fd, v, v[1].iov_len ? 2 : 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n == -EAGAIN || n == -EINTR || n == -ENOBUFS)
            return false;
        if (n < 0) {
            tx->err = (int)n;
            if (n != -EPIPE)
                atomic_store(&c->swallowed, (int)n);
            return false;
        }
        c->ktx += (uint64_t)n;
        tx->cur += (uint64_t)n;
    }
    return true;
}

bool tx_push(struct fb_conn *c)
{
    struct fb_tx *tx = &c->tx;

    if (tx->state == TX_W2 && tx_write_switch(c) < 0) {
        anchor_dead(c);
        now_plain(c);
        return true;
    }
    if (tx->state == TX_L1 && tx->owed)
        return false;
    /* An error that the kernel holds is the application's to hear of, from whichever call it makes
     * next; a send of ours would take it away, and a receive would look like a clean end. */
    if ((tx->state == TX_L1 || tx->state == TX_L2 || tx->state == TX_L3) &&
        (fb_io.poll(c->fd, 0) & POLLERR)) {
        tx->err = -EPIPE;
        anchor_dead(c);
        now_plain(c);
        return true;
    }
    if (tx->state == TX_L1 && tx->frame_at == 0)
        refresh_F(c);
    if (tx->state == TX_L1 && tx->frame_at == 0 && tx->F == tx->E && conn_flag(c, CF_PEER_CLOSED)) {
        /* Nobody is left to read a frame: it would draw RST, which takes from this end what the peer
         * sent before. FIN, or what the application insists on sending, goes without. */
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
        tag_frame(c, &tx->frame);
    }
    if (tx->state == TX_L1 || tx->state == TX_L2) {
        int r = write_frame_now(c);

        if (r == 0)
            return false;
        if (r < 0) {
            anchor_dead(c);
            now_plain(c);
            return true;
        }
        tx_to(c, TE_WHOLE);
        tx->cur = tx->F;
        if (tx->frame.flags & FF_CLOSED)
            conn_set(c, CF_TOLD_CLOSED);
    }
    if (tx->state == TX_L3) {
        if (push_residue(c))
            tx_to(c, TE_DRAINED);
        else if (tx->err)
            anchor_dead(c);
        else
            return false;
        now_plain(c);
    }
    return tx->state == TX_T;
}

void tx_leave(struct fb_conn *c, int reason, bool force)
{
    struct fb_tx *tx = &c->tx;
    struct rsk_rail *rail = c->rail;
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
        tx_push(c);
        link_watch(c);
        return;
    }
    actions = tx_to(c, TE_LEAVE);
    if (actions & TA_LATER) {
        tx->later = true;
        tx->why = (uint16_t)reason;
    }
    if (!(actions & TA_STOP))
        return;
    tx->why = (uint16_t)reason;
    tx->E = c->s.pub->tx;
    if (rail) {
        rail->wire->tx_stop(rail);
        refresh_F(c);
    } else {
        tx->F = tx->E;
    }
    tx->frame_at = 0;
    tx->owed = tx->F == tx->E && !force && !tx->fin;
    conn_reason(c, reason);
    log_info("stream %u: sender leaves the rail: %s, F %llu E %llu%s", c->slot,
             cfg_reason_name(reason), (unsigned long long)tx->F, (unsigned long long)tx->E,
             tx->owed ? ", owed" : "");
    conn_wake(c, FB_EV_STATE);
    if (!tx_push(c)) {
        if (tx->owed && rail && !rail->failed) {
            struct rsk_msg m = {.type = FM_OWED, .epoch = c->epoch, .a = tx->F};

            rail->wire->ctl_send(rail, &m);
        }
        link_watch(c);
        link_release(c);
    }
}

/* Control messages and flags that are for this half. */
void tx_serve(struct fb_conn *c)
{
    struct fb_tx *tx = &c->tx;
    uint32_t todo = atomic_exchange(&c->tx_todo, 0);
    struct rsk_rail *rail = c->rail;

    if (todo & TODO_MAIL) {
        bool echo, leave, nudge;
        uint64_t R;
        uint8_t X[16];

        fb_lock(&c->ctl_lock);
        echo = c->mail.echo;
        leave = c->mail.leave_req;
        nudge = c->mail.nudge;
        R = c->mail.leave_R;
        memcpy(X, c->mail.echo_X, 16);
        c->mail.echo = c->mail.leave_req = c->mail.nudge = false;
        fb_unlock(&c->ctl_lock);
        if (echo) {
            if (fb_same(X, tx->X, 16))
                tx_echo(c);
            else
                tx_leave(c, RSN_PEER_PROTOCOL, false);
        }
        if (leave && R >= tx->F && R <= c->s.pub->tx && tx->state == TX_R)
            tx->F = R;
        if (leave)
            tx_leave(c, RSN_PEER_LEFT, true);
        if (nudge && tx->owed)
            tx_leave(c, RSN_PEER_LEFT, true);
    }
    if (todo & TODO_PEER)
        tx_leave(c, RSN_PEER_LEFT, false);
    if (todo & TODO_LEAVE)
        tx_leave(c, (int)c->leave_why, true);
    if ((todo & TODO_FAIL) || (rail && rail->failed))
        tx_leave(c, rail && rail->failed ? (int)rail->failed : RSN_RAIL_FAILED, false);
    if (tx->state == TX_R && rail && (todo & TODO_PUSH)) {
        if (rail->wire->tx_push(rail) < 0)
            tx_leave(c, RSN_RAIL_FAILED, false);
    } else if (todo & TODO_PUSH) {
        tx_push(c);
    }
}

void tx_unlock(struct fb_conn *c)
{
    for (;;) {
        fb_unlock(&c->tx.lock);
        if (atomic_load(&c->tx_todo) == 0 || !fb_trylock(&c->tx.lock))
            return;
        tx_serve(c);
    }
}

static size_t copy_in(struct iovec sp[2], const struct iovec *v, int cnt, size_t limit)
{
    size_t done = 0, at = 0;
    int to = 0;

    for (int i = 0; i < cnt && done < limit; i++) {
        size_t off = 0;

        while (off < v[i].iov_len && done < limit) {
            size_t n = v[i].iov_len - off;

            if (at == sp[to].iov_len) {
                if (++to > 1)
                    return done;
                at = 0;
                continue;
            }
            if (n > sp[to].iov_len - at)
                n = sp[to].iov_len - at;
            if (n > limit - done)
                n = limit - done;
            memcpy((char *)sp[to].iov_base + at, (const char *)v[i].iov_base + off, n);
            at += n;
            off += n;
            done += n;
        }
    }
    return done;
}

/* As much as the ring has room for. A small write is one piece; nothing is allocated. */
static ssize_t put(struct fb_conn *c, struct rsk_rail *rail, const struct iovec *v, int cnt)
{
    struct iovec sp[2], one = {0};
    size_t done = 0, off = 0;
    int i = 0;

    if (cnt == 1)
        one = v[0];
    while (i < cnt) {
        size_t space = rail->wire->tx_space(rail, sp), n;

        if (space == 0)
            break;
        if (cnt == 1) {
            n = copy_in(sp, &one, 1, PIECE);
            one.iov_base = (char *)one.iov_base + n;
            one.iov_len -= n;
            if (one.iov_len == 0)
                i = 1;
        } else {
            struct iovec part = {(char *)v[i].iov_base + off, v[i].iov_len - off};

            n = copy_in(sp, &part, 1, PIECE);
            off += n;
            if (off == v[i].iov_len) {
                i++;
                off = 0;
            }
        }
        if (n == 0)
            continue;
        if (rail->wire->tx_put(rail, n) < 0) {
            conn_todo_tx(c, TODO_FAIL);
            /* The bytes are in the ring's memory and counted: the replay will carry them. */
        }
        done += n;
        /* Only the holder of the tx lock writes it while the half is not plain. */
        atomic_store_explicit(&c->s.pub->tx, c->s.pub->tx + n, memory_order_relaxed);
        if (atomic_load_explicit(&rail->failed, memory_order_relaxed))
            break;
    }
    if (done)
        atomic_store_explicit(&c->s.pub->rail_tx, c->s.pub->rail_tx + done, memory_order_relaxed);
    return done ? (ssize_t)done : -EAGAIN;
}

ssize_t tx_try(struct fb_conn *c, int fd, const struct iovec *v, int cnt, int flags, bool *plain)
{
    struct fb_tx *tx = &c->tx;

    *plain = false;
    for (;;) {
        struct rsk_rail *rail = c->rail;
        ssize_t n;

        if (atomic_load_explicit(&c->tx_todo, memory_order_acquire))
            tx_serve(c);
        if (tx->err) {
            n = tx->err;
            tx->err = 0;
            atomic_store(&c->swallowed, 0);
            return n;
        }
        switch ((enum fb_tx_state)tx->state) {
        case TX_R:
            if (tx->fin)
                return -EPIPE;
            if (!rail || atomic_load_explicit(&rail->failed, memory_order_acquire)) {
                tx_leave(c, RSN_RAIL_FAILED, false);
                continue;
            }
            n = put(c, rail, v, cnt);
            /* Who does not block is told by poll or epoll when there is room again, and an
             * edge-triggered one has asked before, when there was room: ask now. */
            if (n == -EAGAIN && ((flags & MSG_DONTWAIT) || c->s.nonblock) &&
                (rail->wire->arm(rail, RSK_TX, RSK_BY_SHARD) & (RSK_TX | RSK_FAIL)))
                continue;
            return n;
        case TX_T:
            if (tx->fin || !tx->want || !tx_may_board(c, fd, flags)) {
                atomic_fetch_add(&c->s.tx_in, 1);
                *plain = true;
                return 0;
            }
            /* fall through */
        case TX_FX:
        case TX_W1:
            n = tx_board(c, fd, v, cnt, flags);
            if (n == -EAGAIN)
                link_watch(c); /* for room */
            if (n != 0)
                return n;
            continue;
        default:
            if (tx->fin)
                return -EPIPE;
            tx->owed = false; /* application bytes follow */
            if (tx_push(c) || tx->err || tx->state == TX_R)
                continue;
            link_watch(c);
            return -EAGAIN;
        }
    }
}

bool tx_can_send(struct fb_conn *c, int fd)
{
    struct iovec sp[2];
    struct rsk_rail *rail = c->rail;

    switch ((enum fb_tx_state)c->tx.state) {
    case TX_T:
    case TX_FX:
    case TX_W1:
        return (fb_io.poll(fd, POLLOUT) & (POLLOUT | POLLERR | POLLHUP)) != 0;
    case TX_R:
        if (rail && !rail->failed)
            return c->tx.fin || rail->wire->tx_space(rail, sp) > 0;
        return true; /* the send will leave first */
    default:
        if (c->tx.fin || c->tx.err)
            return true;
        if (c->tx.state == TX_L1 && c->tx.owed)
            return (fb_io.poll(fd, POLLOUT) & (POLLOUT | POLLERR | POLLHUP)) != 0;
        if (!tx_push(c) && c->tx.state == TX_R)
            return tx_can_send(c, fd);
        return c->tx.state == TX_T &&
               (fb_io.poll(fd, POLLOUT) & (POLLOUT | POLLERR | POLLHUP)) != 0;
    }
}
