/*
 * shm_ring.h - one connection's shared memory: its layout, and a rail's view of it.
 * For the files of the shm wire, its tests and its benchmark.
 *
 * The memfd:  | header, 64 KiB of offsets, 12 KiB of them used | ring 0 | ring 1 |
 * Direction 0 is from the initiator to the acceptor. Everything in here is written by two
 * processes that need not trust each other: values are loaded once, checked, then used.
 *
 * Who writes what, a cache line each, so that a line bounces only when its news is news:
 *   producer  tail, credit_step, want_tx   read by the consumer at each look
 *   consumer  consumed                     read by the producer when its cached credit is short
 *   sleeper   want_rx                      read by the producer at each publish, changed by sleep
 *   words     rx_word, tx_word             futex words, touched to sleep and to wake
 *             gone                         the producer's end has failed; set once
 *             ends                         the producer's process has said that it lives (tx_ends);
 *                                          set once
 */
#ifndef RSK_SHM_RING_H
#define RSK_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rsock/own.h"
#include "rsock/wire.h"

enum {
    SHM_HEADER = 65536, /* a multiple of every page size that we meet */
    SHM_CTL_SLOTS = 64,
    SHM_LINE = 64,
};

struct shm_dir {
    struct {
        _Atomic uint64_t tail;        /* bytes published: stream position */
        _Atomic uint32_t credit_step; /* tell of credit at least every so many bytes */
        _Atomic uint32_t want_tx;     /* RSK_BY_*: the producer waits for credit */
    } producer __attribute__((aligned(SHM_LINE)));
    struct {
        _Atomic uint64_t consumed; /* bytes taken by the application: stream position */
    } consumer __attribute__((aligned(SHM_LINE)));
    struct {
        _Atomic uint32_t want_rx; /* RSK_BY_*: the consumer waits for bytes */
    } sleeper __attribute__((aligned(SHM_LINE)));
    struct {
        _Atomic uint32_t rx_word, tx_word;
        _Atomic uint32_t gone;
        _Atomic uint32_t ends;
    } words __attribute__((aligned(SHM_LINE)));
    struct {
        _Atomic uint64_t head; /* control messages taken */
    } ctl __attribute__((aligned(SHM_LINE)));
    /* seq[i] = n + 1 says that slot i holds message number n: several threads may fill slots
     * at once without a lock, so a signal handler that sends cannot meet its own lock. */
    _Atomic uint32_t seq[SHM_CTL_SLOTS] __attribute__((aligned(SHM_LINE)));
    _Atomic uint64_t slot[SHM_CTL_SLOTS][sizeof(struct rsk_msg) / 8]
        __attribute__((aligned(SHM_LINE)));
};

struct shm_header {
    struct shm_dir dir[2];
};
_Static_assert(sizeof(struct shm_header) <= SHM_HEADER, "header size");

struct shm_bell;
struct shm_peer_bell;

/* Where news goes: into a bell of ours (to ourselves) or of the peer's. */
struct shm_slot {
    struct shm_bell *bell;
    uint32_t index;
};
struct shm_peer_slot {
    struct shm_peer_bell *bell; /* NULL rings nobody */
    uint32_t index;
};

/* A rail of this wire. The three groups are on lines of their own: two threads use them. */
struct shm_rail {
    struct rsk_rail base;

    /* set-up; does not change afterwards */
    struct shm_dir *out, *in;
    uint8_t *out_data, *in_data, *staging;
    struct shm_peer_slot peer_data, peer_ctl; /* the peer's shards */
    struct shm_slot my_data, my_ctl;          /* ours; one and the same slot if one bell */
    struct rsk_shard *ctl_shard;
    bool giving, doomed; /* inside shm_rail_give; destroyed meanwhile, so give frees it */
    struct rsk_own_map map;

    /* Written under the tx lock; poll() of any thread reads them. */
    _Atomic uint64_t tx __attribute__((aligned(SHM_LINE))); /* next number to accept */
    _Atomic uint64_t freed;                                 /* F: highest credit seen */
    uint64_t tx_stale;       /* what `consumed` held from before tx_start: not credit */
    uint64_t tx_base;        /* S: staging starts here */
    _Atomic uint32_t tx_cap; /* tx - freed stays within this; 0: not started or stopped */
    _Atomic bool tx_open;

    /* Written under the rx lock; poll() of any thread reads them. */
    _Atomic uint64_t rx __attribute__((aligned(SHM_LINE))); /* consumed by the application */
    _Atomic uint64_t arrived;                               /* V as last seen */
    _Atomic uint64_t rx_stale; /* what `tail` held from before rx_start: not bytes */
    uint64_t rx_told;          /* rx at the last look for a sender that waits for credit */
    uint32_t rx_step;          /* the sender's credit_step, bounded */
    _Atomic bool rx_live;      /* started and not frozen */

    /* control messages: any thread */
    _Atomic uint64_t ctl_out __attribute__((aligned(SHM_LINE)));
    _Atomic uint64_t ctl_in;
    /* any thread, too: somebody may wait for room, and has not been told of any */
    _Atomic bool tx_asked;
};

static inline struct shm_rail *shm_of(struct rsk_rail *r)
{
    return (struct shm_rail *)r;
}

/* A sealed memfd for two rings of `ring` bytes. The descriptor or -errno; not noted in own.h. */
int shm_memfd_new(uint32_t ring);
/* Is it one that cannot be made to hurt us, and for rings of this size? */
bool shm_memfd_good(int fd, uint32_t ring);
/* Rounds a wish to a size that can be had; 0 is the default. */
uint32_t shm_ring_size(size_t wish);

/* A rail on this memfd (which the caller may close afterwards), without bells or shards yet.
 * NULL when out of memory. free unmaps; bells and shards are the caller's. */
struct shm_rail *shm_rail_new(int memfd, uint32_t ring, bool initiator);
void shm_rail_free(struct shm_rail *);

/* Fails the rail, wakes everybody of ours who sleeps on it. Any thread, any number of times. */
void shm_fail(struct shm_rail *, int reason);

/* The operations of wire.h. */
void shm_tx_start(struct rsk_rail *, uint64_t S);
size_t shm_tx_space(struct rsk_rail *, struct iovec v[2]);
int shm_tx_put(struct rsk_rail *, size_t n);
size_t shm_tx_give(struct rsk_rail *, const void *p, size_t n);
int shm_tx_open(struct rsk_rail *);
ssize_t shm_tx_push(struct rsk_rail *);
uint64_t shm_tx_freed(struct rsk_rail *);
size_t shm_tx_kept(struct rsk_rail *, uint64_t from, uint64_t to, struct iovec v[2]);
void shm_tx_stop(struct rsk_rail *);
void shm_tx_ends(struct rsk_rail *);
enum rsk_fate shm_tx_fate(struct rsk_rail *);
void shm_rx_start(struct rsk_rail *, uint64_t S);
size_t shm_rx_peek(struct rsk_rail *, struct iovec v[2]);
void shm_rx_consume(struct rsk_rail *, size_t n);
size_t shm_rx_take(struct rsk_rail *, void *p, size_t n);
uint64_t shm_rx_freeze(struct rsk_rail *);
int shm_ctl_send(struct rsk_rail *, const struct rsk_msg *);
int shm_ctl_recv(struct rsk_rail *, struct rsk_msg *);
/* 1: message n is in its slot; 0: not yet; -1: the sequence is neither old nor new. */
int shm_ctl_ready(const struct shm_rail *, uint64_t n);
unsigned shm_poll(struct rsk_rail *, unsigned events);
unsigned shm_arm(struct rsk_rail *, unsigned events, unsigned how);
void shm_kill(struct rsk_rail *, int reason);

#endif
