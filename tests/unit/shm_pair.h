/*
 * shm_pair.h - two ends of one shm rail without a rendezvous, for tests and benchmarks.
 * Bells are left out unless given a shard.
 */
#ifndef TESTS_SHM_PAIR_H
#define TESTS_SHM_PAIR_H

#include <stdlib.h>
#include <string.h>

#include "rsock/copy.h"
#include "rsock/shard.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_ring.h"
#include "rsock/sys.h"

struct shm_pair {
    struct rsk_rail *a, *b; /* a has asked */
};

static inline struct shm_pair shm_pair_new(uint32_t ring)
{
    int fd = shm_memfd_new(ring);
    struct shm_pair p;

    p.a = (struct rsk_rail *)shm_rail_new(fd, ring, true);
    p.b = (struct rsk_rail *)shm_rail_new(fd, ring, false);
    sys_close(fd);
    if (!p.a || !p.b)
        abort();
    return p;
}

static const struct shm_cred shm_pair_cred = {.trusted = true, .alike = true};

/* Both directions start at S and are open. */
static inline void shm_pair_open(struct shm_pair p, uint64_t S)
{
    struct rsk_rail *end[2] = {p.a, p.b};

    for (int i = 0; i < 2; i++) {
        rsk_shm_wire.tx_start(end[i], S);
        rsk_shm_wire.rx_start(end[!i], S);
        (void)rsk_shm_wire.tx_open(end[i]);
    }
}

/* Gives `to` a bell in its shard, which `from` rings. */
static inline void shm_pair_bell(struct rsk_rail *from, struct rsk_rail *to, struct rsk_shard *s)
{
    struct shm_rail *r = shm_of(to);
    struct shm_bell *b;
    int page, event;

    if (shm_bell_of(s, &shm_pair_cred, &b))
        abort();
    to->shard = s;
    r->my_data.bell = r->my_ctl.bell = b;
    r->my_data.index = r->my_ctl.index = (uint32_t)shm_bell_reserve(b);
    shm_bell_set(b, r->my_data.index, to);
    shm_bell_fds(b, &page, &event);
    page = rsk_own_fd(sys_fcntl(page, F_DUPFD_CLOEXEC, 3));
    event = rsk_own_fd(sys_fcntl(event, F_DUPFD_CLOEXEC, 3));
    r = shm_of(from);
    if (shm_peer_bell_get(page, event, &shm_pair_cred, &r->peer_data.bell))
        abort();
    r->peer_ctl.bell = shm_peer_bell_again(r->peer_data.bell);
    r->peer_data.index = r->peer_ctl.index = shm_of(to)->my_data.index;
}

static inline void shm_pair_free(struct shm_pair p)
{
    struct rsk_rail *end[2] = {p.a, p.b};

    for (int i = 0; i < 2; i++) {
        struct shm_rail *r = shm_of(end[i]);

        if (!r)
            continue;
        if (r->my_data.bell)
            shm_bell_release(r->my_data.bell, r->my_data.index);
        shm_peer_bell_put(r->peer_data.bell);
        shm_peer_bell_put(r->peer_ctl.bell);
        shm_rail_free(r);
    }
}

/* Copies up to n bytes in, returns how many fitted. */
static inline size_t shm_put(struct rsk_rail *r, const void *p, size_t n)
{
    struct iovec v[2];
    size_t room = rsk_shm_wire.tx_space(r, v);

    if (n > room)
        n = room;
    if (!n)
        return 0;
    rsk_copy(v[0].iov_base, p, n, RSK_INTO);
    return rsk_shm_wire.tx_put(r, n) ? 0 : n;
}

static inline size_t shm_take(struct rsk_rail *r, void *p, size_t n)
{
    struct iovec v[2];
    size_t have = rsk_shm_wire.rx_peek(r, v);

    if (n > have)
        n = have;
    if (!n)
        return 0;
    rsk_copy(p, v[0].iov_base, n, RSK_OUT_OF);
    rsk_shm_wire.rx_consume(r, n);
    return n;
}

#endif
