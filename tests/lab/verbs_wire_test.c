/*
 * verbs_wire_test.c - the verbs wire between two processes, over a real TCP connection for the
 * tuple, with this program in the place of the layers above. tests/verbs_test.sh runs it.
 *
 *   verbs_wire_test server PORT
 *   verbs_wire_test client OWN-ADDRESS ADDRESS PORT CASE...     prints ok / not ok lines
 *
 *   verbs_wire_test both OWN-ADDRESS ADDRESS PORT CASE...       both in one process
 *
 * The client names the case over TCP, both do their part on the rail, the server answers over
 * TCP with "ok" or what was wrong. Every byte is checked against its position.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "config/env.h"
#include "config/log.h"
#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/sys.h"
#include "rsock/wire.h"

/* Much longer than anything takes: the machine below may have other things to do. */
enum { PATIENCE_S = 20 };

static const struct rsk_wire *const wire = &rsk_verbs_wire;

/* Directions start at odd places, so that rings wrap at odd places and past 32 bits. */
static const uint64_t S_CLIENT = 12345, S_SERVER = 0xffffff80u;

struct conn {
    int fd;
    bool server, spin, brief, slow;
    struct rsk_tuple tuple;
    struct rsk_rail *_Atomic rail;
    _Atomic int refused;
    _Atomic unsigned news;
    _Atomic bool failed, push_posted;
    struct rsk_shard *shard;
    size_t ring;
    pthread_mutex_t tx_lock, rx_lock;
    uint64_t tx, rx;
    unsigned seed;
    char why[200];
};

static char pattern[2 * 65521];
static struct conn *_Atomic waiting; /* the server's connection that may have a rail */
static _Atomic int answer_not_yet;
static struct conn *last_served; /* not freed: jobs may still be on their way to it */
static char last_result[200] = "nothing";

static int wrong(struct conn *c, const char *fmt, ...)
{
    va_list ap;

    if (!c->why[0]) {
        va_start(ap, fmt);
        vsnprintf(c->why, sizeof c->why, fmt, ap);
        va_end(ap);
    }
    return -1;
}

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static void nap(unsigned us)
{
    struct timespec ts = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&ts, NULL);
}

static unsigned rnd(struct conn *c, unsigned n)
{
    c->seed = c->seed * 1103515245 + 12345;
    return (c->seed >> 8) % n;
}

/* ---- what the layer above does */

static void push_job(void *arg)
{
    struct conn *c = arg;

    atomic_store(&c->push_posted, false);
    pthread_mutex_lock(&c->tx_lock);
    if (atomic_load(&c->rail))
        wire->tx_push(c->rail);
    pthread_mutex_unlock(&c->tx_lock);
}

static void on_notify(struct rsk_rail *r, unsigned events)
{
    struct conn *c = r->owner;

    atomic_fetch_or(&c->news, events);
    if (events & RSK_FAIL)
        atomic_store(&c->failed, true);
    if (events & RSK_TX && !atomic_exchange(&c->push_posted, true))
        rsk_loop_post(push_job, c);
}

static void have_rail(struct conn *c, struct rsk_rail *r)
{
    r->owner = c;
    r->notify = on_notify;
    atomic_store(&c->rail, r);
}

static void on_done(void *owner, struct rsk_rail *r, int reason)
{
    struct conn *c = owner;

    if (r)
        have_rail(c, r);
    else
        atomic_store(&c->refused, reason ? reason : -1);
}

static int on_find(const struct rsk_tuple *t, struct rsk_shard **shard, size_t *ring, void **owner)
{
    struct conn *c = atomic_load(&waiting);

    if (atomic_load(&answer_not_yet))
        return RSN_NOT_YET;
    if (!c || memcmp(t, &c->tuple, sizeof *t) != 0)
        return RSN_NOT_MINE;
    *shard = c->shard;
    *ring = c->ring;
    *owner = c;
    return 0;
}

static void on_accepted(void *owner, struct rsk_rail *r)
{
    have_rail(owner, r);
}

static void on_refused(void *owner, int reason)
{
    on_done(owner, NULL, reason);
}

static const struct rsk_accept_ops ops = {on_find, on_accepted, on_refused};

/* ---- the application's calls on a rail */

static int sleep_for(struct conn *c, unsigned event)
{
    struct rsk_rail *r = c->rail;
    _Atomic uint32_t *word = event == RSK_RX ? r->rx_word : r->tx_word;
    struct timespec deadline;
    uint32_t v;

    if (c->spin) {
        if (wire->poll(r) & RSK_FAIL && event != RSK_RX)
            return wrong(c, "rail failed: %s", cfg_reason_name((int)r->failed));
        return r->failed && !(wire->poll(r) & event) ? wrong(c, "rail failed") : 0;
    }
    /* As an application's wait does: a while of spinning first. */
    if (c->brief) {
        uint64_t end = sys_now() + 20000;

        do {
            if (wire->poll(r) & (event | RSK_FAIL))
                break;
        } while (sys_now() < end);
    }
    v = atomic_load(word);
    if (wire->arm(r, event, RSK_BY_FUTEX)) {
        if (r->failed && !(wire->poll(r) & event))
            return wrong(c, "rail failed: %s", cfg_reason_name((int)r->failed));
        return 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += PATIENCE_S;
    if (sys_futex(word, FUTEX_WAIT_BITSET, v, &deadline) == -ETIMEDOUT)
        return wrong(c, "slept %d s for %s: tx %llu freed %llu push %zd poll %u", PATIENCE_S,
                     event == RSK_RX ? "RX" : "TX", (unsigned long long)c->tx,
                     (unsigned long long)wire->tx_freed(r), wire->tx_push(r), wire->poll(r));
    return 0;
}

static int send_all(struct conn *c, size_t n)
{
    struct iovec v[2];

    while (n) {
        size_t room, put = 0;
        int err = 0;

        pthread_mutex_lock(&c->tx_lock);
        room = wire->tx_space(c->rail, v);
        if (room > n)
            room = n;
        for (int i = 0; i < 2 && put < room; i++) {
            size_t k = v[i].iov_len < room - put ? v[i].iov_len : room - put;

            for (size_t at = 0; at < k;) {
                size_t off = (size_t)((c->tx + put + at) % 65521),
                       m = k - at < 65521 ? k - at : 65521;
                memcpy((char *)v[i].iov_base + at, pattern + off, m);
                at += m;
            }
            put += k;
        }
        if (room)
            err = wire->tx_put(c->rail, room);
        pthread_mutex_unlock(&c->tx_lock);
        if (err)
            return wrong(c, "tx_put: %d", err);
        c->tx += room;
        n -= room;
        if (!room && sleep_for(c, RSK_TX) < 0)
            return -1;
    }
    return 0;
}

/* Takes what is there, at most max; checks it. */
static ssize_t recv_some(struct conn *c, size_t max)
{
    struct iovec v[2];
    size_t n = wire->rx_peek(c->rail, v), got = 0;

    if (n > max)
        n = max;
    for (int i = 0; i < 2 && got < n; i++) {
        size_t k = v[i].iov_len < n - got ? v[i].iov_len : n - got;

        for (size_t at = 0; at < k;) {
            size_t off = (size_t)((c->rx + got + at) % 65521), m = k - at < 65521 ? k - at : 65521;
            if (memcmp((char *)v[i].iov_base + at, pattern + off, m) != 0)
                return wrong(c, "wrong bytes near %zu", (size_t)c->rx + got + at);
            at += m;
        }
        got += k;
    }
    if (n)
        wire->rx_consume(c->rail, n);
    c->rx += n;
    return (ssize_t)n;
}

static int recv_all(struct conn *c, size_t n)
{
    while (n) {
        ssize_t k = recv_some(c, c->slow ? 1 + rnd(c, 7000) : n);

        if (k < 0)
            return -1;
        n -= (size_t)k;
        if (k == 0 && sleep_for(c, RSK_RX) < 0)
            return -1;
        if (c->slow && rnd(c, 20) == 0)
            nap(2000);
    }
    return 0;
}

static int ctl_wait(struct conn *c, struct rsk_msg *m)
{
    uint64_t end = sys_now() + PATIENCE_S * 1000000000ull;

    while (!wire->ctl_recv(c->rail, m)) {
        if (c->rail->failed || sys_now() > end)
            return wrong(c, "no control message: %s", cfg_reason_name((int)c->rail->failed));
        if (c->spin)
            wire->poll(c->rail);
        else
            nap(200);
    }
    return 0;
}

static int ctl_put(struct conn *c, const struct rsk_msg *m)
{
    uint64_t end = sys_now() + PATIENCE_S * 1000000000ull;
    int err;

    while ((err = wire->ctl_send(c->rail, m)) == -EAGAIN && sys_now() < end)
        nap(200);
    return err ? wrong(c, "ctl_send: %d", err) : 0;
}

/* Both are ready to receive before either may send. */
static int rail_start(struct conn *c, uint32_t limit, uint64_t tx, uint64_t rx)
{
    struct rsk_msg m = {.type = 1};

    c->rail->tx_limit = limit;
    c->tx = tx;
    c->rx = rx;
    wire->rx_start(c->rail, c->rx);
    wire->tx_start(c->rail, c->tx);
    if (ctl_put(c, &m) < 0 || ctl_wait(c, &m) < 0)
        return -1;
    pthread_mutex_lock(&c->tx_lock);
    wire->tx_open(c->rail);
    pthread_mutex_unlock(&c->tx_lock);
    return 0;
}

/* ---- cases: each side's part */

enum { C2S = 1, S2C = 2 };

struct flow {
    struct conn *c;
    size_t total, max;
    int result;
};

static void *sender(void *arg)
{
    struct flow *f = arg;

    for (size_t n = f->total; n;) {
        size_t k = f->max == 1 ? 1 : 1 + rnd(f->c, (unsigned)f->max);

        k = k < n ? k : n;
        if ((f->result = send_all(f->c, k)) < 0)
            break;
        n -= k;
    }
    return NULL;
}

static int flow(struct conn *c, int dirs, size_t total, size_t max)
{
    struct flow f = {c, total, max, 0};
    bool tx = dirs & (c->server ? S2C : C2S), rx = dirs & (c->server ? C2S : S2C);
    pthread_t t = 0;
    int err = 0;

    if (tx)
        pthread_create(&t, NULL, sender, &f);
    if (rx)
        err = recv_all(c, total);
    if (tx)
        pthread_join(t, NULL);
    return err | f.result;
}

static int stall(struct conn *c)
{
    uint64_t t = sys_now();

    if (c->server) {
        nap(2000000);
        return recv_all(c, 1000000);
    }
    if (send_all(c, 1000000) < 0)
        return -1;
    return sys_now() - t > 500000000u ? 0 : wrong(c, "the sender did not wait");
}

static int ctl_flood(struct conn *c)
{
    uint32_t sent = 0, got = 0;
    uint64_t end = sys_now() + 2 * PATIENCE_S * 1000000000ull;

    while (sent < 5000 || got < 5000) {
        struct rsk_msg m = {.type = 2, .word = sent, .a = ~(uint64_t)sent};
        int err = sent < 5000 ? wire->ctl_send(c->rail, &m) : -EAGAIN;

        if (!err)
            sent++;
        else if (err != -EAGAIN)
            return wrong(c, "ctl_send: %d", err);
        while (wire->ctl_recv(c->rail, &m)) {
            if (m.word != got || m.a != ~(uint64_t)got)
                return wrong(c, "message %u instead of %u", m.word, got);
            got++;
        }
        if (err)
            nap(100);
        if (sys_now() > end)
            return wrong(c, "sent %u, got %u", sent, got);
    }
    return 0;
}

/* Many small sends, then the application is away and nobody drains its shard. */
static int away(struct conn *c)
{
    if (c->server)
        return recv_all(c, 3000);
    for (int i = 0; i < 3000; i++)
        if (send_all(c, 1) < 0)
            return -1;
    nap(1500000);
    return 0;
}

static int killed(struct conn *c)
{
    uint64_t end = sys_now() + PATIENCE_S * 1000000000ull;
    uint64_t from = c->rx;

    if (!c->server) {
        send_all(c, 5000);
        nap(100000);
        kill(getpid(), SIGKILL);
    }
    while (!atomic_load(&c->failed)) {
        if (sys_now() > end)
            return wrong(c, "no RSK_FAIL");
        nap(1000);
    }
    while (recv_some(c, 1 << 20) > 0)
        ;
    return c->rx - from == 5000 ? 0 : wrong(c, "%llu bytes", (unsigned long long)(c->rx - from));
}

static int freeze(struct conn *c)
{
    struct rsk_msg m = {.type = 3};
    uint64_t V;

    if (!c->server) {
        if (send_all(c, 1000) < 0 || ctl_wait(c, &m) < 0 || send_all(c, 1000) < 0)
            return -1;
        return ctl_put(c, &m) | ctl_wait(c, &m);
    }
    if (recv_all(c, 400) < 0)
        return -1;
    while (!(wire->poll(c->rail) & RSK_FAIL) && wire->rx_peek(c->rail, (struct iovec[2]){}) < 600)
        ;
    V = wire->rx_freeze(c->rail);
    if (V != S_CLIENT + 1000)
        return wrong(c, "V is %llu", (unsigned long long)V);
    if (ctl_put(c, &m) < 0 || ctl_wait(c, &m) < 0 || recv_all(c, 600) < 0)
        return -1;
    if (wire->rx_peek(c->rail, (struct iovec[2]){}) || wire->rx_freeze(c->rail) != V)
        return wrong(c, "bytes after the freeze");
    return ctl_put(c, &m);
}

/* A forked child keeps nothing of the device. */
static int forked(struct conn *c)
{
    char cmd[200];
    int status;
    pid_t pid;

    if (c->server)
        return recv_all(c, 100000);
    if (send_all(c, 50000) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        rsk_loop_after_fork_child();
        snprintf(cmd, sizeof cmd,
                 "grep -q /dev/infiniband /proc/%d/maps || ls -l /proc/%d/fd | grep -q infiniband",
                 getpid(), getpid());
        _exit(system(cmd) == 0 ? 1 : 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
        return wrong(c, "the child holds the device");
    return send_all(c, 50000);
}

/* Leaves in both directions and boards again, further on, on the same rail. */
static int reboard(struct conn *c)
{
    struct rsk_msg m = {.type = 5};

    for (int i = 0; i < 20; i++) {
        if (flow(c, C2S | S2C, 100000 + 777, 9000) < 0)
            return -1;
        pthread_mutex_lock(&c->tx_lock);
        wire->tx_stop(c->rail);
        pthread_mutex_unlock(&c->tx_lock);
        if (wire->rx_freeze(c->rail) != c->rx)
            return wrong(c, "frozen elsewhere");
        if (ctl_put(c, &m) < 0 || ctl_wait(c, &m) < 0 || m.type != 5)
            return wrong(c, "message %u", m.type);
        if (i & 1 && !c->server)
            nap(3000);
        if (rail_start(c, 0, c->tx + (unsigned)i * 1000, c->rx + (unsigned)i * 1000) < 0)
            return -1;
    }
    return flow(c, C2S | S2C, 100000, 9000);
}

static int unplug(struct conn *c)
{
    uint64_t end = sys_now() + PATIENCE_S * 1000000000ull, t = 0;
    pid_t pid = 0;
    int status = 0;

    if (!c->server && (pid = fork()) == 0) {
        rsk_loop_after_fork_child();
        nap(300000);
        t = sys_now();
        if (system("rdma link delete rxe0"))
            _exit(9);
        fprintf(stderr, "# rdma link delete took %u ms\n", (unsigned)((sys_now() - t) / 1000000));
        _exit(sys_now() - t > 5000000000u ? 8 : 0);
    }
    flow(c, C2S | S2C, (size_t)1 << 40, 30000);
    c->why[0] = 0;
    while (!atomic_load(&c->failed) && sys_now() < end)
        nap(1000);
    if (!atomic_load(&c->failed))
        return wrong(c, "no RSK_FAIL");
    while (pid && waitpid(pid, &status, WNOHANG) == 0) {
        if (sys_now() > end) {
            kill(pid, SIGKILL);
            return wrong(c, "rdma link delete hangs");
        }
        nap(10000);
    }
    return status ? wrong(c, "rdma link delete: status %d", status >> 8) : 0;
}

static void end_on_loop(struct conn *c);
static bool read_line(int fd, char *line, size_t size);

/* The other process says that it has come so far. */
static int meet(struct conn *c, bool say)
{
    char line[220];

    if (say)
        return dprintf(c->fd, "there\n") > 0 ? 0 : wrong(c, "TCP: error %d", errno);
    return read_line(c->fd, line, sizeof line) ? 0 : wrong(c, "TCP has ended");
}

static int fails_within(struct conn *c, unsigned seconds)
{
    uint64_t end = sys_now() + seconds * 1000000000ull;

    while (!atomic_load(&c->failed))
        if (sys_now() > end)
            return wrong(c, "no RSK_FAIL");
        else
            nap(1000);
    return 0;
}

/* A receiver that falls silent says what it has consumed, however little: an idle rail owes nothing. */
static int quiet(struct conn *c)
{
    uint64_t end = sys_now() + PATIENCE_S * 1000000000ull;
    struct rsk_msg m = {.type = 7};

    if (flow(c, C2S | S2C, 100, 100) < 0)
        return -1;
    for (;; nap(1000)) {
        uint64_t freed;

        pthread_mutex_lock(&c->tx_lock);
        freed = wire->tx_freed(c->rail);
        pthread_mutex_unlock(&c->tx_lock);
        if (freed == c->tx)
            break;
        if (sys_now() > end)
            return wrong(c, "%llu of %llu bytes are known to be consumed",
                         (unsigned long long)freed, (unsigned long long)c->tx);
    }
    return ctl_put(c, &m) | ctl_wait(c, &m);
}

/* Everything that was sent is acknowledged and nothing is under way. Then the receiver's credit is lost
 * for good, and with it its queue pair and its disconnect; packets flow again, and the sender waits. */
static int lost_credit(struct conn *c)
{
    static const char drop[] = "nft 'add table ip t; add chain ip t c { type filter hook input "
                               "priority 0; }; add rule ip t c udp dport 4791 drop'";
    struct rsk_msg m = {.type = 6};
    int err;

    if (c->server) {
        while (wire->rx_peek(c->rail, (struct iovec[2]){}) < 60000)
            if (wire->poll(c->rail) & RSK_FAIL)
                return wrong(c, "failed early");
        if (ctl_put(c, &m) < 0 || meet(c, false) < 0 || recv_all(c, 60000) < 0 ||
            fails_within(c, PATIENCE_S) < 0)
            return -1;
        end_on_loop(c);
        return meet(c, true);
    }
    if (send_all(c, 60000) < 0 || ctl_wait(c, &m) < 0)
        return -1;
    nap(300000); /* what this end owes is posted, too */
    if (system(drop))
        return wrong(c, "nft");
    err = meet(c, true) | meet(c, false);
    if (system("nft delete table ip t"))
        return wrong(c, "nft");
    return err ? err : fails_within(c, PATIENCE_S);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The median, as perftest's t_typical: the mean mostly measures who else uses the machine. */
static int pingpong(struct conn *c, size_t size, unsigned rounds)
{
    uint64_t *took = calloc(rounds, sizeof *took);
    int err = 0;

    c->spin = true;
    for (unsigned i = 0; i < rounds && !err; i++) {
        took[i] = sys_now();
        err = c->server ? recv_all(c, size) || send_all(c, size)
                        : send_all(c, size) || recv_all(c, size);
        took[i] = sys_now() - took[i];
    }
    qsort(took, rounds, sizeof *took, by_value);
    if (!c->server)
        printf("# latency %zu bytes: %.2f us one way\n", size, (double)took[rounds >> 1] / 2000);
    free(took);
    return err ? -1 : 0;
}

static int bandwidth(struct conn *c, size_t size, unsigned rounds)
{
    struct rsk_msg m = {.type = 4};
    uint64_t t = sys_now();

    c->brief = true;
    if (c->server)
        return recv_all(c, size * rounds) | ctl_put(c, &m);
    for (unsigned i = 0; i < rounds; i++)
        if (send_all(c, size) < 0)
            return -1;
    if (ctl_wait(c, &m) < 0)
        return -1;
    printf("# bandwidth %zu bytes, ring %u: %.2f MB/s\n", size, c->rail->tx_size,
           (double)(size * rounds) * 1000 / (double)(sys_now() - t));
    return 0;
}

/* The rail is up on both sides. */
static int run_case(struct conn *c, const char *name)
{
    uint32_t limit = !same(name, "limit") ? 0 : 4096;

    if (rail_start(c, limit, c->server ? S_SERVER : S_CLIENT, c->server ? S_CLIENT : S_SERVER) < 0)
        return -1;
    if (same(name, "one-byte"))
        return flow(c, C2S, 20000, 1);
    if (same(name, "bulk") || same(name, "own-shard") || same(name, "again"))
        return flow(c, C2S, 8000000, 200000);
    if (same(name, "stall"))
        return stall(c);
    if (same(name, "duplex"))
        return flow(c, C2S | S2C, 4000000, 30000);
    if (same(name, "wrap"))
        return flow(c, C2S | S2C, 1000000, 5000);
    if (same(name, "sleepy")) {
        c->slow = c->server;
        return flow(c, C2S, 2000000, 60000);
    }
    if (same(name, "limit"))
        return flow(c, C2S | S2C, 500000, 9000);
    if (same(name, "ctl-flood"))
        return ctl_flood(c);
    if (same(name, "away"))
        return away(c);
    if (same(name, "killed"))
        return killed(c);
    if (same(name, "freeze"))
        return freeze(c);
    if (same(name, "fork"))
        return forked(c);
    if (same(name, "reboard"))
        return reboard(c);
    if (same(name, "unplug"))
        return unplug(c);
    if (same(name, "quiet"))
        return quiet(c);
    if (same(name, "lost-credit"))
        return lost_credit(c);
    if (same(name, "latency"))
        return pingpong(c, 64, 3000);
    if (same(name, "bandwidth") || same(name, "bandwidth-1m"))
        return bandwidth(c, 65536, 400);
    return wrong(c, "no such case");
}

static void shard_fd(void *arg, int fd)
{
    (void)arg, (void)fd; /* nobody watches it: the application is away */
}

static void choose(struct conn *c, const char *name)
{
    bool own = same(name, "own-shard") || same(name, "away") || same(name, "fork");

    c->shard = own ? rsk_shard_new(shard_fd, c) : rsk_shard_get(rsk_shard_common());
    c->ring = same(name, "wrap") ? 4096 : same(name, "bandwidth-1m") ? 1 << 20 : 0;
    c->seed = (unsigned)c->server + 1;
    pthread_mutex_init(&c->tx_lock, NULL);
}

/* ---- the two programs */

static void put_addr(uint8_t *to, const struct sockaddr_in *a)
{
    memcpy(to, &a->sin_addr, 4);
}

static void tuple_of(struct conn *c)
{
    struct sockaddr_in a = {0}, b = {0};
    socklen_t n = sizeof a;

    getsockname(c->fd, (struct sockaddr *)&a, &n);
    getpeername(c->fd, (struct sockaddr *)&b, &n);
    c->tuple.family = AF_INET;
    c->tuple.src_port = ntohs(c->server ? b.sin_port : a.sin_port);
    c->tuple.dst_port = ntohs(c->server ? a.sin_port : b.sin_port);
    put_addr(c->tuple.src, c->server ? &b : &a);
    put_addr(c->tuple.dst, c->server ? &a : &b);
}

struct ask {
    struct conn *c;
    uint16_t port;
    int err;
    _Atomic bool over;
};

static void connect_job(void *arg)
{
    struct ask *a = arg;

    a->err = wire->connect(&a->c->tuple, a->c->shard, a->c->ring, a->c, on_done);
    atomic_store(&a->over, true);
}

static void listen_job(void *arg)
{
    struct ask *a = arg;

    a->err = wire->listen(AF_INET, a->port, &ops);
    atomic_store(&a->over, true);
}

static void destroy_job(void *arg)
{
    struct ask *a = arg;
    struct rsk_rail *r = atomic_exchange(&a->c->rail, NULL);

    wire->destroy(r);
    atomic_store(&a->over, true);
}

static int on_loop(void (*fn)(void *), struct ask *a)
{
    atomic_store(&a->over, false);
    rsk_loop_post(fn, a);
    while (!atomic_load(&a->over))
        nap(100);
    return a->err;
}

static int wait_rail(struct conn *c)
{
    uint64_t end = sys_now() + 6000000000u;

    while (!atomic_load(&c->rail) && !atomic_load(&c->refused) && sys_now() < end)
        nap(200);
    return atomic_load(&c->rail) ? 0 : wrong(c, "no rail: %s", cfg_reason_name(c->refused));
}

static void end_on_loop(struct conn *c)
{
    struct ask a = {.c = c};

    on_loop(destroy_job, &a);
}

static void end_rail(struct conn *c)
{
    pthread_mutex_lock(&c->tx_lock);
    pthread_mutex_unlock(&c->tx_lock);
    if (atomic_load(&c->rail))
        end_on_loop(c);
    rsk_shard_put(c->shard);
}

static bool read_line(int fd, char *line, size_t size)
{
    size_t n = 0;

    while (n + 1 < size && read(fd, line + n, 1) == 1 && line[n] != '\n')
        n++;
    line[n] = 0;
    return n > 0;
}

static void serve(int fd)
{
    struct conn *c = calloc(1, sizeof *c);
    char name[200], line[220];

    if (!c)
        abort();
    last_served = c;
    c->fd = fd;
    c->server = true;
    tuple_of(c);
    if (!read_line(fd, name, sizeof name))
        goto out;
    if (same(name, "result")) {
        snprintf(line, sizeof line, "%s\n", last_result);
        goto say;
    }
    choose(c, name);
    atomic_store(&answer_not_yet, same(name, "not-yet"));
    atomic_store(&waiting, c);
    dprintf(fd, "go\n");
    if (same(name, "not-yet") || same(name, "nobody") || same(name, "loopback")) {
        read_line(fd, line, sizeof line);
    } else {
        if (wait_rail(c) == 0)
            run_case(c, name);
        /* The client looks at what it kept only while we are there. */
        if (!same(name, "killed") && !same(name, "unplug"))
            read_line(fd, line, sizeof line);
        atomic_store(&waiting, NULL);
        end_rail(c);
    }
    snprintf(line, sizeof line, "%s\n", c->why[0] ? c->why : "ok");
    snprintf(last_result, sizeof last_result, "%s", c->why[0] ? c->why : "ok");
say:
    dprintf(fd, "%s", line);
out:
    close(fd);
}

static int server(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct ask ask = {.port = port};

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 10) < 0 ||
        on_loop(listen_job, &ask) < 0) {
        printf("not ok server: cannot listen, error %d\n", ask.err);
        return 1;
    }
    for (;;) {
        int s = accept(fd, NULL, NULL);

        if (s >= 0)
            serve(s);
    }
}

static int dial(const char *own, const char *to, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET},
                       b = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, own, &a.sin_addr);
    inet_pton(AF_INET, to, &b.sin_addr);
    for (int i = 0; i < 50; i++) {
        if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
            connect(fd, (struct sockaddr *)&b, sizeof b) == 0)
            return fd;
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        nap(100000);
    }
    return -1;
}

/* One case from the client's side. `name` may be one that is refused. */
static void try_case(struct conn *c, const char *own, const char *to, uint16_t port,
                     const char *name)
{
    struct ask a = {.c = c};
    char line[220];

    c->fd = dial(own, to, port);
    if (c->fd < 0) {
        wrong(c, "no TCP connection");
        return;
    }
    tuple_of(c);
    choose(c, name);
    dprintf(c->fd, "%s\n", name);
    if (!read_line(c->fd, line, sizeof line)) {
        wrong(c, "the server is gone");
        return;
    }
    if (same(name, "nobody"))
        c->tuple.dst_port = 7999;
    if (same(name, "loopback"))
        memcpy(c->tuple.dst, "\177\0\0\1", 4);
    if (on_loop(connect_job, &a) < 0)
        wrong(c, "connect: %d", a.err);
    else if (wait_rail(c) == 0)
        run_case(c, name);
    dprintf(c->fd, "end\n");
    if (!read_line(c->fd, line, sizeof line))
        wrong(c, "the server is gone");
    else if (!same(line, "ok"))
        wrong(c, "server: %s", line);
    end_rail(c);
    close(c->fd);
}

static void expect(struct conn *c, const char *text)
{
    if (strstr(c->why, text))
        c->why[0] = 0;
    else if (!c->why[0])
        snprintf(c->why, sizeof c->why, "no failure");
}

static int client(const char *own, const char *to, uint16_t port, char **names)
{
    static struct conn *last;
    int bad = 0;

    for (; *names; names++) {
        struct conn *c = calloc(1, sizeof *c);
        const char *name = *names;
        int status;
        pid_t pid;

        if (!c)
            abort();
        if (same(name, "killed")) {
            char p[10], line[220];

            snprintf(p, sizeof p, "%u", port);
            pid = fork();
            if (pid == 0) {
                rsk_loop_after_fork_child();
                execl("/proc/self/exe", "verbs_wire_test", "client", own, to, p, "killed-now",
                      NULL);
                _exit(9);
            }
            waitpid(pid, &status, 0);
            c->fd = dial(own, to, port);
            dprintf(c->fd, "result\n");
            if (!WIFSIGNALED(status) || !read_line(c->fd, line, sizeof line) || !same(line, "ok"))
                wrong(c, "status %x, server: %s", status, line);
        } else if (same(name, "killed-now")) {
            try_case(c, own, to, port, "killed");
        } else if (same(name, "plug")) {
            if (system("rdma link add rxe0 type rxe netdev eth0"))
                wrong(c, "rdma link add");
        } else {
            try_case(c, own, to, port, name);
            if (same(name, "not-yet"))
                expect(c, "no rail: not-yet");
            else if (same(name, "nobody"))
                expect(c, "no rail: no-peer-library");
            else if (same(name, "loopback"))
                expect(c, "no rail: no-rdma-on-route");
        }
        if (c->why[0])
            printf("not ok %s: %s\n", name, c->why);
        else
            printf("ok %s\n", name);
        fflush(stdout);
        bad |= c->why[0] != 0;
        /* Not freed: a callback or a job may still be on its way to it. */
        last = c;
    }
    return bad || !last;
}

static void *server_thread(void *port)
{
    server((uint16_t)atoi(port));
    return NULL;
}

int main(int argc, char **argv)
{
    int reason;

    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (char)((i % 65521) * 2654435761u >> 13);
    signal(SIGPIPE, SIG_IGN);
    cfg_init();
    cfg_log_level = getenv("VERBS_DEBUG") ? CFG_LOG_DEBUG : CFG_LOG_WARN;
    if (argc < 3)
        return 2;
    reason = wire->usable();
    if (reason) {
        printf("skip verbs: %s\n", cfg_reason_sentence(reason));
        return 77;
    }
    if (rsk_loop_start(!getenv("VERBS_EPOLL")) < 0)
        return 2;
    if (same(argv[1], "both")) {
        pthread_t t = 0;

        pthread_create(&t, NULL, server_thread, argv[4]);
    }
    if (same(argv[1], "server"))
        return server((uint16_t)atoi(argv[2]));
    return client(argv[2], argv[3], (uint16_t)atoi(argv[4]), argv + 5);
}
