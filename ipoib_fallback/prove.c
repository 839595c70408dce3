/*
 * prove.c - a new rail is taken over and both ends prove that they share the TCP
 * stream (DESIGN section 6), before anything is announced or written. Progress
 * thread.
 */
#include "ipoib_fallback/budget.h"
#include "ipoib_fallback/frail.h"
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/processors.h"

#include "config/log.h"
#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/shard.h"

#include <string.h>

#define HELLO_NS 3000000000ull

/* What is so will have no rail. */
enum { NO_MORE = CF_PINNED | CF_CLOSED | CF_FIN };

static uint32_t features(struct fb_conn *c)
{
    return conn_config(c)->site_key ? FB_KEYED : 0;
}

/* Only one end has a site key, or this end's settings have one that could not be read. The latter's
 * streams are pinned (rule.c); this does not depend on it. */
static bool unlike(struct fb_conn *c, const struct rsk_msg *m)
{
    const struct cfg_stream *set = conn_config(c);

    return ((m->word ^ features(c)) & FB_KEYED) || (set->key_file && !set->site_key);
}

static struct fb_proof_in known(struct fb_conn *c, uint8_t role)
{
    bool conn = c->s.role == FB_CONNECTED;

    return (struct fb_proof_in){.nonce0 = c->x->nonce0,
                                .nonce1 = c->x->nonce1,
                                .up = conn ? &conn_seen(c)->tx : &conn_seen(c)->rx,
                                .down = conn ? &conn_seen(c)->rx : &conn_seen(c)->tx,
                                .up_at = c->x->hello_up,
                                .down_at = c->x->hello_down,
                                .key = conn_config(c)->site_key,
                                .role = role};
}

static bool proof(struct fb_conn *c, uint8_t role, uint8_t out[16])
{
    struct fb_proof_in in = known(c, role);

    return fb_proof(&in, out);
}

static int judge(struct fb_conn *c, uint8_t role, const uint8_t theirs[16])
{
    struct fb_proof_in in = known(c, role);

    return fb_judge(&in, theirs);
}

/* Have we sent so few bytes that the peer may have looked at none, because its digest began after
 * them? Not 16 KiB: at that one begins in any case. And does the newest checkpoint of what we have
 * received lie 16 times as far? */
static bool few_words(const struct fb_conn *c, int rx_at)
{
    uint64_t sent = c->s.pub->tx;

    return sent < 16384 && rx_at >= 0 && 1ull << rx_at >= sent;
}

/* The peer names the checkpoints that it has, or chooses them, so it could say that it has only the
 * first bytes of the stream, which are easy to guess. What we have sent it must know nearly as far
 * as we do, and what we have received too: it may be late, but hardly by a factor of 16. A
 * direction that is silent, or that was not seen by its sender, may be left out for 64 bytes of the
 * other one, which is what an HTTP request has; one of few words for 1 KiB. */
enum { LATE = 4, ALONE = 64, MUCH = 1024 };
static bool recent(struct fb_conn *c)
{
    bool conn = c->s.role == FB_CONNECTED;
    uint64_t tx = conn ? c->x->hello_up : c->x->hello_down;
    uint64_t rx = conn ? c->x->hello_down : c->x->hello_up;
    int tx_at = fb_checkpoint_newest(tx), rx_at = fb_checkpoint_newest(rx);
    int sent = fb_checkpoint_newest(conn_seen(c)->tx.valid);
    int got = fb_checkpoint_newest(conn_seen(c)->rx.valid);
    bool alone = fb_checkpoints_cover(tx) >= ALONE;

    if ((!tx || !rx) && !alone && fb_checkpoints_cover(rx) < ALONE)
        return false;
    if (!tx && sent >= 0)
        return fb_checkpoints_cover(rx) >= MUCH && rx_at + LATE >= got && few_words(c, rx_at);
    if (sent >= 0 && tx_at + LATE < sent)
        return false;
    return got < 0 || (rx && rx_at + LATE >= got) || alone;
}

static void refuse(struct fb_conn *c, int reason)
{
    struct rsk_rail *rail = c->x->rail;
    struct rsk_msg m = {.type = FM_REFUSED, .reason = (uint16_t)reason, .epoch = c->x->epoch};

    rail->wire->ctl_send(rail, &m);
    log_info("stream %u: the rail is refused: %s", c->s.slot, cfg_reason_name(reason));
    link_end(c, reason);
}

static void proved(struct fb_conn *c)
{
    uint64_t answer = fb_io.now() - c->x->hello_at;
    char who[FB_WHO];

    c->x->answer_ns = answer < UINT32_MAX ? (uint32_t)answer : UINT32_MAX;
    if (c->x->rail)
        spin_measured(answer, c->x->rail->wire->slow_to_wake);
    link_no_timer(c);
    c->x->rdv = RDV_PROVED;
    c->x->rdv_tries = 0;
    frail_proved(c);
    conn_reason(c, RSN_NONE);
    log_info("stream %u: the peer is proved: descriptor %d, %s", c->s.slot, c->fd,
             conn_who(c, who));
    fb_lock(&c->x->tx.lock);
    if (!conn_flag(c, CF_PINNED | CF_CLOSED) && !c->x->tx.fin) {
        c->x->tx.want = true;
        atomic_store(&c->s.tx_gate, 1);
    }
    tx_unlock(c);
    conn_set(c, CF_PROVED);
    conn_todo_rx(c, TODO_MAIL); /* an announcement may have waited for this */
    conn_serve(c);
    if (conn_flag(c, NO_MORE)) /* meanwhile: nothing will board */
        link_release(c);
}

static void from_connecting(struct fb_conn *c, const struct rsk_msg *m)
{
    struct rsk_msg out = {.type = FM_HELLO_ACK, .word = features(c), .epoch = m->epoch};
    struct rsk_rail *rail = c->x->rail;

    c->x->epoch = m->epoch;
    if (unlike(c, m)) {
        refuse(c, RSN_KEY);
        return;
    }
    memcpy(c->x->nonce0, m->data, 16);
    if (sys_getrandom(c->x->nonce1, 16) != 16) {
        refuse(c, RSN_NO_MEMORY);
        return;
    }
    c->x->hello_up = fb_checkpoints_common(m->a, conn_seen(c)->rx.valid);
    c->x->hello_down = fb_checkpoints_common(m->b, conn_seen(c)->tx.valid);
    out.a = c->x->hello_up;
    out.b = c->x->hello_down;
    memcpy(out.data, c->x->nonce1, 16);
    if (!recent(c) || !proof(c, 1, out.data + 16)) {
        refuse(c, RSN_NOT_YET); /* too little has passed for a proof */
        return;
    }
    c->x->hello_at = fb_io.now();
    if (rail->wire->ctl_send(rail, &out) < 0)
        link_end(c, RSN_RAIL_FAILED);
}

static void from_accepting(struct fb_conn *c, const struct rsk_msg *m)
{
    struct rsk_msg out = {.type = FM_PROVED, .epoch = c->x->epoch};
    struct rsk_rail *rail = c->x->rail;
    int reason;

    if (unlike(c, m)) {
        refuse(c, RSN_KEY);
        return;
    }
    memcpy(c->x->nonce1, m->data, 16);
    c->x->hello_up = m->a;
    c->x->hello_down = m->b;
    reason = judge(c, 1, m->data + 16);
    if (!reason && !recent(c))
        reason = RSN_NOT_YET;
    if (reason) {
        refuse(c, reason);
        return;
    }
    proof(c, 0, out.data);
    if (rail->wire->ctl_send(rail, &out) < 0)
        link_end(c, RSN_RAIL_FAILED);
    else
        proved(c);
}

static void hello_job(void *arg)
{
    struct fb_conn *c = arg;
    struct rsk_msg m;
    int reason;
    bool due;

    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_HELLO_JOB);
    fb_lock(&c->x->ctl_lock);
    due = c->x->mail.hello_due;
    m = c->x->mail.hello;
    c->x->mail.hello_due = false;
    fb_unlock(&c->x->ctl_lock);
    if (!due || !c->x->rail) {
        fb_put(&c->s);
        return;
    }
    switch (m.type) {
    case FM_HELLO:
        if (c->s.role == FB_ACCEPTED && c->x->rdv == RDV_HELLO)
            from_connecting(c, &m);
        break;
    case FM_HELLO_ACK:
        if (c->s.role == FB_CONNECTED && c->x->rdv == RDV_HELLO && m.epoch == c->x->epoch)
            from_accepting(c, &m);
        break;
    case FM_PROVED:
        if (c->s.role != FB_ACCEPTED || c->x->rdv != RDV_HELLO || m.epoch != c->x->epoch)
            break;
        reason = judge(c, 0, m.data);
        if (reason)
            refuse(c, reason);
        else
            proved(c);
        break;
    case FM_REFUSED:
        atomic_store(&c->s.pub->peer_reason, m.reason);
        link_end(c, cfg_reason_told(m.reason));
        break;
    default: /* FM_BYE: the other end has given the rail back */
        link_end(c, atomic_load(&c->x->larger) ? RSN_LARGER : RSN_PEER_LEFT);
        break;
    }
    fb_put(&c->s);
}

void link_hello(struct fb_conn *c)
{
    link_post_once(c, CF_HELLO_JOB, JOB_HELLO, hello_job);
}

static void hello_late(void *arg)
{
    struct fb_conn *c = arg;

    link_timer_fired(c);
    if (c->x->rdv == RDV_HELLO)
        link_end(c, RSN_RDV_TIMEOUT);
    fb_put(&c->s);
}

/* The epoll instance on whose shard the rail was made does not have the stream any more, and
 * perhaps nobody drains that shard. A program that waits for each answer in an instance of
 * its own will do so again. Pairs with fb_unwatch: either it finds the rail, or this what it
 * has taken back. */
static bool strayed(struct fb_conn *c, const struct rsk_rail *rail)
{
    if (rail->shard == rsk_shard_common() || rail->shard == atomic_load(&c->prefer))
        return false;
    c->x->roams = true;
    return true;
}

/* Who pins, closes or shuts it down looks at the same word afterwards, without a lock: either he
 * sees that there is a rail, or is seen here. Last of all conditions, both locks held. */
static bool claim(struct fb_conn *c)
{
    uint32_t was = atomic_fetch_or(&c->s.flags, CF_LINKED);

    if (!(was & NO_MORE))
        return true;
    if (!(was & CF_LINKED))
        atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_LINKED);
    heir_settled(c);
    return false;
}

/* Why a stream that was to have a rail takes none. */
static int unwanted(struct fb_conn *c)
{
    if (conn_flag(c, CF_PINNED))
        return c->s.pub->reason ? c->s.pub->reason : RSN_PEER_REFUSED;
    if (conn_flag(c, CF_FIN) || c->x->tx.fin)
        return RSN_ENDING;
    /* The end of a number only, as in rdv_accept.c: a child may have the connection. */
    return conn_flag(c, CF_CLOSED) ? RSN_NOT_MINE : RSN_NOT_YET;
}

void link_none(struct fb_conn *c, struct rsk_rail *rail)
{
    struct rsk_msg m = {.type = FM_REFUSED, .reason = (uint16_t)unwanted(c)};

    /* Else a failure is all that it hears of. */
    rail->wire->ctl_send(rail, &m);
    rail->wire->kill(rail, RSN_ENDING);
    rail->wire->destroy(rail);
}

/* A new epoch begins only with both halves plain; what the last one left in the halves goes. */
bool link_up(struct fb_conn *c, struct rsk_rail *rail)
{
    bool ok = false;

    io_spare();
    fb_lock(&c->x->tx.lock);
    fb_lock(&c->x->rx.lock);
    if (!c->x->rail && conn_plain(c) && c->x->rx.end == 0 && !conn_flag(c, NO_MORE) && !hold_on() &&
        !c->x->tx.fin && heir_take(c) && claim(c)) {
        fb_get(&c->s); /* the rail's, until release */
        /* Anew: a forked child may have set them, and be gone. */
        atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_SETTINGS);
        conn_settings(c);
        atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_PROVED);
        c->x->tx.on_rail = c->x->rx.on_rail = c->x->tx.later = c->x->tx.echoed = false;
        c->x->tx.handed = false;
        c->x->tx.owed = c->x->tx.turned = false;
        c->x->tx.tries = 0;
        c->x->tx.not_before = 0;
        c->x->full_at = c->s.pub->tx;
        c->x->fulls = 0;
        atomic_store(&c->x->larger, false);
        c->x->rx.frozen = c->x->rx.handed = c->x->rx.begun = c->x->rx.asked = false;
        c->x->rx.unasked = 0;
        c->x->rx.unechoed = false;
        c->x->rx.unshown = false; /* of an announcement that came to nothing */
        atomic_store(&c->x->tx_todo, 0);
        atomic_store(&c->x->rx_todo, 0);
        atomic_store(&c->x->anchor_bits, 0);
        fb_lock(&c->x->ctl_lock);
        memset(&c->x->mail, 0, sizeof(c->x->mail));
        rail->owner = c;
        rail->notify = conn_notify; /* after it: on verbs somebody may be draining already */
        fb_lock(&c->watch_lock);
        c->x->rail = rail;
        fb_unlock(&c->watch_lock);
        fb_unlock(&c->x->ctl_lock);
        /* Else a proof that the last rail has seen would be one on this rail, too,
         * before any HELLO. */
        c->x->hello_up = c->x->hello_down = 0;
        c->x->rdv = RDV_HELLO;
        ok = true;
    }
    rx_unlock(c);
    tx_unlock(c);
    if (!ok)
        return false;
    budget_up(c, rail);
    processors_look();
    spin_joined(c, rail->wire->slow_to_wake);
    memcpy(c->x->show->where, rail->where, sizeof(c->x->show->where));
    atomic_store(&c->x->show->tx_ring, rail->tx_size);
    atomic_store(&c->x->show->rx_ring, rail->rx_size);
    c->x->up_at = fb_io.now();
    link_timer(c, HELLO_NS, hello_late);
    if (strayed(c, rail)) {
        refuse(c, RSN_NOT_YET);
        return true;
    }
    if (c->s.role == FB_CONNECTED) {
        struct rsk_msg m = {.type = FM_HELLO, .word = features(c)};

        m.epoch = ++c->x->epoch;
        m.a = conn_seen(c)->tx.valid;
        m.b = conn_seen(c)->rx.valid;
        c->x->hello_at = fb_io.now();
        if (sys_getrandom(c->x->nonce0, 16) != 16) {
            link_end(c, RSN_NO_MEMORY);
            return true;
        }
        memcpy(m.data, c->x->nonce0, 16);
        if (rail->wire->ctl_send(rail, &m) < 0)
            link_end(c, RSN_RAIL_FAILED);
    }
    /* A message may have come before notify was set. */
    link_serve(c);
    return true;
}
