/*
 * doctor_peer.c - `railsock doctor HOST:PORT`, the part that both wires share and the one on
 * this host: one TCP connection, over which nothing is sent, and the same questions that the
 * library asks about it.
 */
#include "tools/doctor.h"

#include "config/reason.h"
#include "rsock/shm_diag.h"
#include "tools/stat_read.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CONNECT_MS = 5000, LOOKS = 200, LOOK_NS = 5000000 };

bool doc_is_peer(const char *target, struct doctor *d)
{
    const char *colon = strrchr(target, ':');
    size_t n = colon ? (size_t)(colon - target) : 0;
    unsigned long port;
    char *end;

    if (!n || colon[1] < '0' || colon[1] > '9')
        return false;
    port = strtoul(colon + 1, &end, 10);
    if (*end || !port || port > UINT16_MAX)
        return false;
    if (target[0] == '[' && target[n - 1] == ']') {
        target++;
        n -= 2;
    }
    if (!n || n >= sizeof(d->host) || memchr(target, '/', n))
        return false;
    memcpy(d->host, target, n);
    d->port = (uint16_t)port;
    return true;
}

void doc_peer_end(struct doctor *d)
{
    doc_route_end(d);
    if (d->addresses)
        freeaddrinfo(d->addresses);
    if (d->fd >= 0)
        close(d->fd);
}

static void put_address(const struct sockaddr *a, socklen_t len, char text[80])
{
    char host[64] = "?", port[8] = "?";

    getnameinfo(a, len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(text, 80, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

void doc_RESOLVE(struct doctor *d, struct doc_result *r)
{
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[8], text[80];
    unsigned n = 0;
    int err;

    snprintf(port, sizeof(port), "%u", d->port);
    err = getaddrinfo(d->host, port, &hint, &d->addresses);
    if (err || !d->addresses) {
        doc_say(r, DOC_FAIL, "%s: %s", d->host, gai_strerror(err));
        d->addresses = NULL;
        d->stop = true;
        return;
    }
    for (struct addrinfo *a = d->addresses; a; a = a->ai_next)
        n++;
    put_address(d->addresses->ai_addr, d->addresses->ai_addrlen, text);
    if (n == 1)
        doc_say(r, DOC_OK, "%s", text);
    else
        doc_say(r, DOC_OK, "%u addresses, first %s", n, text);
}

/* 0 or an errno. */
static int dial(const struct addrinfo *a, int *fd)
{
    struct pollfd p = {.events = POLLOUT};
    socklen_t len = sizeof(int);
    int err = 0;

    *fd = p.fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p.fd < 0)
        return errno;
    if (connect(p.fd, a->ai_addr, a->ai_addrlen) < 0) {
        err = errno;
        if (err == EINPROGRESS)
            err = poll(&p, 1, CONNECT_MS) == 1 &&
                          getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0
                      ? err
                      : ETIMEDOUT;
    }
    if (err)
        close(p.fd);
    return err;
}

static void take_side(const struct sockaddr_storage *ss, uint8_t *family, uint8_t addr[16],
                      uint16_t *port)
{
    struct sockaddr_in in = {0};
    struct sockaddr_in6 in6 = {0};

    *family = (uint8_t)ss->ss_family;
    if (ss->ss_family == AF_INET) {
        memcpy(&in, ss, sizeof(in));
        *port = ntohs(in.sin_port);
        memcpy(addr, &in.sin_addr, 4);
        return;
    }
    memcpy(&in6, ss, sizeof(in6));
    *port = ntohs(in6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
        *family = AF_INET;
        memcpy(addr, &in6.sin6_addr.s6_addr[12], 4);
    } else {
        memcpy(addr, &in6.sin6_addr, 16);
    }
}

void doc_CONNECT(struct doctor *d, struct doc_result *r)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
    char from[80], to[80];
    int err = 0;

    for (struct addrinfo *a = d->addresses; a && d->fd < 0; a = a->ai_next) {
        int fd;

        err = dial(a, &fd);
        if (!err)
            d->fd = fd;
        else
            put_address(a->ai_addr, a->ai_addrlen, to);
    }
    if (d->fd < 0) {
        doc_say(r, DOC_FAIL, "%s: %s", to, strerror(err));
        d->stop = true;
        return;
    }
    if (getsockname(d->fd, (struct sockaddr *)&own, &own_len) < 0 ||
        getpeername(d->fd, (struct sockaddr *)&peer, &peer_len) < 0) {
        doc_say(r, DOC_FAIL, "the server ended the connection at once: %s", strerror(errno));
        d->stop = true;
        return;
    }
    take_side(&own, &d->tuple.family, d->tuple.src, &d->tuple.src_port);
    take_side(&peer, &d->tuple.family, d->tuple.dst, &d->tuple.dst_port);
    put_address((struct sockaddr *)&own, own_len, from);
    put_address((struct sockaddr *)&peer, peer_len, to);
    doc_say(r, DOC_OK, "%s to %s", from, to);
}

static void nap(void)
{
    struct timespec ts = {0, LOOK_NS};

    nanosleep(&ts, NULL);
}

/* The kernel knows the other end of the connection if it is here. Until the server has accepted it
 * belongs to nobody, and there is no event that says so to us; with TCP_DEFER_ACCEPT the server
 * does so when it has got something. */
void doc_HOST_OF(struct doctor *d, struct doc_result *r)
{
    int reason = RSN_NOT_YET;

    for (int i = 0; i < LOOKS && reason == RSN_NOT_YET; i++) {
        if (i)
            nap();
        reason = shm_diag_owner(&d->tuple, SHM_END_DST, &d->uid);
    }
    d->same_host = reason != RSN_OTHER_HOST && reason != RSN_NO_NETLINK;
    d->accepted = reason == 0;
    if (reason == RSN_NO_NETLINK) {
        doc_say(r, DOC_FAIL, "not known: %s", cfg_reason_sentence(reason));
        r->advice = cfg_reason_advice(reason);
        d->stop = d->wire == CFG_WIRE_SHM;
    } else if (reason == 0) {
        doc_say(r, DOC_OK, "yes: user %u has accepted the connection", d->uid);
    } else if (reason == RSN_OTHER_HOST && d->wire == CFG_WIRE_SHM) {
        doc_say(r, DOC_FAIL, "no, and the wire shm needs it");
        r->advice = cfg_reason_advice(RSN_OTHER_HOST);
        d->stop = true;
    } else if (reason == RSN_OTHER_HOST) {
        doc_say(r, DOC_OK, "no: another host, or another network namespace or container");
    } else if (reason == RSN_NOT_YET) {
        doc_say(r, DOC_NOTE,
                "yes, but the server has not accepted the connection: it is busy, or waits for "
                "bytes first (TCP_DEFER_ACCEPT)");
    } else {
        doc_say(r, DOC_FAIL, "yes, but %s", cfg_reason_sentence(reason));
        d->stop = true;
    }
}

static bool is_end(const struct stat_conn *c, const struct rsk_tuple *t)
{
    return c->accepted && c->local.port == t->dst_port && c->peer.port == t->src_port &&
           memcmp(c->local.addr, t->dst, 16) == 0 && memcmp(c->peer.addr, t->src, 16) == 0;
}

/* What a connection may show over which nothing has gone, and board later: those of servers that
 * fork for each are not with one process alone at first. */
static bool may_board(unsigned reason)
{
    switch (reason) {
    case RSN_NONE:
    case RSN_NEW:
    case RSN_WAIT_PEER:
    case RSN_NOT_YET:
    case RSN_SHARED:
    case RSN_INHERITED:
        return true;
    default:
        return false;
    }
}

/* The first reason that other connections of the process show and that may hold for all of them;
 * RSN_NONE: none. Ours need not show it: the process shows these only of connections that would
 * have been worth a rail. */
static int reason_of_others(const struct stat_process *p)
{
    static const int of_all[] = {RSN_IO_URING, RSN_CONFIG,   RSN_SECCOMP,     RSN_LIMIT_FD,
                                 RSN_RULE,     RSN_MODE_TCP, RSN_BOARD_NEVER, RSN_NO_KEY};

    for (size_t i = 0; i < sizeof(of_all) / sizeof(of_all[0]); i++) {
        if (p->closed.by_reason[of_all[i]])
            return of_all[i];
        for (size_t j = 0; j < p->nconns; j++)
            if (p->conns[j].reason == (unsigned)of_all[i])
                return of_all[i];
    }
    return RSN_NONE;
}

static void judge_server(struct doctor *d, struct doc_result *r, const struct stat_process *p,
                         unsigned reason)
{
    int others = reason_of_others(p);

    d->served = true;
    d->stop = !may_board(reason);
    d->untold |= !d->stop && others;
    if (d->stop) {
        doc_say(r, DOC_FAIL, "%s, process %u: %s: %s", p->program, p->pid,
                cfg_reason_name((int)reason), cfg_reason_sentence((int)reason));
        r->advice = *cfg_reason_advice((int)reason)
                        ? cfg_reason_advice((int)reason)
                        : "railsock stat shows the server's connections; railsock(7) says more";
    } else if (others) {
        doc_say(r, DOC_NOTE,
                "%s, process %u, runs with railsock, but has kept connections on TCP: %s: %s",
                p->program, p->pid, cfg_reason_name(others), cfg_reason_sentence(others));
    } else {
        doc_say(r, DOC_OK, "%s, process %u, runs with railsock", p->program, p->pid);
    }
}

/* Files of processes, as another version of the library shows them. */
static unsigned unread;

static void not_read(const char *path, const char *why)
{
    (void)path, (void)why;
    unread++;
}

/* The server's process shows the connection, as to `railsock stat`. It may do so a little after the
 * kernel says that it has accepted. */
static void look_for_server(struct doctor *d, struct doc_result *r)
{
    struct stat_list list;
    bool found = false;

    unread = 0;
    if (stat_read(STAT_BASE, 0, not_read, &list) < 0)
        list.n = 0;
    stat_addresses(&list);
    for (size_t i = 0; i < list.n && !found; i++)
        for (size_t j = 0; j < list.processes[i].nconns && !found; j++) {
            const struct stat_process *p = &list.processes[i];

            found = is_end(&p->conns[j], &d->tuple);
            if (found)
                judge_server(d, r, p, p->conns[j].reason);
        }
    stat_free(&list);
}

void doc_SERVER(struct doctor *d, struct doc_result *r)
{
    const bool seen = geteuid() == 0 || geteuid() == d->uid;

    if (!d->same_host) {
        doc_say(r, DOC_SKIP, "on another host");
        return;
    }
    if (!d->accepted) {
        doc_say(r, DOC_SKIP, "cannot be told: no process has the connection yet");
        return;
    }
    for (int i = 0; i < LOOKS / 4 && !d->stop; i++) {
        const bool again = d->served;

        if (i)
            nap();
        look_for_server(d, r);
        /* In order, it is looked at once more: what the server does next with the connection may
         * keep it on TCP. */
        if (again || (!d->served && !seen))
            break;
    }
    if (d->served)
        return;
    if (seen)
        doc_say(
            r, DOC_NOTE,
            "no process of user %u shows the connection here: it runs without railsock, or in "
            "another container, or cannot show anything%s",
            d->uid,
            unread
                ? ", or with another version of it: `railsock stat` says whose files it cannot read"
                : "");
    else
        doc_say(r, DOC_NOTE, "user %u's: whether it runs with railsock is shown to root only",
                d->uid);
}

void doc_SHM_RENDEZVOUS(struct doctor *d, struct doc_result *r)
{
    int reason;

    if (!d->same_host) {
        doc_say(r, DOC_SKIP, "on another host");
        return;
    }
    if (!doc_memfd(r))
        return;
    if (!d->accepted) {
        d->untold = true;
        doc_say(r, DOC_NOTE, "cannot be told: the server answers when it has accepted");
        return;
    }
    reason = doc_ask(&rsk_shm_wire, &d->tuple);
    doc_answer(r, reason);
    if (reason == RSN_NO_PEER_LIB && d->served)
        doc_say(r, DOC_OK,
                "nobody answers for the port yet: the server does so once a connection has been "
                "worth a rail");
}
