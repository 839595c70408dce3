/*
 * reach.c - the ports at which this process answers requests for rails, and for how long: as long
 * as it has an accepted stream that wants one, and a little longer, because the next one often
 * follows. Progress thread, except reach_drop and reach_known.
 */
#include "ipoib_fallback/reach.h"

#include "config/log.h"
#include "config/reason.h"
#include "rsock/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#define LINGER_NS 1000000000u

struct port {
    struct port *next;
    uint32_t users; /* streams */
    uint16_t number;
    bool v4, v6, ending; /* ending: its timer is set */
    /* The error of a wire that was complained of last: each stream would make a line. */
    int shm_said, verbs_said;
};

static struct port *ports;

/* For reach_known, which takes no lock: a port and its family in the upper half, and in the lower
 * until when. 0: none. Where two have the same place the last one has it. */
#define KNOWN 16u
static _Atomic uint64_t known[KNOWN];

#define KNOWN_UNIT 4096u /* ns */

static uint32_t name_of(const struct rsk_tuple *t)
{
    return (uint32_t)t->family << 16 | t->dst_port;
}

static uint32_t now_units(void)
{
    return (uint32_t)(fb_io.now() / KNOWN_UNIT);
}

static void make_known(struct fb_conn *c)
{
    uint32_t name = name_of(&c->x->tuple);

    atomic_store(&known[name % KNOWN],
                 (uint64_t)name << 32 | (now_units() + LINGER_NS / KNOWN_UNIT));
}

static void make_unknown(uint16_t number)
{
    for (unsigned i = 0; i < KNOWN; i++)
        if ((uint16_t)(atomic_load(&known[i]) >> 32) == number)
            atomic_store(&known[i], 0);
}

bool reach_known(struct fb_conn *c)
{
    struct rsk_tuple t = conn_tuple(c);
    uint32_t name = name_of(&t);
    uint64_t at = atomic_load_explicit(&known[name % KNOWN], memory_order_relaxed);

    /* What has been over for long is no time to come. */
    return at >> 32 == name && (uint32_t)at - now_units() - 1 < LINGER_NS / KNOWN_UNIT;
}

void reach_unknown(void)
{
    for (unsigned i = 0; i < KNOWN; i++)
        atomic_store(&known[i], 0);
}

void reach_forget(void)
{
    ports = NULL;
    reach_unknown();
}

static struct port *port_of(uint16_t number)
{
    struct port *p = ports;

    while (p && p->number != number)
        p = p->next;
    return p;
}

static void unlisten(const struct port *p, int family)
{
    if (rsk_shm_wire.unlisten)
        rsk_shm_wire.unlisten(family, p->number);
    if (rsk_verbs_wire.unlisten)
        rsk_verbs_wire.unlisten(family, p->number);
}

static void end(void *number)
{
    struct port *p = port_of((uint16_t)(uintptr_t)number), **at = &ports;

    if (!p)
        return;
    p->ending = false;
    if (p->users > 0)
        return;
    make_unknown(p->number);
    if (p->v4)
        unlisten(p, AF_INET);
    if (p->v6)
        unlisten(p, AF_INET6);
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    log_debug("port %u: nobody is left to ask for", p->number);
    free(p);
}

static void drop(void *number)
{
    struct port *p = port_of((uint16_t)(uintptr_t)number);

    if (!p || --p->users > 0 || p->ending)
        return;
    p->ending = rsk_timer_add(LINGER_NS, end, number) != NULL;
}

static bool taken(struct fb_conn *c)
{
    return atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_REACHABLE) & CF_REACHABLE;
}

void reach_over(struct fb_conn *c)
{
    if (taken(c))
        drop((void *)(uintptr_t)c->x->tuple.dst_port);
}

void reach_drop(struct fb_conn *c)
{
    if (conn_flag(c, CF_REACHABLE) && taken(c))
        (void)rsk_loop_post(drop, (void *)(uintptr_t)c->x->tuple.dst_port);
}

static void count(struct fb_conn *c)
{
    struct port *p = port_of(c->x->tuple.dst_port);

    if (!p) {
        p = calloc(1, sizeof(*p));
        if (!p)
            return; /* it stays reachable */
        p->number = c->x->tuple.dst_port;
        p->next = ports;
        ports = p;
    }
    p->v4 |= c->x->tuple.family == AF_INET;
    p->v6 |= c->x->tuple.family != AF_INET;
    if (conn_set(c, CF_REACHABLE))
        p->users++;
}

static bool may_pass(int err)
{
    return err == -ENOMEM || err == -EMFILE || err == -ENFILE || err == -ENOBUFS;
}

static void complain(uint16_t port, const char *wire, int err, int *said)
{
    if (said && err == *said)
        return;
    if (said)
        *said = err;
    if (may_pass(err)) /* and is asked for again and again */
        log_info("port %u: no %s rendezvous yet: error %d", port, wire, -err);
    else if (err < 0)
        log_warn("port %u: no %s rendezvous: error %d", port, wire, -err);
}

/* As rsk_wire's listen. */
static int listen_verbs(int family, uint16_t port, const struct rsk_accept_ops *ops, int *said)
{
    int reason = rsk_verbs_wire.usable(), r = -ENOMEM;

    if (reason == RSN_LIMIT_FD)
        r = -EMFILE;
    else if (reason && reason != RSN_NO_MEMORY)
        return -ENODEV; /* which is as it may be */
    if (!reason)
        r = rsk_verbs_wire.listen(family, port, 0, ops);
    complain(port, "RDMA", r, said);
    return r;
}

bool reach_add(struct fb_conn *c, const struct rsk_accept_ops *shm,
               const struct rsk_accept_ops *verbs)
{
    int family = c->x->tuple.family, r = -ENODEV, v = -ENODEV;
    uint16_t port = c->x->tuple.dst_port;
    struct port *p;

    count(c);
    p = port_of(port);
    if (conn_config(c)->wire != CFG_WIRE_VERBS) {
        r = rsk_shm_wire.listen(family, port, c->x->tuple.src_port, shm);
        complain(port, "shared-memory", r, p ? &p->shm_said : NULL);
    }
    if (conn_config(c)->wire != CFG_WIRE_SHM)
        v = listen_verbs(family, port, verbs, p ? &p->verbs_said : NULL);
    if (conn_config(c)->wire == CFG_WIRE_AUTO && r == 0 && !may_pass(v))
        make_known(c);
    return r == 0 || v == 0 || !(may_pass(r) || may_pass(v));
}
