/*
 * shm_bell.h - how one process tells another which of its rails have news: a page of dirty bits
 * and an eventfd, or a socket for who may not trust us. A bell is a part of a shard, for the
 * peers of one uid: a peer may fill an eventfd and so block an honest writer, hence it is shared
 * with nobody else.
 */
#ifndef RSK_SHM_BELL_H
#define RSK_SHM_BELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsock/shm_peer.h"

struct rsk_rail;
struct rsk_shard;
struct shm_bell;
struct shm_peer_bell;

enum { SHM_BELL_SLOTS = 4096 };

/* ---- ours */

/* The shard's bell for peers of that user, alike or not, made when there is none. 0, or -errno:
 * -EMFILE also where those for other users have half of the descriptors that the library may have.
 * The shard owns it. Progress thread. */
int shm_bell_of(struct rsk_shard *, const struct shm_cred *, struct shm_bell **);
/* What to pass to the peer; both stay ours. */
void shm_bell_fds(struct shm_bell *, int *page, int *event);
/* Reserves a slot: its number, or -ENOSPC. Progress thread, as the next two. */
int shm_bell_reserve(struct shm_bell *);
/* From now on news in the slot is this rail's. 0 or -ENOMEM. */
int shm_bell_set(struct shm_bell *, uint32_t slot, struct rsk_rail *);
/* Gives it back. After return no notify() of its rail is running. */
void shm_bell_release(struct shm_bell *, uint32_t slot);
/* News from ourselves. Any thread. */
void shm_bell_ring(struct shm_bell *, uint32_t slot);

/* ---- the peer's */

/* Takes both descriptors, good or bad. One object for each of the peer's bells, counted. 0 and
 * *bell, or why not, as RSN_*: they are not what they should be, /proc does not say who he is, no
 * memory. Progress thread. */
int shm_peer_bell_get(int page, int event, const struct shm_cred *, struct shm_peer_bell **bell);
struct shm_peer_bell *shm_peer_bell_again(struct shm_peer_bell *);
void shm_peer_bell_put(struct shm_peer_bell *);
/* Any thread; NULL is ignored. slot < SHM_BELL_SLOTS is the caller's to see to. */
void shm_peer_ring(struct shm_peer_bell *, uint32_t slot);

/* In a forked child: forgets the peers' bells. */
void shm_bell_after_fork_child(void);

/* ---- sealed memory (shm_map.c), which the pages are made of too */

/* Does the kernel promise no more memory than there is? Then what of such a file is touched first
 * may be SIGBUS. */
bool shm_strict(void);
/* The descriptor or -errno; not noted in own.h. */
int shm_sealed_memfd(const char *name, size_t len);
/* Is fd a memfd of exactly this length whose size is sealed? */
bool shm_sealed_good(int fd, size_t len);

#endif
