/*
 * verbs_setup.c - what the connecting and the accepting side have in common while a rail is set up:
 * what they set, until when they wait, and the end, good or bad. Progress thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/verbs_int.h"

static const uint64_t DEADLINE_NS = UINT64_C(3000000000);

static bool never_slow; /* RAILSOCK_TEST_RNR0 */

/* Now, since the program may set its environment anew at any time. */
__attribute__((constructor)) static void at_load(void)
{
    never_slow = getenv("RAILSOCK_TEST_RNR0");
}

/* ---- what both sides set */

void vb_conn_param(struct rdma_conn_param *p, const void *private_data, size_t len)
{
    *p = (struct rdma_conn_param){
        .private_data = private_data,
        .private_data_len = (uint8_t)len,
        /* Never used, but rxe does not take 0 well. */
        .responder_resources = 1,
        .initiator_depth = 1,
        /* With 7 rxe tries for ever. */
        .retry_count = 6,
        /* The field says what the *peer* of the message does, so both sides set it. 0 in tests:
         * a message without a posted receive then fails the rail instead of slowing it. */
        .rnr_retry_count = never_slow ? 0 : 7,
    };
}

void vb_tune_id(struct rdma_cm_id *id)
{
    static bool said;
    uint8_t timeout = 14; /* 4.096 us * 2^14 = 67 ms (rdma_set_option(3)) */

    /* Linux has it from 5.3 on; verbs_probe.c does without. */
    if (vdl.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout) ==
            0 ||
        said)
        return;
    said = true;
    log_info("verbs: how soon an adapter is to repeat cannot be set: error %d", errno);
}

void vb_tune_qp(struct vb_rail *r)
{
    /* librdmacm leaves 0, which stands for 655 ms; 12 is 0.64 ms (ibv_modify_qp(3)). */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = 12};

    if (vdl.modify_qp(r->qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER))
        log_debug("verbs: min_rnr_timer: error %d", errno);
}

int vb_lack_reason(int err)
{
    switch (err) {
    case EMFILE:
    case ENFILE:
        return RSN_LIMIT_FD;
    case EIO:
        /* what the kernel says of a device that is gone, and drivers of one that does nothing
         * any more */
    case ENODEV:
    case ENXIO:
        return RSN_DEVICE_GONE;
    default:
        return RSN_NO_MEMORY;
    }
}

/* ---- the set-up's end, either side */

static void on_deadline(void *arg)
{
    struct vb_rail *r = arg;

    r->deadline = NULL;
    vb_setup_failed(r, RSN_RDV_TIMEOUT);
}

void vb_setup_deadline(struct vb_rail *r)
{
    uint64_t now = sys_now();

    if (!r->until)
        r->until = now + DEADLINE_NS;
    r->deadline = rsk_timer_add(r->until > now ? r->until - now : 1, on_deadline, r);
}

void vb_setup_failed(struct vb_rail *r, int reason)
{
    void *caller = r->caller;
    void (*done)(void *, struct rsk_rail *, int) = r->done;
    const struct rsk_accept_ops *ops = r->ops;

    log_debug("verbs: no rail: %s", cfg_reason_name(reason));
    vb_rail_free(r);
    if (done)
        done(caller, NULL, reason);
    else if (ops)
        ops->refused(caller, reason);
}

void vb_setup_done(struct vb_rail *r)
{
    unsigned news;

    if (r->deadline)
        rsk_timer_cancel(r->deadline);
    r->deadline = NULL;
    r->state = VB_UP;
    log_debug("verbs: rail %u is up on %s, rings %u and %u", r->index, r->base.where,
              r->base.tx_size, r->base.rx_size);
    r->telling = true;
    if (r->done)
        r->done(r->caller, &r->base, 0);
    else
        r->ops->accepted(r->caller, &r->base);
    r->telling = false;
    if (r->over) { /* its stream has ended meanwhile, or may not board any more */
        free(r);
        return;
    }
    /* The peer may have sent before there was a notify(). */
    news = vb_look(r, 0) & (RSK_RX | RSK_CTL | RSK_FAIL);
    if (news && r->base.notify)
        r->base.notify(&r->base, news);
}

void vb_setup_step(struct vb_rail *r)
{
    struct vb_desc d;
    uint32_t failed = atomic_load(&r->base.failed);
    int reason;

    if (failed) {
        vb_setup_failed(r, (int)failed);
        return;
    }
    if (r->state != VB_ACCEPTED || !atomic_load(&r->hello_in))
        return;
    if (!r->established) {
        /* Its hello has overtaken the RTU, for which it stands (IB spec 12.9.8.2):
         * that may be lost. */
        vdl.notify(r->id, IBV_EVENT_COMM_EST);
        return;
    }
    memcpy(&d, r->ring + r->off_hello, sizeof d);
    reason = vb_rail_peer(r, &d);
    if (!reason && 1u << d.h.ring_log2 != r->base.tx_size)
        reason = RSN_PEER_PROTOCOL;
    if (!reason)
        reason = vb_rail_known(r);
    if (reason)
        vb_setup_failed(r, reason);
    else
        vb_setup_done(r);
}
