/*
 * ready.c - readiness as poll(2) defines it for TCP, of ring and anchor as one stream, and being
 * told of it. Exact: what it says holds when it returns, unless another thread reads or writes
 * meanwhile. It takes no system call for a half on the rail.
 */
#include "ipoib_fallback/killed.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/stream.h"

#include "rsock/loop.h"
#include "rsock/shard.h"

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

/* Without one the anchor is looked at (rx_unheard), and what is found there the kernel must
 * be asked about. */
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
    /* ERR, HUP and RDHUP are the kernel's; on a watched anchor the progress thread has heard of
     * them, but for what the application itself has shut. */
    if ((!rail_rx && !rail_tx) || c->shut ||
        atomic_load_explicit(&c->x->anchor_bits, memory_order_acquire))
        got |= fb_io.poll(fd, ask) & (short)(ask | POLLERR | POLLHUP | POLLNVAL);
    if ((got & (POLLRDHUP | POLLHUP)) == POLLRDHUP && rail_tx) {
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
           !atomic_load(&c->shut) && !atomic_load(&c->x->rx.late) &&
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
                                      (events & OUT_BITS ? RSK_TX | RSK_MUCH : 0));
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
           !atomic_load(&c->x->anchor_bits) && !c->shut;
}

static unsigned wanted(const struct fb_conn *c, short events)
{
    unsigned want = 0;

    if ((events & IN_BITS) && c->x->rx.state == RX_r)
        want |= RSK_RX;
    if ((events & OUT_BITS) && c->x->tx.state == TX_R)
        want |= RSK_TX | RSK_MUCH;
    return want;
}

/* Bytes on a rail, and nothing else that could be news: where rx_readable goes by the ring alone.
 * rx lock held, under which a rail does not go. */
static bool in_sight(struct fb_conn *c)
{
    const struct rsk_rail *rail = c->x->rail;

    return rail && rail->wire->read_in_place && !rail->wire->news_by_drain && silent_anchor(c) &&
           !c->x->rx.frozen && !c->x->rx.by_call && !rx_front_left(c) &&
           !atomic_load(&c->x->rx.late) && !atomic_load(&c->x->swallowed);
}

static inline __attribute__((always_inline)) enum fb_sight sight(struct fb_conn *c, int fd,
                                                                 short events, bool arm,
                                                                 struct fb_tally *tally)
{
    enum fb_sight got = FB_CLOSER;
    struct rsk_rail *rail;
    unsigned bits;

    if (!(events & IN_BITS) || events & OUT_BITS)
        return FB_CLOSER;
    if (!fb_trylock(&c->x->rx.lock))
        return FB_BUSY;
    if (in_sight(c)) {
        rail = c->x->rail;
        bits = arm ? rail->wire->arm(rail, RSK_RX, RSK_BY_SHARD) : rail->wire->poll(rail, RSK_RX);
        got = bits == 0 ? FB_NONE : bits == RSK_RX ? FB_SOME : FB_CLOSER;
        /* Armed before it is counted. in_sight: no end has come. */
        if (tally && got == FB_SOME)
            *tally = conn_tally(c, fd, false);
    }
    fb_unlock(&c->x->rx.lock);
    if (!atomic_load(&c->x->rx_todo) && !atomic_load(&c->x->tx_todo))
        return got;
    /* What somebody has left to be done meanwhile takes locks. */
    link_serve(c);
    return FB_CLOSER;
}

enum fb_sight fb_sight(struct fb_stream *s, short events)
{
    return sight(conn_of(s), -1, events, false, NULL);
}

enum fb_sight fb_sight_arm(struct fb_stream *s, int fd, short events, struct fb_tally *tally)
{
    return sight(conn_of(s), fd, events, true, tally);
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

/* Which words have news of all that is asked for; 0: none. The anchor is the progress thread's to
 * watch meanwhile, as for a thread that sleeps in recv (wait.c). */
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
    return (unsigned)__builtin_popcount(want & (RSK_RX | RSK_TX));
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

void conn_shard_over(struct fb_conn *c)
{
    if (atomic_load(&c->prefer))
        rsk_shard_put(atomic_exchange(&c->prefer, NULL));
}
