/*
 * doctor_rail.c - asking a peer for a rail: by the library's own wires, on a progress thread as the
 * library has it; and before that the steps over RDMA one by one.
 */
#include "tools/doctor.h"

#include "config/reason.h"
#include "config/rules.h"
#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/verbs_dl.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RESOLVE_MS = 1000, EVENT_MS = 3000, ASK_SECONDS = 10 };

/* ---- one question to a wire */

struct asking {
    const struct rsk_wire *wire;
    const struct rsk_tuple *tuple;
    struct rsk_rail *rail;
    int reason;
    sem_t over;
};

static void no_news(struct rsk_rail *rail, unsigned events)
{
    (void)rail, (void)events;
}

static void give_back(void *arg)
{
    struct asking *a = arg;

    a->wire->kill(a->rail, RSN_ENDING);
    a->wire->destroy(a->rail);
    sem_post(&a->over);
}

static void answered(void *arg, struct rsk_rail *rail, int reason)
{
    struct asking *a = arg;

    a->reason = reason;
    a->rail = rail;
    if (!rail) {
        sem_post(&a->over);
        return;
    }
    rail->notify = no_news;
    /* Not here: the wire is not yet done with it. */
    if (rsk_loop_post(give_back, a) < 0)
        sem_post(&a->over);
}

static void ask(void *arg)
{
    struct asking *a = arg;
    int err;

    a->reason = a->wire->usable();
    if (a->reason == RSN_OWN_RDMA) /* what the steps before had open */
        a->reason = 0;
    if (!a->reason) {
        err = a->wire->connect(a->tuple, rsk_shard_common(), 0, a, answered);
        if (!err)
            return;
        a->reason = err;
    }
    sem_post(&a->over);
}

int doc_ask(const struct rsk_wire *wire, const struct rsk_tuple *tuple)
{
    /* Static: the thread may still come to it after we have stopped to wait. */
    static struct asking a;
    struct timespec until;
    int err = rsk_loop_start(cfg.uring);

    if (err < 0)
        return err;
    a = (struct asking){.wire = wire, .tuple = tuple};
    sem_init(&a.over, 0, 0);
    err = rsk_loop_post(ask, &a);
    if (err < 0)
        return err;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ASK_SECONDS;
    while ((err = sem_timedwait(&a.over, &until)) < 0 && errno == EINTR)
        ;
    return err < 0 ? -ETIMEDOUT : a.reason;
}

void doc_answer(struct doc_result *r, int reason)
{
    switch (reason) {
    case RSN_NONE:
        doc_say(r, DOC_OK, "the server gave a rail, which was given back");
        return;
    case RSN_NOT_YET:
        doc_say(r, DOC_OK,
                "the server's railsock has the connection, and would give it a rail once it has "
                "been worth one");
        return;
    case RSN_NO_PEER_LIB:
        doc_say(r, DOC_FAIL, "nobody answers for this port");
        return;
    default:
        break;
    }
    if (reason < 0) {
        doc_say(r, DOC_FAIL, "cannot be asked: %s", strerror(-reason));
        r->advice = "railsock doctor without arguments says what is missing";
        return;
    }
    doc_say(r, DOC_FAIL, "%s: %s", cfg_reason_name(reason), cfg_reason_sentence(reason));
    r->advice = cfg_reason_advice(reason);
}

/* ---- RDMA, step by step */

struct doc_route {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
};

void doc_route_end(struct doctor *d)
{
    if (!d->route)
        return;
    if (d->route->id)
        vdl.destroy_id(d->route->id);
    if (d->route->channel)
        vdl.destroy_event_channel(d->route->channel);
    free(d->route);
    d->route = NULL;
}

static void to_sockaddr(int family, const uint8_t addr[16], uint16_t port,
                        struct sockaddr_storage *ss)
{
    struct sockaddr_in *in = (void *)ss;
    struct sockaddr_in6 *in6 = (void *)ss;

    memset(ss, 0, sizeof(*ss));
    ss->ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, addr, 4);
    } else {
        in6->sin6_port = htons(port);
        memcpy(&in6->sin6_addr, addr, 16);
    }
}

/* The next event is to be this one. 0 or an errno. */
static int expect(struct doc_route *route, enum rdma_cm_event_type want)
{
    struct pollfd p = {route->channel ? route->channel->fd : -1, POLLIN, 0};
    struct rdma_cm_event *event;
    int err;

    if (!route->channel || poll(&p, 1, EVENT_MS) != 1)
        return ETIMEDOUT;
    if (vdl.get_cm_event(route->channel, &event) < 0)
        return errno;
    err = event->event == want ? 0 : event->status < 0 ? -event->status : EPROTO;
    vdl.ack_cm_event(event);
    return err;
}

/* As verbs_cm.c: the rdma_cm would take any device for these. */
static bool is_loopback(uint8_t family, const struct rsk_route *way)
{
    static const uint8_t one[16] = {[15] = 1};

    return family == AF_INET ? way->dst[0] == 127 || way->src[0] == 127
                             : memcmp(way->dst, one, 16) == 0 || memcmp(way->src, one, 16) == 0;
}

/* What the rules have for the connection. */
static const struct cfg_stream *set;

/* As rule_route(). */
static void take_route(const struct rsk_tuple *t, void *owner, struct rsk_route *route)
{
    (void)owner;
    route->tos = set->tos;
    (void)cfg_map_apply(set->maps, t->family, route->src);
    (void)cfg_map_apply(set->maps, t->family, route->dst);
}

void doc_VERBS(struct doctor *d, struct doc_result *r)
{
    int reason;

    if (d->same_host && d->wire != CFG_WIRE_VERBS) {
        doc_say(r, DOC_SKIP, "within one host shared memory is used");
        return;
    }
    reason = rsk_verbs_wire.usable();
    if (reason == RSN_NO_RDMA_ON_ROUTE)
        doc_say(r, DOC_FAIL, "this host has no RDMA device");
    else if (reason)
        doc_say(r, DOC_FAIL, "%s", cfg_reason_sentence(reason));
    else
        doc_say(r, DOC_OK, "this host has an RDMA device, and the libraries");
    d->stop = reason != 0;
}

void doc_DEVICE(struct doctor *d, struct doc_result *r)
{
    struct sockaddr_storage src, dst;
    struct rsk_route way = {.tos = -1};
    struct doc_route *route;
    int err = 0;

    if (d->same_host && d->wire != CFG_WIRE_VERBS) {
        doc_say(r, DOC_SKIP, "within one host shared memory is used");
        return;
    }
    d->stop = true;
    set = d->set;
    memcpy(way.src, d->tuple.src, sizeof(way.src));
    memcpy(way.dst, d->tuple.dst, sizeof(way.dst));
    take_route(&d->tuple, NULL, &way);
    if (is_loopback(d->tuple.family, &way)) {
        doc_say(r, DOC_FAIL, "none: a connection over the loopback interface");
        return;
    }
    route = d->route = calloc(1, sizeof(*route));
    to_sockaddr(d->tuple.family, way.src, 0, &src);
    to_sockaddr(d->tuple.family, way.dst, d->port, &dst);
    if (!route) {
        doc_say(r, DOC_FAIL, "out of memory");
        return;
    }
    if (!(route->channel = vdl.create_event_channel()) ||
        vdl.create_id(route->channel, &route->id, NULL, RDMA_PS_TCP) < 0 ||
        vdl.resolve_addr(route->id, (struct sockaddr *)&src, (struct sockaddr *)&dst, RESOLVE_MS) <
            0)
        err = errno;
    if (!err)
        err = expect(route, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (err) {
        doc_say(r, DOC_FAIL, "none that belongs to the %s: %s",
                set->maps ? "address that the rules have for it" : "connection's own address",
                strerror(err));
    } else if (route->id->verbs->device->transport_type != IBV_TRANSPORT_IB) {
        doc_say(r, DOC_FAIL, "%s is iWARP, which railsock does not use",
                vdl.get_device_name(route->id->verbs->device));
    } else {
        doc_say(r, DOC_OK, "%s/%u", vdl.get_device_name(route->id->verbs->device),
                route->id->port_num);
        d->stop = false;
    }
}

void doc_ROUTE(struct doctor *d, struct doc_result *r)
{
    int err = 0;

    if (!d->route) {
        doc_say(r, DOC_SKIP, "within one host shared memory is used");
        return;
    }
    if (vdl.resolve_route(d->route->id, RESOLVE_MS) < 0)
        err = errno;
    if (!err)
        err = expect(d->route, RDMA_CM_EVENT_ROUTE_RESOLVED);
    doc_say(r, err ? DOC_FAIL : DOC_OK, "%s", err ? strerror(err) : "found");
    d->stop = err != 0;
    doc_route_end(d); /* the wire looks for its own */
}

void doc_VERBS_RENDEZVOUS(struct doctor *d, struct doc_result *r)
{
    int reason;

    if (d->same_host && d->wire != CFG_WIRE_VERBS) {
        doc_say(r, DOC_SKIP, "within one host shared memory is used");
        return;
    }
    rsk_verbs_wire.on_route(take_route);
    reason = doc_ask(&rsk_verbs_wire, &d->tuple);
    doc_answer(r, reason);
    if (reason == RSN_NO_PEER_LIB) /* a rejection came back: RDMA goes both ways */
        doc_say(r, DOC_FAIL, "the host answers over RDMA, but nobody for this port");
}
