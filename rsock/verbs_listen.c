/*
 * verbs_listen.c - the accepting side of the rendezvous.
 *
 *   REQ(tuple) -> find() -> REP(descriptors) -> ESTABLISHED and the initiator's hello -> accepted()
 *
 * The RDMA port is the TCP port, or stands for it (VB_STAND_IN): that is where who begins asks.
 * Only one process can have it: another one takes whatever port is free and is found by
 * redirection, and tries every second whether the first has ended, or given the port up, for
 * then it has to be there itself. Each binds an abstract unix name that says which port is its
 * own (unix_names.h); a request that reaches a process which does not own the connection is sent
 * on to the next higher RDMA port of the same TCP port, and from the highest to the lowest.
 * Progress thread.
 *
 * The address stands for all, and so the kernel listens on every device. An iWARP device's port is
 * TCP's: its driver would take the program's (siw and erdma bind a socket there, irdma filters
 * SYNs), so where there is one nobody listens.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/own.h"
#include "rsock/sys.h"
#include "rsock/unix_names.h"
#include "rsock/verbs.h"
#include "rsock/verbs_int.h"

enum { BACKLOG = 128, NAMES_NS = 100000000 };

#define HOME_NS 1000000000u
/* For who has been sent to a port that was ours: longer than a set-up may take. */
#define LEFT_NS 5000000000u

struct vb_listener {
    struct vb_cm_owner cm_owner;
    int family;
    uint16_t port, rdma_port;
    const struct rsk_accept_ops *ops;
    int name;  /* the socket that bears our name */
    bool home; /* rdma_port is where who begins asks */
    struct rdma_cm_id *id;
    struct rdma_cm_id *left; /* at the port that it had before it was at home, until left_until */
    uint64_t left_until;
    struct vb_listener *next;
};

static struct vb_listener *listeners;
static struct rsk_timer *home_timer;

/* ---- names: railsock-rdma.FAMILY.PORT.RDMA-PORT.PID */

static void bear_name(struct vb_listener *l)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int n = snprintf(un.sun_path + 1, sizeof un.sun_path - 1, "railsock-rdma.%d.%u.%u.%d",
                     l->family, l->port, l->rdma_port, sys_getpid());

    l->name = rsk_own_fd(sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (l->name >= 0 &&
        sys_bind(l->name, &un,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) < 0)
        log_info("verbs: port %u: other processes of this server cannot send requests on to us",
                 l->port);
}

/* All of this host, as they were a moment ago: who asks need not have a connection, and to read the
 * list, a line for each unix socket, is not to be had for each question. */
static struct name {
    int family;
    uint16_t port, rdma_port;
} names[1024];
static unsigned n_names;
static uint64_t names_at;

static void note(void *arg, const char *line, const char *rest)
{
    unsigned family, port, rdma_port;

    (void)arg, (void)line;
    if (n_names < sizeof names / sizeof *names &&
        sscanf(rest, "%u.%u.%u.", &family, &port, &rdma_port) == 3 && port <= 65535 && rdma_port &&
        rdma_port <= 65535)
        names[n_names++] = (struct name){(int)family, (uint16_t)port, (uint16_t)rdma_port};
}

static void read_names(void)
{
    uint64_t now = sys_now();

    if (names_at && now - names_at < NAMES_NS)
        return;
    names_at = now;
    n_names = 0;
    rsk_unix_names("railsock-rdma.", note, NULL);
}

/* The RDMA port to ask instead of l's for a connection to TCP port `port`; 0: there is nobody else.
 * `port` is not l's own where l's TCP port is at the same time the RDMA port that stands for it
 * (VB_STAND_IN). */
static uint16_t next_of(const struct vb_listener *l, uint16_t port)
{
    uint16_t after = port == l->port ? l->rdma_port : 0, next = 0, lowest = 0, at;

    read_names();
    for (unsigned i = 0; i < n_names; i++) {
        if (names[i].family != l->family || names[i].port != port)
            continue;
        at = names[i].rdma_port;
        if (at > after && (!next || at < next))
            next = at;
        if (!lowest || at < lowest)
            lowest = at;
    }
    if (next)
        return next;
    return lowest == l->rdma_port ? 0 : lowest;
}

static struct vb_listener *find(int family, uint16_t port)
{
    struct vb_listener *l = listeners;

    while (l && (l->family != family || l->port != port))
        l = l->next;
    return l;
}

int rsk_verbs_local_port(int family, uint16_t port)
{
    struct vb_listener *l = find(family, port);

    return l ? l->rdma_port : 0;
}

void vb_listen_forget(void)
{
    listeners = NULL;
    home_timer = NULL;
    names_at = 0;
}

static void remove_first(struct vb_listener **at)
{
    struct vb_listener *l = *at;

    *at = l->next;
    vdl.destroy_id(l->id);
    if (l->left)
        vdl.destroy_id(l->left);
    rsk_own_close(l->name);
    free(l);
}

void vb_unlisten(int family, uint16_t port)
{
    struct vb_listener **at = &listeners;

    while (*at && ((*at)->family != family || (*at)->port != port))
        at = &(*at)->next;
    if (*at)
        remove_first(at);
}

void vb_listen_shut(void)
{
    while (listeners)
        remove_first(&listeners);
}

static int bind_id(struct vb_listener *l, uint16_t port, struct rdma_cm_id **id)
{
    struct sockaddr_storage any;
    int one = 1;

    *id = vb_cm_id(&l->cm_owner, RDMA_PS_TCP);
    if (!*id)
        return -errno;
    vb_sockaddr(l->family, NULL, port, &any);
    /* As Linux's own sockets do by IPV6_V6ONLY: the IPv4 port is another listener's. */
    if (l->family == AF_INET6)
        vdl.set_option(*id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof one);
    /* bind is looked at: rdma_listen after a failed one succeeds, on some other port. */
    if (vdl.bind_addr(*id, (struct sockaddr *)&any) < 0 || vdl.listen(*id, BACKLOG) < 0) {
        int err = -errno;

        vdl.destroy_id(*id);
        return err;
    }
    return 0;
}

static int bind_home(struct vb_listener *l, struct rdma_cm_id **id)
{
    int err = bind_id(l, l->port, id);

    if (err == -EACCES && l->port < VB_PRIVILEGED)
        err = bind_id(l, VB_STAND_IN + l->port, id);
    return err;
}

static void is_at(struct vb_listener *l, struct rdma_cm_id *id)
{
    l->id = id;
    l->rdma_port = ntohs(vdl.get_src_port(id));
    bear_name(l);
    log_debug("verbs: port %u is reachable at RDMA port %u", l->port, l->rdma_port);
}

/* Requests that are under way to the port that it has had go on. */
static void go_home(struct vb_listener *l)
{
    struct rdma_cm_id *id;

    if (l->home || bind_home(l, &id))
        return;
    l->home = true;
    l->left = l->id;
    l->left_until = sys_now() + LEFT_NS;
    rsk_own_close(l->name);
    is_at(l, id);
}

static void on_home_timer(void *arg)
{
    bool again = false;

    (void)arg;
    for (struct vb_listener *l = listeners; l; l = l->next) {
        go_home(l);
        if (l->left && sys_now() >= l->left_until) {
            vdl.destroy_id(l->left);
            l->left = NULL;
        }
        again |= !l->home || l->left;
    }
    home_timer = again ? rsk_timer_add(HOME_NS, on_home_timer, NULL) : NULL;
}

int vb_listen(int family, uint16_t port, uint16_t peer, const struct rsk_accept_ops *ops)
{
    struct vb_listener *l = find(family, port);
    struct rdma_cm_id *id;
    int err;

    (void)peer; /* who is asked sends on to the next one */
    if (l) {
        l->ops = ops;
        go_home(l);
        return 0;
    }
    err = vb_host_may_listen();
    if (!err)
        err = vb_cm_open();
    if (err)
        return err;
    l = calloc(1, sizeof *l);
    if (!l)
        return -ENOMEM;
    *l = (struct vb_listener){.family = family, .port = port, .ops = ops};
    l->cm_owner = (struct vb_cm_owner){VB_OF_LISTENER, l};
    err = bind_home(l, &id);
    l->home = err == 0;
    /* Another process has it: the second is what the kernel says of addresses that
     * stand for all. */
    if (err == -EADDRINUSE || err == -EADDRNOTAVAIL)
        err = bind_id(l, 0, &id);
    if (err) {
        log_info("verbs: cannot listen on port %u: error %d", port, -err);
        free(l);
        return err;
    }
    is_at(l, id);
    l->next = listeners;
    listeners = l;
    if (!l->home && !home_timer)
        home_timer = rsk_timer_add(HOME_NS, on_home_timer, NULL);
    return 0;
}

/* ---- a request */

static void reject(struct rdma_cm_id *id, uint32_t request, int reason, uint16_t port)
{
    struct vb_rej rej = {
        .h = {.magic = VB_MAGIC, .version = VB_VERSION, .len = sizeof rej, .request = request},
        .reason = (uint16_t)reason,
        .redirect = port,
    };

    log_debug("verbs: request refused: %s", cfg_reason_name(reason));
    vdl.reject(id, &rej, sizeof rej);
    vdl.destroy_id(id);
}

/* Whether the rdma_cm's addresses are those of the route. */
static bool same_addresses(struct rdma_cm_id *id, uint8_t family, const struct rsk_route *t)
{
    const struct sockaddr *peer = rdma_get_peer_addr(id), *own = rdma_get_local_addr(id);

    if (peer->sa_family != family || own->sa_family != family)
        return false;
    if (family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)peer)->sin_addr, t->src, 4) == 0 &&
               memcmp(&((const struct sockaddr_in *)own)->sin_addr, t->dst, 4) == 0;
    return memcmp(&((const struct sockaddr_in6 *)peer)->sin6_addr, t->src, 16) == 0 &&
           memcmp(&((const struct sockaddr_in6 *)own)->sin6_addr, t->dst, 16) == 0;
}

/* Else there is NAT between us, or the peer names somebody else's connection. A map in the rules of
 * this end says which other addresses the two have. */
static bool known_addresses(struct rdma_cm_id *id, const struct rsk_tuple *t)
{
    struct rsk_route route = vb_own_route(t);

    if (same_addresses(id, t->family, &route))
        return true;
    route = vb_route(t, NULL);
    return same_addresses(id, t->family, &route);
}

/* 0 or a reason. */
static int parse(const struct vb_listener *l, struct rdma_cm_id *id, const void *data, size_t len,
                 struct vb_req *req, struct rsk_tuple *t)
{
    memset(req, 0, sizeof *req);
    if (len < sizeof *req)
        return RSN_PEER_PROTOCOL;
    memcpy(req, data, sizeof *req);
    if (req->h.magic != VB_MAGIC)
        return RSN_PEER_PROTOCOL;
    if (req->h.version != VB_VERSION)
        return RSN_VERSION;
    if (req->h.len < sizeof *req || req->h.ring_log2 < VB_RING_MIN_LOG2 ||
        req->h.ring_log2 > VB_RING_MAX_LOG2 ||
        (req->h.family != AF_INET && req->h.family != AF_INET6))
        return RSN_PEER_PROTOCOL;
    *t = (struct rsk_tuple){
        .family = req->h.family, .src_port = req->src_port, .dst_port = req->dst_port};
    memcpy(t->src, req->src, t->family == AF_INET ? 4 : 16);
    memcpy(t->dst, req->dst, t->family == AF_INET ? 4 : 16);
    if (id->verbs->device->transport_type != IBV_TRANSPORT_IB)
        return RSN_NO_RDMA_ON_ROUTE;
    if (!known_addresses(id, t))
        return RSN_PROOF;
    return t->dst_port == l->port ? 0 : RSN_NOT_MINE;
}

/* 0 or a reason; the id is the rail's. */
static int answer(struct vb_rail *r, unsigned ring_log2)
{
    struct rdma_conn_param param;
    struct vb_desc d;
    int reason;

    r->dev = vb_dev_get(r->id);
    if (!r->dev)
        return vb_lack_reason(errno);
    vb_cm_inside(r->id);
    reason = vb_rail_open(r);
    if (!reason)
        reason = vb_rail_open_out(r, ring_log2);
    if (reason)
        return reason;
    vb_rail_describe(r, &d);
    vb_conn_param(&param, &d, sizeof d);
    vb_tune_id(r->id);
    r->state = VB_ACCEPTED;
    if (vdl.accept(r->id, &param) < 0) {
        log_info("verbs: accept on %s: error %d", r->dev->name, errno);
        return RSN_RAIL_FAILED;
    }
    vb_tune_qp(r);
    return 0;
}

void vb_request(struct vb_listener *l, struct rdma_cm_id *id, const void *data, size_t len)
{
    struct rsk_shard *shard = NULL;
    struct rsk_tuple t;
    struct vb_req req;
    struct vb_rail *r;
    size_t ring = 0;
    void *owner = NULL;
    int reason = parse(l, id, data, len, &req, &t);

    if (!reason)
        reason = l->ops->find(&t, &shard, &ring, &owner);
    if (reason) {
        reject(id, req.h.request, reason, reason == RSN_NOT_MINE ? next_of(l, t.dst_port) : 0);
        return;
    }
    r = vb_rail_new(shard, ring);
    if (!r) {
        reject(id, req.h.request, RSN_BUDGET, 0);
        l->ops->refused(owner, RSN_BUDGET);
        return;
    }
    r->tuple = t;
    r->request = req.h.request;
    r->caller = owner;
    r->ops = l->ops;
    r->id = id;
    r->cm_owner = (struct vb_cm_owner){VB_OF_RAIL, r};
    id->context = &r->cm_owner;
    reason = answer(r, req.h.ring_log2);
    if (!reason) {
        vb_setup_deadline(r);
        return;
    }
    /* The peer hears it from the reject, so that comes before the id goes with the rail. */
    if (r->state != VB_ACCEPTED) {
        struct vb_rej rej = {
            .h = {.magic = VB_MAGIC,
                  .version = VB_VERSION,
                  .len = sizeof rej,
                  .request = r->request},
            .reason = (uint16_t)reason,
        };

        vdl.reject(id, &rej, sizeof rej);
    }
    vb_setup_failed(r, reason);
}
