/*
 * shm_wire.h - how the two halves of the rendezvous put a rail together. Progress thread.
 */
#ifndef RSK_SHM_WIRE_H
#define RSK_SHM_WIRE_H

#include "rsock/shm_msg.h"
#include "rsock/shm_peer.h"
#include "rsock/shm_ring.h"

/* Abstract name of a rendezvous: "\0railsock.<uid>.<port>.<pid>.<peer's port>". Returns the
 * address length. */
socklen_t shm_rdv_name(struct sockaddr_storage *, uint32_t uid, uint16_t port, uint32_t pid,
                       uint16_t peer);

/* The parts of a rail that have to do with bells: ours in these shards for such a peer (both shards
 * are referenced), instead of those for another that it may have; 0 or a reason. */
int shm_rail_my_bells(struct shm_rail *, struct rsk_shard *data, const struct shm_cred *);
/* Our bells for the message: appends to fds, gives the slots. */
void shm_rail_offer(const struct shm_rail *, struct shm_fds *, uint32_t *data, uint32_t *ctl);
/* The peer's, from a message: takes the descriptors from fds->fd[first] on. 0 or a reason. */
int shm_rail_peer_bells(struct shm_rail *, struct shm_fds *, int first, uint32_t data, uint32_t ctl,
                        struct shm_cred);
/* Hands the rail over with give(owner, rail), then lets news reach it. */
void shm_rail_give(struct shm_rail *, void (*give)(void *arg, struct rsk_rail *), void *arg);
/* wire.h's destroy. Also for a rail that was never handed over; NULL is ignored. */
void shm_destroy(struct rsk_rail *);

/* shm_rdv.c: the asking side; shm_accept.c: the asked one. See wire.h. */
int shm_connect(const struct rsk_tuple *t, struct rsk_shard *shard, size_t ring, void *owner,
                void (*done)(void *owner, struct rsk_rail *rail, int reason));
int shm_listen(int family, uint16_t port, uint16_t peer, const struct rsk_accept_ops *ops);
void shm_on_room(bool (*fn)(void *owner, size_t bytes, bool stranger));
void shm_unlisten(int family, uint16_t port);
void shm_shut(int reason);
void shm_accept_after_fork_child(void);

#define SHM_DEADLINE_NS 3000000000ull

#endif
