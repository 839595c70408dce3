/*
 * shm_msg.h - the hand-shake of the shm wire, over a unix SOCK_SEQPACKET connection:
 *
 *   initiator                                          acceptor
 *   request + {memfd, data bell, ctl bell}  ------->   checks, find()
 *             <-------------   reply + {data bell, ctl bell}, or a reason
 *   one byte  ---------------------------------------> accepted()
 *
 * A bell is two descriptors, page and eventfd or socket. Both bells may be one: then it is sent
 * once. The layout up to `reason` is for all versions.
 */
#ifndef RSK_SHM_MSG_H
#define RSK_SHM_MSG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rsock/wire.h"

enum {
    SHM_MAGIC = 0x6b735352, /* "RSsk" */
    SHM_VERSION = 5,
    SHM_CONFIRM = 'C',
    SHM_MAX_FDS = 5,
};

struct shm_head {
    uint32_t magic;
    uint16_t version;
    uint16_t len;
    uint32_t features; /* unknown bits are ignored */
    uint32_t reason;   /* of a reply: 0 or RSN_* */
};

struct shm_request {
    struct shm_head head;
    uint32_t ring; /* bytes in each direction's ring */
    uint32_t data_slot, ctl_slot;
    uint32_t uid; /* for the log; what counts is what the kernel says */
    struct rsk_tuple tuple;
};

struct shm_reply {
    struct shm_head head;
    uint32_t data_slot, ctl_slot;
};

struct shm_fds {
    int fd[SHM_MAX_FDS];
    int n;
};

/* Sends one message; fds may be NULL. 0 or -errno. Does not block. */
int shm_msg_send(int sock, const void *msg, size_t len, const struct shm_fds *fds);
/* Receives one: its length, 0 at the end, or -errno (-EPROTO: truncated, too many
 * descriptors). The descriptors are noted in own.h and the caller's, also on error none is left. */
ssize_t shm_msg_recv(int sock, void *msg, size_t len, struct shm_fds *fds);
void shm_fds_close(struct shm_fds *);
/* Takes descriptor i out, for an owner who closes it. */
int shm_fds_take(struct shm_fds *, int i);

#endif
