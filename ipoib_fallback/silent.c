/*
 * silent.c - whom it is no use to ask for a while: ports for which nobody answers, and hosts of which two ports gave no answer at all,
 * where each question costs seconds of waiting for packets. One connection asks for
 * all of them, and when it is answered the others ask as well. One port may be that of a process that is stopped. And whom it is no use to ask for a second, because
 * all its rails are taken: a question costs both ends more than a hundred messages. And how many questions may be under way at a time,
 * so that hosts which do not answer leave room for those that do. Progress thread.
 */
#include "ipoib_fallback/silent.h"

#include <string.h>

#define PAUSE_MOST 60000000000ull

#define SILENT 64
static struct silent {
    uint8_t family, addr[16];
    uint16_t port, reason; /* port 0: the whole host */
    bool asking;
    uint64_t until, pause;
} silent_peers[SILENT];

static struct silent *silent_slot(const struct rsk_tuple *t, uint16_t port)
{
    uint32_t h = t->family * 31u + port;

    for (unsigned i = 0; i < sizeof(t->dst); i++)
        h = h * 31 + t->dst[i];
    return &silent_peers[h % SILENT];
}

static bool is_of(const struct silent *s, const struct rsk_tuple *t, uint16_t port)
{
    return s->family == t->family && s->port == port && memcmp(s->addr, t->dst, 16) == 0;
}

uint64_t silent_for(const struct rsk_tuple *t, int *reason)
{
    const uint16_t ports[] = {0, t->dst_port};
    uint64_t now = fb_io.now();

    for (unsigned i = 0; i < 2; i++) {
        struct silent *s = silent_slot(t, ports[i]);

        if (!is_of(s, t, ports[i]))
            continue;
        *reason = s->reason;
        if (now < s->until)
            return s->until - now;
        if (s->asking) /* that takes as long as before, or less: nobody looks every moment */
            return s->pause / 4;
    }
    return 0;
}

/* Over RDMA each question has a queue pair and its memory already, and the peer's one thread answers all. */
enum { QUESTIONS = 64 };

/* Hosts that are being asked, and how many streams have been put off since one last was not. */
static struct host {
    uint8_t family, addr[16];
    uint32_t asking, queued;
} hosts[QUESTIONS];
static uint32_t asking;

static struct host *host_of(const struct rsk_tuple *t)
{
    struct host *unused = NULL;

    for (struct host *h = hosts; h < hosts + QUESTIONS; h++) {
        if (h->family == t->family && memcmp(h->addr, t->dst, 16) == 0)
            return h;
        if (!h->asking)
            unused = h;
    }
    if (unused) {
        *unused = (struct host){.family = t->family};
        memcpy(unused->addr, t->dst, 16);
    }
    return unused;
}

uint32_t silent_rounds(const struct rsk_tuple *t)
{
    struct host *h = host_of(t);

    if (!h)
        return 1;
    /* To one host no more than are left for all others: one alone gets half of them, the next one half of the rest. */
    if (h->asking < QUESTIONS - asking) {
        h->queued = 0;
        return 0;
    }
    return 1 + h->queued++ / QUESTIONS;
}

void silent_ask(const struct rsk_tuple *t)
{
    const uint16_t ports[] = {0, t->dst_port};
    struct host *h = host_of(t);

    for (unsigned i = 0; i < 2; i++) {
        struct silent *s = silent_slot(t, ports[i]);

        if (is_of(s, t, ports[i]))
            s->asking = true;
    }
    if (h) { /* as silent_rounds has found */
        asking++;
        h->asking++;
    }
}

void silent_forget(void)
{
    for (struct silent *s = silent_peers; s < silent_peers + SILENT; s++)
        s->asking = false;
    memset(hosts, 0, sizeof(hosts));
    asking = 0;
}

static void note_silence(const struct rsk_tuple *t, uint16_t port, int reason)
{
    struct silent *s = silent_slot(t, port);

    if (!is_of(s, t, port) || s->reason != reason) {
        *s = (struct silent){.family = t->family, .port = port};
        memcpy(s->addr, t->dst, 16);
        s->pause = reason == RSN_RDV_TIMEOUT ? 1000000000ull : 20000000ull;
    } else if (fb_io.now() < s->until) {
        return; /* several asked before the first was answered: one silence */
    } else if (s->pause < PAUSE_MOST) {
        s->pause *= 2;
    }
    s->asking = false;
    s->reason = (uint16_t)reason;
    s->until = fb_io.now() + s->pause;
}

/* Another port of that host gave no answer just now. */
static bool another_silent(const struct rsk_tuple *t)
{
    for (const struct silent *s = silent_peers; s < silent_peers + SILENT; s++)
        if (s->port && s->port != t->dst_port && is_of(s, t, s->port) &&
            s->reason == RSN_RDV_TIMEOUT && fb_io.now() < s->until + s->pause)
            return true;
    return false;
}

void silent_answer(const struct rsk_tuple *t, int reason)
{
    struct silent *host = silent_slot(t, 0), *port = silent_slot(t, t->dst_port);
    struct host *h = host_of(t);

    if (h && h->asking) {
        h->asking--;
        asking--;
    }
    if (reason == RSN_RDV_TIMEOUT) {
        if (is_of(host, t, 0) || another_silent(t))
            note_silence(t, 0, reason);
        note_silence(t, t->dst_port, reason);
        return;
    }
    if (is_of(host, t, 0))
        host->family = 0; /* it lives */
    if (reason == RSN_NO_PEER_LIB)
        note_silence(t, t->dst_port, reason);
    else if (is_of(port, t, t->dst_port))
        port->family = 0;
}

/* ---- peers without room ---- */

#define FULL_NS 1000000000ull

static struct full {
    uint8_t family, addr[16];
    uint16_t port;
    uint64_t until;
} full_peers[SILENT];

static struct full *full_slot(const struct rsk_tuple *t)
{
    return &full_peers[silent_slot(t, t->dst_port) - silent_peers];
}

static bool full_of(const struct full *f, const struct rsk_tuple *t)
{
    return f->family == t->family && f->port == t->dst_port && memcmp(f->addr, t->dst, 16) == 0;
}

bool silent_full(const struct rsk_tuple *t)
{
    const struct full *f = full_slot(t);

    return full_of(f, t) && fb_io.now() < f->until;
}

void silent_said(const struct rsk_tuple *t, int reason)
{
    struct full *f = full_slot(t);

    if (reason == RSN_BUDGET) {
        *f = (struct full){.family = t->family, .port = t->dst_port};
        memcpy(f->addr, t->dst, 16);
        f->until = fb_io.now() + FULL_NS;
    } else if (reason == 0 && full_of(f, t)) {
        f->family = 0;
    }
}
