/*
 * verbs_route.c - where a rail's packets go: by the addresses of its connection, or by those that
 * the layer above has in their place; and from which port it is asked for. Progress thread.
 */
#include <stdio.h>
#include <string.h>

#include "rsock/shm_diag.h"
#include "rsock/verbs_int.h"

static void (*tell)(const struct rsk_tuple *, void *owner, struct rsk_route *);

void vb_on_route(void (*fn)(const struct rsk_tuple *, void *owner, struct rsk_route *))
{
    tell = fn;
}

struct rsk_route vb_own_route(const struct rsk_tuple *t)
{
    struct rsk_route route = {.tos = -1};

    memcpy(route.src, t->src, sizeof route.src);
    memcpy(route.dst, t->dst, sizeof route.dst);
    return route;
}

struct rsk_route vb_route(const struct rsk_tuple *t, void *owner)
{
    struct rsk_route route = vb_own_route(t);

    if (tell)
        tell(t, owner, &route);
    return route;
}

/* Whether the kernel gives such ports to those who do not ask for one. */
static bool is_any(uint16_t port)
{
    unsigned from = 32768, to = 60999; /* as it does if nobody has told it otherwise */
    char s[32] = "";
    int fd =
        rsk_own_fd(sys_open("/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY | O_CLOEXEC, 0));

    if (fd >= 0 && sys_read(fd, s, sizeof s - 1) > 0)
        (void)sscanf(s, "%u %u", &from, &to);
    rsk_own_close(fd);
    return from <= port && port <= to;
}

uint16_t vb_own_port(const struct rsk_tuple *t)
{
    /* The connection's own, as any other may be one at which somebody is going to listen. But so
     * may this, where its program has chosen it: one that connects from the port at which it
     * listens itself would have taken that port from its listener. */
    return is_any(t->src_port) && !shm_diag_listens(t) ? t->src_port : 0;
}
