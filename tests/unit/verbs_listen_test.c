/*
 * verbs_listen_test.c - where a server's port is taken by an RDMA listener, with libraries
 * that are not there.
 */
#include "tests/shim/shim.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/unix_names.h"
#include "rsock/verbs.h"
#include "rsock/verbs_int.h"

/* ---- what verbs_listen.c calls */

struct vb_dl vdl;
_Atomic int cfg_log_level;
void (*cfg_log_around)(bool begins);
static unsigned opened; /* event channels, ids */
static int may_listen;

void cfg_log_write(int level, const char *fmt, ...)
{
    (void)level, (void)fmt;
}

const char *cfg_reason_name(int number)
{
    (void)number;
    return "reason";
}

void rsk_own_enter(void)
{
}

int rsk_own_opened(int fd)
{
    return fd;
}

void rsk_own_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

void rsk_unix_names(const char *prefix, void (*fn)(void *, const char *, const char *), void *arg)
{
    (void)prefix, (void)fn, (void)arg;
}

struct rsk_timer *rsk_timer_add(uint64_t ns, void (*fn)(void *), void *arg)
{
    (void)ns, (void)fn, (void)arg;
    return NULL;
}

int vb_host_may_listen(void)
{
    return may_listen;
}

int vb_cm_open(void)
{
    opened++;
    return 0;
}

socklen_t vb_sockaddr(int family, const uint8_t *addr, uint16_t port, struct sockaddr_storage *ss)
{
    (void)addr;
    *ss = (struct sockaddr_storage){.ss_family = (sa_family_t)family};
    ((struct sockaddr_in *)ss)->sin_port = htons(port);
    return sizeof(struct sockaddr_in);
}

static struct rdma_cm_id the_id;

struct rdma_cm_id *vb_cm_id(struct vb_cm_owner *owner, enum rdma_port_space space)
{
    (void)space;
    opened++;
    the_id.context = owner;
    return &the_id;
}

void vb_cm_inside(struct rdma_cm_id *id)
{
    (void)id;
}

int vb_lack_reason(int err)
{
    return err;
}

struct vb_dev *vb_dev_get(struct rdma_cm_id *id)
{
    (void)id;
    return NULL;
}

struct rsk_route vb_own_route(const struct rsk_tuple *t)
{
    (void)t;
    return (struct rsk_route){0};
}

struct rsk_route vb_route(const struct rsk_tuple *t, void *owner)
{
    (void)t, (void)owner;
    return (struct rsk_route){0};
}

struct vb_rail *vb_rail_new(struct rsk_shard *shard, size_t ring)
{
    (void)shard, (void)ring;
    return NULL;
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

void vb_rail_describe(const struct vb_rail *r, struct vb_desc *d)
{
    (void)r, (void)d;
}

void vb_conn_param(struct rdma_conn_param *param, const void *data, size_t len)
{
    (void)param, (void)data, (void)len;
}

void vb_tune_id(struct rdma_cm_id *id)
{
    (void)id;
}

void vb_tune_qp(struct vb_rail *r)
{
    (void)r;
}

void vb_setup_deadline(struct vb_rail *r)
{
    (void)r;
}

void vb_setup_failed(struct vb_rail *r, int reason)
{
    (void)r, (void)reason;
}

/* ---- the library */

static uint16_t bound;

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
    (void)id;
    bound = ntohs(((struct sockaddr_in *)addr)->sin_port);
    return 0;
}

static int listen_at(struct rdma_cm_id *id, int backlog)
{
    (void)id, (void)backlog;
    return 0;
}

static __be16 src_port(struct rdma_cm_id *id)
{
    (void)id;
    return htons(bound);
}

static int destroy_id(struct rdma_cm_id *id)
{
    (void)id;
    bound = 0;
    return 0;
}

/* The wildcard's port is TCP's on an iWARP device. */
TEST_CASE(verbs_listen, beside_iwarp_nobody_listens)
{
    static const struct rsk_accept_ops ops;

    vdl.bind_addr = bind_addr;
    vdl.listen = listen_at;
    vdl.get_src_port = src_port;
    vdl.destroy_id = destroy_id;
    may_listen = -ENODEV;
    EXPECT_EQ_INT(vb_listen(AF_INET, 7000, 0, &ops), -ENODEV);
    EXPECT_EQ_INT(opened, 0);
    EXPECT_EQ_INT(rsk_verbs_local_port(AF_INET, 7000), 0);
    /* It is taken out. */
    may_listen = 0;
    EXPECT_EQ_INT(vb_listen(AF_INET, 7000, 0, &ops), 0);
    EXPECT_EQ_INT(bound, 7000);
    EXPECT_EQ_INT(rsk_verbs_local_port(AF_INET, 7000), 7000);
    vb_unlisten(AF_INET, 7000);
    EXPECT_EQ_INT(bound, 0);
}
