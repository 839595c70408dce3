/*
 * shm_own.c - a part of a shard that is nothing but a descriptor that fires (shm_own.h).
 */
#include "rsock/shm_own.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "rsock/own.h"
#include "rsock/shard_part.h"
#include "rsock/shm_wire.h"
#include "rsock/sys.h"

static int own_drain(struct rsk_shard_part *p)
{
    (void)p;
    return 0;
}

static bool own_quiet(struct rsk_shard_part *p)
{
    (void)p;
    return true;
}

static bool own_arm(struct rsk_shard_part *p)
{
    (void)p;
    return false;
}

static void own_disarm(struct rsk_shard_part *p)
{
    (void)p;
}

static void own_free(struct rsk_shard_part *p)
{
    rsk_own_close(p->fd);
    free(p);
}

int shm_own_part(struct rsk_shard *shard, uint64_t key)
{
    struct rsk_shard_part *p = calloc(1, sizeof *p);

    if (!p)
        return -ENOMEM;
    *p = (struct rsk_shard_part){.wire = &rsk_shm_wire,
                                 .key = key,
                                 .drain = own_drain,
                                 .quiet = own_quiet,
                                 .arm = own_arm,
                                 .disarm = own_disarm,
                                 .free = own_free};
    p->fd = rsk_own_fd(sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (p->fd < 0) {
        int err = p->fd;

        free(p);
        return err;
    }
    rsk_shard_add(shard, p);
    return p->fd;
}
