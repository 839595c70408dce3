/*
 * verbs_dev_test.c - devices of the verbs wire, over libraries that are not there: ids that wait for their link, and a process that
 * may have no number above 512.
 */
#include "tests/shim/shim.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>

#include "config/log.h"
#include "rsock/verbs_int.h"

/* ---- what verbs_dev.c calls */

struct vb_dl vdl;
_Atomic int cfg_log_level;
void (*cfg_log_around)(bool begins);
struct vb_rail *_Atomic vb_rails[VB_MAX_RAILS];
unsigned vb_rails_high;
struct vb_part *vb_parts;
static void (*on_device)(void *, uint32_t);
static struct vb_dev *device;

void cfg_log_write(int level, const char *fmt, ...)
{
    (void)level, (void)fmt;
}

struct rsk_watch *rsk_watch_fd(int fd, uint32_t events, bool anchor, void (*fn)(void *, uint32_t),
                               void *arg)
{
    (void)fd, (void)events, (void)anchor;
    on_device = fn;
    device = arg;
    return NULL;
}

void rsk_unwatch(struct rsk_watch *w)
{
    (void)w;
}

struct rdma_cm_id *vb_cm_id(struct vb_cm_owner *owner, enum rdma_port_space space)
{
    (void)owner, (void)space;
    return NULL;
}

void vb_rail_fail(struct vb_rail *r, int reason)
{
    (void)r, (void)reason;
}

void vb_setup_failed(struct vb_rail *r, int reason)
{
    (void)r, (void)reason;
}

void vb_rail_close(struct vb_rail *r)
{
    (void)r;
}

void vb_part_close(struct vb_part *p)
{
    (void)p;
}

void vb_dl_close_later(struct ibv_context *ctx)
{
    (void)ctx;
}

void rsk_at_fork_child(void (*fn)(void))
{
    (void)fn;
}

void vb_kick_forget(void)
{
}
void vb_probe_forget(void)
{
}
void vb_listen_forget(void)
{
}
void vb_pin_forget(void)
{
}
void vb_cm_forget(void)
{
}

/* ---- the libraries */

static struct ibv_async_event event;
static bool event_there;
static struct rdma_cm_id *ended[4];
static unsigned n_ended;

static int query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    (void)ctx;
    memset(attr, 0, sizeof(*attr));
    return 0;
}

static const char *name(struct ibv_device *d)
{
    (void)d;
    return "fake0";
}

static const char *event_name(enum ibv_event_type type)
{
    (void)type;
    return "event";
}

static int get_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
    (void)ctx;
    if (!event_there)
        return -1;
    event_there = false;
    *ev = event;
    return 0;
}

static void ack_event(struct ibv_async_event *ev)
{
    (void)ev;
}

static int destroy_id(struct rdma_cm_id *id)
{
    ended[n_ended++] = id;
    return 0;
}

static void libraries(void)
{
    vdl.query_device = query_device;
    vdl.get_device_name = name;
    vdl.event_type_str = event_name;
    vdl.get_async_event = get_event;
    vdl.ack_async_event = ack_event;
    vdl.destroy_id = destroy_id;
    n_ended = 0;
}

static void port(int number, enum ibv_event_type type)
{
    event = (struct ibv_async_event){.element.port_num = number, .event_type = type};
    event_there = true;
    on_device(device, 1);
}

static struct ibv_context context(void)
{
    return (struct ibv_context){.cmd_fd = sys_open("/dev/null", O_RDWR | O_CLOEXEC, 0),
                                .async_fd = sys_open("/dev/null", O_RDWR | O_CLOEXEC, 0)};
}

/* ---- */

TEST_CASE(verbs_dev, ids_wait_for_their_own_port)
{
    struct ibv_context ctx = context();
    struct rdma_cm_id one = {.verbs = &ctx, .port_num = 1}, two = {.verbs = &ctx, .port_num = 2};
    struct vb_dev *dev;

    libraries();
    vb_dev_hide(&ctx);
    dev = vb_dev_get(&one);
    ASSERT(dev != NULL && dev == device);
    port(1, IBV_EVENT_PORT_ERR);
    port(2, IBV_EVENT_PORT_ERR);
    vb_dev_end_id(dev, &one);
    vb_dev_end_id(dev, &two);
    EXPECT_EQ_INT(n_ended, 0);
    port(1, IBV_EVENT_PORT_ACTIVE);
    ASSERT_EQ_INT(n_ended, 1);
    EXPECT(ended[0] == &one);
    vb_dev_end_id(dev, &one); /* its port is up: at once */
    EXPECT_EQ_INT(n_ended, 2);
    vb_dev_gone(dev);
    ASSERT_EQ_INT(n_ended, 3);
    EXPECT(ended[2] == &two);
    vb_dev_put(dev);
}

TEST_CASE(verbs_dev, low_numbers_stay_as_they_are)
{
    struct ibv_context ctx = context();
    struct rdma_cm_id id = {.verbs = &ctx, .port_num = 1};
    const struct rlimit few = {256, 256};
    int cmd = ctx.cmd_fd, async = ctx.async_fd;

    libraries();
    ASSERT_EQ_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
    vb_dev_hide(&ctx);
    EXPECT(vb_dev_get(&id) == NULL);
    EXPECT_EQ_INT(errno, EMFILE);
    EXPECT(ctx.cmd_fd == cmd && ctx.async_fd == async);
    EXPECT(sys_fcntl(cmd, F_GETFD, 0) >= 0 && sys_fcntl(async, F_GETFD, 0) >= 0);
}
