/*
 * verbs_cm.c - the connecting side of the rendezvous.
 *
 *   resolve address -> resolve route -> REQ(tuple) -> REP(descriptors) -> hello -> done()
 *
 * Everything runs on the progress thread and nothing waits.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/verbs_int.h"

enum { RESOLVE_MS = 1000, MAX_REDIRECTS = 64 };

/* The IB specification's reject codes (12.6.7.2); no user header has them. */
enum { REJ_INVALID_SERVICE_ID = 8, REJ_CONSUMER_DEFINED = 28 };

static uint32_t requests;

socklen_t vb_sockaddr(int family, const uint8_t *addr, uint16_t port, struct sockaddr_storage *ss)
{
    memset(ss, 0, sizeof *ss);
    if (family == AF_INET6) {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)ss;

        a->sin6_family = AF_INET6;
        a->sin6_port = htons(port);
        if (addr)
            memcpy(&a->sin6_addr, addr, 16);
        return sizeof *a;
    }
    struct sockaddr_in *a = (struct sockaddr_in *)ss;

    a->sin_family = AF_INET;
    a->sin_port = htons(port);
    if (addr)
        memcpy(&a->sin_addr, addr, 4);
    return sizeof *a;
}

/* ---- the connecting side */

static int errno_reason(int err)
{
    switch (err) {
    case ETIMEDOUT:
        return RSN_RDV_TIMEOUT;
    case EMFILE:
    case ENFILE:
        return RSN_LIMIT_FD;
    case ENOMEM:
        return RSN_NO_MEMORY;
    case EACCES:
    case EPERM:
        return RSN_NO_VERBS;
    default:
        return RSN_NO_RDMA_ON_ROUTE;
    }
}

/* Before the route is resolved, which takes it over (rdma_set_option(3)). The acceptor's packets
 * have the service type of the request. */
static void set_tos(struct vb_rail *r)
{
    uint8_t tos = (uint8_t)r->route.tos;

    if (r->route.tos >= 0 &&
        vdl.set_option(r->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos) < 0)
        log_info("verbs: service type %u: error %d", tos, errno);
}

/* 0 or errno. */
static int resolve(struct rdma_cm_id *id, struct sockaddr_storage *src,
                   struct sockaddr_storage *dst)
{
    return vdl.resolve_addr(id, (struct sockaddr *)src, (struct sockaddr *)dst, RESOLVE_MS) < 0
               ? errno
               : 0;
}

static int start(struct vb_rail *r, uint16_t port)
{
    struct sockaddr_storage src, dst;
    int err;

    r->state = VB_RESOLVING;
    r->cm_owner = (struct vb_cm_owner){VB_OF_RAIL, r};
    r->id = vb_cm_id(&r->cm_owner, RDMA_PS_TCP);
    if (!r->id)
        return errno_reason(errno);
    set_tos(r);
    vb_tune_id(r->id);
    vb_sockaddr(r->tuple.family, r->route.dst, port, &dst);
    /* Bound to the TCP connection's own address, or to what the rules have in its place: no other
     * device can be chosen. */
    vb_sockaddr(r->tuple.family, r->route.src, vb_own_port(&r->tuple), &src);
    err = resolve(r->id, &src, &dst);
    if (err == EADDRINUSE || err == EADDRNOTAVAIL || err == EACCES) {
        vb_sockaddr(r->tuple.family, r->route.src, 0, &src);
        err = resolve(r->id, &src, &dst);
    }
    return err ? errno_reason(err) : 0;
}

static int on_addr(struct vb_rail *r)
{
    if (r->id->verbs->device->transport_type != IBV_TRANSPORT_IB) {
        log_info("verbs: the device on the route is iWARP, which railsock does not use yet");
        return RSN_NO_RDMA_ON_ROUTE;
    }
    r->dev = vb_dev_get(r->id);
    if (!r->dev)
        return vb_lack_reason(errno);
    vb_cm_inside(r->id);
    return vdl.resolve_route(r->id, RESOLVE_MS) < 0 ? errno_reason(errno) : 0;
}

static int on_route(struct vb_rail *r)
{
    struct vb_req req = {.src_port = r->tuple.src_port, .dst_port = r->tuple.dst_port};
    struct rdma_conn_param param;
    int reason = vb_rail_open(r);

    if (reason)
        return reason;
    vb_header(r, &req.h, sizeof req);
    memcpy(req.src, r->tuple.src, sizeof req.src);
    memcpy(req.dst, r->tuple.dst, sizeof req.dst);
    vb_conn_param(&param, &req, sizeof req);
    r->state = VB_ASKED;
    return vdl.connect(r->id, &param) < 0 ? errno_reason(errno) : 0;
}

static int on_reply(struct vb_rail *r, const void *data, size_t len)
{
    struct vb_desc d;
    int reason;

    if (len < sizeof d)
        return RSN_PEER_REFUSED;
    memcpy(&d, data, sizeof d);
    reason = vb_rail_peer(r, &d);
    if (!reason)
        reason = vb_rail_open_out(r, d.h.ring_log2);
    if (reason)
        return reason;
    vb_tune_qp(r);
    reason = vb_rail_known(r);
    if (reason)
        return reason;
    vb_rail_describe(r, &d);
    return vb_post_hello(r, &d) ? RSN_RAIL_FAILED : 0;
}

/* Asks another process of that server. With a new rail: what the refused one had posted is
 * flushed, and that fails a rail. And within the first one's deadline: redirections could send us
 * round and round. */
static int ask_elsewhere(struct vb_rail *refused, uint16_t port, uint16_t began)
{
    struct vb_rail *r = vb_rail_new(refused->base.shard, refused->base.rx_size);
    int reason;

    if (!r)
        return RSN_BUDGET;
    r->tuple = refused->tuple;
    r->route = refused->route;
    r->initiator = true;
    r->caller = refused->caller;
    r->done = refused->done;
    r->request = refused->request;
    r->redirects = refused->redirects + 1;
    r->began = began;
    r->until = refused->until;
    vb_rail_close(refused); /* its id has the port that this one is to have */
    reason = start(r, port);
    if (reason) {
        vb_rail_free(r);
        return reason;
    }
    vb_setup_deadline(r);
    vb_rail_free(refused);
    return 0;
}

static void on_reject(struct vb_rail *r, int status, const void *data, size_t len)
{
    struct vb_rej rej;
    int reason = RSN_PEER_REFUSED;

    /* We accept: it is the peer that takes its own request back, and it does not say
     * whom else to ask. */
    if (!r->initiator) {
        vb_setup_failed(r, reason);
        return;
    }
    if (status == REJ_INVALID_SERVICE_ID) {
        reason = RSN_NO_PEER_LIB;
        if (r->tuple.dst_port < VB_PRIVILEGED && r->began == r->tuple.dst_port && !r->redirects) {
            reason =
                ask_elsewhere(r, VB_STAND_IN + r->tuple.dst_port, VB_STAND_IN + r->tuple.dst_port);
            if (!reason)
                return;
        }
    } else if (status == REJ_CONSUMER_DEFINED && len >= sizeof rej) {
        memcpy(&rej, data, sizeof rej);
        if (rej.h.magic == VB_MAGIC && rej.h.len >= sizeof rej) {
            reason = cfg_reason_told(rej.reason);
            /* Back where we began: nobody of that server owns it. */
            if (rej.redirect && rej.redirect != r->began && r->redirects < MAX_REDIRECTS) {
                reason = ask_elsewhere(r, rej.redirect, r->began);
                if (!reason)
                    return;
            }
        }
    }
    vb_setup_failed(r, reason);
}

void vb_rail_event(struct vb_rail *r, enum rdma_cm_event_type type, int status, const void *data,
                   size_t len)
{
    int reason = 0;

    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        reason = on_addr(r);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        reason = on_route(r);
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        reason = errno_reason(status < 0 ? -status : ENODEV);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        r->established = true;
        if (r->initiator) {
            reason = on_reply(r, data, len);
            if (!reason)
                vb_setup_done(r);
        } else {
            vb_setup_step(r);
            return;
        }
        break;
    case RDMA_CM_EVENT_REJECTED:
        if (r->state != VB_UP) {
            on_reject(r, status, data, len);
            return;
        }
        reason = RSN_RAIL_FAILED;
        break;
    case RDMA_CM_EVENT_UNREACHABLE:
        /* also of one that is up: the next hop has another hardware address */
        reason = r->state == VB_UP ? RSN_RAIL_FAILED : RSN_RDV_TIMEOUT;
        break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        if (r->dev) {
            vb_dev_gone(r->dev); /* ends this rail, and may free it */
            return;
        }
        reason = RSN_DEVICE_GONE;
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        /* What the peer has said last, such as why, comes before. */
        if (r->part)
            (void)rsk_shard_drain_all(r->base.shard);
        reason = RSN_RAIL_FAILED;
        break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_ADDR_CHANGE:
        reason = RSN_RAIL_FAILED;
        break;
    default: /* TIMEWAIT_EXIT */
        break;
    }
    if (!reason)
        return;
    if (r->state == VB_UP)
        vb_rail_fail(r, reason);
    else
        vb_setup_failed(r, reason);
}

static bool loopback(uint8_t family, const struct rsk_route *t)
{
    static const uint8_t one[16] = {[15] = 1};

    /* The rdma_cm would take any device for these, whatever route TCP has; link-local addresses
     * need a scope that the tuple does not carry. */
    return family == AF_INET ? t->src[0] == 127 || t->dst[0] == 127
                             : memcmp(t->src, one, 16) == 0 || memcmp(t->dst, one, 16) == 0 ||
                                   (t->dst[0] == 0xfe && (t->dst[1] & 0xc0) == 0x80);
}

/* done() is called later, never from within connect(). */
static void fail_later(void *arg)
{
    struct vb_rail *r = arg;

    vb_setup_failed(r, (int)r->request);
}

int vb_connect(const struct rsk_tuple *t, struct rsk_shard *shard, size_t ring, void *owner,
               void (*done)(void *, struct rsk_rail *, int))
{
    int reason, err = vb_cm_open();
    struct vb_rail *r;

    if (err)
        return err;
    vb_dev_resync();
    r = vb_rail_new(shard, ring);
    if (!r)
        return -errno;
    r->tuple = *t;
    r->initiator = true;
    r->caller = owner;
    r->done = done;
    r->request = ++requests;
    r->began = t->dst_port;
    r->route = vb_route(t, owner);
    reason = loopback(t->family, &r->route) ? RSN_NO_RDMA_ON_ROUTE : start(r, t->dst_port);
    if (!reason) {
        vb_setup_deadline(r);
        return 0;
    }
    r->request = (uint32_t)reason;
    if (rsk_loop_post(fail_later, r) < 0) {
        vb_rail_free(r);
        return -ENOMEM;
    }
    return 0;
}
