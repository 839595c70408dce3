/*
 * sim_wire.c - the simulated wires. As "verbs", data, control
 * messages and credit are under way for a while and are lost when the rail is cut; as "shm" they
 * are in the peer's memory at once, only the news of them comes later, and what was put
 * outlives the sender.
 */
#include "rsock/move.h"
#include "tests/sim/sim.h"

#include <string.h>

static struct sim_rail *of(struct rsk_rail *rail)
{
    struct sim_rail *r = (struct sim_rail *)rail;

    if (r->destroyed)
        sim_fail("end %d: a call on a rail that was destroyed", r->end);
    return r;
}

static void news(struct sim_rail *r, unsigned events)
{
    r->news |= events & (r->armed | RSK_CTL | RSK_FAIL);
    r->armed &= ~events;
}

static uint32_t mask(const struct sim_rail *r)
{
    return r->base.tx_size - 1;
}

/* ---- sender ---- */

static void w_tx_start(struct rsk_rail *rail, uint64_t S)
{
    struct sim_rail *r = of(rail);

    if (r->tx_started)
        sim_fail("end %d: tx_start twice on one rail", r->end);
    r->tx_started = true;
    r->most = rail->tx_limit && rail->tx_limit < rail->tx_size ? rail->tx_limit : rail->tx_size;
    sim.boarded++;
    r->S = r->tx = r->posted = r->freed = r->credit = r->credit_sent = S;
}

static size_t pieces(uint8_t *base, uint64_t from, size_t n, uint32_t size, struct iovec v[2])
{
    size_t at = from & (size - 1), first = n < size - at ? n : size - at;

    v[0] = (struct iovec){base + at, first};
    v[1] = (struct iovec){base, n - first};
    return n;
}

static uint64_t w_tx_freed(struct rsk_rail *rail)
{
    struct sim_rail *r = of(rail);

    if (r->credit > r->posted)
        sim_fail("end %d: credit %llu beyond %llu posted", r->end, (unsigned long long)r->credit,
                 (unsigned long long)r->posted);
    if (r->credit > r->freed)
        r->freed = r->credit;
    return r->freed;
}

static size_t space(struct sim_rail *r)
{
    size_t kept;

    if (!r->tx_started || r->stopped || r->base.failed)
        return 0;
    kept = (size_t)(r->tx - w_tx_freed(&r->base));
    return kept < r->most ? r->most - kept : 0;
}

static size_t w_tx_space(struct rsk_rail *rail, struct iovec v[2])
{
    struct sim_rail *r = of(rail);

    return pieces(r->staging, r->tx, space(r), r->base.tx_size, v);
}

/* n more of the posted bytes are in the receiver's ring. */
static void arrive(struct sim_rail *r, uint64_t n)
{
    struct sim_rail *p = r->peer;

    if (!p->rx_started)
        sim_fail("end %d: data before ECHO", r->end);
    if (!p->rx_started || p->frozen)
        return;
    if (p->arrived + n - p->rx > r->base.tx_size)
        sim_fail("end %d: the peer's ring overflows", r->end);
    for (; n > 0; n--, p->arrived++)
        p->ring[p->arrived & mask(r)] = r->staging[p->arrived & mask(r)];
    news(p, RSK_RX);
}

static void post(struct sim_rail *r)
{
    if (!r->open || r->stopped || r->base.failed || r->posted == r->tx)
        return;
    r->posted = r->tx;
    if (sim.outlives && !r->peer->destroyed && r->peer->rx_started)
        arrive(r, r->posted - r->peer->arrived);
}

static int w_tx_put(struct rsk_rail *rail, size_t n)
{
    struct sim_rail *r = of(rail);

    if (n > space(r))
        sim_fail("end %d: more put than there is space", r->end);
    r->tx += n;
    if (r->base.failed)
        return -EPIPE;
    if (sim.outlives || !chance(150))
        post(r); /* else short of message credit */
    return 0;
}

static size_t w_tx_give(struct rsk_rail *rail, const void *p, size_t n)
{
    return rsk_give(rail, p, n, w_tx_space, w_tx_put);
}

static int w_tx_open(struct rsk_rail *rail)
{
    struct sim_rail *r = of(rail);

    if (r->base.failed)
        return -EPIPE;
    /* Before it the peer has not shown that it is this connection's other end. */
    if (!sim.outlives && !r->echoed)
        sim_fail("end %d: opened before ECHO", r->end);
    r->open = true;
    post(r);
    return 0;
}

static ssize_t w_tx_push(struct rsk_rail *rail)
{
    struct sim_rail *r = of(rail);

    if (r->base.failed)
        return -EPIPE;
    post(r);
    return (ssize_t)(r->tx - r->posted);
}

static size_t w_tx_kept(struct rsk_rail *rail, uint64_t from, uint64_t to, struct iovec v[2])
{
    struct sim_rail *r = of(rail);

    v[0].iov_len = v[1].iov_len = 0;
    if (!r->tx_started || from < r->freed || to > r->tx || to - from > r->base.tx_size)
        return 0;
    return pieces(r->staging, from, (size_t)(to - from), r->base.tx_size, v);
}

static void w_tx_stop(struct rsk_rail *rail)
{
    of(rail)->stopped = true;
    sim.resumed++;
}

/* ---- receiver ---- */

static void w_rx_start(struct rsk_rail *rail, uint64_t S)
{
    struct sim_rail *r = of(rail);

    if (r->rx_started)
        sim_fail("end %d: rx_start twice on one rail", r->end);
    r->rx_started = true;
    r->arrived = r->rx = r->told = S;
    if (sim.outlives && r->peer->tx_started && r->peer->posted > S)
        arrive(r->peer, r->peer->posted - S); /* it was in the ring before */
}

static size_t w_rx_peek(struct rsk_rail *rail, struct iovec v[2])
{
    struct sim_rail *r = of(rail);

    return pieces(r->ring, r->rx, (size_t)(r->arrived - r->rx), r->base.rx_size, v);
}

static void w_rx_consume(struct rsk_rail *rail, size_t n)
{
    struct sim_rail *r = of(rail);

    if (n > r->arrived - r->rx)
        sim_fail("end %d: more consumed than has arrived", r->end);
    r->rx += n;
    if (sim.outlives || r->rx - r->told >= r->peer->most / 4 || chance(50)) {
        r->told = r->rx;
        if (r->base.failed || r->cut || r->peer->destroyed)
            return;
        r->peer->credit_sent = r->rx;
        if (sim.outlives) {
            r->peer->credit = r->rx;
            news(r->peer, RSK_TX);
        }
    }
}

static size_t w_rx_take(struct rsk_rail *rail, void *p, size_t n)
{
    return rsk_take(rail, p, n, w_rx_peek, w_rx_consume);
}

static uint64_t w_rx_freeze(struct rsk_rail *rail)
{
    struct sim_rail *r = of(rail);

    r->frozen = true;
    return r->arrived;
}

/* ---- control ---- */

static int w_ctl_send(struct rsk_rail *rail, const struct rsk_msg *m)
{
    struct sim_rail *r = of(rail), *p = r->peer;

    if (r->base.failed)
        return -EPIPE;
    /* Over verbs also while the credit for messages is short: who asks for the stream then has
     * to ask again. */
    if (p->ctl_sent - p->ctl_taken == SIM_CTL ||
        (!sim.outlives && (m->type == FM_LEAVE_REQ || m->type == FM_OWED || m->type == FM_ECHO) &&
         chance(200)))
        return -EAGAIN;
    p->in[p->ctl_sent++ % SIM_CTL] = *m;
    if (sim.outlives && !p->destroyed) {
        p->ctl_arrived = p->ctl_sent;
        news(p, RSK_CTL);
    }
    return 0;
}

static int w_ctl_recv(struct rsk_rail *rail, struct rsk_msg *m)
{
    struct sim_rail *r = of(rail);

    if (r->ctl_taken == r->ctl_arrived)
        return 0;
    *m = r->in[r->ctl_taken++ % SIM_CTL];
    r->echoed |= m->type == FM_ECHO;
    return 1;
}

/* ---- waiting and ends ---- */

static unsigned w_poll(struct rsk_rail *rail, unsigned events)
{
    struct sim_rail *r = of(rail);
    unsigned bits = 0;

    if (r->arrived > r->rx)
        bits |= RSK_RX;
    if (space(r) >= (events & RSK_MUCH ? rsk_much(rail, r->most) : 1))
        bits |= RSK_TX;
    if (r->ctl_taken < r->ctl_arrived)
        bits |= RSK_CTL;
    if (r->base.failed)
        bits |= RSK_FAIL;
    return bits & (events | RSK_FAIL);
}

static unsigned w_arm(struct rsk_rail *rail, unsigned events, unsigned how)
{
    struct sim_rail *r = of(rail);

    (void)how;
    r->armed |= events;
    return w_poll(rail, events);
}

static void cut(struct sim_rail *r)
{
    if (sim.outlives)
        return;
    r->cut = r->peer->cut = true;
}

static void w_tx_ends(struct rsk_rail *rail)
{
    of(rail)->ends = true;
}

static enum rsk_fate w_tx_fate(struct rsk_rail *rail)
{
    struct sim_rail *r = of(rail), *p = r->peer;

    if (r->base.failed || p->base.failed || p->ends)
        return RSK_LIVES;
    return r->tx != r->credit ? RSK_DIED_UNREAD : RSK_DIED;
}

static void w_kill(struct rsk_rail *rail, int reason)
{
    struct sim_rail *r = of(rail);

    r->ends = true;
    if (!r->base.failed)
        r->base.failed = (uint32_t)reason;
    cut(r);
}

static void w_destroy(struct rsk_rail *rail)
{
    struct sim_rail *r = of(rail);

    if (r->base.refs)
        sim_fail("end %d: a rail is destroyed under a waiter", r->end);
    cut(r);
    r->destroyed = true;
    r->peer->sees |= !sim.outlives && chance(700);
}

bool sim_wire_drain(int end)
{
    bool any = false;

    for (unsigned i = (unsigned)end; i < 2 * sim.rails; i += 2) {
        struct sim_rail *r = &sim.rail[i];
        unsigned events = r->news;

        if (!events || r->destroyed || !r->base.notify || !sim.end[end].alive)
            continue;
        r->news = 0;
        r->base.notify(&r->base, events);
        any = true;
    }
    return any;
}

static bool move(struct sim_rail *r)
{
    struct sim_rail *p = r->peer;
    /* The receiver may have seen SWITCH, and begun, before the sender comes to it. */
    uint64_t data = r->tx_started && p->rx_started && !p->frozen ? r->posted - p->arrived : 0;
    uint64_t ctl = p->ctl_sent - p->ctl_arrived;
    bool credit = r->credit_sent > r->credit; /* on its way to r */

    if (r->destroyed || sim.outlives)
        return false;
    if (r->cut) {
        if (r->base.failed || !(r->sees || ctl || r->posted > r->credit) || !chance(300))
            return false;
        sim_trace("end %d: sees that the rail has failed", r->end);
        r->base.failed = RSN_RAIL_FAILED;
        news(r, RSK_FAIL);
        return true;
    }
    if (r->open && r->posted < r->tx && !r->stopped && chance(500)) {
        post(r);
        return true;
    }
    for (int i = 0; i < 6; i++)
        switch (rnd(3)) {
        case 0:
            if (!data)
                break;
            arrive(r, 1 + rnd((unsigned)data));
            return true;
        case 1:
            if (!ctl)
                break;
            p->ctl_arrived++;
            news(p, RSK_CTL);
            return true;
        default:
            if (!credit)
                break;
            r->credit = r->credit_sent;
            news(r, RSK_TX);
            return true;
        }
    return false;
}

bool sim_wire_move(int end)
{
    if (!sim.end[end].alive && !sim.outlives)
        return false;
    for (unsigned i = (unsigned)end; i < 2 * sim.rails; i += 2)
        if (move(&sim.rail[i]))
            return true;
    return false;
}

void sim_wire_fail(int first)
{
    struct sim_rail *r = sim.rails ? &sim.rail[2 * (sim.rails - 1) + (unsigned)first] : NULL;

    if (!r || r->destroyed || r->cut || r->base.failed || sim.outlives)
        return;
    cut(r);
    if (chance(800))
        r->sees = true;
    if (chance(400))
        r->peer->sees = true;
}

void sim_wire_process_gone(int end)
{
    for (unsigned i = 0; i < 2 * sim.rails; i++)
        if (sim.rail[i].end == end) {
            cut(&sim.rail[i]);
            sim.rail[i].destroyed = true;
            sim.rail[i].peer->sees = true;
        }
}

bool sim_wire_busy(void)
{
    for (unsigned i = 0; i < 2 * sim.rails; i++) {
        const struct sim_rail *r = &sim.rail[i];

        if (!r->destroyed && !r->cut && (r->ctl_sent != r->ctl_taken || r->news))
            return true;
    }
    return sim_rdv_busy();
}

void sim_wire_check(void)
{
    for (unsigned i = 0; i < 2 * sim.rails; i++) {
        struct sim_rail *r = &sim.rail[i], *p = r->peer;

        if (!r->tx_started || !p->rx_started)
            continue;
        if (r->credit > p->rx || p->rx > p->arrived || p->arrived > r->posted || r->posted > r->tx)
            sim_fail("rail %u, end %d: F %llu rx %llu V %llu posted %llu tx %llu", i / 2, r->end,
                     (unsigned long long)r->credit, (unsigned long long)p->rx,
                     (unsigned long long)p->arrived, (unsigned long long)r->posted,
                     (unsigned long long)r->tx);
    }
}

#define OPERATIONS                                                                                \
    .usable = sim_rdv_usable, .listen = sim_rdv_listen, .connect = sim_rdv_connect,               \
    .destroy = w_destroy, .tx_start = w_tx_start, .tx_space = w_tx_space, .tx_put = w_tx_put,     \
    .tx_give = w_tx_give, .rx_take = w_rx_take, .tx_open = w_tx_open, .tx_push = w_tx_push,       \
    .tx_freed = w_tx_freed, .tx_kept = w_tx_kept, .tx_stop = w_tx_stop, .rx_start = w_rx_start,   \
    .rx_peek = w_rx_peek, .rx_consume = w_rx_consume, .rx_freeze = w_rx_freeze,                   \
    .ctl_send = w_ctl_send, .ctl_recv = w_ctl_recv, .poll = w_poll, .arm = w_arm, .kill = w_kill, \
    .tx_ends = w_tx_ends, .tx_fate = w_tx_fate

const struct rsk_wire rsk_shm_wire = {
    .name = "shm", .path = 1, .outlives_sender = true, .much = 3, OPERATIONS};
const struct rsk_wire rsk_verbs_wire = {.name = "verbs", .path = 2, .much = 4, OPERATIONS};
