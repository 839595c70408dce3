/*
 * verbs_bye_calls.h - verbs_bye_test.c: what the wire calls, most of which is not asked for there.
 */
#ifndef TESTS_UNIT_VERBS_BYE_CALLS_H
#define TESTS_UNIT_VERBS_BYE_CALLS_H

#include "config/log.h"
#include "rsock/section.h"
#include "rsock/verbs_int.h"
#include "tests/unit/verbs_no_limit.h"

struct vb_dl vdl;
_Thread_local struct rsk_sig rsk_sig;
_Atomic bool rsk_sections_on;
_Atomic bool vb_probing = true;
_Atomic int cfg_log_level;
void (*cfg_log_around)(bool begins);
static unsigned kicks, locked;

void cfg_log_write(int level, const char *fmt, ...)
{
    (void)level, (void)fmt;
}

const char *cfg_reason_name(int number)
{
    (void)number;
    return "reason";
}

void rsk_cancel_later(void)
{
}

void vb_probe_ask(void)
{
}

void vb_mind_due(struct vb_part *p, bool anew)
{
    (void)anew;
    (void)p;
}

void vb_mind_watch(struct vb_part *p)
{
    (void)p;
}

void vb_mind_start(struct vb_part *p)
{
    (void)p;
}

void vb_mind_watch_ask(struct vb_part *p)
{
    (void)p;
}

void vb_kick(void)
{
    kicks++;
}

void vb_tell(struct vb_rail *r, unsigned news)
{
    if (news && r->base.notify)
        r->base.notify(&r->base, news);
}

struct vb_part *vb_part_get(struct rsk_shard *s, struct vb_dev *dev, int *reason)
{
    (void)s, (void)dev, (void)reason;
    return NULL;
}

struct vb_cq *vb_cq_reserve(struct vb_part *p, int *reason)
{
    (void)p, (void)reason;
    return NULL;
}

void vb_cq_release(struct vb_part *p, struct vb_cq *c)
{
    (void)p, (void)c;
}

void vb_arm_cq(struct vb_part *p, const struct vb_cq *c)
{
    (void)p, (void)c;
}

bool vb_part_peek(struct vb_part *p)
{
    (void)p;
    return false;
}

struct ibv_mr *vb_pin(struct ibv_pd *pd, struct rsk_own_map *m, int access)
{
    (void)pd, (void)m, (void)access;
    return NULL;
}

void vb_unpin(struct ibv_mr *mr, struct rsk_own_map *m)
{
    (void)mr, (void)m;
}

void rsk_own_map(struct rsk_own_map *m, void *addr, size_t len)
{
    (void)m, (void)addr, (void)len;
}

void rsk_own_unmap(struct rsk_own_map *m)
{
    (void)m;
}

void vb_dev_end_id(struct vb_dev *dev, struct rdma_cm_id *id)
{
    (void)dev, (void)id;
}

void vb_dev_put(struct vb_dev *dev)
{
    (void)dev;
}

void vb_dev_shut(void)
{
}

bool vb_dev_afresh(void)
{
    return true;
}

int vb_host_has_device(void)
{
    return 0;
}

int vb_host_refuses(void)
{
    return 0;
}

void vb_host_refused(int reason)
{
    (void)reason;
}

bool vb_cm_is_open(void)
{
    return true;
}

void vb_cm_shut(void)
{
}

int vb_dl_open(void)
{
    return 0;
}

void vb_dl_shut(void)
{
}

void vb_listen_shut(void)
{
}

int vb_listen(int family, uint16_t port, uint16_t peer, const struct rsk_accept_ops *ops)
{
    (void)family, (void)port, (void)peer, (void)ops;
    return 0;
}

void vb_unlisten(int family, uint16_t port)
{
    (void)family, (void)port;
}

int vb_connect(const struct rsk_tuple *t, struct rsk_shard *s, size_t ring, void *owner,
               void (*done)(void *, struct rsk_rail *, int))
{
    (void)t, (void)s, (void)ring, (void)owner, (void)done;
    return 0;
}

void vb_on_route(void (*fn)(const struct rsk_tuple *, void *, struct rsk_route *))
{
    (void)fn;
}

void vb_setup_failed(struct vb_rail *r, int reason)
{
    (void)r, (void)reason;
}

struct rsk_shard *rsk_shard_get(struct rsk_shard *s)
{
    return s;
}

void rsk_shard_put(struct rsk_shard *s)
{
    (void)s;
}

void rsk_shard_lock(struct rsk_shard *s)
{
    (void)s;
    locked++;
}

void rsk_shard_unlock(struct rsk_shard *s)
{
    (void)s;
    locked--;
}

#endif
