/*
 * peer.c - see peer.h.
 */
#include "ipoib_fallback/peer.h"

#include <string.h>

/* A peer may be in so many places, one behind the other. */
#define PLACES 8u

static char *places(void *table, size_t size, const struct rsk_tuple *t, uint16_t port)
{
    uint32_t h = t->family * 31u + port;

    for (unsigned i = 0; i < sizeof(t->dst); i++)
        h = h * 31 + t->dst[i];
    h = (h ^ h >> 15) *
        0x2c1b3c6du; /* of addresses and ports that lie side by side no bits are alike */
    h ^= h >> 12;
    return (char *)table + h % (PEERS / PLACES) * PLACES * size;
}

static struct peer *place(char *first, size_t size, unsigned i)
{
    return (struct peer *)(void *)(first + i * size);
}

void *peer_find(void *table, size_t size, const struct rsk_tuple *t, uint16_t port)
{
    char *first = places(table, size, t, port);

    for (unsigned i = 0; i < PLACES; i++) {
        struct peer *p = place(first, size, i);

        if (p->family == t->family && p->port == port &&
            memcmp(p->addr, t->dst, sizeof(p->addr)) == 0)
            return p;
    }
    return NULL;
}

void *peer_note(void *table, size_t size, const struct rsk_tuple *t, uint16_t port)
{
    char *first = places(table, size, t, port);
    struct peer *p = peer_find(table, size, t, port), *oldest = place(first, size, 0);

    if (p)
        return p;
    for (unsigned i = 1; i < PLACES && oldest->family; i++) {
        p = place(first, size, i);
        if (!p->family || p->until < oldest->until)
            oldest = p;
    }
    memset(oldest, 0, size);
    oldest->family = t->family;
    oldest->port = port;
    memcpy(oldest->addr, t->dst, sizeof(oldest->addr));
    return oldest;
}
