/*
 * shm_rdv.c - the asking side of the shm rendezvous: who owns the other end of the TCP
 * connection, which of that user's processes may be the one, and asking them in turn.
 *
 * There is no file and no table to find processes by: each has an abstract unix socket whose
 * name says user, port and pid (shm_rdv_name), the kernel lists them, and forgets them with
 * their process. Names can be squatted, so a candidate counts only if the kernel says that it
 * runs as the user who owns the other end.
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
#include "rsock/unix_names.h"

enum { CANDIDATES = 256, LISTS = 8, LIST_NS = 1000000000 };
/* A candidate that has not answered by then (it may be stopped) is passed over, and asked once
 * more, without this limit, when all others have been asked. */
enum { TURN_NS = 200000000 };
/* If more candidates than this are known, and none names this connection's port, the list is read
 * again before any of them is asked. */
enum { MANY = 16 };

/* uid: in its own user namespace. peer: the other port of the connection by which it became
 * reachable; where each connection has a process of its own, that is the only one it has. */
struct candidate {
    uint32_t uid, pid;
    uint16_t peer;
};

struct asking {
    struct rsk_tuple tuple;
    struct rsk_shard *shard;
    uint32_t ring;
    void *owner;
    void (*done)(void *owner, struct rsk_rail *rail, int reason);

    struct rsk_timer *timer;
    uint32_t uid; /* of the other end's owner */
    struct candidate who[CANDIDATES], slow[CANDIDATES];
    int n, at, n_slow;
    bool old;     /* they were on a list that was there already */
    bool patient; /* with the slow ones now */
    int reason;   /* why the candidates so far were not it */
    struct rsk_timer *turn;

    struct shm_rail *rail;
    int memfd, sock;
    struct rsk_watch *watch;
    struct shm_cred cred;
};

/* ---- candidates */

/*
 * The kernel's list has a line for each unix socket of the host. So what was read for a port is
 * used again for a second, and if nobody on it is the one, those are asked who have come since.
 */
static struct list {
    uint32_t uid;
    uint16_t port, peer; /* peer: of who has read it */
    int n;
    uint64_t read_at; /* 0: never */
    uint64_t until;   /* it is good for so long */
    struct candidate who[CANDIDATES];
} lists[LISTS];

/* The next number of a name, and what is behind it and the dot after it. */
static unsigned long number(const char **rest)
{
    char *end;
    unsigned long n = strtoul(*rest, &end, 10);

    *rest = *end == '.' ? end + 1 : end;
    return n;
}

/* The first whose name has another number for the user, or the end. */
static int another_uid(const struct list *l)
{
    int i = 0;

    while (i < l->n && l->who[i].uid == l->uid)
        i++;
    return i;
}

/* What the kernel gives for who has no number in our user namespace: anybody, so nobody is
 * looked for by it. */
#define OVERFLOW_UID 65534u

/*
 * Sockets that were accepted bear the same name; 00010000 marks the one that listens. In a user
 * namespace a process may know itself by another number than we do (a container without root): who
 * answers is judged by what the kernel says of it. Names with the uid that we know take the place
 * of others when there is no room.
 */
static void candidate(void *arg, const char *line, const char *rest)
{
    struct list *l = arg;
    unsigned long uid = number(&rest), port = number(&rest), pid = number(&rest),
                  peer = number(&rest);
    int at = l->n;

    if (port != l->port || !pid || pid > UINT32_MAX || *rest || peer > UINT16_MAX ||
        !strstr(line, " 00010000 ") || (uid != l->uid && l->uid == OVERFLOW_UID))
        return;
    if (at == CANDIDATES && uid == l->uid) {
        at = another_uid(l);
        /* Where there are too many, not without the one that says so. */
        if (at == CANDIDATES && peer == l->peer)
            at = 0;
    }
    if (at == CANDIDATES)
        return;
    l->n += at == l->n;
    l->who[at] = (struct candidate){(uint32_t)uid, (uint32_t)pid, (uint16_t)peer};
}

static void read_list(struct list *l, const struct asking *a)
{
    uint64_t began = sys_now();

    l->read_at = 0; /* a forked child may have it as it is now */
    l->uid = a->uid;
    l->port = a->tuple.dst_port;
    l->peer = a->tuple.src_port;
    l->n = 0;
    rsk_unix_names("railsock.", candidate, l);
    l->read_at = sys_now();
    /* Nobody yet, in a moment perhaps somebody: but not more than a twentieth of the time goes into
     * reading that. */
    l->until = l->read_at + (l->n ? LIST_NS : 20 * (l->read_at - began));
}

/* The port's, or the one that has not been read for longest. */
static struct list *list_for(const struct asking *a)
{
    struct list *oldest = lists;

    for (struct list *l = lists; l < lists + LISTS; l++) {
        if (l->read_at && l->uid == a->uid && l->port == a->tuple.dst_port)
            return l;
        if (l->read_at < oldest->read_at)
            oldest = l;
    }
    oldest->read_at = 0;
    return oldest;
}

static bool asked(const struct asking *a, const struct candidate *c)
{
    for (int i = 0; i < a->at; i++)
        if (a->who[i].pid == c->pid && a->who[i].uid == c->uid && a->who[i].peer == c->peer)
            return true;
    return false;
}

/* The place of who says that it has the connection; n: nobody does. */
static int who_says_so(const struct list *l, uint16_t peer)
{
    int i = 0;

    while (i < l->n && l->who[i].peer != peer)
        i++;
    return i;
}

/* again: all that were known have been asked. */
static void find_candidates(struct asking *a, bool again)
{
    struct list *l = list_for(a);
    struct candidate who[CANDIDATES] = {0};
    int n = 0, first;

    a->old = !again && l->read_at && sys_now() < l->until;
    if (a->old && l->n > MANY && who_says_so(l, a->tuple.src_port) == l->n)
        a->old = false;
    if (!a->old)
        read_list(l, a);
    first = who_says_so(l, a->tuple.src_port);
    if (first < l->n && !asked(a, &l->who[first]))
        who[n++] = l->who[first];
    for (int i = 0; i < l->n; i++)
        if (i != first && !asked(a, &l->who[i]))
            who[n++] = l->who[i];
    memcpy(a->who, who, (size_t)n * sizeof who[0]);
    a->n = n;
    a->at = 0;
}

/* False: nobody is left to ask. */
static bool any_left(struct asking *a)
{
    if (a->at == a->n && a->old)
        find_candidates(a, true);
    if (a->at == a->n && a->n_slow && !a->patient) {
        a->patient = true;
        memcpy(a->who, a->slow, (size_t)a->n_slow * sizeof a->slow[0]);
        a->n = a->n_slow;
        a->at = 0;
    }
    return a->at < a->n;
}

/* ---- asking one */

static void hang_up(struct asking *a)
{
    rsk_unwatch(a->watch);
    a->watch = NULL;
    strange_close(a->sock);
    a->sock = -1;
    if (a->turn)
        rsk_timer_cancel(a->turn);
    a->turn = NULL;
}

static void give(void *arg, struct rsk_rail *rail)
{
    struct asking *a = arg;

    a->done(a->owner, rail, 0);
}

static void finish(struct asking *a, int reason)
{
    hang_up(a);
    rsk_timer_cancel(a->timer);
    rsk_own_close(a->memfd);
    if (reason) {
        log_debug("shm rendezvous for port %u: %s", a->tuple.dst_port, cfg_reason_name(reason));
        shm_destroy(a->rail ? &a->rail->base : NULL);
        a->done(a->owner, NULL, reason);
    } else {
        shm_rail_give(a->rail, give, a);
    }
    rsk_shard_put(a->shard);
    free(a);
}

static int dial(struct asking *a, struct candidate c)
{
    struct sockaddr_storage ss;
    socklen_t len = shm_rdv_name(&ss, c.uid, a->tuple.dst_port, c.pid, c.peer);
    int fd = rsk_own_fd(sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    /* Where there are no such sockets at all, nobody can be reached. */
    if (fd < 0)
        return fd == -EMFILE || fd == -ENFILE    ? RSN_LIMIT_FD
               : fd == -ENOMEM || fd == -ENOBUFS ? RSN_NO_MEMORY
                                                 : RSN_NO_PEER_LIB;
    a->sock = fd;
    if (sys_connect(fd, &ss, len))
        return RSN_NO_PEER_LIB;
    /* Another number than we know need not be meant for us: that says nothing. */
    if (!shm_peer_cred(fd, &a->cred) || a->cred.uid != a->uid)
        return c.uid == a->uid ? RSN_UID : a->reason;
    shm_peer_judge(&a->cred);
    return shm_rail_my_bells(a->rail, a->shard, &a->cred);
}

static int ask(struct asking *a)
{
    struct shm_request q = {.head = {.magic = SHM_MAGIC, .version = SHM_VERSION, .len = sizeof q},
                            .ring = a->ring,
                            .uid = sys_geteuid(),
                            .tuple = a->tuple};
    struct shm_fds fds = {.fd = {a->memfd}, .n = 1};

    shm_rail_offer(a->rail, &fds, &q.data_slot, &q.ctl_slot);
    return shm_msg_send(a->sock, &q, sizeof q, &fds) ? RSN_NO_PEER_LIB : 0;
}

static void on_reply(void *arg, uint32_t events);

static void ask_next(struct asking *a);

static void on_turn(void *arg)
{
    struct asking *a = arg;

    a->turn = NULL;
    a->slow[a->n_slow++] = a->who[a->at - 1];
    hang_up(a);
    a->reason = RSN_RDV_TIMEOUT;
    ask_next(a);
}

static void ask_next(struct asking *a)
{
    while (any_left(a)) {
        int reason = dial(a, a->who[a->at++]);

        if (!reason)
            reason = ask(a);
        if (!reason) {
            a->watch = rsk_watch_fd(a->sock, POLLIN, false, on_reply, a);
            if (a->watch && !a->patient && a->n_slow < CANDIDATES)
                a->turn = rsk_timer_add(TURN_NS, on_turn, a);
            if (a->watch)
                return;
            reason = RSN_NO_MEMORY;
        }
        hang_up(a);
        a->reason = reason;
    }
    finish(a, a->reason);
}

static int understand(struct asking *a, const struct shm_reply *p, ssize_t n, struct shm_fds *fds)
{
    const uint8_t confirm = SHM_CONFIRM;
    int reason;

    if (n < (ssize_t)sizeof p->head || p->head.magic != SHM_MAGIC)
        return n > 0 || n == -EPROTO ? RSN_PEER_PROTOCOL : RSN_NO_PEER_LIB;
    if (p->head.version != SHM_VERSION)
        return RSN_VERSION;
    if (p->head.reason)
        return cfg_reason_told(p->head.reason);
    if (n != sizeof *p)
        return RSN_PEER_PROTOCOL;
    reason = shm_rail_peer_bells(a->rail, fds, 0, p->data_slot, p->ctl_slot, a->cred);
    if (!reason && shm_msg_send(a->sock, &confirm, 1, NULL))
        reason = RSN_NO_PEER_LIB;
    return reason;
}

static void on_reply(void *arg, uint32_t events)
{
    struct asking *a = arg;
    struct shm_reply p;
    struct shm_fds fds;
    ssize_t n = shm_msg_recv(a->sock, &p, sizeof p, &fds);
    int reason;

    (void)events;
    if (n == -EAGAIN || n == -EINTR)
        return;
    reason = understand(a, &p, n, &fds);
    shm_fds_close(&fds);
    /* One that hung up or does not own the connection says nothing about the others. (A dead
     * process's socket may outlive it by a moment: its io_uring is torn down in the background.) */
    if (reason == RSN_NOT_MINE || (reason == RSN_NO_PEER_LIB && n <= 0)) {
        hang_up(a);
        a->reason = reason;
        ask_next(a);
        return;
    }
    finish(a, reason);
}

/* ---- the whole */

static void on_deadline(void *arg)
{
    struct asking *a = arg;

    a->timer = NULL;
    finish(a, RSN_RDV_TIMEOUT);
}

static int prepare(struct asking *a)
{
    int reason = shm_diag_owner(&a->tuple, SHM_END_DST, &a->uid);

    if (reason)
        return reason;
    a->reason = RSN_NO_PEER_LIB;
    find_candidates(a, false);
    if (!a->n)
        return RSN_NO_PEER_LIB;
    if (rsk_own_crowded())
        return RSN_LIMIT_FD;
    a->memfd = rsk_own_fd(shm_memfd_new(a->ring));
    if (a->memfd < 0)
        return a->memfd == -EMFILE || a->memfd == -ENFILE ? RSN_LIMIT_FD : RSN_NO_MEMORY;
    a->rail = shm_rail_new(a->memfd, a->ring, true);
    return a->rail ? 0 : RSN_NO_MEMORY;
}

static void begin(void *arg)
{
    struct asking *a = arg;
    int reason;

    a->timer = rsk_timer_add(SHM_DEADLINE_NS, on_deadline, a);
    reason = a->timer ? prepare(a) : RSN_NO_MEMORY;
    if (reason)
        finish(a, reason);
    else
        ask_next(a);
}

int shm_connect(const struct rsk_tuple *t, struct rsk_shard *shard, size_t ring, void *owner,
                void (*done)(void *owner, struct rsk_rail *rail, int reason))
{
    struct asking *a = calloc(1, sizeof *a);

    if (!a)
        return -ENOMEM;
    a->tuple = *t;
    a->ring = shm_ring_size(ring);
    a->owner = owner;
    a->done = done;
    a->memfd = a->sock = -1;
    /* Not within the call: done() comes later, always. */
    a->timer = rsk_timer_add(0, begin, a);
    if (!a->timer) {
        free(a);
        return -ENOMEM;
    }
    a->shard = shard ? rsk_shard_get(shard) : NULL;
    return 0;
}
