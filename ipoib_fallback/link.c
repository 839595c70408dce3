/*
 * link.c - a rail's life beside its stream: watching the anchor while it must be
 * watched, serving what other threads may not, giving the rail back. Runs on the
 * progress thread, except link_drop and the functions that only post.
 */
#include "ipoib_fallback/budget.h"
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/tx.h"

#include "config/log.h"
#include "rsock/loop.h"

/* In memory that is there: a handler of the application's may have interrupted malloc. Whoever sets
 * the flag has the job until fn clears it, and then it is in the queue no more. */
void link_post_once(struct fb_conn *c, uint32_t flag, enum fb_job which, void (*fn)(void *))
{
    struct rsk_job *job = &c->x->job[which];

    if (!conn_set(c, flag))
        return;
    fb_get(&c->s);
    job->fn = fn;
    job->arg = c;
    if (rsk_loop_post_job(job) == 0)
        return;
    atomic_fetch_and(&c->s.flags, ~flag); /* the next one may be luckier */
    fb_put(&c->s);
}

void link_linger_timer(struct fb_conn *c, uint64_t ns, void (*fn)(void *))
{
    if (c->x->timer) {
        rsk_timer_cancel(c->x->timer);
        c->x->timer = NULL;
    } else {
        fb_get(&c->s);
    }
    c->x->timer = rsk_timer_add(ns, fn, c);
    if (!c->x->timer)
        fb_put(&c->s);
}

void link_timer(struct fb_conn *c, uint64_t ns, void (*fn)(void *))
{
    if (!conn_flag(c, CF_CLOSED))
        link_linger_timer(c, ns, fn);
}

void link_timer_fired(struct fb_conn *c)
{
    c->x->timer = NULL;
}

void link_no_linger_timer(struct fb_conn *c)
{
    if (c->x->timer) {
        rsk_timer_cancel(c->x->timer);
        c->x->timer = NULL;
        fb_put(&c->s);
    }
}

void link_no_timer(struct fb_conn *c)
{
    if (!conn_flag(c, CF_CLOSED))
        link_no_linger_timer(c);
}

/* ---- serving for threads that must not ---- */

static void serve_job(void *arg)
{
    struct fb_conn *c = arg;

    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_SERVE);
    conn_mail(c);
    conn_serve(c);
    link_watch(c);
    fb_put(&c->s);
}

void link_serve(struct fb_conn *c)
{
    link_post_once(c, CF_SERVE, JOB_SERVE, serve_job);
}

void link_push(struct fb_conn *c)
{
    if (rsk_loop_is_self())
        link_serve(c);
}

/* ---- the anchor ---- */

/* Which events of the anchor concern the halves in their states; 0: none. */
static uint32_t anchor_needed(struct fb_conn *c)
{
    const uint32_t all = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

    if (atomic_load(&c->x->rx.late))
        return all;
    switch ((enum fb_rx_state)c->x->rx.state) {
    case RX_r:
    case RX_q2:
    case RX_sk:
    case RX_f2:
        return all;
    default:
        break;
    }
    switch ((enum fb_tx_state)c->x->tx.state) {
    case TX_FX:
    case TX_W1:
    case TX_W2:
    case TX_L1:
    case TX_L2:
    case TX_L3:
        return all;
    case TX_R:
        if (!conn_flag(c, CF_LINGER))
            return EPOLLRDHUP | EPOLLET;
        /* fall through */
    default:
        return conn_flag(c, CF_LINGER) ? all : 0;
    }
}

static void anchor_event(void *arg, uint32_t events)
{
    struct fb_conn *c = arg;
    unsigned wake = 0;

    fb_get(&c->s);
    /* In this order: whoever sees the end finds it. */
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP))
        atomic_store(&c->x->anchor_news, 1);
    if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
        atomic_fetch_or(&c->x->anchor_bits, events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP));
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
        conn_todo_rx(c, TODO_ANCHOR);
        wake |= RSK_RX;
    }
    if (events &
        (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) /* nothing but the kernel knows what it means */
        conn_todo_tx(c, TODO_PEER);
    if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
        conn_todo_tx(c, TODO_PUSH);
        wake |= RSK_TX;
    }
    conn_serve(c);
    conn_wake(c, wake);
    if (conn_flag(c, CF_LINGER))
        link_linger(c);
    fb_put(&c->s);
}

static void look_again(void *arg)
{
    struct fb_conn *c = arg;

    link_timer_fired(c);
    conn_todo_rx(c, TODO_ANCHOR);
    conn_serve(c);
    fb_put(&c->s);
}

void link_unwatch(struct fb_conn *c)
{
    if (!c->x->watch)
        return;
    rsk_unwatch(c->x->watch);
    c->x->watch = NULL;
    fb_put(&c->s);
}

void link_drop(struct fb_conn *c, int fd)
{
    if (c->x->watch && c->x->watch_fd == fd) {
        rsk_watch_drop(c->x->watch);
        c->x->watch_fd = -1;
    }
}

enum { UNWATCHED_NS = 20000000 };

bool link_lock(struct fb_conn *c, struct fb_lock *l, void (*again)(void *))
{
    enum { TRIES = 200, BUSY_NS = 200000 };

    for (int i = 0; i < TRIES; i++) {
        if (fb_trylock(l))
            return true;
        sys_pause_cpu();
    }
    if (rsk_timer_add(BUSY_NS, again, c))
        return false;
    fb_lock(l);
    return true;
}

static void look_by_clock(void *arg)
{
    const short all = POLLIN | POLLOUT | POLLRDHUP;
    struct fb_conn *c = arg;

    c->x->by_clock = false;
    if (c->fd >= 0)
        anchor_event(c, (uint16_t)fb_io.poll(c->fd, all));
    link_watch(c);
    fb_put(&c->s);
}

/* No memory, or as many watches as the user may have (fs.epoll.max_user_watches): then it is looked
 * at by the clock, with the watch's reference. By one: each look tries the watch again. */
static void unwatched(struct fb_conn *c)
{
    if (!c->x->by_clock && rsk_timer_add(UNWATCHED_NS, look_by_clock, c))
        c->x->by_clock = true;
    else
        fb_put(&c->s);
}

static void watch(void *arg)
{
    struct fb_conn *c = arg;
    uint32_t needed;
    bool slept_on;
    int fd;

    /* Under the lock that the number changes under: what is watched is what it names. */
    if (!link_lock(c, &c->x->rx.lock, watch))
        return;
    needed = anchor_needed(c);
    fd = c->fd;
    if (c->x->watch && (c->x->watch_events != needed || c->x->watch_fd != fd))
        link_unwatch(c);
    if (needed && !c->x->watch && fd >= 0) {
        /* Edge-triggered, and an edge for what is there already: nothing is missed. */
        fb_get(&c->s);
        c->x->watch_fd = fd;
        c->x->watch_events = needed;
        c->x->watch = rsk_watch_fd(fd, needed, true, anchor_event, c);
        if (!c->x->watch)
            unwatched(c);
    }
    slept_on = c->x->rx.state == RX_gS && c->x->rx.must_see_n > 0;
    rx_unlock(c);
    /* What woke the thread that slept was an edge for the watch too, and is over. */
    if (slept_on && c->x->rdv == RDV_PROVED)
        link_timer(c, 1000000, look_again);
    fb_put(&c->s);
}

static void watch_job(void *arg)
{
    atomic_fetch_and(&((struct fb_conn *)arg)->s.flags, ~(uint32_t)CF_WATCH);
    watch(arg);
}

void link_watch(struct fb_conn *c)
{
    link_post_once(c, CF_WATCH, JOB_WATCH, watch_job);
}

/* ---- giving the rail back ---- */

static void destroy_when_unused(void *arg)
{
    struct rsk_rail *rail = arg;
    struct fb_conn *c = rail->owner;

    /* Waiters that look at the rail without a lock leave soon: they were woken. One that a handler
     * has jumped out of leaves when its thread waits again. */
    if (atomic_load(&rail->refs)) {
        rail->last_look = rail->last_look ? 2 * rail->last_look : 200000;
        if (rail->last_look > 100000000)
            rail->last_look = 100000000;
        if (rsk_timer_add(rail->last_look, destroy_when_unused, rail))
            return;
    }
    rail->wire->destroy(rail);
    /* Only now: up to here another thread's drain may have been in conn_notify. */
    fb_put(&c->s);
}

static void detach(struct fb_conn *c)
{
    fb_lock(&c->x->ctl_lock); /* conn_mail reads from the rail under it, without a reference */
    fb_lock(&c->watch_lock);
    c->x->rail = NULL;
    fb_unlock(&c->watch_lock);
    fb_unlock(&c->x->ctl_lock);
}

/* Is this half done with the rail? tx and rx lock held. While a frame is owed the rail stays, not
 * for its memory but for the peer's LEAVE_REQ: before the peer shares its socket it must have taken
 * that frame out. */
static bool tx_done(struct fb_conn *c, struct rsk_rail *rail)
{
    return c->x->tx.state == TX_T || c->x->tx.state == TX_FX ||
           (c->x->tx.state == TX_L1 && c->x->tx.owed && rail->failed);
}

static bool rx_done(struct fb_conn *c, struct rsk_rail *rail)
{
    switch ((enum fb_rx_state)c->x->rx.state) {
    case RX_r:
    case RX_q2:
        /* Also a frozen one: its sender may go before it has sent the rest again by TCP, or has
         * heard that it is to. */
        if (rail->failed && c->x->rx.end == 0)
            c->x->rx.V = rail->wire->rx_freeze(rail);
        return c->s.pub->rx >= c->x->rx.V && (rail->failed || c->x->rx.end != 0);
    case RX_sk:
        return c->s.pub->rx >= c->x->rx.V;
    case RX_gS:
    case RX_f2:
        /* SWITCH may be on its way, and what its sender has put into the ring outlives him. What
         * has been shown must come (rx_ahead.c). */
        return (!rail->wire->outlives_sender && !c->x->rx.begun) || c->x->rx.end != 0;
    default:
        return true;
    }
}

/* FIN has come, or gone, before either half has boarded. tx and rx lock held. */
static bool never_boards(const struct fb_conn *c)
{
    return c->x->rdv == RDV_PROVED && conn_plain(c) && !c->x->tx.want;
}

/* A rail that is not used any more is marked as failed, too, with what has ended it: 0 for what
 * is no failure. */
static int failure(int reason)
{
    switch (reason) {
    case RSN_RAIL_FAILED:
    case RSN_DEVICE_GONE:
    case RSN_PEER_PROTOCOL:
    case RSN_NO_MEMORY:
        return reason;
    default:
        return 0;
    }
}

/* Has REFUSED come, and not been acted upon? Its reason goes before the failure of the rail that
 * follows it. Not if this end has ended the rail, which then has a reason of its own
 * (end_reason). */
static bool refusal_due(struct fb_conn *c)
{
    bool due;

    fb_lock(&c->x->ctl_lock);
    due = c->x->mail.hello_due && c->x->mail.hello.type == FM_REFUSED && !c->x->end_reason;
    fb_unlock(&c->x->ctl_lock);
    return due;
}

/* The peer has said that it ends the rail, so that is no failure, though its disconnect makes it
 * one before that is acted upon. */
static bool has_left(struct fb_conn *c)
{
    bool left;

    fb_lock(&c->x->ctl_lock);
    left = c->x->mail.hello_due && c->x->mail.hello.type == FM_BYE;
    fb_unlock(&c->x->ctl_lock);
    return left;
}

static void release(void *arg)
{
    struct fb_conn *c = arg;
    struct rsk_rail *rail;
    bool end = false, failed = false, left = false, was_on, larger;
    int broke = 0;

    conn_mail(c); /* that it leaves for a larger ring came before the frames */
    if (refusal_due(c)) {
        link_hello(c); /* who noted it may not have come to that */
        link_release(c);
        fb_put(&c->s);
        return;
    }
    if (!link_lock(c, &c->x->tx.lock, release))
        return;
    if (!link_lock(c, &c->x->rx.lock, release)) {
        tx_unlock(c);
        return;
    }
    rail = c->x->rail;
    was_on = c->x->tx.on_rail || c->x->rx.on_rail;
    if (rail) {
        failed = rail->failed != 0;
        left = has_left(c) || c->x->end_reason == RSN_PEER_LEFT;
        broke = left ? 0 : failure((int)rail->failed);
        end = failed || (conn_flag(c, CF_PINNED | CF_CLOSED)) || c->x->rdv == RDV_NONE ||
              (was_on && c->x->tx.state != TX_R && c->x->rx.state != RX_r) || never_boards(c);
        end = end && (c->fd < 0 || (tx_done(c, rail) && rx_done(c, rail)));
        if (end) {
            detach(c);
            tx_want(c, false);
            c->x->rdv = RDV_NONE;
            if (c->x->tx.state == TX_L1 &&
                c->x->tx.owed) /* it left before it knew that the rail fails */
                tx_owes(c);
            if (conn_plain(c))
                heir_settled(c);
        }
    }
    rx_unlock(c);
    tx_unlock(c);
    if (end) {
        conn_wake(c, RSK_FAIL | FB_EV_STATE);
        /* conn_wake does not find the rail any more, but threads may sleep on its words. */
        conn_wake_word(rail->rx_word);
        conn_wake_word(rail->tx_word);
        if (broke)
            log_info("stream %u: the rail is given back (it had failed: %s)", c->s.slot,
                     cfg_reason_name(broke));
        else
            log_info("stream %u: the rail is given back", c->s.slot);
        budget_free(c);
        if (!failed) {
            struct rsk_msg m = {.type = FM_BYE, .epoch = c->x->epoch};

            rail->wire->ctl_send(rail, &m);
        }
        rail->wire->kill(rail, RSN_PEER_LEFT);
        /* Ending a queue pair takes its time. Where many rails fail at once their
         * streams go on first. */
        if (!failed || rsk_loop_post(destroy_when_unused, rail) < 0)
            destroy_when_unused(rail);
        larger = atomic_exchange(&c->x->larger, false);
        link_no_timer(c);
        if (!conn_flag(c, CF_CLOSED | CF_PINNED))
            rdv_again(c, c->x->end_reason           ? c->x->end_reason
                         : broke == RSN_DEVICE_GONE ? broke /* ours, and not the way to the peer */
                         : failed && !left          ? RSN_RAIL_FAILED
                         : larger                   ? RSN_LARGER
                                                    : RSN_PEER_LEFT);
        c->x->end_reason = 0;
    }
    fb_put(&c->s);
}

static void release_job(void *arg)
{
    atomic_fetch_and(&((struct fb_conn *)arg)->s.flags, ~(uint32_t)CF_RELEASE);
    release(arg);
}

void link_release(struct fb_conn *c)
{
    if (c->x->rail)
        link_post_once(c, CF_RELEASE, JOB_RELEASE, release_job);
}

void link_end(struct fb_conn *c, int reason)
{
    struct rsk_rail *rail = c->x->rail;

    if (!rail)
        return;
    /* Why it is pinned is why it is not on a rail. */
    if (!conn_flag(c, CF_PINNED) || c->s.pub->reason == RSN_NONE)
        conn_reason(c, reason);
    c->x->rdv = RDV_NONE;
    c->x->end_reason = reason;
    if (!rail->failed) {
        struct rsk_msg m = {.type = FM_BYE, .epoch = c->x->epoch, .reason = (uint16_t)reason};

        /* The other end may be on the rail already, and on shm nothing else tells it. */
        rail->wire->ctl_send(rail, &m);
        rail->wire->kill(rail, reason);
    }
    conn_todo_tx(c, TODO_FAIL);
    conn_todo_rx(c, TODO_FAIL);
    conn_serve(c);
    link_release(c);
}
