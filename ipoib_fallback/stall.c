/*
 * stall.c - a sender whose ring is full and stays full. TCP would hold more: programs that write a
 * megabyte to each other before either reads work there, and would stand still on a rail. So a
 * stream leaves when its receiver has consumed nothing, or next to nothing, for a while, and TCP's
 * buffers take over. Progress thread, except tx_stalled, which a sender calls.
 */
#include "ipoib_fallback/stream.h"

#include "rsock/loop.h"

/* For a send, or for who waits in poll. tx lock held. */
static bool is_full(struct fb_conn *c)
{
    struct rsk_rail *rail = c->x->rail;

    return c->x->tx.state == TX_R && rail && !rail->failed && !c->x->tx.fin && !tx_has_room(rail);
}

/* A write that TCP would have taken at once must not wait for a receiver that takes the ring's
 * bytes one by one: less than a quarter of the ring since the last look is nothing. Over verbs,
 * where a slow device would look the same, nothing is. */
static bool crawls(const struct fb_conn *c, uint64_t freed)
{
    const struct rsk_rail *rail = c->x->rail;
    uint64_t least = rail->wire->news_by_drain ? 1 : tx_most(rail) / 4;

    return c->x->stalled_at != UINT64_MAX && freed - c->x->stalled_at < least;
}

/* It reads none of the ring as long as TCP has bytes that come before it. A receiver that is slow
 * has much there when a stream boards, and would never come to the ring. */
static bool is_behind(const struct fb_conn *c, uint64_t freed)
{
    return freed == c->x->tx.S && fb_io.now() < c->x->tx.behind_until;
}

/* True: it has left. tx lock held. */
static bool leaves(struct fb_conn *c)
{
    uint64_t freed = c->x->rail->wire->tx_freed(c->x->rail);

    if (is_behind(c, freed)) {
        c->x->stalled_at = UINT64_MAX;
    } else if (crawls(c, freed)) {
        c->x->end_reason = RSN_STALLED;
        tx_leave(c, RSN_STALLED, true);
        return true;
    } else {
        c->x->stalled_at = freed;
    }
    return false;
}

static void check(void *arg)
{
    struct fb_conn *c = arg;

    if (!link_lock(c, &c->x->tx.lock, check))
        return;
    if (is_full(c) && !leaves(c) && rsk_timer_add(conn_config(c)->stall_ns, check, c)) {
        tx_unlock(c);
        return;
    }
    /* Before the lock goes: a sender that finds the ring full right after must find the flag down,
     * since one that does not block says so only once. */
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_STALL);
    /* A receiver tells of some more at a time, and who waits in poll may lack less than it
     * has read since. */
    conn_wake(c, RSK_TX);
    tx_unlock(c);
    fb_put(&c->s);
}

static void begin(void *arg)
{
    struct fb_conn *c = arg;

    c->x->stalled_at = UINT64_MAX; /* the first look only notes how far the receiver is */
    check(c);
}

void tx_stalled(struct fb_conn *c)
{
    tx_short(c);
    if (conn_config(c)->stall_ns && !conn_flag(c, CF_STALL))
        link_post_once(c, CF_STALL, JOB_STALL, begin);
}
