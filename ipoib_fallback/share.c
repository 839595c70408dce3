/*
 * share.c - see share.h.
 */
#include "ipoib_fallback/share.h"

#include <string.h>

/* Over RDMA each question has a queue pair and its memory already, and the peer's one thread
 * answers all. Who is asked by shared memory takes 64 at once from everybody (shm_accept.c), and
 * where a thousand connections become worth a rail at one time, the first answer may be for all. */
enum { VERBS_MOST = 64, SHM_MOST = 32, MOST = VERBS_MOST };

/* Who is being asked, and how many streams have been put off since one last was not. */
static struct pool {
    uint32_t most, asking;
    struct asked {
        uint8_t family, addr[16];
        uint16_t port;
        uint32_t asking, queued;
    } of[MOST];
} pools[] = {[SHARE_SHM] = {.most = SHM_MOST}, [SHARE_VERBS] = {.most = VERBS_MOST}};

static uint16_t port_of(enum share way, const struct rsk_tuple *t)
{
    return way == SHARE_SHM ? t->dst_port : 0;
}

static struct asked *find(enum share way, const struct rsk_tuple *t)
{
    for (struct asked *a = pools[way].of; a < pools[way].of + MOST; a++)
        if (a->family == t->family && a->port == port_of(way, t) &&
            memcmp(a->addr, t->dst, sizeof(a->addr)) == 0)
            return a;
    return NULL;
}

/* NULL: all places are taken by those that are being asked. */
static struct asked *note(enum share way, const struct rsk_tuple *t)
{
    struct asked *a = find(way, t);

    if (a)
        return a;
    for (a = pools[way].of; a->asking; a++)
        if (a + 1 == pools[way].of + MOST)
            return NULL;
    *a = (struct asked){.family = t->family, .port = port_of(way, t)};
    memcpy(a->addr, t->dst, sizeof(a->addr));
    return a;
}

uint32_t share_rounds(enum share way, const struct rsk_tuple *t)
{
    const struct pool *p = &pools[way];
    struct asked *a = note(way, t);

    if (!a)
        return 1;
    if (p->asking + a->asking < p->most) {
        a->queued = 0;
        return 0;
    }
    return 1 + a->queued++ / p->most;
}

void share_ask(enum share way, const struct rsk_tuple *t)
{
    struct asked *a = note(way, t);

    if (a) {
        pools[way].asking++;
        a->asking++;
    }
}

void share_answered(enum share way, const struct rsk_tuple *t)
{
    struct asked *a = find(way, t);

    if (a && a->asking) {
        a->asking--;
        pools[way].asking--;
    }
}

void share_forget(void)
{
    for (unsigned i = 0; i < sizeof(pools) / sizeof(*pools); i++) {
        pools[i].asking = 0;
        memset(pools[i].of, 0, sizeof(pools[i].of));
    }
}
