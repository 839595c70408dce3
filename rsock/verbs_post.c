/*
 * verbs_post.c - the sender half: staging, data, control messages, and the credit that
 * the receiver half owes to the peer. Every post to a rail's send queue is made here.
 *
 * Data is an RDMA WRITE of staging into the peer's ring that ends in a WRITE WITH IMMEDIATE,
 * so that each message takes one receive work request of the peer's. That is the message
 * credit, and it is never exceeded: a receiver that is not ready (RNR) would hold the queue for
 * as long as its min_rnr_timer says. Of the credit the last few are kept back, in this order:
 *
 *   DATA leaves 8, CTRL leaves 3, WAIT leaves 1, WAKE takes the last
 *
 * so a sender without credit can always say so, and a receiver can always answer. A sender that is
 * out of ring and out of messages has posted two WAITs, and three CTRL messages are left to ask
 * for the stream back. The credit block itself travels by a plain WRITE that takes no credit, or
 * with WAKE and WAIT.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "config/reason.h"
#include "rsock/fence.h"
#include "rsock/section.h"
#include "rsock/verbs_int.h"

enum { LEAVE_DATA = 8, LEAVE_CTRL = 3, LEAVE_WAIT = 1, LEAVE_WAKE = 0 };

/* ---- under lock */

static bool can_post(struct vb_rail *r)
{
    return r->qp && atomic_load_explicit(&r->knows, memory_order_acquire) &&
           !atomic_load_explicit(&r->base.failed, memory_order_relaxed);
}

/* Takes over the peer's message and control credit. False: it claims what was never sent. */
static bool refresh(struct vb_rail *r)
{
    uint64_t messages = vb_word(&r->credit_in->messages);
    uint64_t control = vb_word(&r->credit_in->control);

    if (messages > r->sent || control > r->ctl_sent)
        return false;
    if (messages > r->peer_messages)
        r->peer_messages = messages;
    if (control > r->peer_control)
        r->peer_control = control;
    return true;
}

static bool have_message(const struct vb_rail *r, unsigned leave)
{
    return VB_MESSAGES + r->peer_messages - r->sent > leave;
}

static bool have_slots(struct vb_rail *r, unsigned n, unsigned leave)
{
    if (VB_SQ - (r->sq_posted - atomic_load_explicit(&r->sq_done, memory_order_acquire)) >=
        n + leave)
        return true;
    /* Full fence, then again: pairs with the drain's "count, then look at sq_short". */
    atomic_store(&r->sq_short, true);
    return VB_SQ - (r->sq_posted - atomic_load(&r->sq_done)) >= n + leave;
}

/*
 * Posts n linked work requests. Completions are asked for every 16th and when the queue runs
 * short: an unsignalled request's slot comes back with the next signalled one
 * (ibv_post_send(3)). A positive or negative result is an error alike: rxe and siw differ.
 */
static int post(struct vb_rail *r, struct ibv_send_wr *wr, unsigned n)
{
    struct ibv_send_wr *bad;
    uint32_t used;

    r->sq_posted += n;
    r->sq_unsignalled += n;
    used = r->sq_posted - atomic_load_explicit(&r->sq_done, memory_order_relaxed);
    for (unsigned i = 0; i < n; i++) {
        wr[i].wr_id = vb_wr_id(r, VB_WR_SEND, r->sq_posted);
        wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
    }
    if (r->sq_unsignalled >= VB_SIGNAL_EVERY || used > VB_SQ * 3 / 4) {
        wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
        r->sq_unsignalled = 0;
    }
    RSK_UNCANCELLED; /* rxe's and siw's doorbell is a write(2) */
    return ibv_post_send(r->qp, wr, &bad) == 0 ? 0 : -EPIPE;
}

static void fill(struct vb_rail *r, struct ibv_send_wr *wr, struct ibv_sge *sge, const void *from,
                 size_t n, uint64_t to)
{
    *sge = (struct ibv_sge){.addr = (uintptr_t)from, .length = (uint32_t)n, .lkey = r->lkey_out};
    *wr = (struct ibv_send_wr){
        .sg_list = sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = n <= r->max_inline ? IBV_SEND_INLINE : 0,
        .wr.rdma = {.remote_addr = to, .rkey = r->r_rkey},
    };
}

static void with_imm(struct vb_rail *r, struct ibv_send_wr *wr, uint32_t imm)
{
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->imm_data = htonl(imm);
    r->sent++;
}

/* A write of what we have consumed into the peer's credit block. */
static void fill_credit(struct vb_rail *r, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
    struct vb_credit *c = &r->credit_out[r->sq_posted % VB_CREDIT_OUT];

    /* seq_cst: pairs with vb_rx_consume, which stores consumed and then looks at peer_needs. */
    c->consumed = atomic_load(&r->consumed);
    c->messages = atomic_load(&r->reposted);
    c->control = atomic_load(&r->ctl_taken);
    c->seen = r->wait_seen;
    atomic_store_explicit(&r->pub_consumed, c->consumed, memory_order_relaxed);
    atomic_store_explicit(&r->pub_messages, c->messages, memory_order_relaxed);
    atomic_store_explicit(&r->pub_control, c->control, memory_order_relaxed);
    fill(r, wr, sge, c, sizeof *c, r->r_credit);
}

/* The same at once; with an immediate unless 0. */
static int publish(struct vb_rail *r, uint32_t imm)
{
    struct ibv_send_wr wr;
    struct ibv_sge sge;

    fill_credit(r, &wr, &sge);
    if (imm)
        with_imm(r, &wr, imm);
    return post(r, &wr, 1);
}

static uint32_t wait_imm(struct vb_rail *r, unsigned needs)
{
    /* The peer knows our ring, but not the smaller window: how much is worth a WAKE. */
    uint64_t worth = vb_lacks(r, r->wait_seen);

    return VB_IMM(VB_WAIT, needs, worth > 0xffffff ? 0xffffff : worth);
}

/* The next request is one. */
static void put_mark(struct vb_rail *r)
{
    if (atomic_load(&r->mark) != VB_MARK_DUE)
        return; /* of an earlier start */
    r->mark_pos = atomic_load_explicit(&r->posted, memory_order_relaxed);
    r->mark_slot = r->sq_posted + 1;
    r->sq_unsignalled = VB_SIGNAL_EVERY;
    atomic_store(&r->mark, VB_MARK_OUT);
}

static void put_probe(struct vb_rail *r)
{
    r->sq_unsignalled = VB_SIGNAL_EVERY;
    atomic_store(&r->probe_end, UINT64_C(1) << 32 | (r->sq_posted + 1));
}

/* 0 or a reason. */
static int post_due(struct vb_rail *r)
{
    const unsigned silent = VB_DUE_CREDIT | VB_DUE_MARK | VB_DUE_PROBE;
    unsigned due = atomic_exchange(&r->due, 0), left = 0, needs;
    const uint32_t posted = r->sq_posted;
    int err = 0;

    if (!refresh(r))
        return RSN_PEER_PROTOCOL;
    needs = (due & VB_DUE_WAKE_BYTES ? VB_NEED_BYTES : 0) |
            (due & VB_DUE_WAKE_MESSAGES ? VB_NEED_MESSAGES : 0);
    if (needs && have_message(r, LEAVE_WAKE) && have_slots(r, 1, 0)) {
        err = publish(r, VB_IMM(VB_WAKE, needs, 0));
        due &= ~(unsigned)(VB_DUE_WAKE_BYTES | VB_DUE_WAKE_MESSAGES | VB_DUE_CREDIT);
    } else {
        left |= due & (VB_DUE_WAKE_BYTES | VB_DUE_WAKE_MESSAGES);
    }
    needs = (due & VB_DUE_WAIT_BYTES ? VB_NEED_BYTES : 0) |
            (due & VB_DUE_WAIT_MESSAGES ? VB_NEED_MESSAGES : 0);
    needs &= ~atomic_load(&r->waiting);
    if (!err && needs) {
        if (have_message(r, LEAVE_WAIT) && have_slots(r, 1, 0)) {
            /* Before the post: the answer may be here before it returns. */
            atomic_fetch_or(&r->waiting, needs);
            /* Stays in the credit block until the next WAIT: a later credit write may overtake the
             * peer's reading of it, and must not say that we know more than the thread that sleeps
             * has looked at. */
            if (needs & VB_NEED_BYTES) {
                r->wait_seen = atomic_exchange(&r->no_room_at, VB_ASKED_NONE);
                if (r->wait_seen == VB_ASKED_NONE) /* posted for another, and answered since */
                    r->wait_seen = vb_known(r);
            }
            err = publish(r, wait_imm(r, needs));
            due &= ~(unsigned)VB_DUE_CREDIT;
        } else {
            left |= due & (VB_DUE_WAIT_BYTES | VB_DUE_WAIT_MESSAGES);
        }
    }
    if (!err && due & silent) {
        if (have_slots(r, 1, 0)) {
            if (due & VB_DUE_MARK)
                put_mark(r);
            if (due & VB_DUE_PROBE)
                put_probe(r);
            err = publish(r, 0);
        } else {
            left |= due & silent;
        }
    }
    if (r->sq_posted == posted)
        left |= due & VB_DUE_SOON;
    if (left)
        atomic_fetch_or(&r->due, left);
    return err ? RSN_RAIL_FAILED : 0;
}

/* The bytes [pos, pos + n) as one message. 0, -EAGAIN: no slot, -ENOBUFS: no message credit,
 * -EPROTO, -EPIPE. */
static int post_data(struct vb_rail *r, uint64_t pos, uint32_t n)
{
    uint32_t size = r->base.tx_size, off = (uint32_t)(pos & (size - 1));
    uint32_t first = n <= size - off ? n : size - off;
    struct ibv_send_wr wr[3];
    struct ibv_sge sge[3];
    unsigned k = 0;

    if (!can_post(r))
        return -EPIPE;
    if (!have_message(r, LEAVE_DATA)) {
        if (!refresh(r))
            return -EPROTO;
        if (!have_message(r, LEAVE_DATA))
            return -ENOBUFS;
    }
    if (!have_slots(r, first < n ? 3 : 2, VB_SQ_RESERVE))
        return -EAGAIN;
    fill(r, &wr[k], &sge[k], r->staging + off, first, r->r_ring + off);
    k++;
    if (first < n) {
        fill(r, &wr[k], &sge[k], r->staging, n - first, r->r_ring);
        k++;
    }
    with_imm(r, &wr[k - 1], VB_IMM(VB_DATA, r->data_sent & VB_SEQ, n));
    r->data_sent++;
    /* Behind the data, so that it does not delay them, and in one post. */
    if (atomic_load_explicit(&r->due, memory_order_relaxed) & VB_DUE_SOON) {
        atomic_fetch_and(&r->due, ~(unsigned)(VB_DUE_SOON | VB_DUE_CREDIT));
        fill_credit(r, &wr[k], &sge[k]);
        k++;
    }
    return post(r, wr, k);
}

/* ---- for the other parts */

/*
 * Never waits for the lock: a post can take long (rxe sends and receives inside it), and the
 * drain would stand still. Who does not get it leaves AGAIN for the holder. Pairs: we set
 * AGAIN, then try the lock once more; the holder opens the lock, fences, then looks at due.
 */
void vb_due(struct vb_rail *r, unsigned due)
{
    int reason = 0;

    if (due)
        atomic_fetch_or(&r->due, due);
    else if (!(atomic_load_explicit(&r->due, memory_order_relaxed) & ~(unsigned)VB_DUE_SOON))
        return;
    /* Messages of the peer's can make something due before we know where its memory is. That stays
     * due: we set `due`, then look at `knows`; vb_rail_known sets `knows`, and then posts, after
     * which `due` is looked at. */
    if (!atomic_load(&r->knows))
        return;
    do {
        if (!vb_trylock(&r->lock)) {
            atomic_fetch_or(&r->due, VB_DUE_AGAIN);
            if (!vb_trylock(&r->lock))
                return;
        }
        if (can_post(r))
            reason = post_due(r);
        else
            atomic_store(&r->due, 0);
        vb_unlock(&r->lock);
        rsk_fence();
    } while (!reason && atomic_load_explicit(&r->due, memory_order_relaxed) & VB_DUE_AGAIN);
    if (reason)
        vb_rail_fail(r, reason);
    else if (atomic_load_explicit(&r->due, memory_order_relaxed) & ~(unsigned)VB_DUE_SOON)
        vb_mind_due(r->part, !atomic_load(&r->pausing)); /* credit may come back silently */
}

static void unlock(struct vb_rail *r)
{
    vb_unlock(&r->lock);
    rsk_fence();
    if (atomic_load_explicit(&r->due, memory_order_relaxed))
        vb_due(r, 0);
}

static int post_alone(struct vb_rail *r, struct ibv_send_wr *wr)
{
    int err = -EPIPE;

    vb_lock(&r->lock);
    if (can_post(r))
        err = post(r, wr, 1);
    unlock(r);
    return err;
}

int vb_post_test(struct vb_rail *r)
{
    struct ibv_send_wr wr;
    struct ibv_sge sge;

    fill(r, &wr, &sge, r->staging, VB_TEST, r->r_ring);
    return post_alone(r, &wr);
}

int vb_post_hello(struct vb_rail *r, const struct vb_desc *d)
{
    /* The last control slot's place: the hello is through before so many messages are sent. */
    uint8_t *at = r->ctl_out + (VB_CTL_SLOTS - 1) * sizeof(struct rsk_msg);
    struct ibv_send_wr wr;
    struct ibv_sge sge;

    memcpy(at, d, sizeof *d);
    fill(r, &wr, &sge, at, sizeof *d, 0);
    wr.opcode = IBV_WR_SEND;
    return post_alone(r, &wr);
}

/* ---- operations: the sender half */

/* Again after a tx_stop: whatever the credit block still says of before is below S. */
void vb_tx_start(struct rsk_rail *rail, uint64_t S)
{
    struct vb_rail *r = vb_of(rail);

    r->tx_window =
        rail->tx_limit && rail->tx_limit < rail->tx_size ? rail->tx_limit : rail->tx_size;
    atomic_store_explicit(&r->open, false, memory_order_relaxed);
    atomic_store_explicit(&r->tx, S, memory_order_relaxed);
    atomic_store_explicit(&r->posted, S, memory_order_relaxed);
    atomic_store_explicit(&r->freed, S, memory_order_relaxed);
    atomic_store(&r->mark, VB_NO_MARK);
    r->landed = S;
    /* An old WAIT that nobody answered must not stand for a new one. */
    atomic_fetch_and(&r->waiting, ~(unsigned)VB_NEED_BYTES);
    atomic_store_explicit(&r->stopped, false, memory_order_relaxed);
    atomic_store_explicit(&r->tx_on, true, memory_order_release);
}

static size_t pieces(uint8_t *base, uint32_t size, uint64_t pos, size_t n, struct iovec v[2])
{
    size_t off = (size_t)(pos & (size - 1)), first = n <= size - off ? n : size - off;

    v[0] = (struct iovec){base + off, first};
    v[1] = (struct iovec){base, n - first};
    return n;
}

size_t vb_tx_space(struct rsk_rail *rail, struct iovec v[2])
{
    struct vb_rail *r = vb_of(rail);
    size_t much = rsk_much(rail, r->tx_window);
    /* By the one look that is judged and noted: at the next the peer may have put more there, which
     * it takes back. */
    size_t room = vb_room_at(r, vb_tx_freed(rail));

    /* The receiver gives credit back by itself for a quarter of its ring. A window of half a ring
     * or less has to ask for it, also for a caller that tries again and again and never sleeps. */
    if (room < much && r->tx_window <= rail->tx_size / 2 &&
        !(atomic_load_explicit(&r->waiting, memory_order_relaxed) & VB_NEED_BYTES))
        vb_wait_for_room(r, much);
    return pieces(r->staging, rail->tx_size, atomic_load_explicit(&r->tx, memory_order_relaxed),
                  room, v);
}

ssize_t vb_tx_push(struct rsk_rail *rail)
{
    struct vb_rail *r = vb_of(rail);
    uint64_t tx = atomic_load_explicit(&r->tx, memory_order_relaxed);
    uint64_t posted = atomic_load_explicit(&r->posted, memory_order_relaxed);
    int err = 0;

    if (atomic_load_explicit(&rail->failed, memory_order_relaxed))
        return -EPIPE;
    if (!atomic_load_explicit(&r->open, memory_order_relaxed) ||
        atomic_load_explicit(&r->stopped, memory_order_relaxed))
        return (ssize_t)(tx - posted);
    while (posted != tx) {
        uint32_t n = tx - posted > r->max_message ? r->max_message : (uint32_t)(tx - posted);

        vb_lock(&r->lock);
        err = post_data(r, posted, n);
        unlock(r);
        if (err)
            break;
        posted += n;
        atomic_store_explicit(&r->posted, posted, memory_order_relaxed);
    }
    if (err == -ENOBUFS) {
        vb_due(r, VB_DUE_WAIT_MESSAGES);
    } else if (err == -EPIPE || err == -EPROTO) {
        vb_rail_fail(r, err == -EPIPE ? RSN_RAIL_FAILED : RSN_PEER_PROTOCOL);
        return -EPIPE;
    }
    return (ssize_t)(tx - posted);
}

int vb_tx_put(struct rsk_rail *rail, size_t n)
{
    struct vb_rail *r = vb_of(rail);

    atomic_store_explicit(&r->tx, atomic_load_explicit(&r->tx, memory_order_relaxed) + n,
                          memory_order_relaxed);
    vb_probe_wanted();
    if (!atomic_load_explicit(&r->open, memory_order_relaxed))
        return atomic_load_explicit(&rail->failed, memory_order_relaxed) ? -EPIPE : 0;
    return vb_tx_push(rail) < 0 ? -EPIPE : 0;
}

int vb_tx_open(struct rsk_rail *rail)
{
    atomic_store_explicit(&vb_of(rail)->open, true, memory_order_release);
    return vb_tx_push(rail) < 0 ? -EPIPE : 0;
}

size_t vb_tx_kept(struct rsk_rail *rail, uint64_t from, uint64_t to, struct iovec v[2])
{
    struct vb_rail *r = vb_of(rail);
    uint64_t freed = atomic_load_explicit(&r->freed, memory_order_relaxed);
    uint64_t tx = atomic_load_explicit(&r->tx, memory_order_relaxed);

    if (from < freed || to > tx || from > to || to - from > rail->tx_size)
        return pieces(r->staging, rail->tx_size, 0, 0, v);
    return pieces(r->staging, rail->tx_size, from, (size_t)(to - from), v);
}

void vb_tx_stop(struct rsk_rail *rail)
{
    /* Data is only posted by vb_tx_push, under the caller's tx lock. */
    atomic_store_explicit(&vb_of(rail)->stopped, true, memory_order_release);
}

int vb_ctl_send(struct rsk_rail *rail, const struct rsk_msg *m)
{
    struct vb_rail *r = vb_of(rail);
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    unsigned due = 0;
    int err = -EPIPE;

    vb_lock(&r->lock);
    if (can_post(r)) {
        size_t at = (size_t)(r->ctl_sent % VB_CTL_SLOTS) * sizeof *m;

        if (!refresh(r)) {
            err = -EPROTO;
        } else if (r->ctl_sent - r->peer_control >= VB_CTL_SLOTS ||
                   !have_slots(r, 1, VB_SQ_RESERVE / 2)) {
            err = -EAGAIN;
        } else if (!have_message(r, LEAVE_CTRL)) {
            err = -EAGAIN;
            due = VB_DUE_WAIT_MESSAGES;
        } else {
            /* Free to be overwritten: a message that was taken has been read from here. */
            memcpy(r->ctl_out + at, m, sizeof *m);
            fill(r, &wr, &sge, r->ctl_out + at, sizeof *m, r->r_ctl + at);
            with_imm(r, &wr, VB_IMM(VB_CTRL, 0, sizeof *m));
            r->ctl_sent++;
            err = post(r, &wr, 1);
        }
    }
    unlock(r);
    if (due)
        vb_due(r, due);
    if (err == -EPIPE || err == -EPROTO) {
        vb_rail_fail(r, err == -EPIPE ? RSN_RAIL_FAILED : RSN_PEER_PROTOCOL);
        return -EPIPE;
    }
    return err;
}
