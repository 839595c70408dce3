/*
 * verbs_wire_cases.c - verbs_wire_test's cases: each side's part.
 */
#include "tests/lab/verbs_wire.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/sys.h"
#include "rsock/verbs_int.h"
#include "rsock/verbs_proto.h"
#include "rsock/wire.h"

/* Directions start at odd places, so that rings wrap at odd places and past 32 bits. */
static const uint64_t S_CLIENT = 12345, S_SERVER = 0xffffff80u;

/* ---- cases: each side's part */

enum { C2S = 1, S2C = 2 };

/* Calls that succeed leave errno alone. */
enum { CLEAN = 4242 };

static int clean(struct conn *c)
{
    return errno == CLEAN ? 0 : wrong(c, "errno is %d", errno);
}

struct flow {
    struct conn *c;
    size_t total, max;
    int result;
};

static void *sender(void *arg)
{
    struct flow *f = arg;

    errno = CLEAN;
    for (size_t n = f->total; n;) {
        size_t k = f->max == 1 ? 1 : 1 + rnd(f->c, (unsigned)f->max);

        k = k < n ? k : n;
        if ((f->result = send_all(f->c, k)) < 0)
            return NULL;
        n -= k;
    }
    f->result = clean(f->c);
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
    if (rx) {
        errno = CLEAN;
        err = recv_all(c, total);
        err = err ? err : clean(c);
    }
    if (tx)
        pthread_join(t, NULL);
    return err | f.result;
}

static int stall(struct conn *c)
{
    struct rsk_msg m = {.type = 2};
    uint64_t t;

    if (c->server) { /* from when the sender begins */
        if (ctl_wait(c, &m) < 0)
            return -1;
        nap(2000000);
        return recv_all(c, 1000000);
    }
    if (ctl_put(c, &m) < 0)
        return -1;
    t = sys_now();
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
    while (!(wire->poll(c->rail, RSK_ANY) & RSK_FAIL) &&
           wire->rx_peek(c->rail, (struct iovec[2]){}) < 600)
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
        _exit(sys_now() - t > 15000000000u ? 8 : 0);
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

/* A receiver that falls silent says what it has consumed, however little. */
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

/* Everything that was sent is acknowledged and nothing is under way. Then the receiver's credit
 * is lost for good, and with it its queue pair and its disconnect; packets flow again, and the
 * sender waits. */
static int lost_credit(struct conn *c)
{
    static const char drop[] = "nft 'add table ip t; add chain ip t c { type filter hook input "
                               "priority 0; }; add rule ip t c udp dport 4791 drop'";
    struct rsk_msg m = {.type = 6};
    int err;

    if (c->server) {
        while (wire->rx_peek(c->rail, (struct iovec[2]){}) < 60000)
            if (wire->poll(c->rail, RSK_ANY) & RSK_FAIL)
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

/* Each word of the credit block is seen in the middle of a write past a carry, byte by byte. */
static int half_written(struct conn *c)
{
    enum { BYTES = 20000 };
    struct vb_credit *in;

    if (c->server)
        return recv_all(c, BYTES);
    in = vb_of(c->rail)->credit_in;
    for (int i = 0; i < BYTES; i++) {
        uint64_t *word = i % 3 == 0 ? &in->consumed : i % 3 == 1 ? &in->messages : &in->control;
        uint64_t was = __atomic_load_n(word, __ATOMIC_ACQUIRE), half = was & ~0xffull;

        __atomic_store_n(word, half, __ATOMIC_RELEASE);
        if (send_all(c, 1) < 0)
            return -1;
        /* Unless the peer has written it meanwhile. */
        __atomic_compare_exchange_n(word, &half, was, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    return 0;
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

/* Half of the ring, of which a quarter that is consumed is told unasked. */
enum { WINDOW = 32768, HALF = WINDOW / 2 };

/* Somebody else holds the queue pair while a thread finds no room and goes to sleep, until
 * all that it had sent is known to be consumed. Only then can the peer be asked to tell of room. */
static int late_wait(struct conn *c)
{
    uint64_t end = sys_now() + PATIENCE_S * 1000000000ull;
    struct vb_rail *r = vb_of(c->rail);
    struct timespec patience = {PATIENCE_S, 0};
    unsigned bits;
    uint32_t v;

    if (c->server)
        return meet(c, false) | recv_all(c, HALF) | recv_all(c, HALF) | recv_all(c, 1);
    if (send_all(c, WINDOW) < 0)
        return -1;
    vb_lock(&r->lock);
    v = atomic_load(r->base.tx_word);
    bits = wire->arm(c->rail, RSK_TX, RSK_BY_FUTEX);
    meet(c, true);
    while (vb_tx_room(r) < WINDOW && !atomic_load(&c->failed) && sys_now() < end)
        nap(200);
    vb_unlock(&r->lock);
    vb_due(r, 0);
    if (bits || vb_tx_room(r) < WINDOW)
        return wrong(c, "bits %u, room for %zu", bits, vb_tx_room(r));
    if (sys_futex(r->base.tx_word, FUTEX_WAIT, v, &patience) == -ETIMEDOUT)
        return wrong(c, "nobody woke who found no room");
    return send_all(c, 1);
}

/* The rail is up on both sides. */
int run_case(struct conn *c, const char *name)
{
    uint32_t limit = same(name, "limit") ? 4096 : same(name, "late-wait") ? WINDOW : 0;

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
    if (same(name, "late-wait"))
        return late_wait(c);
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
    if (same(name, "last-words"))
        return last_words(c);
    if (same(name, "half-written"))
        return half_written(c);
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

void choose(struct conn *c, const char *name)
{
    bool own = same(name, "own-shard") || same(name, "away") || same(name, "fork");

    c->shard = own ? rsk_shard_new(shard_fd, c) : rsk_shard_get(rsk_shard_common());
    c->ring = same(name, "wrap") ? 4096 : same(name, "bandwidth-1m") ? 1 << 20 : 0;
    c->unwanted = same(name, "unwanted");
    c->seed = (unsigned)c->server + 1;
    pthread_mutex_init(&c->tx_lock, NULL);
}
