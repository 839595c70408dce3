/*
 * shm_rdv.h - for the tests of the shm rendezvous: real TCP connections on the loopback, and this
 * process as one that asks and one that is asked.
 */
#ifndef TESTS_UNIT_SHM_RDV_H
#define TESTS_UNIT_SHM_RDV_H

#include "tests/shim/shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/shm_wire.h"
#include "rsock/sys.h"
#include "tests/unit/shm_sleep.h"

static const struct rsk_wire *const w = &rsk_shm_wire;

/* ---- a TCP connection */

struct tcp {
    int listener, client, server;
    struct rsk_tuple t;
};

static inline bool tcp_new(struct tcp *c, int family)
{
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6}, local6 = {0};
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}},
                       local4 = {0};
    socklen_t len = sizeof a6, len4 = sizeof local4, len6 = sizeof local6;

    memset(c, 0, sizeof *c);
    /* A dual-stack listener for both families, as most servers have. */
    c->listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->listener < 0 || bind(c->listener, (struct sockaddr *)&a6, sizeof a6) ||
        listen(c->listener, 8) || getsockname(c->listener, (struct sockaddr *)&a6, &len))
        return false;
    c->client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a4.sin_port = a6.sin6_port;
    a6.sin6_addr = in6addr_loopback;
    c->t.family = (uint8_t)family;
    c->t.dst_port = ntohs(a6.sin6_port);
    if (family == AF_INET) {
        if (connect(c->client, (struct sockaddr *)&a4, sizeof a4) ||
            getsockname(c->client, (struct sockaddr *)&local4, &len4))
            return false;
        c->t.src_port = ntohs(local4.sin_port);
        memcpy(c->t.src, &local4.sin_addr, 4);
        memcpy(c->t.dst, &a4.sin_addr, 4);
    } else {
        if (connect(c->client, (struct sockaddr *)&a6, sizeof a6) ||
            getsockname(c->client, (struct sockaddr *)&local6, &len6))
            return false;
        c->t.src_port = ntohs(local6.sin6_port);
        memcpy(c->t.src, &local6.sin6_addr, 16);
        memcpy(c->t.dst, &a6.sin6_addr, 16);
    }
    c->server = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
    return c->server >= 0;
}

static inline void tcp_free(struct tcp *c)
{
    close(c->server);
    close(c->client);
    close(c->listener);
}

/* ---- this process as an asker and as one that is asked */

struct end {
    struct rsk_rail *rail;
    _Atomic int reason;
    sem_t heard, ctl;
};

static struct end asker, asked;
static bool drop_at_once;
static _Atomic int find_reason;
static struct rsk_shard *find_shard;

static inline void notify(struct rsk_rail *r, unsigned events)
{
    struct end *e = r->owner;

    if (events & RSK_CTL)
        sem_post(&e->ctl);
}

static inline void hear(struct end *e, struct rsk_rail *rail, int reason)
{
    EXPECT(rsk_loop_is_self());
    if (rail && drop_at_once) {
        w->destroy(rail);
        rail = NULL;
    }
    e->rail = rail;
    e->reason = reason;
    if (rail) {
        rail->owner = e;
        rail->notify = notify;
    }
    sem_post(&e->heard);
}

static inline void done(void *owner, struct rsk_rail *rail, int reason)
{
    hear(owner, rail, reason);
}

static inline int find(const struct rsk_tuple *t, struct rsk_shard **shard, size_t *ring,
                       void **owner)
{
    (void)t;
    *shard = find_shard;
    *ring = 0;
    *owner = &asked;
    return find_reason;
}

static inline void accepted(void *owner, struct rsk_rail *rail)
{
    hear(owner, rail, 0);
}

static inline void refused(void *owner, int reason)
{
    hear(owner, NULL, reason);
}

static const struct rsk_accept_ops ops = {.find = find, .accepted = accepted, .refused = refused};

static inline bool soon(sem_t *s)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += 10;
    return sem_timedwait(s, &ts) == 0;
}

struct job {
    const struct rsk_tuple *t;
    struct rsk_shard *shard;
    struct rsk_rail *rail;
    int result;
    sem_t done;
};

static uint16_t known_by; /* the peer's port that is in the name */

static inline void do_listen(void *arg)
{
    struct job *j = arg;

    j->result = w->listen(AF_INET, j->t->dst_port, known_by, &ops);
    sem_post(&j->done);
}

static inline void do_connect(void *arg)
{
    struct job *j = arg;

    j->result = w->connect(j->t, j->shard, 65536, &asker, done);
    sem_post(&j->done);
}

static inline void do_destroy(void *arg)
{
    struct job *j = arg;

    if (j->rail)
        w->destroy(j->rail);
    sem_post(&j->done);
}

static inline int on_thread(void (*fn)(void *), struct job *j)
{
    sem_init(&j->done, 0, 0);
    j->result = -1;
    ASSERT_EQ_INT(rsk_loop_post(fn, j), 0);
    ASSERT(soon(&j->done));
    return j->result;
}

static inline void destroy(struct end *e)
{
    struct job j = {.rail = e->rail};

    if (e->rail)
        on_thread(do_destroy, &j);
    e->rail = NULL;
}

static inline void begin(void)
{
    struct end *e[2] = {&asker, &asked};

    find_reason = 0;
    find_shard = NULL;
    for (int i = 0; i < 2; i++) {
        e[i]->rail = NULL;
        e[i]->reason = -1;
        sem_init(&e[i]->heard, 0, 0);
        sem_init(&e[i]->ctl, 0, 0);
    }
    ASSERT_EQ_INT(rsk_loop_start(true), 0);
    ASSERT_EQ_INT(w->usable(), 0);
}

/* The reason that connect() ended with. */
static inline int try_connect(const struct rsk_tuple *t, struct rsk_shard *shard)
{
    struct job j = {.t = t, .shard = shard};

    if (!EXPECT_EQ_INT(on_thread(do_connect, &j), 0) || !EXPECT(soon(&asker.heard)))
        return -1;
    return asker.reason;
}

static inline void send_all(struct rsk_rail *r, const char *text)
{
    struct iovec v[2];

    w->tx_start(r, 5);
    EXPECT_EQ_INT(w->tx_open(r), 0);
    if (!EXPECT(w->tx_space(r, v) >= strlen(text)))
        return;
    memcpy(v[0].iov_base, text, strlen(text));
    EXPECT_EQ_INT(w->tx_put(r, strlen(text)), 0);
}

static inline void receive_all(struct rsk_rail *r, const char *text)
{
    struct iovec v[2];

    w->rx_start(r, 5);
    while (w->rx_peek(r, v) < strlen(text) && EXPECT(sleep_on_word(r, RSK_RX)))
        ;
    if (EXPECT_EQ_INT(w->rx_peek(r, v), strlen(text)))
        EXPECT_MEMEQ(v[0].iov_base, text, strlen(text));
    w->rx_consume(r, v[0].iov_len);
}

static inline void talk(struct rsk_rail *a, struct rsk_rail *b)
{
    struct rsk_msg m = {.type = 9, .a = 42}, got = {0};

    send_all(a, "from a to b");
    receive_all(b, "from a to b");
    send_all(b, "and back");
    receive_all(a, "and back");
    EXPECT_EQ_INT(w->ctl_send(a, &m), 0);
    EXPECT(soon(&asked.ctl)); /* through the common shard and the progress thread */
    EXPECT_EQ_INT(w->ctl_recv(b, &got), 1);
    EXPECT_EQ_U64(got.a, 42);
    EXPECT_EQ_INT(w->ctl_send(b, &m), 0);
    EXPECT(soon(&asker.ctl));
    EXPECT_EQ_INT(w->ctl_recv(a, &got), 1);
}

/* ---- one process */

static inline int count_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    while (fgets(line, sizeof line, f))
        n += strstr(line, "memfd:railsock") != NULL;
    fclose(f);
    return n;
}

#endif
