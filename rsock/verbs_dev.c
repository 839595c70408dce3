/*
 * verbs_dev.c - opened RDMA devices, their failure and their removal.
 *
 * A context belongs to librdmacm, which opens one per device and closes it late or never: its
 * clean-up gives up when the last device has gone (cma.c, sync_devices_list: "if (!numb_dev)"), and
 * `rdma link delete` waits until every descriptor of the device is closed. So when a device goes we
 * end every object on it and then put /dev/null in the place of the context's descriptors;
 * librdmacm closes those when it notices. It may have noticed before we do, as when several devices
 * go: then it closes the context with the last id that is on the device, so ids are ended last, and
 * by then the context is ours no more.
 *
 * When a device has failed (DEVICE_FATAL) its driver may make a new one, which is the removal of
 * this one, and the sentinel hears of it; or it may bring this one up again, or leave it as it is.
 * So all rails on it fail, but its context stays open: librdmacm has no second one for a device
 * that is still there.
 *
 * Progress thread only, except vb_dev_forget.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/verbs_int.h"

static struct vb_dev *devs;
static uint64_t next_key;
static bool stale;

/*
 * The end of a connected id is a message to its peer. rxe (Linux 6.1) takes a message that has no
 * route, as there is none while the link is down, for an error of the queue pair that carries the
 * connection manager: from then on that one receives nothing, and no program of this host can
 * connect until the device has been made anew (seen with perftest as well). So ids wait until the
 * port is up again.
 */
struct vb_late_id {
    struct rdma_cm_id *id;
    struct vb_late_id *next;
};

void vb_dev_end_id(struct vb_dev *dev, struct rdma_cm_id *id)
{
    struct vb_late_id *late = NULL;

    if (dev->ctx && (dev->gone || dev->ports_down >> (id->port_num & 63) & 1))
        late = malloc(sizeof *late);
    if (!late) {
        vdl.destroy_id(id);
        return;
    }
    /* Its events are nobody's now, except that the device goes. */
    id->context = &dev->cm_owner;
    *late = (struct vb_late_id){id, dev->late};
    dev->late = late;
}

/* But not those whose port is among those that are down. */
static void end_late_ids(struct vb_dev *dev, uint64_t down)
{
    struct vb_late_id **at = &dev->late, *late;

    while ((late = *at)) {
        if (down >> (late->id->port_num & 63) & 1) {
            at = &late->next;
            continue;
        }
        *at = late->next;
        vdl.destroy_id(late->id);
        free(late);
    }
}

/* Whoever touches one that does nothing any more may wait for its commands' time-outs: now and
 * then is enough. */
static const uint64_t FAILED_NS = UINT64_C(10000000000);

static void fail_dev(struct vb_dev *dev)
{
    dev->failed_until = sys_now() + FAILED_NS;
    for (unsigned i = 0; i < vb_rails_high; i++) {
        struct vb_rail *r = atomic_load_explicit(&vb_rails[i], memory_order_relaxed);

        if (!r || r->dev != dev)
            continue;
        if (r->state != VB_UP)
            vb_setup_failed(r, RSN_DEVICE_GONE);
        else
            vb_rail_fail(r, RSN_DEVICE_GONE);
    }
}

static void on_port(struct vb_dev *dev, int port, bool up)
{
    uint64_t bit = UINT64_C(1) << (port & 63);

    if (!up) {
        dev->ports_down |= bit;
        return;
    }
    dev->failed_until = 0;
    dev->ports_down &= ~bit;
    end_late_ids(dev, dev->ports_down);
}

static void on_async(void *arg, uint32_t events)
{
    struct vb_dev *dev = arg;
    struct ibv_async_event ev;
    enum ibv_event_type type;
    const struct ibv_qp *qp;
    const struct ibv_cq *cq;
    int port;

    (void)events;
    while (!dev->gone && vdl.get_async_event(dev->ctx, &ev) == 0) {
        type = ev.event_type;
        qp = NULL;
        cq = NULL;
        port = 0;
        switch (type) {
        case IBV_EVENT_PORT_ERR:
        case IBV_EVENT_PORT_ACTIVE:
            port = ev.element.port_num;
            on_port(dev, port, type == IBV_EVENT_PORT_ACTIVE);
            break;
        case IBV_EVENT_CQ_ERR: /* nothing completes there any more */
            cq = ev.element.cq;
            break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_COMM_EST:
            qp = ev.element.qp;
            break;
        default:
            break;
        }
        /* ibv_destroy_qp waits for unacknowledged events of the QP: acknowledge first. */
        vdl.ack_async_event(&ev);
        if (type != IBV_EVENT_COMM_EST)
            log_info("verbs: %s: %s", dev->name, vdl.event_type_str(type));
        for (unsigned i = 0; i < vb_rails_high; i++) {
            struct vb_rail *r = atomic_load_explicit(&vb_rails[i], memory_order_relaxed);

            if (!r || r->dev != dev)
                continue;
            /* IB spec 12.9.8.2: a message before the RTU stands for it; rdma_notify(3). */
            if (type == IBV_EVENT_COMM_EST && qp && r->qp == qp && r->id)
                vdl.notify(r->id, IBV_EVENT_COMM_EST);
            else if ((type == IBV_EVENT_PORT_ERR && r->id && r->id->port_num == port) ||
                     (cq && r->cq && r->cq->cq == cq) ||
                     (type != IBV_EVENT_COMM_EST && qp && r->qp == qp))
                vb_rail_fail(r, RSN_RAIL_FAILED);
        }
        if (type == IBV_EVENT_DEVICE_FATAL && dev->sentinel) {
            fail_dev(dev);
        } else if (type == IBV_EVENT_DEVICE_FATAL) { /* of its removal nobody would tell */
            vb_dev_gone(dev);
            return; /* it may be no more */
        }
    }
}

struct vb_dev *vb_dev_find(const struct ibv_context *ctx)
{
    struct vb_dev *dev = devs;

    while (dev && (dev->ctx != ctx || dev->gone))
        dev = dev->next;
    return dev;
}

static bool add_sentinel_in(struct vb_dev *dev, const struct rdma_cm_id *like,
                            enum rdma_port_space space)
{
    struct sockaddr_storage addr;
    struct rdma_cm_id *id = vb_cm_id(&dev->cm_owner, space);

    if (!id)
        return false;
    memcpy(&addr, &like->route.addr.src_storage, sizeof addr);
    ((struct sockaddr_in *)&addr)->sin_port = 0; /* sin6_port lies at the same place */
    if (vdl.bind_addr(id, (struct sockaddr *)&addr) < 0 || id->verbs != dev->ctx) {
        log_debug("verbs: no sentinel on %s: error %d", dev->name, errno);
        vdl.destroy_id(id);
        return false;
    }
    dev->sentinel = id;
    dev->users++;
    return true;
}

/* An id of a removed device gets an event; without one that is bound to it nobody would tell. It
 * has a port, which must not be one at which a listener has to be: in another space than theirs, if
 * the device has one. */
static void add_sentinel(struct vb_dev *dev, const struct rdma_cm_id *like)
{
    if (!add_sentinel_in(dev, like, RDMA_PS_UDP))
        (void)add_sentinel_in(dev, like, RDMA_PS_TCP);
}

/* Not noted: libibverbs may close them, as long as no vb_dev has them. */
void vb_dev_hide(struct ibv_context *ctx)
{
    ctx->cmd_fd = sys_hide_if_possible(ctx->cmd_fd);
    ctx->async_fd = sys_hide_if_possible(ctx->async_fd);
}

static struct vb_dev *new_dev(struct ibv_context *ctx)
{
    struct ibv_device_attr attr;
    struct vb_dev *dev;

    /* They would be in the application's way, and stay librdmacm's. */
    if (ctx->cmd_fd < 512 || ctx->async_fd < 512) {
        errno = EMFILE;
        return NULL;
    }
    dev = calloc(1, sizeof *dev);
    if (!dev)
        return NULL;
    /* One that is closed, too, of which librdmacm has not noticed that it was removed. */
    if (vdl.query_device(ctx, &attr)) {
        free(dev);
        errno = ENODEV;
        return NULL;
    }
    dev->ctx = ctx;
    dev->cm_owner = (struct vb_cm_owner){VB_OF_DEV, dev};
    dev->key = ++next_key;
    dev->max_cqe = attr.max_cqe;
    snprintf(dev->name, sizeof dev->name, "%.15s", vdl.get_device_name(dev->ctx->device));
    dev->ctx->cmd_fd = rsk_own_fd(dev->ctx->cmd_fd);
    dev->ctx->async_fd = rsk_own_fd(dev->ctx->async_fd);
    sys_fcntl(dev->ctx->async_fd, F_SETFL, sys_fcntl(dev->ctx->async_fd, F_GETFL, 0) | O_NONBLOCK);
    dev->async = rsk_watch_fd(dev->ctx->async_fd, EPOLLIN, true, on_async, dev);
    dev->next = devs;
    devs = dev;
    return dev;
}

struct vb_dev *vb_dev_get(struct rdma_cm_id *id)
{
    struct vb_dev *dev = vb_dev_find(id->verbs);

    if (!dev)
        dev = new_dev(id->verbs);
    if (!dev)
        return NULL;
    if (sys_now() < dev->failed_until) {
        errno = ENODEV;
        return NULL;
    }
    dev->users++;
    if (!dev->sentinel)
        add_sentinel(dev, id);
    return dev;
}

/* Also what nobody has a rail on is told of its removal, and forgotten by a child. */
static struct vb_dev *note(struct ibv_context *ctx)
{
    struct vb_dev *dev = devs;

    while (dev && dev->ctx != ctx)
        dev = dev->next;
    return dev ? dev : new_dev(ctx);
}

void vb_dev_seen(struct rdma_cm_id *id)
{
    struct vb_dev *dev;

    (void)note(id->verbs);
    dev = vb_dev_find(id->verbs);
    if (dev && !dev->sentinel)
        add_sentinel(dev, id);
}

static int null_fd(void)
{
    int fd;

    rsk_own_enter();
    fd = sys_open("/dev/null", O_RDWR | O_CLOEXEC, 0);
    fd = sys_hide_if_possible(fd);
    rsk_own_leave();
    return fd;
}

void vb_dev_put(struct vb_dev *dev)
{
    struct vb_dev **at = &devs;

    if (--dev->users || !dev->gone)
        return;
    while (*at != dev)
        at = &(*at)->next;
    *at = dev->next;
    free(dev);
}

static void close_ctx(struct vb_dev *dev)
{
    struct ibv_context *ctx = dev->ctx;
    int cmd = ctx->cmd_fd, async = ctx->async_fd;

    dev->ctx = NULL;
    if (dev->async)
        rsk_unwatch(dev->async);
    ctx->cmd_fd = null_fd();
    rsk_own_close(cmd);
    ctx->async_fd = null_fd();
    rsk_own_close(async);
    stale = true;
    log_info("verbs: %s is closed", dev->name);
}

/* A list's reference: librdmacm closes the context with the last one. It frees the list. */
static void let_go(struct ibv_context *ctx)
{
    struct ibv_context **one = calloc(2, sizeof(struct ibv_context *));

    if (!one)
        return;
    one[0] = ctx;
    vdl.free_devices(one);
}

/* keep: librdmacm does not close the context, whose device need not be about to go. */
static void end_dev(struct vb_dev *dev, bool keep)
{
    struct ibv_context *ctx = dev->ctx;

    if (dev->gone)
        return;
    log_info("verbs: %s is being removed", dev->name);
    dev->gone = true;
    dev->users++; /* ours, until everything is through */
    for (unsigned i = 0; i < vb_rails_high; i++) {
        struct vb_rail *r = atomic_load_explicit(&vb_rails[i], memory_order_relaxed);

        if (!r || r->dev != dev)
            continue;
        if (r->state != VB_UP) {
            vb_setup_failed(r, RSN_DEVICE_GONE);
            continue;
        }
        vb_rail_fail(r, RSN_DEVICE_GONE);
        vb_rail_close(r); /* not left to the layer above: the kernel is waiting */
    }
    for (struct vb_part *p = vb_parts; p; p = p->next)
        if (p->dev == dev)
            vb_part_close(p);
    close_ctx(dev);
    /* The kernel's half of an id that is kept goes with the event channel. */
    if (keep && (dev->sentinel || dev->held))
        vb_dl_close_later(ctx);
    else if (dev->sentinel)
        vdl.destroy_id(dev->sentinel);
    dev->users -= dev->sentinel != NULL;
    dev->sentinel = NULL;
    end_late_ids(dev, 0);
    if (dev->held && !keep)
        let_go(ctx);
    vb_dev_put(dev);
}

void vb_dev_gone(struct vb_dev *dev)
{
    end_dev(dev, false);
}

static bool listed(struct ibv_context *const *list, const struct ibv_context *ctx)
{
    while (*list && *list != ctx)
        list++;
    return *list;
}

void vb_dev_resync(void)
{
    struct ibv_context **list;
    struct vb_dev *dev, *next;
    unsigned n = 0;

    if (!stale)
        return;
    /* A device that comes back may have the old one's index and GUID, and librdmacm would take
     * its dead context for it. */
    rsk_own_enter();
    list = vdl.get_devices(NULL);
    for (int i = 0; list && list[i]; i++)
        vb_dev_hide(list[i]);
    rsk_own_leave();
    if (!list)
        return;
    stale = false;
    for (dev = devs; dev; dev = next) {
        next = dev->next;
        if (dev->held && !dev->users && !listed(list, dev->ctx))
            vb_dev_gone(dev);
    }
    for (int i = 0; list[i]; i++) {
        dev = note(list[i]);
        if (!vb_dev_find(list[i]))
            /* the dead context still: the driver goes on with the device, or has not come to its
             * end yet */
            stale = true;
        /* No id is on it, so without our reference librdmacm would close it when it is no longer on
         * the list, and nobody would tell us: the list's reference is kept. */
        if (dev && !dev->gone && !dev->sentinel && !dev->held)
            dev->held = true;
        else
            list[n++] = list[i];
    }
    list[n] = NULL;
    vdl.free_devices(list);
}

void vb_dev_shut(void)
{
    while (devs) {
        struct vb_dev *next = devs->next;

        end_dev(devs, true);
        devs = next; /* if somebody still counts on it: it is of no use to him */
    }
    stale = false;
}

/* ---- fork */

bool vb_dev_forget(void)
{
    bool any = devs != NULL;

    /* librdmacm's contexts are of no use in a child. It forgets them when it is unloaded
     * (vb_dev_afresh), and they are never closed: that would unmap what is somebody else's by now.
     * Their numbers must not name somebody else's descriptors. */
    for (struct vb_dev *dev = devs; dev; dev = dev->next)
        if (dev->ctx)
            dev->ctx->cmd_fd = dev->ctx->async_fd = -1;
    devs = NULL;
    stale = false;
    return any;
}
