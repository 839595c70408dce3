/*
 * ready.c - what can be asked of a stream: readiness as poll(2) defines it for TCP, FIONREAD, SIOCOUTQ and the pending
 * error, of ring and anchor as one stream. Exact: what it says holds when it returns, unless another
 * thread reads or writes meanwhile. Readiness takes no system call for a half on the rail.
 */
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/killed.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/stream.h"

#include "rsock/loop.h"
#include "rsock/shard.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#define IN_BITS  (POLLIN | POLLRDNORM)
#define OUT_BITS (POLLOUT | POLLWRNORM)

short fb_kernel_events(struct fb_stream *s, short events)
{
    struct fb_conn *c = conn_of(s);

    switch ((enum fb_rx_state)c->x->rx.state) {
    case RX_r:
    case RX_q2:
    case RX_sk:
        if (c->x->rail) /* else what comes, comes by TCP: rx_unheard */
            events &= (short)~(IN_BITS | POLLRDBAND);
        break;
    default:
        break;
    }
    switch ((enum fb_tx_state)c->x->tx.state) {
    case TX_T:
    case TX_FX:
    case TX_W1:
        break;
    case TX_L1:
        if (c->x->tx.owed)
            break;
        /* fall through */
    default:
        events &= (short)~(OUT_BITS | POLLWRBAND);
    }
    return events;
}

/* Without one the anchor is looked at (rx_unheard), and what is found there the kernel must be asked about. */
static bool rx_on_rail(const struct fb_conn *c)
{
    return c->x->rx.state == RX_r && c->x->rail;
}

short fb_ready(struct fb_stream *s, int fd, short events)
{
    struct fb_conn *c = conn_of(s);
    short got = 0, ask = (short)(events & ~(IN_BITS | OUT_BITS));
    bool rail_rx = rx_on_rail(c), rail_tx = c->x->tx.state == TX_R;

    if (events & IN_BITS) {
        fb_lock(&c->x->rx.lock);
        if (rx_readable(c, fd))
            got |= events & IN_BITS;
        rail_rx = rx_on_rail(c);
        rx_unlock(c);
        rail_tx = c->x->tx.state == TX_R;
    }
    if (events & OUT_BITS) {
        fb_lock(&c->x->tx.lock);
        if (atomic_load_explicit(&c->x->tx_todo, memory_order_acquire))
            tx_serve(c);
        if (tx_can_send(c, fd))
            got |= events & OUT_BITS;
        rail_tx = c->x->tx.state == TX_R;
        tx_unlock(c);
    }
    /* ERR, HUP and RDHUP are the kernel's; on a watched anchor the progress thread has heard of them, but for
     * what the application itself has shut. */
    if ((!rail_rx && !rail_tx) || c->x->rx.shut ||
        atomic_load_explicit(&c->x->anchor_bits, memory_order_acquire))
        got |= fb_io.poll(fd, ask) & (short)(ask | POLLERR | POLLHUP | POLLNVAL);
    if ((got & (POLLRDHUP | POLLHUP | POLLERR)) == POLLRDHUP && rail_tx) {
        fb_lock(&c->x->rx.lock);
        if (conn_killed(c))
            ask |= POLLHUP;
        rx_unlock(c); /* serves the other half, after which the kernel says HUP */
        if (ask & POLLHUP)
            got |= fb_io.poll(fd, ask) & (short)(ask | POLLERR);
    }
    /* What the kernel has not heard of, it does not say. */
    if (atomic_load(&c->x->rx.late))
        got |= (short)((POLLRDHUP | (conn_flag(c, CF_FIN) ? POLLHUP : 0)) & (ask | POLLHUP));
    /* The error was the kernel's until we took it, and is untold. */
    if (atomic_load(&c->x->swallowed))
        got |= POLLERR;
    /* TCP never reports an end without POLLIN: what the end is, the frames before it say. */
    if ((got & (POLLHUP | POLLERR | POLLRDHUP)) && (events & IN_BITS) && !(got & IN_BITS)) {
        fb_lock(&c->x->rx.lock);
        atomic_store(&c->x->anchor_news, 1);
        if (rx_readable(c, fd))
            got |= events & IN_BITS;
        rx_unlock(c);
    }
    return got;
}

void fb_said(struct fb_stream *s, short asked, short got)
{
    if ((asked & IN_BITS) && !(got & IN_BITS))
        conn_no_data(conn_of(s));
    if ((asked & OUT_BITS) && !(got & OUT_BITS))
        conn_no_room(conn_of(s));
}

short fb_poll(struct fb_stream *s, int fd, short events)
{
    short got = fb_ready(s, fd, events);

    fb_said(s, events, got);
    return got;
}

bool fb_kernels_alone(struct fb_stream *s)
{
    struct fb_conn *c = conn_of(s);

    return c->x->rx.state == RX_t && c->x->rx.end == 0 && c->x->tx.state == TX_T && !c->x->tx.fin &&
           !atomic_load(&c->x->rx.shut) && !atomic_load(&c->x->rx.late) &&
           !atomic_load(&c->x->swallowed) && !atomic_load(&c->x->rx_todo) &&
           !atomic_load(&c->x->tx_todo);
}

static struct rsk_rail *rail_of(struct fb_conn *c)
{
    struct rsk_rail *rail;

    fb_lock(&c->watch_lock);
    rail = c->x->rail;
    if (rail)
        rsk_rail_get(rail);
    fb_unlock(&c->watch_lock);
    return rail;
}

short fb_peek_ready(struct fb_stream *s, short events)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_rail *rail = rail_of(c);
    unsigned bits = 0;
    short got = 0;

    if (!rail)
        return 0;
    bits = rail->wire->poll(rail, RSK_CTL | (events & IN_BITS ? RSK_RX : 0) |
                                      (events & OUT_BITS ? RSK_TX : 0));
    rsk_rail_put(rail);
    if (bits & RSK_CTL) {
        conn_mail(c);
        conn_serve(c);
    }
    if ((bits & (RSK_RX | RSK_FAIL)) && c->x->rx.state == RX_r)
        got |= events & IN_BITS;
    if ((bits & (RSK_TX | RSK_FAIL)) && c->x->tx.state == TX_R)
        got |= events & OUT_BITS;
    if (atomic_load_explicit(&c->x->anchor_news, memory_order_relaxed) && c->x->rx.state == RX_r)
        got |= events & IN_BITS;
    return got;
}

/* The values are read before the rail is armed: who has news after that has changed the word. */
static void take_words(struct fb_words *w, struct rsk_rail *rail, unsigned want)
{
    w->n = 0;
    if (want & RSK_RX)
        w->word[w->n++] = rail->rx_word;
    if (want & RSK_TX)
        w->word[w->n++] = rail->tx_word;
    for (unsigned i = 0; i < w->n; i++)
        w->value[i] = atomic_load(w->word[i]);
}

/* Nothing can be said of the anchor without asking it, if this is false. */
static bool silent_anchor(const struct fb_conn *c)
{
    return c->x->rx.state == RX_r && c->x->rx.end == 0 && !atomic_load(&c->x->anchor_news) &&
           !atomic_load(&c->x->anchor_bits) && !c->x->rx.shut;
}

static unsigned wanted(const struct fb_conn *c, short events)
{
    unsigned want = 0;

    if ((events & IN_BITS) && c->x->rx.state == RX_r)
        want |= RSK_RX;
    if ((events & OUT_BITS) && c->x->tx.state == TX_R)
        want |= RSK_TX;
    return want;
}

/* Bytes on a rail, and nothing else that could be news. rx lock held, under which a rail does not go. */
static bool in_sight(const struct fb_conn *c, short events)
{
    const struct rsk_rail *rail = c->x->rail;

    return rail && rail->wire->read_in_place && silent_anchor(c) && (events & IN_BITS) &&
           !(events & OUT_BITS);
}

enum sight { BUSY, CLOSER, NONE, SOME };

/* BUSY: another thread has the lock. CLOSER: it is for who looks closer. */
static enum sight glance(struct fb_conn *c, short events)
{
    enum sight got = CLOSER;

    if (!fb_trylock(&c->x->rx.lock))
        return BUSY;
    if (in_sight(c, events))
        got = c->x->rail->wire->poll(c->x->rail, RSK_RX) ? SOME : NONE;
    fb_unlock(&c->x->rx.lock);
    if (!atomic_load(&c->x->rx_todo) && !atomic_load(&c->x->tx_todo))
        return got;
    /* What somebody has left to be done meanwhile takes locks. */
    link_serve(c);
    return CLOSER;
}

bool fb_glances(struct fb_stream *s, short events)
{
    return glance(conn_of(s), events) == NONE;
}

bool fb_glance(struct fb_stream *s, short events)
{
    enum sight got = glance(conn_of(s), events);

    return got == CLOSER || got == SOME;
}

short fb_arm(struct fb_stream *s, int fd, short events)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_rail *rail = rail_of(c);
    unsigned want;

    if (rail) {
        want = wanted(c, events);
        if (want)
            want = rail->wire->arm(rail, want, RSK_BY_SHARD);
        if (rail->failed)
            want |= RSK_FAIL;
        rsk_rail_put(rail);
        /* The usual case by far: the ring is empty (or full) and the anchor silent. */
        if (!want && silent_anchor(c) && (!(events & OUT_BITS) || c->x->tx.state == TX_R))
            return 0;
    }
    return fb_ready(s, fd, events);
}

/* Which words have news of all that is asked for; 0: none. The anchor is the progress thread's to watch meanwhile,
 * as for a thread that sleeps in recv (wait.c). */
static unsigned by_words(const struct fb_conn *c, const struct rsk_rail *rail, short events)
{
    unsigned want = wanted(c, events);

    return rail && !rail->wire->slow_to_wake && !rail->failed && silent_anchor(c) &&
                   (!(events & OUT_BITS) || (want & RSK_TX)) && rsk_loop_running()
               ? want
               : 0;
}

unsigned fb_has_words(struct fb_stream *s, short events)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_rail *rail = rail_of(c);
    unsigned want = by_words(c, rail, events);

    if (rail)
        rsk_rail_put(rail);
    return (unsigned)__builtin_popcount(want);
}

short fb_arm_words(struct fb_stream *s, int fd, short events, struct fb_words *w)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_rail *rail = rail_of(c);
    unsigned want = by_words(c, rail, events), holds = 0;
    short now = 0;

    w->rail = NULL;
    if (want) {
        take_words(w, rail, want);
        holds = rail->wire->arm(rail, want, RSK_BY_FUTEX);
        if (!holds && by_words(c, rail, events) == want) {
            w->rail = rail;
            return 0;
        }
    }
    if (rail)
        rsk_rail_put(rail);
    /* Who finds something does not sleep, and needs no other wish. */
    if (holds)
        now = fb_ready(s, fd, events);
    return now ? now : fb_arm(s, fd, events);
}

void fb_words_put(struct fb_words *w)
{
    if (w->rail)
        rsk_rail_put(w->rail);
    w->rail = NULL;
}

/* NULL: it has no rail. */
static const struct rsk_shard *shard_of(struct fb_conn *c)
{
    const struct rsk_shard *shard;

    fb_lock(&c->watch_lock);
    shard = c->x->rail ? c->x->rail->shard : NULL;
    fb_unlock(&c->watch_lock);
    return shard;
}

bool fb_news_elsewhere(struct fb_stream *s, const struct rsk_shard *shard)
{
    const struct rsk_shard *its = shard_of(conn_of(s));

    return its && its != shard;
}

void fb_prefer_shard(struct fb_stream *s, struct rsk_shard *shard)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_shard *old;

    if (!shard && !atomic_load(&c->prefer))
        return;
    if (shard)
        rsk_shard_get(shard);
    fb_lock(&c->watch_lock); /* who reads it takes a reference under it: conn_shard */
    old = atomic_exchange(&c->prefer, shard);
    fb_unlock(&c->watch_lock);
    rsk_shard_put(old);
}

struct rsk_shard *conn_shard(struct fb_conn *c)
{
    struct rsk_shard *shard = NULL;

    if (!c->x->roams) {
        fb_lock(&c->watch_lock);
        shard = atomic_load(&c->prefer);
        if (shard)
            rsk_shard_get(shard);
        fb_unlock(&c->watch_lock);
    }
    return shard;
}

void fb_leave_shard(struct fb_stream *s, struct rsk_shard *shard)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_shard *mine = shard;
    bool dropped;

    if (!shard)
        return;
    fb_lock(&c->watch_lock);
    dropped = atomic_compare_exchange_strong(&c->prefer, &mine, NULL);
    fb_unlock(&c->watch_lock);
    if (dropped) /* the instance has one as well */
        rsk_shard_put(shard);
}

/* ---- counts, and the error */

int fb_so_error(struct fb_stream *s)
{
    return conn_tell(conn_of(s));
}

void fb_told(struct fb_stream *s, int fd)
{
    /* An error that ends nothing, as IP_RECVERR shows some, leaves the stream as it was. */
    if (atomic_load(&s->rx_gate) && fb_io.poll(fd, 0) & POLLHUP)
        atomic_store(&conn_of(s)->x->told, true);
}

void fb_keep_error(struct fb_stream *s, int err)
{
    conn_untold(conn_of(s), err);
}

/* Bytes that a receive would find. rx lock held. */
static int inq(struct fb_conn *c, int fd)
{
    struct rsk_rail *rail = c->x->rail;
    struct iovec have[2];
    int n = 0;

    if (c->x->rx.state != RX_r && c->x->rx.state != RX_q2)
        n = fb_io.inq(fd);
    switch ((enum fb_rx_state)c->x->rx.state) {
    case RX_r:
    case RX_q2:
        n = rail && !c->x->rx.frozen ? (int)rail->wire->rx_peek(rail, have) : 0;
        break;
    case RX_gS:
    case RX_f2:
        if (n > 0 && c->s.pub->rx < c->x->rx.S && (uint64_t)n > c->x->rx.S - c->s.pub->rx) {
            size_t more = rx_ahead_count(c, fd);

            /* Perhaps there was no switch after all. */
            n = c->x->rx.state == RX_t ? fb_io.inq(fd) : (int)(c->x->rx.S - c->s.pub->rx + more);
        } else if (n > 0 && c->s.pub->rx >= c->x->rx.S) {
            n = 0; /* a part of the frame */
        }
        break;
    case RX_sk: {
        uint64_t at = c->s.pub->rx, kernel = n > 0 ? (uint64_t)n : 0;

        /* Also beyond E: no frame comes before this half is plain. */
        kernel = kernel > c->x->rx.skip ? kernel - c->x->rx.skip : 0;
        n = (int)(kernel + (c->x->rx.V > at ? c->x->rx.V - at : 0));
        break;
    }
    default:
        break;
    }
    return n < 0 ? n : n + (int)rx_front_left(c);
}

int fb_inq(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    int n;

    fb_lock(&c->x->rx.lock);
    /* Who only asks for the count must get past a frame, too. */
    (void)rx_readable(c, fd);
    n = inq(c, fd);
    if (n == 0)
        conn_no_data_here(c);
    rx_unlock(c);
    return n;
}

/* What has come of the stream so far, read or not; 0: not known. rx lock held. */
static uint64_t come(struct fb_conn *c, int fd, bool ended)
{
    uint64_t n, at;
    int unread;
    bool alone;

    if (c->x->rx.state == RX_gS || c->x->rx.state == RX_f2)
        (void)rx_readable(c, fd); /* past the frame, if it is its turn */
    /* SIOCINQ stops at urgent data. */
    if (c->x->rx.state == RX_t) {
        n = fb_io.received(fd);
        return n ? n - ended + conn_rail_rx(c) - c->x->own_rx + 1 : 0;
    }
    alone = atomic_load(&c->s.rx_in) == 0;
    at = c->s.pub->rx;
    unread = inq(c, fd);
    /* No plain receive was under way, nor has there been one between the two counts. */
    alone = alone && atomic_load(&c->s.rx_in) == 0 && c->s.pub->rx == at;
    return alone && unread >= 0 ? at + (uint64_t)unread + 1 : 0;
}

/* What was sent, in the same way. */
static uint64_t sent(struct fb_conn *c)
{
    bool alone = atomic_load(&c->s.tx_in) == 0;
    uint64_t n = c->s.pub->tx + ((uint64_t)atomic_load(&c->x->no_room) << 44);

    return alone && atomic_load(&c->s.tx_in) == 0 ? n + 1 : 0;
}

struct fb_tally fb_tally(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    struct fb_tally t = {0};
    bool ended;

    /* Bytes that another process takes are not counted here. */
    if (!fb_may_change(s) || conn_flag(c, CF_SHARED | CF_LENT) ||
        atomic_load(&s->pub->lent) & FB_LENT_FOREIGN)
        return t;
    ended = fb_ready(s, fd, POLLRDHUP) & (POLLRDHUP | POLLHUP);
    fb_lock(&c->x->rx.lock);
    t.in = come(c, fd, ended);
    if (t.in)
        t.in += ((uint64_t)(atomic_load(&c->x->no_data) + c->x->rx.no_data) << 44) +
                ((uint64_t)ended << 63);
    rx_unlock(c);
    t.out = sent(c);
    return t;
}

int fb_inq_told(struct fb_stream *s, int fd)
{
    int n;

    if (!conn_of(s)->x->tells_inq || hold_for_good())
        return -1;
    n = fb_inq(s, fd);
    /* As TCP: who has received the end may come for it. */
    return n > 0 ? n : (fb_ready(s, fd, POLLRDHUP) & POLLRDHUP) != 0;
}

int fb_outq(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_rail *rail;
    int n = 0;

    sys_ioctl(fd, SIOCOUTQ, &n);
    fb_lock(&c->x->tx.lock);
    rail = c->x->rail;
    if (c->x->tx.state == TX_R && rail)
        n += (int)(c->s.pub->tx - rail->wire->tx_freed(rail));
    else if (c->x->tx.state >= TX_L1)
        n += (int)(c->x->tx.E - (c->x->tx.state == TX_L3 ? c->x->tx.cur : c->x->tx.F));
    tx_unlock(c);
    return n;
}
