/*
 * rdv_accept.c - the accepting end of the rendezvous (rdv.c): is there a stream for who asks, and
 * may it have a rail now? Progress thread.
 */
#include "ipoib_fallback/rdv.h"

#include "ipoib_fallback/budget.h"
#include "ipoib_fallback/find.h"
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/reach.h"
#include "ipoib_fallback/worth.h"

/* It is worth a rail, and has not asked for one, since its port could be reached (plain.c). */
static void ask_late(struct fb_conn *c)
{
    if (conn_flag(c, CF_LOOKS) && !conn_flag(c, CF_PINNED | CF_CLOSED) && !hold_on() &&
        conn_set(c, CF_ASKED))
        rdv_begin(c);
}

/* other: asked by this wire, a stream does not want it if its rule names that one. The reason for
 * shared memory is the one that makes the peer ask by RDMA. */
static int find(const struct rsk_tuple *t, enum cfg_wire other, struct rsk_shard **shard,
                size_t *ring, void **owner)
{
    struct fb_conn *c = conn_find(t);
    int reason = 0;

    if (!c)
        return RSN_NOT_MINE;
    worth_asked();
    ask_late(c);
    if (conn_flag(c, CF_PINNED))
        reason = c->s.pub->reason ? c->s.pub->reason : RSN_PEER_REFUSED;
    /* Who closed it before it was asked for knows of no rail, and does not wait for one to
     * end. That is the end of his number only: a child may have the connection, whom the
     * peer asks next. */
    else if (conn_flag(c, CF_CLOSED))
        reason = RSN_NOT_MINE;
    else if (rdv_half_closed(c))
        reason = RSN_ENDING;
    else if (conn_config(c)->wire == other)
        reason = other == CFG_WIRE_VERBS ? RSN_OTHER_HOST : RSN_RULE;
    else if (conn_begin_digests(c) || !conn_flag(c, CF_ASKED) || !c->x->show || hold_on() ||
             heir_elsewhere(c) || c->x->rail || c->x->rdv != RDV_NONE || c->x->tx.state != TX_T ||
             c->x->rx.state != RX_t || c->x->rx.end != 0)
        reason = RSN_NOT_YET;
    else if (!budget_take(c)) {
        reason = RSN_BUDGET;
        conn_reason(c, reason);
    } else if (rdv_pin_foreign(c)) {
        budget_free(c);
        reason = c->s.pub->reason;
    }
    if (reason) {
        fb_put(&c->s);
        return reason;
    }
    if (other == CFG_WIRE_SHM)
        rdv_fit(c);
    c->x->rdv = RDV_ASKED;
    *shard = rdv_shard_for(c);
    *ring = rdv_ring_for(c);
    *owner = c;
    return 0;
}

static void accepted(void *owner, struct rsk_rail *rail)
{
    struct fb_conn *c = owner;

    c->x->rdv = RDV_NONE;
    if (!link_up(c, rail)) {
        link_none(c, rail);
        budget_free(c);
    }
    fb_put(&c->s);
}

static void refused(void *owner, int reason)
{
    struct fb_conn *c = owner;

    c->x->rdv = RDV_NONE;
    budget_free(c);
    conn_reason(c, reason);
    if (reason == RSN_NO_MEMORY)
        (void)rdv_small_again(c);
    fb_put(&c->s);
}

/* Whoever has asked: it says no more than what is so here. */
static void none(const struct rsk_tuple *t, int reason)
{
    struct fb_conn *c = conn_find(t);

    if (!c)
        return;
    if (!c->x->rail && !conn_flag(c, CF_PINNED))
        conn_reason(c, reason);
    fb_put(&c->s);
}

static int find_shm(const struct rsk_tuple *t, struct rsk_shard **shard, size_t *ring, void **owner)
{
    return find(t, CFG_WIRE_VERBS, shard, ring, owner);
}

static int find_verbs(const struct rsk_tuple *t, struct rsk_shard **shard, size_t *ring,
                      void **owner)
{
    return find(t, CFG_WIRE_SHM, shard, ring, owner);
}

static const struct rsk_accept_ops shm_ops = {find_shm, accepted, refused, none};
static const struct rsk_accept_ops verbs_ops = {find_verbs, accepted, refused, NULL};

/* Is nothing missing but its peer's question? Then that is what is shown, and what is known
 * better is left. */
static bool waits_for_peer(struct fb_conn *c)
{
    int reason = c->s.pub->reason;

    /* A child that was forked for the connection, and has it for itself by now, can
     * board as anybody. */
    return reason == RSN_NEW || ((reason == RSN_INHERITED || reason == RSN_SHARED) && c->x &&
                                 !conn_flag(c, CF_PINNED) && !heir_elsewhere(c));
}

void rdv_be_reachable(struct fb_conn *c)
{
    if (rdv_half_closed(c))
        return;
    if (!reach_add(c, &shm_ops, &verbs_ops))
        conn_afresh(c); /* its traffic asks again */
    if (waits_for_peer(c))
        conn_reason(c, RSN_WAIT_PEER);
}
