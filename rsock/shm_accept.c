/*
 * shm_accept.c - the asked side of the shm rendezvous. One listening abstract socket for
 * each port; each connection to it is one request with a deadline. Whoever connects is a
 * stranger: it must own the other end of the very connection it asks for, and whatever it
 * sends is checked before use.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/shard.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_diag.h"
#include "rsock/shm_wire.h"
#include "rsock/strange.h"
#include "rsock/sys.h"

enum { BACKLOG = 128, MAX_ASKED = 64, TAKE_MOST = 16, PAUSE_NS = 100000000 };

struct listener {
    uint16_t port;
    uint32_t uid; /* ours when it was bound: a name of another user's is not found */
    int fd;
    struct rsk_watch *watch;
    struct rsk_timer *pause; /* no descriptor was left for who asks: it is not watched until then */
    const struct rsk_accept_ops *ops;
    struct listener *next;
};

struct asked {
    const struct rsk_accept_ops *ops;
    uint16_t port;
    int sock;
    struct rsk_watch *watch;
    struct rsk_timer *timer;
    struct shm_cred cred;
    bool replied; /* the owner is referenced; waiting for the confirmation */
    struct shm_rail *rail;
    void *owner;
};

static struct listener *listeners;
static int n_asked; /* bounds what strangers can make us hold */

static void end(struct asked *a, int reason)
{
    rsk_unwatch(a->watch);
    rsk_timer_cancel(a->timer);
    strange_close(a->sock);
    n_asked--;
    if (reason) {
        shm_destroy(a->rail ? &a->rail->base : NULL);
        if (a->replied)
            a->ops->refused(a->owner, reason);
    }
    free(a);
}

static void on_deadline(void *arg)
{
    struct asked *a = arg;

    a->timer = NULL;
    end(a, RSN_RDV_TIMEOUT);
}

/* ---- the request */

/* Is it his connection that he asks for? Before his descriptors are taken. */
static int check(const struct asked *a, const struct shm_request *q, ssize_t n)
{
    uint32_t uid;
    int reason;

    if (n < (ssize_t)sizeof q->head || q->head.magic != SHM_MAGIC)
        return RSN_PEER_PROTOCOL;
    if (q->head.version != SHM_VERSION)
        return RSN_VERSION;
    if (n != sizeof *q || q->head.len != sizeof *q)
        return RSN_PEER_PROTOCOL;
    if ((q->tuple.family != AF_INET && q->tuple.family != AF_INET6) || q->tuple.dst_port != a->port)
        return RSN_PEER_PROTOCOL;
    reason = shm_diag_owner(&q->tuple, SHM_END_SRC, &uid);
    if (reason)
        return reason == RSN_OTHER_HOST ? RSN_UID : reason;
    return uid == a->cred.uid ? 0 : RSN_UID;
}

static bool (*room)(void *owner, size_t bytes, bool stranger);

void shm_on_room(bool (*fn)(void *owner, size_t bytes, bool stranger))
{
    room = fn;
}

static int build(struct asked *a, const struct shm_request *q, struct shm_fds *fds,
                 struct rsk_shard *shard)
{
    int reason;

    shm_peer_judge(&a->cred);
    if (room && !room(a->owner, 2 * (size_t)q->ring, !a->cred.trusted))
        return RSN_BUDGET;
    a->rail = shm_rail_new(fds->fd[0], q->ring, false);
    if (!a->rail)
        return RSN_NO_MEMORY;
    reason = shm_rail_my_bells(a->rail, shard, &a->cred);
    if (!reason)
        reason = shm_rail_peer_bells(a->rail, fds, 1, q->data_slot, q->ctl_slot, a->cred);
    return reason;
}

static void on_request(struct asked *a)
{
    struct shm_reply p = {.head = {.magic = SHM_MAGIC, .version = SHM_VERSION, .len = sizeof p}};
    struct rsk_shard *shard = NULL;
    struct shm_request q = {0};
    struct shm_fds fds = {.n = 0}, mine = {.n = 0};
    ssize_t n = sys_recv(a->sock, &q, sizeof q, MSG_PEEK | MSG_DONTWAIT);
    size_t ring; /* our wish, not used: the peer has made the memfd (README, "shm wire") */
    int reason;

    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n == 0) {
        end(a, RSN_NO_PEER_LIB);
        return;
    }
    reason = check(a, &q, n);
    if (!reason) {
        n = shm_msg_recv(a->sock, &q, sizeof q, &fds);
        if (n == -EPROTO)
            reason = RSN_LIMIT_FD; /* they did not all get a number */
        else if (n != sizeof q || fds.n < 3 || !shm_memfd_good(fds.fd[0], q.ring))
            reason = RSN_PEER_PROTOCOL;
    }
    if (!reason && rsk_own_crowded())
        reason = RSN_LIMIT_FD;
    if (reason == RSN_NO_NETLINK && a->ops->none)
        a->ops->none(&q.tuple, reason);
    if (!reason)
        reason = a->ops->find(&q.tuple, &shard, &ring, &a->owner);
    if (!reason) {
        a->replied = true; /* from here on the owner hears of the end */
        reason = build(a, &q, &fds, shard);
    }
    shm_fds_close(&fds);
    if (!reason)
        shm_rail_offer(a->rail, &mine, &p.data_slot, &p.ctl_slot);
    p.head.reason = (uint32_t)reason;
    if (shm_msg_send(a->sock, &p, sizeof p, &mine) && !reason)
        reason = RSN_NO_PEER_LIB;
    if (reason) {
        log_debug("shm request for port %u refused: %s", a->port, cfg_reason_name(reason));
        end(a, reason);
    }
}

/* ---- the confirmation */

static void give(void *arg, struct rsk_rail *rail)
{
    struct asked *a = arg;

    a->ops->accepted(a->owner, rail);
}

static void on_confirm(struct asked *a)
{
    uint8_t byte = 0;
    struct shm_fds fds;
    ssize_t n = shm_msg_recv(a->sock, &byte, 1, &fds);

    if (n == -EAGAIN || n == -EINTR)
        return;
    shm_fds_close(&fds);
    if (n != 1 || byte != SHM_CONFIRM) {
        /* Who goes before he has read our reply, as one does who has waited for too long,
         * resets the socket. */
        end(a, n > 0 || n == -EPROTO ? RSN_PEER_PROTOCOL : RSN_NO_PEER_LIB);
        return;
    }
    shm_rail_give(a->rail, give, a);
    end(a, 0);
}

static void on_asked(void *arg, uint32_t events)
{
    struct asked *a = arg;

    (void)events;
    if (a->replied)
        on_confirm(a);
    else
        on_request(a);
}

/* ---- listening */

static void on_listener(void *arg, uint32_t events);

static void unwatch(struct listener *l)
{
    rsk_unwatch(l->watch);
    rsk_timer_cancel(l->pause);
    l->watch = NULL;
    l->pause = NULL;
}

static void on_pause(void *arg)
{
    struct listener *l = arg;

    l->pause = NULL;
    l->watch = rsk_watch_fd(l->fd, POLLIN, false, on_listener, l);
    if (!l->watch)
        l->pause = rsk_timer_add(PAUSE_NS, on_pause, l);
}

/* Who waits to be accepted keeps the socket readable: the thread would look again and again. */
static bool pause_on(struct listener *l, int err)
{
    if (err != -EMFILE && err != -ENFILE && err != -ENOMEM && err != -ENOBUFS)
        return false;
    l->pause = rsk_timer_add(PAUSE_NS, on_pause, l);
    if (l->pause) {
        rsk_unwatch(l->watch);
        l->watch = NULL;
    }
    return true;
}

static bool take(struct listener *l)
{
    int fd = rsk_own_fd(sys_accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    struct asked *a;

    if (fd < 0)
        return !pause_on(l, fd) && (fd == -ECONNABORTED || fd == -EINTR);
    a = n_asked < MAX_ASKED ? calloc(1, sizeof *a) : NULL;
    if (!a) {
        strange_close(fd);
        return true;
    }
    n_asked++;
    a->ops = l->ops;
    a->port = l->port;
    a->sock = fd;
    a->timer = rsk_timer_add(SHM_DEADLINE_NS, on_deadline, a);
    a->watch = rsk_watch_fd(fd, POLLIN, false, on_asked, a);
    if (!a->timer || !a->watch || !shm_peer_cred(fd, &a->cred))
        end(a, RSN_NO_MEMORY);
    return true;
}

static void on_listener(void *arg, uint32_t events)
{
    (void)events;
    /* The thread has other work as well, however many knock: the socket stays readable. */
    for (int i = 0; i < TAKE_MOST && take(arg); i++)
        ;
}

static int bind_name(struct listener *l, uint16_t peer)
{
    struct sockaddr_storage ss;
    socklen_t len = shm_rdv_name(&ss, l->uid, l->port, (uint32_t)sys_getpid(), peer);
    int fd = rsk_own_fd(sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int err;

    if (fd < 0)
        return fd;
    err = sys_bind(fd, &ss, len);
    if (!err)
        err = sys_listen(fd, BACKLOG);
    l->watch = err ? NULL : rsk_watch_fd(fd, POLLIN, false, on_listener, l);
    if (!l->watch) {
        rsk_own_close(fd);
        return err ? err : -ENOMEM;
    }
    l->fd = fd;
    return 0;
}

int shm_listen(int family, uint16_t port, uint16_t peer, const struct rsk_accept_ops *ops)
{
    const uint32_t uid = sys_geteuid();
    struct listener *l;
    int err;

    (void)family; /* one name serves both */
    for (l = listeners; l; l = l->next)
        if (l->port == port)
            break;
    if (l && l->uid == uid && l->fd >= 0) {
        l->ops = ops;
        return 0;
    }
    if (!l) {
        l = calloc(1, sizeof *l);
        if (!l)
            return -ENOMEM;
        l->port = port;
        l->fd = -1;
        l->next = listeners;
        listeners = l;
    }
    /* The process has another user by now: those who look for it do so under that one. */
    unwatch(l);
    strange_close(l->fd);
    l->fd = -1;
    l->uid = uid;
    l->ops = ops;
    err = bind_name(l, peer);
    if (err)
        log_debug("no shm rendezvous on port %u: error %d", port, -err);
    return err;
}

static void remove_first(struct listener **at)
{
    struct listener *l = *at;

    *at = l->next;
    unwatch(l);
    strange_close(l->fd);
    free(l);
}

void shm_unlisten(int family, uint16_t port)
{
    struct listener **at = &listeners;

    (void)family; /* the caller has ended with both, or will */
    while (*at && (*at)->port != port)
        at = &(*at)->next;
    if (*at)
        remove_first(at);
}

void shm_shut(int reason)
{
    (void)reason;
    shm_diag_shut();
    while (listeners)
        remove_first(&listeners);
}

void shm_accept_after_fork_child(void)
{
    listeners = NULL;
    n_asked = 0;
}
