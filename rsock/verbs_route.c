/*
 * verbs_route.c - where a rail's packets go: by the addresses of its connection, or by those that the layer above
 * has in their place. Progress thread.
 */
#include <string.h>

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
