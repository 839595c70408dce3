/*
 * verbs_cq.c - the shard part of the verbs wire: a completion channel with a chain of CQs.
 *
 * A rail's QP uses one CQ for both queues and reserves room for all its work requests there: a
 * flush completes every one of them, and an overflow would end all QPs of that CQ. When none
 * has room the next CQ is opened.
 *
 * drain and the functions that it calls run on any thread, one at a time (the shard's drain
 * lock). arm may run at the same time: it polls too, under the part's lock, and leaves what it
 * finds for the next drain. What an arming is and when there may be another: README.md, "Armings".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/fence.h"
#include "rsock/section.h"
#include "rsock/verbs_int.h"

enum { BATCH = 16, ROUNDS = 16, TURNS = 16, REPOST = VB_MESSAGES / 8 };
_Static_assert(sizeof((struct vb_cq *)0)->stash / sizeof(struct ibv_wc) == BATCH, "stash");

enum {        /* vb_cq.armed */
       NOT,   /* no event is there or to come */
       ARMED, /* one is there or to come; nothing was polled since */
       POLLED /* one may be there: something was */
};

/* ---- news */

static void wake(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    sys_futex(word, FUTEX_WAKE, INT_MAX, NULL);
}

void vb_tell(struct vb_rail *r, unsigned news)
{
    unsigned bits = (news & RSK_FAIL ? RSK_RX | RSK_TX : news) & (RSK_RX | RSK_TX), old;

    /* Pairs with vb_arm: it sets want, then looks; we have stored the news, now look at want. */
    rsk_fence();
    if (bits & atomic_load_explicit(&r->want, memory_order_relaxed)) {
        old = atomic_fetch_and(&r->want, ~bits);
        if (old && !(old & ~bits) && r->part)
            atomic_fetch_sub(&r->part->sleepers, 1);
        if (old & bits & RSK_RX)
            wake(&r->rx_word);
        if (old & bits & RSK_TX)
            wake(&r->tx_word);
    }
    if (news && r->base.notify)
        r->base.notify(&r->base, news);
}

static void completed(struct vb_rail *r, const struct ibv_wc *wc)
{
    int reason = 0;

    if (wc->status != IBV_WC_SUCCESS) {
        if (!atomic_load_explicit(&r->base.failed, memory_order_relaxed))
            log_info("verbs: rail %u on %s: %s", r->index, r->base.where,
                     vdl.wc_status_str(wc->status));
        vb_rail_fail(r, RSN_RAIL_FAILED);
        return;
    }
    switch (wc->wr_id >> 60) {
    case VB_WR_SEND:
        /* seq_cst: pairs with have_slots. */
        atomic_store(&r->sq_done, (uint32_t)wc->wr_id);
        if (atomic_load(&r->sq_short) && atomic_exchange(&r->sq_short, false))
            r->news |= RSK_TX;
        break;
    case VB_WR_HELLO:
        atomic_store(&r->hello_in, true);
        vb_kick();
        break;
    default:
        reason = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? vb_receive(r, ntohl(wc->imm_data))
                                                         : RSN_PEER_PROTOCOL;
    }
    if (reason)
        vb_rail_fail(r, reason);
}

/* Completions of rails that have ended are passed over: the generation differs. */
static struct vb_rail *rail_of(const struct vb_part *p, uint64_t wr_id)
{
    unsigned index = (unsigned)(wr_id >> 32 & 0xffff);
    struct vb_rail *r;

    if (index >= VB_MAX_RAILS)
        return NULL;
    r = atomic_load_explicit(&vb_rails[index], memory_order_acquire);
    return r && r->part == p && (r->gen & 0xfff) == (wr_id >> 48 & 0xfff) ? r : NULL;
}

static void settle(struct vb_rail *r)
{
    unsigned news = r->news, n = r->to_repost;

    r->news = 0;
    /* A few at a time: one by one they cost as much as the receive itself. */
    if (n >= REPOST)
        r->to_repost = 0;
    else
        n = 0;
    if (n && r->qp && !atomic_load_explicit(&r->base.failed, memory_order_relaxed)) {
        if (vb_post_receives(r, n))
            vb_rail_fail(r, RSN_RAIL_FAILED);
        else
            atomic_fetch_add(&r->reposted, n);
        n = (unsigned)(atomic_load_explicit(&r->reposted, memory_order_relaxed) -
                       atomic_load_explicit(&r->pub_messages, memory_order_relaxed));
        if (n >= VB_MESSAGES / 4)
            atomic_fetch_or(&r->due, n < VB_MESSAGES / 2 ? VB_DUE_SOON : VB_DUE_CREDIT);
    }
    vb_due(r, 0);
    if (news)
        vb_tell(r, news);
}

/* ---- draining */

/* After a poll of c that has found something, and a fence: either a provider that is arming c sees
 * that this completion is gone, or we see here that c is ARMED. */
static void polled(struct vb_cq *c)
{
    unsigned armed = ARMED;

    if (atomic_load(&c->armed) == ARMED)
        atomic_compare_exchange_strong(&c->armed, &armed, POLLED);
}

/* *all: nothing was left behind. */
static int take(struct vb_part *p, struct vb_cq *c, struct ibv_wc *wc, bool *all)
{
    bool kept;
    int n;

    vb_lock(&p->lock);
    n = c->stashed;
    kept = n != 0;
    if (kept) {
        for (int i = 0; i < n; i++)
            wc[i] = c->stash[i];
        c->stashed = 0;
        *all = false; /* what was found long ago says nothing of now */
    } else {
        n = ibv_poll_cq(c->cq, BATCH, wc);
        *all = n < BATCH;
    }
    vb_unlock(&p->lock);
    if (!kept && n > 0) {
        rsk_fence_after_rmw();
        polled(c);
    }
    return n;
}

/* Whether an event of c's, or of any CQ's, is worth a look. ARMED: one can be there; POLLED:
 * it is likely. */
static bool event_due(const struct vb_part *p, const struct vb_cq *c, unsigned least)
{
    for (unsigned i = 0; i < atomic_load(&p->n_cq); i++)
        if ((!c || p->cq[i] == c) && atomic_load(&p->cq[i]->armed) >= least)
            return true;
    return false;
}

/* Under the shard's lock, or counted in armers. True: some CQs are not armed any more, and somebody
 * may have relied on each. */
static bool take_events(struct vb_part *p, const struct vb_cq *c, unsigned least)
{
    struct ibv_cq *cq;
    void *context;
    bool took = false;
    int saved = errno; /* a channel without an event is EAGAIN, in a call that succeeds */
    RSK_UNCANCELLED;   /* the channel is read by read(2) */

    while (event_due(p, c, least) && vdl.get_cq_event(p->channel, &cq, &context) == 0) {
        /* At once: ibv_destroy_cq waits for what is not acknowledged. */
        vdl.ack_cq_events(cq, 1);
        /* Before who sleeps is looked for: he counts himself, then looks at this. */
        for (unsigned i = 0; i < atomic_load(&p->n_cq); i++)
            if (p->cq[i]->cq == cq)
                atomic_store(&p->cq[i]->armed, NOT);
        took = true;
    }
    errno = saved;
    return took;
}

/* True: look again, something came before the arming. */
static bool read_events(struct vb_part *p, unsigned least)
{
    if (!take_events(p, NULL, least))
        return false;
    /* Arms again for those who may have relied on the arming that this event has used up: a futex
     * sleeper of another rail, or a thread that leans on this shard (either may have nobody but the
     * progress thread, which hears of news only by the next event); and a thread that drains once
     * more before it sleeps, and must still be armed after that. The progress thread's own arming
     * of the common shard does not count: it arms again before its next sleep, and is not to be
     * woken for a thread that drains by itself. */
    if (atomic_load(&p->sleepers) || rsk_shard_armed(p->shard) > (p->common ? 1u : 0u))
        return vb_part_arm(p);
    /* Now that CQ is not armed, and whoever else watches the descriptor may not have seen it
     * readable. Unless its timer runs anyway the progress thread has to start it. */
    if (!atomic_load(&p->minding)) {
        if (rsk_loop_is_self()) {
            if (!p->common)
                vb_mind_start(p);
        } else if (!atomic_exchange(&p->mind_wanted, true)) {
            vb_kick();
        }
    }
    return false;
}

/* Of the common shard the progress thread is the keeper: it drains and arms around each of its
 * sleeps. While application threads drain it themselves, arming would cost an event, a read and
 * a wake-up per message; the timer looks after them then. */
static void look_after_common(struct vb_part *p)
{
    bool left = atomic_exchange(&p->left, false);
    uint32_t drains = atomic_load_explicit(&p->drains, memory_order_relaxed);

    p->skip_arm = !left && drains != p->loop_drains && !atomic_load(&p->sleepers);
    p->loop_drains = drains;
    if (p->skip_arm)
        vb_mind_start(p);
}

/* Takes what is there and dispatches it. Returns the completions, adds to *rails. */
static int drain_once(struct vb_part *p, int *rails)
{
    unsigned n_cq = atomic_load_explicit(&p->n_cq, memory_order_acquire);
    struct vb_rail *list = NULL, *r;
    struct ibv_wc wc[BATCH];
    int found = 0;

    for (unsigned i = 0; i < n_cq; i++) {
        bool all = false;

        for (int round = 0; round < ROUNDS && !all; round++) {
            int n = take(p, p->cq[i], wc, &all);

            if (n <= 0)
                break;
            found += n;
            for (int k = 0; k < n; k++) {
                r = rail_of(p, wc[k].wr_id);
                if (!r)
                    continue;
                if (!r->listed) {
                    r->listed = true;
                    r->next_news = list;
                    list = r;
                }
                completed(r, &wc[k]);
            }
        }
    }
    while ((r = list)) {
        list = r->next_news;
        r->listed = false;
        settle(r);
        (*rails)++;
    }
    return found;
}

/* Everything that is there. Returns the rails that had news. */
static int empty(struct vb_part *p, bool self)
{
    unsigned least = self ? ARMED : POLLED;
    int rails = 0, turns = 0;

    /* The channel is only worth a system call when it can have something. */
    while ((drain_once(p, &rails) || self) && event_due(p, NULL, least) && read_events(p, least))
        if (++turns == TURNS) {
            /* It comes as fast as it is taken, and everybody waits for us. */
            if (!atomic_exchange(&p->mind_wanted, true))
                vb_kick();
            break;
        }
    return rails;
}

int vb_shard_drain(struct rsk_shard_part *base)
{
    struct vb_part *p = (struct vb_part *)base;
    bool self = rsk_loop_is_self();

    if (!p->channel)
        return 0;
    if (!self)
        atomic_store_explicit(&p->drains,
                              atomic_load_explicit(&p->drains, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    else if (p->common)
        look_after_common(p);
    return empty(p, self);
}

/* ---- arming */

/* Arming is a system call on some devices, so it is done outside the lock that others poll under;
 * the count of armers keeps vb_part_close from ending a CQ meanwhile. A thread that finds another
 * one about to arm goes on, as that one peeks afterwards. `only` may have ended since the caller
 * read it, and the part may have got another device. */
void vb_arm_cq(struct vb_part *p, const struct vb_cq *only)
{
    bool took;
    RSK_UNCANCELLED; /* as post() in verbs_post.c */

    atomic_fetch_add(&p->armers, 1);
    took = take_events(p, only, POLLED);
    for (unsigned i = 0; i < atomic_load(&p->n_cq); i++) {
        struct vb_cq *c = p->cq[i];
        unsigned not = NOT;

        if ((took || !only || c == only) &&
            atomic_compare_exchange_strong(&c->armed, &not, ARMED) && ibv_req_notify_cq(c->cq, 0))
            atomic_store(&c->armed, NOT);
    }
    atomic_fetch_sub(&p->armers, 1);
}

bool vb_part_peek(struct vb_part *p)
{
    bool found = false;

    vb_lock(&p->lock);
    for (unsigned i = 0; i < atomic_load_explicit(&p->n_cq, memory_order_acquire); i++) {
        struct vb_cq *c = p->cq[i];

        if (c->stashed <= 0) {
            int n = ibv_poll_cq(c->cq, BATCH, c->stash);

            c->stashed = n > 0 ? n : 0;
            if (n > 0) {
                rsk_fence();
                polled(c);
            }
        }
        found |= c->stashed > 0;
    }
    vb_unlock(&p->lock);
    return found;
}

bool vb_part_arm(struct vb_part *p)
{
    vb_arm_cq(p, NULL);
    return vb_part_peek(p);
}

bool vb_shard_arm(struct rsk_shard_part *base)
{
    struct vb_part *p = (struct vb_part *)base;

    /* One of them is this thread's own. */
    if (p->common && p->skip_arm && rsk_loop_is_self() && rsk_shard_armed(p->shard) < 2)
        return vb_part_peek(p);
    return vb_part_arm(p);
}

void vb_shard_disarm(struct rsk_shard_part *base)
{
    (void)base; /* a CQ cannot be; it fires once more at most */
}

/* ---- room for a rail */

/* A completion vector is a processor's interrupt: neither all CQs nor all processes are to
 * have the same. */
static int vector_of(const struct ibv_context *ctx)
{
    static unsigned made; /* progress thread */
    unsigned vectors = ctx->num_comp_vectors > 0 ? (unsigned)ctx->num_comp_vectors : 1;

    return (int)((made++ + (unsigned)sys_getpid()) % vectors);
}

/* The n-th, smaller where there is not so much memory. One less than a power of two: some drivers
 * want one entry more, and double it then. */
static struct ibv_cq *make_cq(struct vb_part *p, unsigned n, size_t *pins)
{
    int size = 1024 << (2 * (n < 2 ? n : 2));
    struct ibv_cq *cq;

    if (size > p->dev->max_cqe)
        size = p->dev->max_cqe;
    while (!vb_pin_queue((size_t)size * VB_CQE_PINS)) {
        if (size <= 1024)
            return NULL;
        size /= 4;
    }
    *pins = (size_t)size * VB_CQE_PINS;
    cq = vdl.create_cq(p->dev->ctx, size - 1, p, p->channel, vector_of(p->dev->ctx));
    if (!cq)
        vb_unpin_queue(*pins);
    return cq;
}

struct vb_cq *vb_cq_reserve(struct vb_part *p, int *reason)
{
    unsigned n = atomic_load_explicit(&p->n_cq, memory_order_relaxed);
    struct vb_cq *c;

    for (unsigned i = 0; i < n; i++)
        if (p->cq[i]->used + VB_SQ + VB_RQ <= p->cq[i]->size) {
            p->cq[i]->used += VB_SQ + VB_RQ;
            return p->cq[i];
        }
    *reason = n == VB_MAX_CQ || !p->channel ? RSN_BUDGET : RSN_NO_MEMORY;
    if (n == VB_MAX_CQ || !p->channel)
        return NULL;
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->cq = make_cq(p, n, &c->pins);
    if (!c->cq) {
        *reason = vb_lack_reason(errno);
        log_info("verbs: completion queue on %s: error %d", p->dev->name, errno);
        free(c);
        return NULL;
    }
    c->size = (uint32_t)c->cq->cqe;
    c->used = VB_SQ + VB_RQ;
    p->cq[n] = c;
    atomic_store_explicit(&p->n_cq, n + 1, memory_order_release);
    return c;
}

void vb_cq_release(struct vb_part *p, struct vb_cq *c)
{
    /* The provider may have thrown completions of that QP away, for which the CQ had fired. */
    polled(c);
    /* Under the shard's lock, so this is a drain like any other, but that it says nothing
     * of who drains. */
    if (p->channel)
        (void)empty(p, true);
    c->used -= VB_SQ + VB_RQ;
}
