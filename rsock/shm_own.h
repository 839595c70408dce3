/*
 * shm_own.h - for shm_bell.c: the eventfd by which this process tells itself, beside a bell whose
 * descriptor peers have who may change what they were given.
 */
#ifndef RSK_SHM_OWN_H
#define RSK_SHM_OWN_H

#include <stdint.h>

#include "rsock/shard.h"

/* Adds such a part of this key. Its descriptor, which the shard owns, or -errno.
 * Progress thread. */
int shm_own_part(struct rsk_shard *, uint64_t key);

#endif
