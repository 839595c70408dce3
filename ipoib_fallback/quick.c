/*
 * quick.c - what most calls on a rail are: bytes, or none where a call does not wait for them, and
 * nothing else to be done. The same as the general way does then (call.c), with far fewer
 * instructions. 0: it is not that, and nothing has happened.
 */
#include "ipoib_fallback/quick.h"

#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/tap.h"
#include "ipoib_fallback/tx.h"
#include "rsock/section.h"

#define QUICK_MOST 8192u  /* larger ones are put in pieces, and by the way that pays: tx.c */
#define QUICK_SOME 16384u /* of several buffers: they are published together */
#define QUICK_WAIT 2000u  /* ns that a receive waits with the lock, at most */
#define QUICK_PAYS 1000u  /* a wait that has learnt to spin for less has mostly been in vain */

/* Open, and its settings are known: what a call does beside moving bytes may depend on
 * them (TCP_INQ). */
static inline bool settled(const struct fb_conn *c)
{
    return (atomic_load_explicit(&c->s.flags, memory_order_acquire) & (CF_SETTINGS | CF_CLOSED)) ==
           CF_SETTINGS;
}

/* rx_plainly's part that may change although the lock is held. */
static inline bool rx_still(struct fb_conn *c)
{
    return !tap_on(c) && settled(c) && !atomic_load_explicit(&c->x->rx_todo, memory_order_acquire);
}

/* Bytes may be received from the ring, and that is all. rx lock held. */
static inline bool rx_plainly(struct fb_conn *c, uint64_t at)
{
    struct fb_more *x = c->x;

    return x->rx.state == RX_r && !x->rx.frozen && x->rx.end == 0 && at >= x->rx.shown_to &&
           !x->rx.by_call && rx_still(c);
}

/* The same for a send. tx lock held. */
static inline bool tx_plainly(struct fb_conn *c, uint64_t end)
{
    struct fb_more *x = c->x;

    return x->tx.state == TX_R && !x->tx.fin && !x->tx.err && !tap_on(c) && settled(c) &&
           !atomic_load_explicit(&x->tx_todo, memory_order_acquire) &&
           !conn_seen_wants(&c->s.tx_mark, end);
}

static inline bool usual(int flags)
{
    return !(flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL));
}

enum { HELD = -1 }; /* instead of the number: the caller has a reference */

/*
 * The caller of fb_recv_quick and fb_send_quick has looked the stream up and has no reference to
 * it, which would be two locked instructions of the five that a call then has. What it has may
 * since have been closed, freed, and made another stream.
 *
 * - It is memory that stays, and so are x and the two locks, which nobody clears: whoever holds one
 *   keeps whoever the slot belongs to now from moving, and harms nothing else.
 * - Under one of the locks a rail does not go, and a rail has a reference to its stream (link_up,
 *   release_job). So with a rail the stream lives, and stays what it is until the unlock.
 * - c->fd is one of its numbers until fb_close, which has set CF_CLOSED, or one_less has had both
 *   locks; and a number is taken from its file, and given to the kernel, after that. So if it is
 *   fd, fd is this stream's. (Of a number that was closed behind our back this is not true; but
 *   nobody finds the stream by it who looks after it was given away.)
 * - After the unlock nothing is known any more. What others have left to be done meanwhile
 *   needs a reference.
 */
static inline bool is_of(struct fb_conn *c, const struct rsk_rail *rail, int fd)
{
    return rail && (fd == HELD || atomic_load_explicit(&c->fd, memory_order_relaxed) == fd);
}

__attribute__((noinline)) static void serve(struct fb_conn *c)
{
    if (!fb_tryget(&c->s))
        return;
    conn_serve(c);
    fb_put(&c->s);
}

static inline void unlock(struct fb_conn *c, struct fb_lock *l)
{
    fb_unlock(l);
    if (__builtin_expect((atomic_load(&c->x->rx_todo) | atomic_load(&c->x->tx_todo)) != 0, 0))
        serve(c);
}

/*
 * The first of a blocking call's spin, without giving the lock back: between the peer's bytes and
 * the application there is then no reference to be lowered and no lock to be taken. wait.c's spin
 * goes on with what is left. Over at once when a handler waits, or somebody sleeps on the lock or
 * has left something to be done. Not where the socket has a time-out: then any handler ends the
 * call, also one with SA_RESTART, and that is for wait.c to see. What it teaches is counted from
 * the 16th look: before, the clock would be read just when the bytes come. rx lock held.
 */
__attribute__((noinline)) static bool comes(struct fb_conn *c, struct rsk_rail *rail)
{
    struct fb_more *x = c->x;
    uint32_t most = spin_learnt(c, &x->spin_rx);
    uint64_t begin = 0, now = 0;

    FB_SPIN_SET(&x->spin_rx, spent, 0);
    if (conn_flag(c, CF_SLOW) || most < QUICK_PAYS || x->rcv_timeout)
        return false;
    most = most < QUICK_WAIT ? most : QUICK_WAIT;
    for (unsigned i = 1; !rail->wire->poll(rail, RSK_RX); i++) {
        if (rsk_sig.pending || atomic_load_explicit(&x->rx_todo, memory_order_relaxed) ||
            fb_lock_sought(&x->rx.lock))
            return false;
        sys_pause_cpu();
        if (i % 16)
            continue;
        now = sys_now();
        begin = begin ? begin : now;
        if (now - begin >= most) {
            FB_SPIN_SET(&x->spin_rx, spent, most);
            return false;
        }
    }
    spin_served(c, &x->spin_rx, now - begin);
    return true;
}

/* The ring had nothing, and nobody else has: rx_try's answer then is -EAGAIN. rx lock held. */
static inline bool rx_nothing(struct fb_conn *c, struct rsk_rail *rail)
{
    return !atomic_load_explicit(&rail->failed, memory_order_relaxed) && !c->shut &&
           !rx_unheard(c, rail, false) && !rx_fetch(c, rail);
}

static inline bool at_once(const struct fb_conn *c, int flags)
{
    return (flags & MSG_DONTWAIT) || atomic_load_explicit(&c->s.nonblock, memory_order_relaxed);
}

/* Bytes, 0 or -EAGAIN. may_wait: unless flags or the socket say that it does not. */
static inline __attribute__((always_inline)) ssize_t rx_one(struct fb_conn *c, int fd, void *p,
                                                            size_t most, int flags, bool may_wait)
{
    struct rsk_rail *rail;
    size_t n = 0;
    bool none = false;
    uint64_t at = 0;

    if (!fb_trylock(&c->x->rx.lock))
        return 0;
    rail = c->x->rail;
    if (is_of(c, rail, fd)) {
        at = atomic_load_explicit(&c->s.pub->rx, memory_order_relaxed);
        if (rx_plainly(c, at)) {
            n = rail->wire->rx_take(rail, p, most);
            if (n == 0 && at_once(c, flags))
                none = most && rx_nothing(c, rail);
            else if (n == 0 && may_wait && comes(c, rail) && rx_still(c))
                n = rail->wire->rx_take(rail, p, most);
        }
    }
    if (n) {
        /* Only now is it known where they end: a checkpoint may be farther off than they are, and
         * nearer than `most`. */
        if (conn_seen_wants(&c->s.rx_mark, at + n))
            conn_seen_rx(c, at, &(struct iovec){p, n}, 1, n);
        rx_counted(c, n);
    }
    if (none || (n && n < most))
        conn_no_data_here(c);
    unlock(c, &c->x->rx.lock);
    return none ? -EAGAIN : (ssize_t)n;
}

static inline __attribute__((always_inline)) size_t tx_one(struct fb_conn *c, int fd, const void *p,
                                                           size_t n)
{
    struct rsk_rail *rail;
    uint64_t at;

    if (n > QUICK_MOST || !fb_trylock(&c->x->tx.lock))
        return 0;
    rail = c->x->rail;
    at = atomic_load_explicit(&c->s.pub->tx, memory_order_relaxed);
    if (is_of(c, rail, fd) && tx_plainly(c, at + n) && rail->wire->tx_give(rail, p, n)) {
        tx_counted(c, n);
        if (__builtin_expect(atomic_load_explicit(&rail->failed, memory_order_relaxed), 0))
            conn_todo_tx(c, TODO_FAIL);
    } else {
        n = 0;
    }
    unlock(c, &c->x->tx.lock);
    return n;
}

ssize_t fb_recv_quick(struct fb_stream *s, int fd, void *p, size_t most, int flags)
{
    return usual(flags) ? rx_one(conn_of(s), fd, p, most, flags, true) : 0;
}

size_t fb_send_quick(struct fb_stream *s, int fd, const void *p, size_t n, int flags)
{
    return usual(flags) ? tx_one(conn_of(s), fd, p, n) : 0;
}

/* Of several buffers. */
__attribute__((noinline)) static size_t rx_some(struct fb_conn *c, const struct iovec *v, int cnt)
{
    struct rsk_rail *rail;
    struct iovec have[2];
    size_t n = 0, most = fb_iov_size(v, cnt);
    uint64_t at;

    if (!fb_trylock(&c->x->rx.lock))
        return 0;
    rail = c->x->rail;
    at = atomic_load_explicit(&c->s.pub->rx, memory_order_relaxed);
    if (rail && rx_plainly(c, at) && !atomic_load_explicit(&rail->failed, memory_order_relaxed)) {
        n = rail->wire->rx_peek(rail, have);
        if (n > most)
            n = most;
    }
    if (n) {
        fb_iov_copy(v, cnt, have, 2, n, RSK_OUT_OF);
        if (conn_seen_wants(&c->s.rx_mark, at + n))
            conn_seen_rx(c, at, v, cnt, n);
        rx_took(c, rail, n);
        if (n < most)
            conn_no_data_here(c);
    }
    rx_unlock(c);
    return n;
}

/* All of a message, for which there is room. */
__attribute__((noinline)) static size_t tx_some(struct fb_conn *c, const struct iovec *v, int cnt)
{
    struct rsk_rail *rail;
    struct iovec room[2];
    size_t n = fb_iov_size(v, cnt);
    uint64_t at;

    if (n == 0 || n > QUICK_SOME || !fb_trylock(&c->x->tx.lock))
        return 0;
    rail = c->x->rail;
    at = atomic_load_explicit(&c->s.pub->tx, memory_order_relaxed);
    if (rail && tx_plainly(c, at + n) &&
        !atomic_load_explicit(&rail->failed, memory_order_acquire) &&
        rail->wire->tx_space(rail, room) >= n) {
        fb_iov_copy(room, 2, v, cnt, n, RSK_INTO);
        tx_gave(c, rail, n);
    } else {
        n = 0;
    }
    tx_unlock(c);
    return n;
}

ssize_t rx_quick(struct fb_conn *c, const struct iovec *v, int cnt, int flags)
{
    if (cnt > FB_PIECES || !usual(flags))
        return 0;
    return cnt == 1 ? rx_one(c, HELD, v->iov_base, v->iov_len, flags, false)
                    : (ssize_t)rx_some(c, v, cnt);
}

size_t tx_quick(struct fb_conn *c, const struct iovec *v, int cnt, int flags)
{
    if (cnt > FB_PIECES || !usual(flags))
        return 0;
    return cnt == 1 ? tx_one(c, HELD, v->iov_base, v->iov_len) : tx_some(c, v, cnt);
}
