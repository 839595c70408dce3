/*
 * rdv.c - the rendezvous: when a stream is worth a rail, the accepting end makes
 * itself reachable (rdv_accept.c) and the connecting end asks, first by shared memory, then by
 * RDMA. Answers that mean "not now" are asked again later and later; peers that do not
 * answer at all are silent.c's, rails that do not last frail.c's. Progress thread, except rdv_ask.
 */
#include "ipoib_fallback/budget.h"
#include "ipoib_fallback/frail.h"
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/rule.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/netns.h"
#include "ipoib_fallback/pubfile.h"
#include "ipoib_fallback/rdv.h"
#include "ipoib_fallback/share.h"
#include "ipoib_fallback/silent.h"

#include "config/env.h"
#include "config/log.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/section.h"

#include <errno.h>
#include <string.h>

#define RETRY_FIRST 5000000ull
#define RETRY_MOST  60000000000ull
#define WAIT_FIRST  2000000000ull
#define SOON        20000000ull /* for so long nobody asks a host that has said no first */

static void attempt(struct fb_conn *c, bool called);

static void retry_timer(void *arg)
{
    struct fb_conn *c = arg;

    link_timer_fired(c);
    /* An idle stream does not ask again and again; its next call does. */
    if (c->s.calls == c->x->rdv_calls)
        atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_ASKED);
    else
        attempt(c, false);
    fb_put(&c->s);
}

/* A rail of this process has failed: what made it may be away for a while, the device or the
 * link, and until it is back there is no route to it. A process that never had one is not asked
 * to look again. */
static bool had_failure;

/* Does it make sense to ask again? */
static bool passing(int reason)
{
    switch (reason) {
    case RSN_NO_RDMA_ON_ROUTE:
        return had_failure;
    case RSN_NOT_YET:
    case RSN_NOT_MINE:
    case RSN_NO_PEER_LIB:
    case RSN_RDV_TIMEOUT:
    case RSN_RAIL_FAILED:
    case RSN_DEVICE_GONE:
    case RSN_BUDGET:
    case RSN_NO_MEMORY:
    case RSN_PEER_LEFT:
    case RSN_LARGER:
    case RSN_NOT_ESTABLISHED:
    case RSN_PEER_REFUSED:
    case RSN_LIMIT_FD:
    case RSN_UID: /* somebody else has a name that could be the peer's; the peer may come */
    case RSN_STALLED:
    case RSN_BUFFER:
    case RSN_CREDENTIALS:
    case RSN_NAMESPACE:
    case RSN_NETNS:
    case RSN_SHARED:    /* the child may end */
    case RSN_INHERITED: /* the parent may close its copy */
        return true;
    default:
        return false;
    }
}

/* Both ends may have become worth a rail in one moment, and the other's was not known yet when it
 * was asked, or its process could not be reached yet. Once it is asked again without a call. */
static bool too_early(int reason)
{
    return reason == RSN_NOT_YET || reason == RSN_NOT_MINE || reason == RSN_NO_PEER_LIB;
}

bool rdv_half_closed(struct fb_conn *c)
{
    bool yes = c->x->tx.fin || conn_flag(c, CF_FIN);

    if (!yes && fb_trylock(&c->x->rx.lock)) {
        yes = c->fd >= 0 && !c->shut && fb_io.poll(c->fd, POLLRDHUP) & POLLRDHUP;
        rx_unlock(c);
    }
    if (yes)
        conn_reason(c, RSN_ENDING);
    return yes;
}

void rdv_again(struct fb_conn *c, int reason)
{
    uint64_t pause = RETRY_FIRST, hold;
    bool there, small;

    if (rdv_half_closed(c))
        reason = RSN_ENDING;
    there = reason == RSN_BUDGET && !c->x->rail && c->x->budgeted; /* who was asked said so */
    small = (there || reason == RSN_NO_MEMORY) && rdv_small_again(c);
    conn_reason(c, reason);
    had_failure |= reason == RSN_RAIL_FAILED || reason == RSN_DEVICE_GONE;
    if (there && !small)
        budget_refused(c);
    if (!c->x->rail)
        budget_free(c);
    if (reason == RSN_IDLE) {
        rdv_small_no_more(c);
        c->x->up_at = 0;
        conn_afresh(c);
        return;
    }
    /* It does not hear for what the other end has left. */
    if (c->s.role == FB_ACCEPTED && c->x->small && !small && !atomic_load(&c->x->bulk))
        rdv_small_no_more(c);
    if (c->s.role != FB_CONNECTED || !passing(reason) || conn_flag(c, CF_PINNED | CF_CLOSED))
        return;
    /* heat.c calls the hottest of those who wait. */
    if (reason == RSN_BUDGET && !small)
        pause = WAIT_FIRST;
    for (uint32_t i = 0; i < c->x->rdv_tries && pause < RETRY_MOST; i++)
        pause = reason == RSN_LARGER ? pause + RETRY_FIRST : pause * 3; /* it is in a hurry */
    c->x->rdv_tries++;
    hold = frail_ended(c, reason);
    if (hold)
        pause = hold;
    if (cfg.test_switch)
        pause = RETRY_FIRST / 5;
    atomic_fetch_add(&c->x->show->retries, 1);
    c->x->rdv_calls = too_early(reason) && c->x->rdv_tries == 1 ? UINT64_MAX : c->s.calls;
    link_timer(c, pause < RETRY_MOST ? pause : RETRY_MOST, retry_timer);
}

static void got_rail(struct fb_conn *c, struct rsk_rail *rail)
{
    if (link_up(c, rail))
        return;
    link_none(c, rail);
    rdv_again(c, RSN_NOT_YET);
}

static bool wait_rounds(struct fb_conn *c, uint32_t n)
{
    if (n == 0)
        return false;
    c->x->rdv_calls = UINT64_MAX; /* whether or not it has called meanwhile, it asks */
    link_timer(c, RETRY_FIRST * n, retry_timer);
    return true;
}

/* Over RDMA. True: c does not ask now, and a timer is set. A host that is silent, or to which rails
 * do not last, is waited for until that is over, without a place in share.c's queue; else c waits
 * for its turn there. */
static bool put_off(struct fb_conn *c)
{
    int reason = RSN_RAIL_FAILED;
    uint64_t wait = frail_for(c);

    if (!wait)
        wait = silent_for(&c->x->tuple, &reason);
    if (!wait)
        return wait_rounds(c, share_rounds(SHARE_VERBS, &c->x->tuple));
    conn_reason(c, reason);
    if (c->x->rdv_calls != UINT64_MAX || wait > SOON) /* too_early() */
        c->x->rdv_calls = c->s.calls;
    link_timer(c, wait < RETRY_MOST ? wait : RETRY_MOST, retry_timer);
    return true;
}

void rdv_forget(void)
{
    share_forget();
    silent_forget();
}

static const char *outcome(int reason)
{
    return reason == RSN_NONE ? "agreed" : cfg_reason_name(reason);
}

/* That there is no room for large rings is no word about small ones. */
static void answered(struct fb_conn *c, int reason)
{
    if (reason != RSN_BUDGET || !rdv_wants_large(c))
        silent_said(&c->x->tuple, reason);
}

static void verbs_done(void *owner, struct rsk_rail *rail, int reason)
{
    struct fb_conn *c = owner;

    c->x->rdv = RDV_NONE;
    share_answered(SHARE_VERBS, &c->x->tuple);
    silent_answer(&c->x->tuple, reason);
    answered(c, reason);
    log_info("stream %u: verbs rendezvous: %s", c->s.slot, outcome(reason));
    if (rail)
        got_rail(c, rail);
    else
        rdv_again(c, reason);
    fb_put(&c->s);
}

/* Why a wire could not even ask: what connect() has returned. 0: it asks. */
static int not_asked(int err)
{
    switch (err) {
    case -EMFILE:
    case -ENFILE:
        return RSN_LIMIT_FD;
    case -ENODEV:
    case -ENOENT:
    case -EACCES:
        return RSN_NO_VERBS;
    case -ENOSPC:
        return RSN_BUDGET;
    default:
        return err < 0 ? RSN_NO_MEMORY : 0;
    }
}

static void ask_verbs(struct fb_conn *c)
{
    int reason = rsk_verbs_wire.usable();

    if (reason) {
        rdv_again(c, reason);
        return;
    }
    if (put_off(c)) {
        budget_free(c);
        return;
    }
    c->x->rdv = RDV_ASKED;
    fb_get(&c->s);
    share_ask(SHARE_VERBS, &c->x->tuple);
    silent_ask(&c->x->tuple);
    frail_asks(c);
    reason = not_asked(
        rsk_verbs_wire.connect(&c->x->tuple, rdv_shard_for(c), rdv_ring_for(c), c, verbs_done));
    if (reason) {
        c->x->rdv = RDV_NONE;
        share_answered(SHARE_VERBS, &c->x->tuple);
        silent_answer(&c->x->tuple, reason); /* as good as an answer: the next one may ask */
        rdv_again(c, reason);
        fb_put(&c->s);
    }
}

/* The kernel cannot be asked whether it is, so by the addresses alone. */
static bool here(const struct rsk_tuple *t)
{
    static const uint8_t loopback6[16] = {[15] = 1};

    return memcmp(t->src, t->dst, 16) == 0 ||
           (t->family == AF_INET ? t->dst[0] == 127 : memcmp(t->dst, loopback6, 16) == 0);
}

static void shm_done(void *owner, struct rsk_rail *rail, int reason)
{
    struct fb_conn *c = owner;

    c->x->rdv = RDV_NONE;
    share_answered(SHARE_SHM, &c->x->tuple);
    /* Of a connection that is closed meanwhile the kernel knows as little as of another host's. */
    if ((reason == RSN_OTHER_HOST || reason == RSN_UID) && conn_flag(c, CF_CLOSED))
        reason = RSN_ENDING;
    c->x->far = reason == RSN_OTHER_HOST;
    answered(c, reason);
    log_info("stream %u: shm rendezvous: %s", c->s.slot, outcome(reason));
    if (rail)
        got_rail(c, rail);
    else if (hold_on()) /* what is asked for over RDMA now, a hold that is under way has not seen */
        rdv_again(c, RSN_NOT_YET);
    else if (conn_config(c)->wire != CFG_WIRE_SHM &&
             (reason == RSN_OTHER_HOST || (reason == RSN_NO_NETLINK && !here(&c->x->tuple))))
        ask_verbs(c);
    else
        rdv_again(c, reason);
    fb_put(&c->s);
}

static void ask_shm(struct fb_conn *c)
{
    int reason;

    c->x->rdv = RDV_ASKED;
    fb_get(&c->s);
    share_ask(SHARE_SHM, &c->x->tuple);
    reason = not_asked(
        rsk_shm_wire.connect(&c->x->tuple, rdv_shard_for(c), rdv_ring_for(c), c, shm_done));
    if (reason) {
        share_answered(SHARE_SHM, &c->x->tuple);
        c->x->rdv = RDV_NONE;
        rdv_again(c, reason);
        fb_put(&c->s);
    }
}

static int (*foreign)(const int fds[4]);

void fb_on_foreign(int (*fn)(const int fds[4]))
{
    foreign = fn;
}

bool rdv_pin_foreign(struct fb_conn *c)
{
    const int fds[4] = {c->fd, conn_alt(c, 0), conn_alt(c, 1), conn_alt(c, 2)};
    int reason = conn_other_protocol(c) ? RSN_NOT_TCP
                 : conn_option(c)       ? RSN_OPTION
                 : foreign              ? foreign(fds)
                                        : 0;

    if (!reason)
        return false;
    conn_set(c, CF_PINNED);
    conn_reason(c, reason);
    return true;
}

/* Asks again with its next traffic: the process may come back. */
static void elsewhere(struct fb_conn *c)
{
    conn_reason(c, RSN_NETNS);
    conn_afresh(c);
}

/* Shared memory need not be asked for, or has been: the other end of a connection
 * stays on its host. */
static bool over_verbs(struct fb_conn *c)
{
    enum cfg_wire wire = conn_config(c)->wire;

    return wire == CFG_WIRE_VERBS || (wire != CFG_WIRE_SHM && c->x->far);
}

/* called: by heat.c, though the peer has just had no room. */
static void attempt(struct fb_conn *c, bool called)
{
    if (c->x->rail || c->x->rdv != RDV_NONE || conn_flag(c, CF_PINNED | CF_CLOSED) ||
        rdv_half_closed(c))
        return;
    frail_goes_on(c);
    if (hold_on()) {
        rdv_again(c, RSN_NOT_YET);
        return;
    }
    if (netns_another(c)) {
        elsewhere(c);
        return;
    }
    if (heir_elsewhere(c)) {
        rdv_again(c, c->x->heritage ? RSN_INHERITED : RSN_SHARED);
        return;
    }
    if (c->x->tx.state != TX_T || c->x->rx.state != RX_t) {
        /* Still on the way back from the last rail; an owed frame goes with the next bytes. */
        rdv_again(c, c->s.pub->reason == RSN_LARGER ? RSN_LARGER : RSN_PEER_LEFT);
        return;
    }
    if (!called && silent_full(&c->x->tuple)) {
        budget_refused(c);
        rdv_again(c, RSN_BUDGET);
        return;
    }
    if (!called &&
        (over_verbs(c) ? put_off(c) : wait_rounds(c, share_rounds(SHARE_SHM, &c->x->tuple))))
        return;
    if (!budget_take(c)) {
        rdv_again(c, RSN_BUDGET);
        return;
    }
    rdv_fit(c);
    /* Only now: it is dear, and where there are few rails most are told above. */
    if (rdv_pin_foreign(c)) {
        budget_free(c);
        return;
    }
    if (over_verbs(c))
        ask_verbs(c);
    else
        ask_shm(c);
}

void rdv_now(struct fb_conn *c)
{
    link_no_timer(c);
    c->x->rdv_tries = 0;
    attempt(c, true);
}

/* There is room for what is shown of a rail. Without it there is none. */
static bool shown(struct fb_conn *c)
{
    if (!c->x->show)
        c->x->show = fb_pub_rail(c->s.slot);
    return c->x->show != NULL;
}

static bool self_connected(const struct rsk_tuple *t)
{
    return t->src_port == t->dst_port && memcmp(t->src, t->dst, 16) == 0;
}

void rdv_begin(struct fb_conn *c)
{
    if (!conn_addresses(c)) {
        conn_reason(c, RSN_NOT_ESTABLISHED);
    } else if (c->x->tuple = conn_tuple(c), self_connected(&c->x->tuple)) {
        conn_set(c, CF_PINNED);
        conn_reason(c, RSN_SELF_CONNECT);
    } else if (netns_another(c)) {
        elsewhere(c);
    } else if (!shown(c)) {
        conn_set(c, CF_PINNED);
        conn_reason(c, RSN_NO_MEMORY);
    } else {
        conn_settings(c);
        if (c->s.role == FB_ACCEPTED)
            rdv_be_reachable(c);
        else
            attempt(c, false);
    }
}

static void begin_job(void *arg)
{
    struct fb_conn *c = arg;

    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_BEGIN_JOB);
    heir_serve();
    harass();
    if (rsk_verbs_wire.on_route)
        rsk_verbs_wire.on_route(rule_route);
    if (rsk_verbs_wire.on_room)
        rsk_verbs_wire.on_room(budget_fits);
    if (rsk_shm_wire.on_room)
        rsk_shm_wire.on_room(budget_fits);
    if (hold_on())
        conn_afresh(c); /* its traffic asks again */
    else if (!conn_flag(c, CF_PINNED | CF_CLOSED))
        rdv_begin(c);
    fb_put(&c->s);
}

static int no_thread(int err)
{
    switch (err) {
    case -EMFILE:
    case -ENFILE:
        return RSN_LIMIT_FD;
    case -ENOMEM:
        return RSN_NO_MEMORY;
    default:
        return RSN_NO_THREAD;
    }
}

void rdv_ask(struct fb_conn *c)
{
    static _Atomic int said;
    char number[CFG_ERRNO_WORDS];
    int r;

    /* A thread, and the memory for it, are not to be had in the middle of a malloc: a
     * later call asks. */
    r = !rsk_loop_running() && rsk_in_handler() ? -EBUSY : hold_start();
    if (r < 0) {
        if (r != -EBUSY && atomic_exchange(&said, r) != r)
            log_warn("the progress thread cannot be started: %s", hold_words(r, number));
        if (r != -EBUSY || atomic_load(&said))
            conn_reason(c, no_thread(atomic_load(&said)));
        conn_afresh(c); /* its traffic asks again */
        return;
    }
    atomic_store_explicit(&said, 0, memory_order_relaxed);
    link_post_once(c, CF_BEGIN_JOB, JOB_BEGIN, begin_job);
}
