/*
 * verbs_part.c - parts of shards on the verbs wire, made and ended: a completion channel, for
 * as long as there is a device, behind a descriptor that epoll instances keep. What it brings
 * is verbs_cq.c's.
 *
 * Progress thread, except part_free: whoever drops a shard's last reference.
 */
#include <errno.h>
#include <stdlib.h>

#include "config/reason.h"
#include "rsock/verbs_int.h"

struct vb_part *vb_parts;

static void free_part(void *arg)
{
    struct vb_part *p = arg, **at = &vb_parts;

    vb_part_close(p);
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    rsk_own_close(p->base.fd);
    free(p);
}

static void part_free(struct rsk_shard_part *base)
{
    struct vb_part *p = (struct vb_part *)base;
    bool self = rsk_loop_is_self();

    if (!self)
        vb_lock(&p->life);
    p->shard = NULL;
    if (!self)
        vb_unlock(&p->life);
    if (self || rsk_loop_post(free_part, p) < 0)
        free_part(p);
}

/* A number that is closed by the libraries must not stay noted as ours. */
static int disown(int fd)
{
    int other = sys_fcntl(fd, F_DUPFD_CLOEXEC, 512);

    if (other < 0)
        other = sys_fcntl(fd, F_DUPFD_CLOEXEC, 3);
    rsk_own_close(fd);
    return other;
}

static void close_channel(struct ibv_comp_channel *channel)
{
    if (channel->fd >= 0)
        channel->fd = disown(channel->fd);
    vdl.destroy_comp_channel(channel);
}

void vb_part_close(struct vb_part *p)
{
    struct rsk_shard *shard;
    unsigned n;

    vb_mind_end(p);
    vb_lock(&p->life);
    shard = p->shard;
    if (shard)
        rsk_shard_lock(shard);
    n = atomic_exchange(&p->n_cq, 0);
    while (atomic_load(&p->armers))
        sys_yield();
    vb_lock(&p->lock); /* a peek that saw the old number has left */
    vb_unlock(&p->lock);
    for (unsigned i = 0; i < n; i++) {
        vdl.destroy_cq(p->cq[i]->cq);
        vb_unpin_queue(p->cq[i]->pins);
        free(p->cq[i]);
        p->cq[i] = NULL;
    }
    if (p->channel)
        close_channel(p->channel);
    p->channel = NULL;
    if (shard)
        rsk_shard_unlock(shard);
    vb_unlock(&p->life);
    if (p->dev)
        vb_dev_put(p->dev);
    p->dev = NULL;
}

/* Watched by the part's descriptor; NULL: no descriptor is left. */
static struct ibv_comp_channel *open_channel(const struct vb_part *p, struct vb_dev *dev)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct ibv_comp_channel *channel;

    rsk_own_enter();
    channel = vdl.create_comp_channel(dev->ctx);
    if (channel)
        channel->fd = rsk_own_fd(channel->fd);
    rsk_own_leave();
    if (!channel)
        return NULL;
    if (channel->fd >= 0 && p->base.fd >= 0 &&
        sys_fcntl(channel->fd, F_SETFL, sys_fcntl(channel->fd, F_GETFL, 0) | O_NONBLOCK) >= 0 &&
        sys_epoll_ctl(p->base.fd, EPOLL_CTL_ADD, channel->fd, &ev) >= 0)
        return channel;
    close_channel(channel);
    return NULL;
}

/* A part of this shard whose device has gone, to be used for another one. Its descriptor is in
 * epoll instances and each drain walks it, so no shard is to have more parts than there are
 * devices at a time. */
static struct vb_part *without_device(const struct rsk_shard *shard)
{
    struct vb_part *p = vb_parts;
    bool its = false;

    for (; p; p = p->next) {
        vb_lock(&p->life);
        its = p->shard == shard && !p->dev;
        vb_unlock(&p->life);
        if (its)
            return p;
    }
    return NULL;
}

static void has_device(struct vb_part *p, struct vb_dev *dev)
{
    p->base.key = dev->key;
    p->dev = dev;
    dev->users++;
}

struct vb_part *vb_part_get(struct rsk_shard *shard, struct vb_dev *dev, int *reason)
{
    struct rsk_shard_part *found = rsk_shard_find(shard, &rsk_verbs_wire, dev->key);
    struct ibv_comp_channel *channel;
    struct vb_part *p;

    if (found)
        return (struct vb_part *)found;
    *reason = RSN_LIMIT_FD;
    p = without_device(shard);
    if (p) {
        channel = open_channel(p, dev);
        if (!channel)
            return NULL;
        rsk_shard_lock(shard);
        p->channel = channel;
        rsk_shard_unlock(shard);
        has_device(p, dev);
        vb_mind_watch(p);
        vb_mind_start(p);
        return p;
    }
    p = rsk_own_crowded() ? NULL : calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->base = (struct rsk_shard_part){.wire = &rsk_verbs_wire,
                                      .drain = vb_shard_drain,
                                      .arm = vb_shard_arm,
                                      .disarm = vb_shard_disarm,
                                      .free = part_free};
    p->shard = shard;
    p->common = shard == rsk_shard_common();
    p->base.fd = rsk_own_fd(sys_epoll_create1(EPOLL_CLOEXEC));
    p->channel = open_channel(p, dev);
    if (!p->channel) {
        rsk_own_close(p->base.fd);
        free(p);
        return NULL;
    }
    has_device(p, dev);
    p->next = vb_parts;
    vb_parts = p;
    rsk_shard_add(shard, &p->base);
    vb_mind_watch(p);
    vb_mind_start(p);
    return p;
}
