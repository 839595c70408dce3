/*
 * verbs_dev_test.c - devices of the verbs wire, over libraries that are not there: ids that wait
 * for their link, a process that may have no number above 512, and several devices that go, of
 * which librdmacm may know before we do.
 */
#include "tests/shim/shim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "config/log.h"
#include "config/reason.h"
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

static struct rdma_cm_id *new_id(void);

struct rdma_cm_id *vb_cm_id(struct vb_cm_owner *owner, enum rdma_port_space space)
{
    (void)owner, (void)space;
    return new_id();
}

void vb_rail_fail(struct vb_rail *r, int reason)
{
    atomic_store(&r->base.failed, (uint32_t)reason);
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

static void close_it(const struct ibv_context *);

void vb_dl_close_later(struct ibv_context *ctx)
{
    close_it(ctx);
}

void vb_dl_close_none(void)
{
}

void vb_dl_shut(void)
{
}

bool vb_cm_is_open(void)
{
    return false;
}

bool rsk_loop_may_load(void)
{
    return true;
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
enum { ENDED = 4 };
static struct rdma_cm_id *ended[ENDED];
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

/* librdmacm's own half (cma.c, version 44): a context is closed with the last reference if its
 * device is on the list no more. Who writes to it afterwards is seen. */
enum { DEVICES = 3, FREED = 0xa5 };

static struct lib_dev {
    struct ibv_context ctx;
    bool there, dead;
    int refs;
    unsigned closed;
} lib[DEVICES];
static struct rdma_cm_id sentinels[DEVICES];
static unsigned n_sentinels, most_sentinels;

static struct rdma_cm_id *new_id(void)
{
    return n_sentinels < most_sentinels ? &sentinels[n_sentinels++] : NULL;
}

static struct lib_dev *lib_of(const struct ibv_context *ctx)
{
    for (struct lib_dev *d = lib; d < lib + DEVICES; d++)
        if (&d->ctx == ctx)
            return d;
    return NULL;
}

static void close_it(const struct ibv_context *ctx)
{
    struct lib_dev *d = lib_of(ctx);

    if (!d)
        return;
    sys_close(d->ctx.cmd_fd);
    sys_close(d->ctx.async_fd);
    memset(&d->ctx, FREED, sizeof(d->ctx));
    d->closed++;
}

static void put_ref(const struct ibv_context *ctx)
{
    struct lib_dev *d = lib_of(ctx);

    if (d && --d->refs == 0 && d->dead)
        close_it(ctx);
}

static int destroy_id(struct rdma_cm_id *id)
{
    if (n_ended < ENDED)
        ended[n_ended++] = id;
    put_ref(id->verbs);
    return 0;
}

static struct ibv_context *binds_to;

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
    (void)addr;
    id->verbs = binds_to;
    lib_of(binds_to)->refs++;
    return 0;
}

static struct ibv_context **get_devices(int *count)
{
    struct ibv_context **list = calloc(DEVICES + 1, sizeof(struct ibv_context *));
    unsigned n = 0;

    (void)count;
    for (struct lib_dev *d = lib; d < lib + DEVICES; d++) {
        if (!d->there && !d->dead) {
            d->dead = true;
            if (!d->refs)
                close_it(&d->ctx);
        }
        if (!d->dead) {
            d->refs++;
            list[n++] = &d->ctx;
        }
    }
    return list;
}

static void free_devices(struct ibv_context **list)
{
    for (unsigned i = 0; list[i]; i++)
        put_ref(list[i]);
    free(list);
}

static void libraries(void)
{
    vdl.query_device = query_device;
    vdl.get_device_name = name;
    vdl.event_type_str = event_name;
    vdl.get_async_event = get_event;
    vdl.ack_async_event = ack_event;
    vdl.destroy_id = destroy_id;
    vdl.bind_addr = bind_addr;
    vdl.get_devices = get_devices;
    vdl.free_devices = free_devices;
    n_ended = n_sentinels = most_sentinels = 0;
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
    struct rlimit was, few;
    int cmd = ctx.cmd_fd, async = ctx.async_fd;

    libraries();
    ASSERT_EQ_INT(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 256;
    ASSERT_EQ_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
    vb_dev_hide(&ctx);
    EXPECT(vb_dev_get(&id) == NULL);
    EXPECT_EQ_INT(errno, EMFILE);
    EXPECT(ctx.cmd_fd == cmd && ctx.async_fd == async);
    EXPECT(sys_fcntl(cmd, F_GETFD, 0) >= 0 && sys_fcntl(async, F_GETFD, 0) >= 0);
    ASSERT_EQ_INT(setrlimit(RLIMIT_NOFILE, &was), 0);
}

/* `ids` of them have one of ours. */
static void devices(unsigned ids)
{
    libraries();
    most_sentinels = ids;
    for (unsigned i = 0; i < DEVICES; i++) {
        struct rdma_cm_id like = {.verbs = binds_to = &lib[i].ctx};

        lib[i] = (struct lib_dev){.ctx = context(), .there = true};
        vb_dev_hide(&lib[i].ctx);
        if (i < ids)
            vb_dev_seen(&like);
    }
}

static void goes(unsigned i)
{
    struct vb_dev *dev = vb_dev_find(&lib[i].ctx);

    ASSERT(dev != NULL);
    vb_dev_gone(dev);
}

static bool untouched(const void *freed, size_t n)
{
    const uint8_t *p = freed;

    while (n && p[n - 1] == FREED)
        n--;
    return n == 0;
}

static void all_closed_once(void)
{
    for (unsigned i = 0; i < DEVICES; i++) {
        EXPECT_EQ_INT(lib[i].closed, 1);
        EXPECT(untouched(&lib[i].ctx, sizeof(lib[i].ctx)));
        EXPECT(vb_dev_find(&lib[i].ctx) == NULL);
    }
}

/* With the first one we have librdmacm look, and it sees that the second has gone as well. */
TEST_CASE(verbs_dev, two_go_together)
{
    devices(DEVICES);
    lib[0].there = lib[1].there = false;
    goes(0);
    EXPECT_EQ_INT(lib[0].closed, 0);
    vb_dev_resync();
    EXPECT_EQ_INT(lib[0].closed, 1);
    EXPECT(lib[1].dead && !lib[1].closed);
    goes(1);
    vb_dev_resync();
    vb_dev_shut();
    all_closed_once();
}

TEST_CASE(verbs_dev, one_has_gone_when_all_are_shut)
{
    devices(DEVICES);
    lib[0].there = lib[1].there = false;
    goes(0);
    vb_dev_resync();
    vb_dev_shut();
    all_closed_once();
}

/* Nobody tells us of these, and librdmacm has them open, too. */
TEST_CASE(verbs_dev, those_that_nobody_uses)
{
    devices(1);
    lib[0].there = false;
    goes(0);
    vb_dev_resync();
    EXPECT(vb_dev_find(&lib[1].ctx) && vb_dev_find(&lib[2].ctx));
    lib[1].there = false;
    vb_dev_resync();
    EXPECT_EQ_INT(lib[1].closed, 0); /* it does not look */
    goes(2);
    lib[2].there = false;
    vb_dev_resync();
    vb_dev_resync();
    vb_dev_shut();
    all_closed_once();
}

static void fatal(void)
{
    event = (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL};
    event_there = true;
    on_device(device, 1);
}

/* Its driver may make another one of it, of which the sentinel hears, or go on with this one. */
TEST_CASE(verbs_dev, one_that_fails_is_used_when_it_is_well_again)
{
    struct vb_rail rail = {.state = VB_UP};
    struct rdma_cm_id id = {.port_num = 1};
    struct vb_dev *dev;

    devices(1);
    id.verbs = &lib[0].ctx;
    dev = vb_dev_get(&id);
    ASSERT(dev && dev == device && dev->sentinel);
    rail.dev = dev;
    vb_rails[0] = &rail;
    vb_rails_high = 1;
    fatal();
    EXPECT_EQ_INT(rail.base.failed, RSN_DEVICE_GONE);
    EXPECT(vb_dev_find(&lib[0].ctx) == dev && !dev->gone);
    errno = 0;
    EXPECT(vb_dev_get(&id) == NULL);
    EXPECT_EQ_INT(errno, ENODEV);
    port(1, IBV_EVENT_PORT_ACTIVE);
    EXPECT(vb_dev_get(&id) == dev);
    vb_dev_put(dev);
    /* Or when it has not been tried for a while. */
    fatal();
    EXPECT(vb_dev_get(&id) == NULL);
    dev->failed_until = sys_now();
    EXPECT(vb_dev_get(&id) == dev);
    vb_dev_put(dev);
    vb_rails[0] = NULL;
    vb_rails_high = 0;
    vb_dev_put(dev);
    lib[0].there = false;
    goes(0);
    vb_dev_resync();
    EXPECT_EQ_INT(lib[0].closed, 1);
    vb_dev_shut();
}

static int no_answer(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    (void)ctx, (void)attr;
    return EIO;
}

/* A context that librdmacm goes on with, though the device has gone. */
TEST_CASE(verbs_dev, one_that_does_not_answer)
{
    struct ibv_context ctx = context();
    struct rdma_cm_id id = {.verbs = &ctx, .port_num = 1};

    libraries();
    vdl.query_device = no_answer;
    vb_dev_hide(&ctx);
    EXPECT(vb_dev_get(&id) == NULL);
    EXPECT_EQ_INT(errno, ENODEV);
    sys_close(ctx.cmd_fd);
    sys_close(ctx.async_fd);
}
