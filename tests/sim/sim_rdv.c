/*
 * sim_rdv.c - the simulated rendezvous: end 0 asks, end 1 is found if it listens, and
 * each gets its end of a new rail at a moment of its own.
 */
#include "tests/sim/sim.h"

#include <string.h>

static struct {
    const struct rsk_accept_ops *ops; /* end 1 listens */
    struct rsk_tuple tuple;
    void *asker, *owner;
    void (*answer)(void *, struct rsk_rail *, int);
    struct sim_rail *give[2];
} rdv;

void sim_rdv_new(void)
{
    memset(&rdv, 0, sizeof(rdv));
}

bool sim_rdv_busy(void)
{
    return rdv.answer || rdv.give[1];
}

int sim_rdv_usable(void)
{
    return 0;
}

int sim_rdv_listen(int family, uint16_t port, uint16_t peer, const struct rsk_accept_ops *ops)
{
    (void)peer;
    (void)family, (void)port;
    rdv.ops = ops;
    return 0;
}

int sim_rdv_connect(const struct rsk_tuple *t, struct rsk_shard *shard, size_t ring, void *owner,
                    void (*done)(void *, struct rsk_rail *, int))
{
    (void)shard, (void)ring;
    if (rdv.answer || rdv.give[0])
        sim_fail("two rendezvous at once");
    rdv.tuple = *t;
    rdv.asker = owner;
    rdv.answer = done;
    return 0;
}

static const struct rsk_wire *wire_of(void)
{
    return sim.outlives ? &rsk_shm_wire : &rsk_verbs_wire;
}

static struct sim_rail *new_pair(void)
{
    struct sim_rail *r = &sim.rail[2 * sim.rails++];
    uint32_t size = 32u << rnd(5);

    for (int e = 0; e < 2; e++) {
        r[e].base.wire = wire_of();
        r[e].base.rx_word = &r[e].words[0];
        r[e].base.tx_word = &r[e].words[1];
        r[e].base.tx_size = r[e].base.rx_size = size;
        memcpy(r[e].base.where, "sim", 4);
        r[e].peer = &r[!e];
        r[e].end = e;
        r[e].there = true;
    }
    return r;
}

bool sim_rdv_answer(void)
{
    struct rsk_shard *shard;
    size_t ring;
    int reason;

    if (rdv.answer && !rdv.give[0] && !rdv.give[1]) {
        reason = !sim.end[0].alive || !sim.end[1].alive || !rdv.ops || sim.rails == SIM_RAILS
                     ? RSN_NOT_YET
                     : rdv.ops->find(&rdv.tuple, &shard, &ring, &rdv.owner);
        if (reason) {
            void (*answer)(void *, struct rsk_rail *, int) = rdv.answer;

            rdv.answer = NULL;
            if (sim.end[0].alive)
                answer(rdv.asker, NULL, reason);
            return true;
        }
        rdv.give[0] = new_pair();
        rdv.give[1] = rdv.give[0] + 1;
        return true;
    }
    for (int i = 0; i < 4; i++) {
        int e = (int)rnd(2);
        struct sim_rail *r = rdv.give[e];

        if (!r)
            continue;
        rdv.give[e] = NULL;
        if (!sim.end[e].alive)
            return true;
        if (e) {
            rdv.ops->accepted(rdv.owner, &r->base);
        } else {
            void (*answer)(void *, struct rsk_rail *, int) = rdv.answer;

            rdv.answer = NULL;
            if (answer) /* it is there: sim_rdv_connect has set it before anything is given */
                answer(rdv.asker, &r->base, 0);
        }
        return true;
    }
    return false;
}
