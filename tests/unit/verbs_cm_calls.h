/*
 * verbs_cm_calls.h - verbs_cm_test.c: what verbs_cm.c, verbs_channel.c and verbs_setup.c call, and
 * what they are called by.
 */
#ifndef TESTS_UNIT_VERBS_CM_CALLS_H
#define TESTS_UNIT_VERBS_CM_CALLS_H

#include <errno.h>
#include <stdlib.h>

#include "config/log.h"
#include "rsock/verbs_int.h"

struct vb_dl vdl;
_Atomic int cfg_log_level;
void (*cfg_log_around)(bool begins);
const struct rsk_wire rsk_verbs_wire;
static void (*on_channel)(void *, uint32_t);
static void *channels[2]; /* the door, and inside */
static unsigned n_channels;
static uint64_t deadlines[8];
static unsigned n_deadlines;
static struct vb_rail *rail; /* the newest */

void cfg_log_write(int level, const char *fmt, ...)
{
    (void)level, (void)fmt;
}

struct rsk_watch *rsk_watch_fd(int fd, uint32_t events, bool anchor, void (*fn)(void *, uint32_t),
                               void *arg)
{
    (void)fd, (void)events, (void)anchor;
    on_channel = fn;
    if (n_channels < 2)
        channels[n_channels++] = arg;
    return (struct rsk_watch *)&on_channel;
}

void rsk_unwatch(struct rsk_watch *w)
{
    (void)w;
}

struct rsk_timer *rsk_timer_add(uint64_t ns, void (*fn)(void *), void *arg)
{
    (void)fn, (void)arg;
    deadlines[n_deadlines++ % 8] = ns;
    return NULL;
}

void rsk_timer_cancel(struct rsk_timer *t)
{
    (void)t;
}

bool rsk_loop_is_self(void)
{
    return false;
}

int rsk_loop_post(void (*fn)(void *), void *arg)
{
    (void)fn, (void)arg;
    return -ENOMEM;
}

int vb_dl_open(void)
{
    return 0;
}

bool vb_dl_room(void)
{
    return true;
}

int vb_kick_open(void)
{
    return 0;
}

static int refused;

void vb_host_refused(int reason)
{
    refused = reason;
}

int rsk_shard_drain_all(struct rsk_shard *s)
{
    (void)s;
    return 0;
}

struct vb_rail *vb_rail_new(struct rsk_shard *shard, size_t ring)
{
    (void)shard, (void)ring;
    return rail = calloc(1, sizeof(*rail));
}

void vb_rail_close(struct vb_rail *r)
{
    if (r->id)
        vdl.destroy_id(r->id);
    r->id = NULL;
}

void vb_rail_free(struct vb_rail *r)
{
    vb_rail_close(r);
    if (rail == r)
        rail = NULL;
    free(r);
}

int vb_rail_open(struct vb_rail *r)
{
    (void)r;
    return 0;
}

int vb_rail_open_out(struct vb_rail *r, unsigned ring_log2)
{
    (void)r, (void)ring_log2;
    return 0;
}

int vb_rail_peer(struct vb_rail *r, const struct vb_desc *d)
{
    (void)r, (void)d;
    return 0;
}

int vb_rail_known(struct vb_rail *r)
{
    (void)r;
    return 0;
}

void vb_rail_describe(const struct vb_rail *r, struct vb_desc *d)
{
    (void)r, (void)d;
}

void vb_rail_fail(struct vb_rail *r, int reason)
{
    (void)r, (void)reason;
}

void vb_header(const struct vb_rail *r, struct vb_hdr *h, size_t len)
{
    (void)r, (void)h, (void)len;
}

int vb_post_hello(struct vb_rail *r, const struct vb_desc *d)
{
    (void)r, (void)d;
    return 0;
}

unsigned vb_look(struct vb_rail *r, unsigned events)
{
    (void)r, (void)events;
    return 0;
}

void vb_request(struct vb_listener *l, struct rdma_cm_id *id, const void *data, size_t len)
{
    (void)l, (void)id, (void)data, (void)len;
}

bool vb_dev_afresh(void)
{
    return true;
}

void vb_dev_resync(void)
{
}

void vb_dev_hide(struct ibv_context *ctx)
{
    (void)ctx;
}

void vb_dev_seen(struct rdma_cm_id *id)
{
    (void)id;
}

void vb_dev_gone(struct vb_dev *dev)
{
    (void)dev;
}

static struct vb_dev *device;
static int why_not;

struct vb_dev *vb_dev_get(struct rdma_cm_id *id)
{
    (void)id;
    errno = why_not;
    return device;
}

#endif
