/*
 * frail.c - see frail.h. A stream whose rail has failed, or was taken back, waits for a second,
 * then two, and so on: a rail that ends again and again must not cost more than it gives. But what
 * makes rails fail is mostly not the stream's: it is the path, which carries some packets and not
 * others, or loses them under load. There each connection would find that out by itself, again and
 * again, and its bytes stand still each time until that is known. So failures are kept for the
 * peer's host as well, for which no stream of this process asks then.
 *
 *   a rail fails          nobody asks for one for a second
 *   its stream goes on    for twice as long the next time, up to 64 seconds, unless it is the one
 *                         whose rail had failed before: then it is perhaps not the path, and others
 *                         may do well
 *   the time is over      one asks, the others when that one is through with the proof, for which
 *                         the path has carried large packets both ways
 *   STEADY without one    forgotten
 *
 * A process that is killed looks like a path that fails, and its stream does not go on: so nothing
 * is doubled by it.
 *
 * The end that accepts keeps no count: any user of that host could bring it to refuse rails to
 * the others there.
 */
#include "ipoib_fallback/frail.h"

#include "ipoib_fallback/peer.h"

#include "config/env.h"
#include "config/log.h"

#define HOLD_FIRST 1000000000ull
#define HOLD_MOST \
    64000000000ull /* as a stream's own: another's rail may live where this one's do not */
#define STEADY \
    60000000000ull /* a rail that has lived so long was none that fails again and again */

#define ANSWERED \
    3000000000ull /* whoever has asked, or it has ended in a way that is not told here */

static struct frail {
    struct peer peer;
    uint32_t stream;       /* the one whose rail failed last */
    bool again;            /* the rail that had failed before was the same stream's */
    bool goes_on;          /* that stream has asked for another one since */
    uint64_t until, hold;  /* nobody asks until then; for how long nobody will the next time */
    uint64_t asking_until; /* one stream asks, and the others wait for it until then, */
    uint64_t proved_at;    /* or until one is proved: when; 0: none since the last failure */
} frail_peers[PEERS];

static struct frail *known(const struct fb_conn *c)
{
    return peer_find(frail_peers, sizeof(*frail_peers), &c->x->tuple, 0);
}

/* None has failed for as long as a good one lives, though there was one; or nobody has tried
 * for very long. */
static bool over(const struct frail *f, uint64_t now)
{
    return (f->proved_at && now - f->proved_at > STEADY) || now > f->until + HOLD_MOST;
}

static void failed(struct fb_conn *c, uint64_t now)
{
    struct frail *f = peer_note(frail_peers, sizeof(*frail_peers), &c->x->tuple, 0);
    uint32_t stream = (uint32_t)c->x->tuple.src_port << 16 | c->x->tuple.dst_port;

    c->x->broke = true;
    if (!f->hold || over(f, now)) {
        *f = (struct frail){.peer = f->peer, .hold = HOLD_FIRST};
    } else if (now < f->until) { /* several failed before anybody knew: one failure */
        return;
    }
    f->again = f->stream == stream;
    f->stream = stream;
    if (f->again)
        f->hold = HOLD_FIRST;
    f->goes_on = false;
    f->proved_at = f->asking_until = 0;
    f->until = now + f->hold;
    f->peer.until = f->until + HOLD_MOST;
    log_info("stream %u: its rail has not lasted: none to that host for %u s", c->s.slot,
             (unsigned)(f->hold / HOLD_FIRST));
}

uint64_t frail_ended(struct fb_conn *c, int reason)
{
    uint64_t up_at = c->x->up_at, now = fb_io.now(), hold;
    struct frail *f = known(c);

    c->x->up_at = 0;
    if (f)
        f->asking_until = 0;
    switch (reason) {
    case RSN_RDV_TIMEOUT:
        if (!up_at) /* silent.c's; else nobody has answered over the rail */
            return 0;
        /* fall through */
    case RSN_RAIL_FAILED:
        if (up_at && now - up_at <= STEADY && !cfg.test_switch)
            failed(c, now);
        break;
    case RSN_DEVICE_GONE: /* ours */
    case RSN_PEER_LEFT:
    case RSN_STALLED:
    case RSN_CREDENTIALS:
    case RSN_NAMESPACE:
    case RSN_LIMIT_FD:
    case RSN_BUFFER:
        break;
    default:
        return 0;
    }
    if (up_at && now - up_at > STEADY)
        c->x->holds = 0;
    hold = HOLD_FIRST << (c->x->holds < 6 ? c->x->holds : 6);
    c->x->holds++;
    return hold;
}

void frail_goes_on(struct fb_conn *c)
{
    struct frail *f = known(c);

    if (!c->x->broke)
        return;
    c->x->broke = false;
    if (!f || f->goes_on)
        return;
    f->goes_on = true;
    if (f->again)
        return;
    f->hold = f->hold < HOLD_MOST / 2 ? 2 * f->hold : HOLD_MOST;
}

uint64_t frail_for(const struct fb_conn *c)
{
    const struct frail *f = known(c);
    uint64_t now = fb_io.now();

    if (!f)
        return 0;
    if (now < f->until)
        return f->until - now;
    return !f->proved_at && now < f->asking_until ? HOLD_FIRST / 4 : 0;
}

void frail_asks(const struct fb_conn *c)
{
    struct frail *f = known(c);

    if (f && !f->proved_at)
        f->asking_until = fb_io.now() + ANSWERED;
}

void frail_proved(const struct fb_conn *c)
{
    struct frail *f = known(c);

    if (f && !f->proved_at)
        f->proved_at = fb_io.now();
}
