/*
 * shard_part.h - for the wires only: what a shard is made of. A part is one thing
 * that can have news and a descriptor that tells of it: shm's dirty-bit page and
 * eventfd for one peer uid, or a completion channel with its completion queues.
 */
#ifndef RSK_SHARD_PART_H
#define RSK_SHARD_PART_H

#include "rsock/shard.h"

struct rsk_shard_part {
    const struct rsk_wire *wire; /* with key: who made it */
    uint64_t key;
    int fd; /* fires when armed and news comes */
    /* As rsk_shard_drain, for this part; the shard lets one thread in at a time. */
    int (*drain)(struct rsk_shard_part *);
    /* False: drain may find something. True: drain would find nothing, or one that is under way has
     * already taken what there was; an acquire load of the word that such a drain clears. NULL:
     * only drain knows. */
    bool (*quiet)(struct rsk_shard_part *);
    bool (*arm)(struct rsk_shard_part *);
    void (*disarm)(struct rsk_shard_part *);
    /* Makes fd fire. NULL where disarm does nothing, so that an arming cannot be lost by it. */
    void (*fire)(struct rsk_shard_part *);
    void (*free)(struct rsk_shard_part *);
    struct rsk_shard_part *next; /* the shard's: parts are only ever added at the head */
};

/* The part of this wire and key, or NULL. Any thread. */
struct rsk_shard_part *rsk_shard_find(struct rsk_shard *, const struct rsk_wire *, uint64_t key);
/* Adds a part and reports its fd. Progress thread. If the shard is armed the part is armed. */
void rsk_shard_add(struct rsk_shard *, struct rsk_shard_part *);
/* Shuts other threads out of rsk_shard_drain while a rail leaves the part: after lock returns
 * no notify of this shard is running. Not from inside notify. */
void rsk_shard_lock(struct rsk_shard *);
void rsk_shard_unlock(struct rsk_shard *);
/* How many have armed and not disarmed. Whoever uses an arming up, and then sees 0 here, need not
 * arm for others: who comes now counts first, and arms then. */
uint32_t rsk_shard_armed(const struct rsk_shard *);

#endif
