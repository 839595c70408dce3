/*
 * shm_diag.h - who owns an end of a TCP connection on this host: the kernel's inet_diag,
 * asked for exactly one socket in this network namespace.
 */
#ifndef RSK_SHM_DIAG_H
#define RSK_SHM_DIAG_H

#include <stdbool.h>
#include <stdint.h>

#include "rsock/wire.h"

enum shm_end { SHM_END_SRC, SHM_END_DST };

/* The user that owns the socket at this end of t. 0 or a reason: OTHER_HOST (no such socket
 * here), NOT_YET (not accepted by anybody yet), NOT_ESTABLISHED, NO_NETLINK (it cannot be asked),
 * LIMIT_FD, NO_MEMORY (not now). A local system call; the progress thread, which keeps a
 * socket for it, or any where there is none. */
int shm_diag_owner(const struct rsk_tuple *t, enum shm_end end, uint32_t *uid);
/* Whether somebody listens at the source end of t; where that cannot be asked, nobody. As above. */
bool shm_diag_listens(const struct rsk_tuple *t);
/* Closes that socket. Progress thread. */
void shm_diag_shut(void);
void shm_diag_after_fork_child(void);
/* Can it be asked at all? */
bool shm_diag_usable(void);

#endif
