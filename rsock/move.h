/*
 * move.h - wire.h's tx_give and rx_take by its other operations, for a wire to which the calls
 * between them are little beside the rest. Under the caller's tx or rx lock, as those.
 */
#ifndef RSK_MOVE_H
#define RSK_MOVE_H

#include "rsock/copy.h"
#include "rsock/wire.h"

static inline size_t rsk_give(struct rsk_rail *rail, const void *p, size_t n,
                              size_t (*space)(struct rsk_rail *, struct iovec v[2]),
                              int (*put)(struct rsk_rail *, size_t n))
{
    struct iovec room[2];

    if (atomic_load_explicit(&rail->failed, memory_order_acquire) || space(rail, room) < n)
        return 0;
    rsk_copy_in(room, p, n);
    (void)put(rail, n); /* accepted in any case */
    return n;
}

static inline size_t rsk_take(struct rsk_rail *rail, void *p, size_t n,
                              size_t (*peek)(struct rsk_rail *, struct iovec v[2]),
                              void (*consume)(struct rsk_rail *, size_t n))
{
    struct iovec have[2];
    size_t there;

    if (atomic_load_explicit(&rail->failed, memory_order_relaxed))
        return 0;
    there = peek(rail, have);
    if (n > there)
        n = there;
    if (n) {
        rsk_copy_out(p, have, n);
        consume(rail, n);
    }
    return n;
}

#endif
