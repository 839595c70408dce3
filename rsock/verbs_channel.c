/*
 * verbs_channel.c - librdmacm's event channels, and whose each event is.
 *
 * Nothing waits: the channels are non-blocking and their descriptors are watched. Events are
 * acknowledged before they are acted on, because rdma_destroy_id(3) waits for unacknowledged ones.
 *
 * An id begins on the channel `door`. Taking an event from it may have librdmacm open the id's
 * device, so that is done in a step of own.c, for whose end the program's calls that take a number
 * wait. With the device open the id moves to the channel `inner`, whose events open nothing and are
 * taken in no step: one of them takes the queue pair to RTS within librdmacm, which is several
 * commands to the adapter. Progress thread.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/verbs_int.h"

static struct channel {
    struct rdma_event_channel *it;
    struct rsk_watch *watch;
} door, inner;        /* inner: made when the first id goes there, */
static bool no_inner; /* unless it could not be: once is enough */

static void on_channel(void *arg, uint32_t events);

static int open_channel(struct channel *c)
{
    int err;

    rsk_own_enter();
    c->it = vdl.create_event_channel();
    if (c->it)
        c->it->fd = rsk_own_fd(c->it->fd);
    rsk_own_leave();
    if (!c->it) {
        err = errno;
        log_info(
            "verbs: librdmacm has no event channel: %s (is rdma_ucm loaded, and /dev/infiniband/rdma_cm here?)",
            strerror(err));
        return err == EMFILE || err == ENFILE ? -EMFILE : err == ENOMEM ? -ENOMEM : -ENODEV;
    }
    if (c->it->fd >= 0) {
        sys_fcntl(c->it->fd, F_SETFL, sys_fcntl(c->it->fd, F_GETFL, 0) | O_NONBLOCK);
        c->watch = rsk_watch_fd(c->it->fd, EPOLLIN, true, on_channel, c);
        if (c->watch)
            return 0;
        rsk_own_close(c->it->fd);
    }
    c->it = NULL; /* leaked: rdma_destroy_event_channel would close a number of somebody's */
    return -EMFILE;
}

static int open_door(void)
{
    int err = vb_dl_open();

    if (err)
        return err;
    /* librdmacm looks for devices, and loads their drivers, with the first channel. */
    if (!vb_dl_room())
        return -ENOMEM;
    return vb_kick_open() < 0 ? -EMFILE : open_channel(&door);
}

void vb_cm_inside(struct rdma_cm_id *id)
{
    if (!inner.it && (no_inner || open_channel(&inner) < 0)) {
        no_inner = true;
        return;
    }
    if (vdl.migrate_id(id, inner.it) < 0)
        log_debug("verbs: an id stays at the door: error %d", errno);
}

int vb_cm_open(void)
{
    int err;

    if (door.it)
        return 0;
    if (!vb_dev_afresh())
        return -ENODEV;
    err = open_door();
    if (err)
        vb_host_refused(err == -EMFILE   ? RSN_LIMIT_FD
                        : err == -ENOMEM ? RSN_NO_MEMORY
                                         : RSN_NO_VERBS);
    return err;
}

bool vb_cm_is_open(void)
{
    return door.it != NULL;
}

static void close_channel(struct channel *c)
{
    if (!c->it)
        return;
    rsk_unwatch(c->watch);
    /* It closes the number, which must not be closed twice: another one under its name. */
    rsk_own_close(c->it->fd);
    rsk_own_enter();
    c->it->fd = sys_eventfd(0, EFD_CLOEXEC);
    vdl.destroy_event_channel(c->it);
    rsk_own_leave();
}

void vb_cm_shut(void)
{
    close_channel(&inner);
    close_channel(&door);
    vb_cm_forget();
}

void vb_cm_forget(void)
{
    door = inner = (struct channel){0};
    no_inner = false;
}

struct rdma_cm_id *vb_cm_id(struct vb_cm_owner *owner, enum rdma_port_space space)
{
    struct rdma_cm_id *id;

    return vdl.create_id(door.it, &id, owner, space) == 0 ? id : NULL;
}

/* ---- events */

enum { EVENTS_MOST = 16 };

static int take_event(const struct channel *c, struct rdma_cm_event **ev)
{
    int status;

    errno = 0;
    if (c == &inner)
        return vdl.get_cm_event(c->it, ev);
    rsk_own_enter();
    status = vdl.get_cm_event(c->it, ev);
    if (status == 0 && (*ev)->id->verbs)
        vb_dev_hide((*ev)->id->verbs);
    rsk_own_leave();
    return status;
}

static void on_channel(void *arg, uint32_t events)
{
    struct channel *c = arg;
    struct rdma_cm_event *ev;

    (void)events;
    /* The thread has other work as well, however many ask: the channel stays readable. */
    for (int i = 0; i < EVENTS_MOST; i++) {
        uint8_t data[256];
        struct rdma_cm_id *id;
        struct vb_cm_owner *owner;
        enum rdma_cm_event_type type;
        size_t len;
        int status, err;

        vb_dev_resync();
        if (!c->it)
            return;
        status = take_event(c, &ev);
        err = errno;
        if (status < 0)
            return;
        id = ev->id;
        owner = id->context;
        type = ev->event;
        status = ev->status;
        /* Of what librdmacm itself could not do, such as to open the device; or EPERM,
         * of the kernel. */
        if (status == -1 && err)
            status = -err;
        len = ev->param.conn.private_data ? ev->param.conn.private_data_len : 0;
        if (len)
            memcpy(data, ev->param.conn.private_data, len);
        log_debug("verbs: %s, status %d",
                  type == RDMA_CM_EVENT_CONNECT_REQUEST ? "request" : "cm event",
                  status ? status : (int)type);
        vdl.ack_cm_event(ev);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ADDR_RESOLVED)
            vb_dev_seen(id);
        switch (owner->kind) {
        case VB_OF_RAIL:
            vb_rail_event(owner->it, type, status, data, len);
            break;
        case VB_OF_LISTENER:
            if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
                vb_request(owner->it, id, data, len);
            break;
        case VB_OF_DEV:
            if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
                vb_dev_gone(owner->it);
            break;
        }
    }
}
