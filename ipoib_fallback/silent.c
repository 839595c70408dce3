/*
 * silent.c - peers that it is no use to ask for a while: ports for which nobody answers, and hosts
 * of which two ports gave no answer at all (one alone may be that of a process that is stopped),
 * where each question costs seconds of waiting for packets. After that one connection asks for all
 * of them, and when it is answered the others ask as well. And peers that it is no use to ask for a
 * second, because all their rails are taken: a question costs both ends more than a hundred
 * messages. Progress thread.
 */
#include "ipoib_fallback/silent.h"

#include "ipoib_fallback/peer.h"

#define PAUSE_MOST 60000000000ull

static struct silent {
    struct peer peer;
    uint16_t reason; /* RSN_NONE: it is not silent */
    bool asking;
    uint64_t until, pause;
    uint64_t full_until; /* it has no room */
} silent_peers[PEERS];

static struct silent *known(const struct rsk_tuple *t, uint16_t port)
{
    return peer_find(silent_peers, sizeof(*silent_peers), t, port);
}

static void remember(struct silent *s)
{
    uint64_t until = s->reason ? s->until + s->pause : 0;

    s->peer.until = until > s->full_until ? until : s->full_until;
}

uint64_t silent_for(const struct rsk_tuple *t, int *reason)
{
    const uint16_t ports[] = {0, t->dst_port};
    uint64_t now = fb_io.now();

    for (unsigned i = 0; i < 2; i++) {
        const struct silent *s = known(t, ports[i]);

        if (!s || !s->reason)
            continue;
        *reason = s->reason;
        if (now < s->until)
            return s->until - now;
        if (s->asking) /* that takes as long as before, or less: nobody looks every moment */
            return s->pause / 4;
    }
    return 0;
}

void silent_ask(const struct rsk_tuple *t)
{
    const uint16_t ports[] = {0, t->dst_port};

    for (unsigned i = 0; i < 2; i++) {
        struct silent *s = known(t, ports[i]);

        if (s)
            s->asking = true;
    }
}

void silent_forget(void)
{
    for (struct silent *s = silent_peers; s < silent_peers + PEERS; s++)
        s->asking = false;
}

static void note_silence(const struct rsk_tuple *t, uint16_t port, int reason)
{
    struct silent *s = peer_note(silent_peers, sizeof(*silent_peers), t, port);

    if (s->reason != reason)
        s->pause = reason == RSN_RDV_TIMEOUT ? 1000000000ull : 20000000ull;
    else if (fb_io.now() < s->until)
        return; /* several asked before the first was answered: one silence */
    else if (s->pause < PAUSE_MOST)
        s->pause *= 2;
    s->asking = false;
    s->reason = (uint16_t)reason;
    s->until = fb_io.now() + s->pause;
    remember(s);
}

static void answers(const struct rsk_tuple *t, uint16_t port)
{
    struct silent *s = known(t, port);

    if (!s)
        return;
    s->reason = RSN_NONE;
    s->asking = false;
    remember(s);
}

/* Another port of that host gave no answer just now. */
static bool another_silent(const struct rsk_tuple *t)
{
    for (const struct silent *s = silent_peers; s < silent_peers + PEERS; s++)
        if (s->reason == RSN_RDV_TIMEOUT && s->peer.port && s->peer.port != t->dst_port &&
            s == known(t, s->peer.port) && fb_io.now() < s->until + s->pause)
            return true;
    return false;
}

void silent_answer(const struct rsk_tuple *t, int reason)
{
    if (reason == RSN_RDV_TIMEOUT) {
        const struct silent *host = known(t, 0);

        if ((host && host->reason) || another_silent(t))
            note_silence(t, 0, reason);
        note_silence(t, t->dst_port, reason);
        return;
    }
    answers(t, 0); /* it lives */
    if (reason == RSN_NO_PEER_LIB)
        note_silence(t, t->dst_port, reason);
    else
        answers(t, t->dst_port);
}

/* ---- peers without room ---- */

#define FULL_NS 1000000000ull

bool silent_full(const struct rsk_tuple *t)
{
    const struct silent *s = known(t, t->dst_port);

    return s && fb_io.now() < s->full_until;
}

void silent_said(const struct rsk_tuple *t, int reason)
{
    struct silent *s = known(t, t->dst_port);

    if (reason == RSN_BUDGET) {
        s = peer_note(silent_peers, sizeof(*silent_peers), t, t->dst_port);
        s->full_until = fb_io.now() + FULL_NS;
    } else if (reason == RSN_NONE && s) {
        s->full_until = 0;
    }
    if (s)
        remember(s);
}
