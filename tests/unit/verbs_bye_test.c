/*
 * verbs_bye_test.c - the end of a rail on an adapter that sends when it likes, and throws away
 * what it has not sent when its queue pair is moved to ERR or destroyed: what the owner has
 * said last is sent.
 */
#include "tests/shim/shim.h"
#include "tests/unit/verbs_bye_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/reason.h"
#include "rsock/verbs_int.h"

static uint64_t skipped; /* of the clock */

/* ---- timers */

struct rsk_timer {
    void (*fn)(void *);
    void *arg;
    uint64_t ns;
};

static struct rsk_timer *timer;
static bool no_timers;

struct rsk_timer *rsk_timer_add(uint64_t ns, void (*fn)(void *), void *arg)
{
    if (no_timers)
        return NULL;
    ASSERT(timer == NULL); /* there is one rail */
    timer = malloc(sizeof(*timer));
    *timer = (struct rsk_timer){fn, arg, ns};
    return timer;
}

void rsk_timer_cancel(struct rsk_timer *t)
{
    EXPECT(t == timer);
    free(t);
    timer = NULL;
}

/* The next one's time has come. */
static void turn(void)
{
    struct rsk_timer t = *timer;

    free(timer);
    timer = NULL;
    skipped += t.ns;
    t.fn(t.arg);
}

/* ---- the adapter */

enum { MOST = 64 };
static struct ibv_send_wr queue[MOST];
static unsigned queued, sent, lost;
static uint32_t
    completes;      /* the place of the last request that was sent and asked for a completion */
static bool errors; /* each one completes with an error */
static struct vb_rail *rail;
static bool destroyed;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp, (void)bad;
    for (; wr && queued < MOST; wr = wr->next)
        queue[queued++] = *wr;
    return 0;
}

static void adapter_sends(void)
{
    for (unsigned i = 0; i < queued; i++)
        if (queue[i].send_flags & IBV_SEND_SIGNALED)
            completes = (uint32_t)queue[i].wr_id;
    sent += queued;
    queued = 0;
}

static void throw_away(void)
{
    lost += queued;
    queued = 0;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)qp, (void)mask;
    if (attr->qp_state == IBV_QPS_ERR)
        throw_away();
    return 0;
}

static void destroy_qp(struct rdma_cm_id *id)
{
    (void)id;
    throw_away();
    destroyed = true;
}

static int destroy_id(struct rdma_cm_id *id)
{
    (void)id;
    return 0;
}

/* As completed() of verbs_cq.c. */
int rsk_shard_drain(struct rsk_shard *s)
{
    (void)s;
    if (errors)
        vb_rail_fail(rail, RSN_RAIL_FAILED);
    else
        atomic_store(&rail->sq_done, completes);
    return 0;
}

/* ---- */

static unsigned told;

static void notify(struct rsk_rail *r, unsigned events)
{
    (void)r;
    EXPECT(!locked);
    told |= events;
}

enum { RING = 65536 };

static void begin(void)
{
    static struct ibv_context context;
    static struct ibv_qp qp;
    static struct rdma_cm_id id;
    static struct vb_credit credit;
    static uint8_t memory[RING + 4096 + VB_CREDIT_OUT * sizeof(struct vb_credit)];
    static struct vb_part part;

    vdl.modify_qp = modify_qp;
    vdl.destroy_qp = destroy_qp;
    vdl.destroy_id = destroy_id;
    context.ops.post_send = post_send;
    qp.context = &context;
    queued = sent = lost = told = kicks = completes = 0;
    errors = destroyed = no_timers = false;
    credit = (struct vb_credit){0};
    rail = vb_rail_new(NULL, RING);
    ASSERT(rail != NULL);
    rail->state = VB_UP;
    rail->knows = true;
    rail->qp = &qp;
    rail->id = &id;
    rail->part = &part;
    rail->credit_in = &credit;
    rail->staging = memory;
    rail->ctl_out = memory + RING;
    rail->credit_out = (void *)(memory + RING + 4096);
    rail->base.owner = &told;
    rail->base.notify = notify;
}

static void say(void)
{
    const struct rsk_msg m = {.type = 11};

    ASSERT_EQ_INT(rsk_verbs_wire.ctl_send(&rail->base, &m), 0);
}

/* What on_kick of verbs_mind.c does. */
static void kicked(void)
{
    if (kicks && vb_rails[0] && atomic_load(&vb_rails[0]->down))
        vb_rail_down(vb_rails[0]);
    kicks = 0;
}

TEST_CASE(verbs_bye, what_was_said_last_is_sent)
{
    begin();
    say();
    rsk_verbs_wire.kill(&rail->base, RSN_PEER_LEFT);
    EXPECT_EQ_INT(rail->base.failed, RSN_PEER_LEFT);
    EXPECT_EQ_INT(told, RSK_FAIL);
    rsk_verbs_wire.kill(&rail->base, RSN_IDLE); /* once more: it has */
    kicked();
    rsk_verbs_wire.destroy(&rail->base);
    EXPECT_EQ_INT(lost, 0);
    for (int i = 0; i < 3; i++) {
        ASSERT(vb_rails[0] && timer);
        turn();
    }
    adapter_sends();
    EXPECT(sent >= 1);
    ASSERT(vb_rails[0] && timer);
    told = 0;
    turn();
    EXPECT(!vb_rails[0] && !timer && destroyed);
    EXPECT_EQ_INT(lost, 0);
    EXPECT_EQ_INT(told, 0); /* who has destroyed it */
}

/* Its owner has something in its ring still. */
TEST_CASE(verbs_bye, its_memory_is_needed_for_longer)
{
    begin();
    say();
    rsk_verbs_wire.kill(&rail->base, RSN_IDLE);
    EXPECT_EQ_INT(rsk_verbs_wire.parting(), 1);
    adapter_sends();
    turn();
    EXPECT(!timer && !destroyed);
    EXPECT_EQ_INT(rsk_verbs_wire.parting(), 0);
    EXPECT_EQ_INT(lost, 0);
    rsk_verbs_wire.destroy(&rail->base);
    EXPECT(!vb_rails[0] && destroyed);
}

TEST_CASE(verbs_bye, what_is_not_sent_is_waited_for_a_moment)
{
    uint64_t began = skipped;
    unsigned looks = 0;

    begin();
    say();
    rsk_verbs_wire.kill(&rail->base, RSN_PEER_LEFT);
    rsk_verbs_wire.destroy(&rail->base);
    rail->until = sys_now(); /* the clock has gone on */
    while (timer) {
        turn();
        looks++;
    }
    EXPECT_EQ_INT(looks, 1);
    EXPECT(skipped - began <= 1000000);
    EXPECT(!vb_rails[0] && destroyed);
}

/* The peer's disconnect, an error of what is on its way, or the device. */
TEST_CASE(verbs_bye, one_that_fails_meanwhile_is_over)
{
    begin();
    say();
    rsk_verbs_wire.kill(&rail->base, RSN_PEER_LEFT);
    rsk_verbs_wire.destroy(&rail->base);
    errors = true;
    turn();
    EXPECT(!vb_rails[0] && !timer && destroyed);

    begin();
    say();
    rsk_verbs_wire.kill(&rail->base, RSN_PEER_LEFT);
    rsk_verbs_wire.destroy(&rail->base);
    vb_rail_fail(rail, RSN_DEVICE_GONE);
    vb_rail_close(rail); /* as the device goes */
    turn();
    EXPECT(!vb_rails[0] && !timer);
}

/* Nothing is said of one that has failed, and nobody waits. */
TEST_CASE(verbs_bye, one_that_has_failed_ends_at_once)
{
    begin();
    say();
    vb_rail_fail(rail, RSN_RAIL_FAILED);
    kicked();
    rsk_verbs_wire.kill(&rail->base, RSN_PEER_LEFT);
    EXPECT(!timer);
    rsk_verbs_wire.destroy(&rail->base);
    EXPECT(!vb_rails[0] && destroyed);

    begin();
    rsk_verbs_wire.kill(&rail->base, RSN_RAIL_FAILED);
    EXPECT(!timer && kicks);
    kicked();
    rsk_verbs_wire.destroy(&rail->base);
    EXPECT(!vb_rails[0]);
}

/* Before the device is closed; and if there is no memory for a timer. */
TEST_CASE(verbs_bye, who_cannot_wait)
{
    begin();
    say();
    rsk_verbs_wire.kill(&rail->base, RSN_PEER_LEFT);
    rsk_verbs_wire.destroy(&rail->base);
    rsk_verbs_wire.shut(RSN_CREDENTIALS);
    EXPECT(!vb_rails[0] && !timer && destroyed);
    EXPECT_EQ_INT(rsk_verbs_wire.parting(), 0);

    begin();
    say();
    no_timers = true;
    rsk_verbs_wire.kill(&rail->base, RSN_PEER_LEFT);
    EXPECT_EQ_INT(rsk_verbs_wire.parting(), 0);
    rsk_verbs_wire.destroy(&rail->base);
    EXPECT(!vb_rails[0] && destroyed);
}
