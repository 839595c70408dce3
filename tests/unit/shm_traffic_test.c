/*
 * shm_traffic_test.c - the shm wire between threads and processes at full tilt; its
 * control messages.
 */
#include "tests/shim/shim.h"
#include "tests/unit/shm_bytes.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "config/reason.h"
#include "tests/unit/shm_pair.h"
#include "tests/unit/shm_sleep.h"

/* ---- threads and processes at full tilt */

struct side {
    struct rsk_rail *rail;
    struct rsk_shard *shard;
    int ep;
    uint64_t from, total;
    bool slow;
    _Atomic bool *over;
};

static void shard_fd(void *arg, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};

    sys_epoll_ctl(*(int *)arg, EPOLL_CTL_ADD, fd, &ev);
}

static void no_notify(struct rsk_rail *r, unsigned events)
{
    (void)r, (void)events;
}

/* As sleep_on_word, by the shard if there is one. */
static bool sleep_for(struct side *s, unsigned event)
{
    struct epoll_event ev;
    bool ok = true;

    if (!s->shard)
        return sleep_on_word(s->rail, event);
    if (!w->arm(s->rail, event, RSK_BY_SHARD) && !rsk_shard_arm(s->shard))
        ok = sys_epoll_wait(s->ep, &ev, 1, 5000) != 0;
    else
        rsk_shard_arm(s->shard);
    rsk_shard_disarm(s->shard);
    rsk_shard_drain(s->shard);
    return ok;
}

static void *produce(void *arg)
{
    struct side *s = arg;
    uint8_t buf[3000];
    uint64_t at = s->from, end = s->from + s->total;
    unsigned seed = (unsigned)test_seed() + 1;

    while (at < end) {
        size_t n = 1 + (size_t)rand_r(&seed) % sizeof buf, done = 0;

        if (rand_r(&seed) % 4)
            n = 1 + n % 64;
        if (n > end - at)
            n = end - at;
        fill(buf, at, n);
        while (done < n) {
            size_t k = shm_put(s->rail, buf + done, n - done);

            done += k;
            if (!k && !sleep_for(s, RSK_TX)) {
                FAILF("producer asleep at %llu", (unsigned long long)(at + done));
                return NULL;
            }
        }
        at += n;
        if (s->slow && rand_r(&seed) % 64 == 0)
            sys_yield();
    }
    return s;
}

static void *consume(void *arg)
{
    struct side *s = arg;
    uint8_t buf[2000];
    uint64_t at = s->from, end = s->from + s->total;
    unsigned seed = (unsigned)test_seed() + 2;

    while (at < end) {
        size_t n = shm_take(s->rail, buf, 1 + (size_t)rand_r(&seed) % sizeof buf);

        if (!n && !sleep_for(s, RSK_RX)) {
            FAILF("consumer asleep at %llu", (unsigned long long)at);
            return NULL;
        }
        if (!right(buf, at, n))
            return NULL;
        at += n;
    }
    return s;
}

enum { TOTAL = 3000000 };

/* Both directions, each end's own shard for each direction or the futex words. */
static void full_tilt(bool shards, uint32_t limit)
{
    struct shm_pair p = shm_pair_new(RING);
    struct rsk_rail *end[2] = {p.a, p.b};
    struct rsk_shard *shard[2] = {NULL, NULL};
    int ep[2] = {-1, -1};
    struct side side[4];
    pthread_t t[4];

    for (int i = 0; i < 2; i++) {
        end[i]->notify = no_notify;
        end[i]->tx_limit = limit;
        if (!shards)
            continue;
        ep[i] = sys_epoll_create1(EPOLL_CLOEXEC);
        shard[i] = rsk_shard_new(shard_fd, &ep[i]);
        shm_pair_bell(end[!i], end[i], shard[i]);
    }
    shm_pair_open(p, 123456789);
    for (int i = 0; i < 4; i++) {
        side[i] = (struct side){.rail = end[i % 2],
                                .shard = shard[i % 2],
                                .ep = ep[i % 2],
                                .from = 123456789,
                                .total = shards ? TOTAL / 3 : TOTAL};
        if (shards) {
            /* Two threads sleep on one shard: an epoll instance each, or one takes the edge of
             * the other. */
            struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
            struct shm_bell *bell;
            int page, event;

            side[i].ep = sys_epoll_create1(EPOLL_CLOEXEC);
            ASSERT_EQ_INT(shm_bell_of(shard[i % 2], &shm_pair_cred, &bell), 0);
            shm_bell_fds(bell, &page, &event);
            sys_epoll_ctl(side[i].ep, EPOLL_CTL_ADD, event, &ev);
        }
        ASSERT_EQ_INT(pthread_create(&t[i], NULL, i < 2 ? produce : consume, &side[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *ok = NULL;

        pthread_join(t[i], &ok);
        EXPECT(ok != NULL);
        if (shards)
            sys_close(side[i].ep);
    }
    EXPECT_EQ_INT(p.a->failed, 0);
    EXPECT_EQ_INT(p.b->failed, 0);
    shm_pair_free(p);
    for (int i = 0; i < 2 && shards; i++) {
        rsk_shard_put(shard[i]);
        sys_close(ep[i]);
    }
}

TEST_CASE(shm_ring, both_directions_asleep_on_futexes)
{
    full_tilt(false, 0);
}

TEST_CASE(shm_ring, both_directions_asleep_on_futexes_with_a_limit)
{
    full_tilt(false, 700);
}

TEST_CASE(shm_ring, both_directions_asleep_on_shards)
{
    full_tilt(true, 0);
}

TEST_CASE(shm_ring, between_processes)
{
    int fd = shm_memfd_new(RING), status = -1;
    struct side s = {.from = 0, .total = TOTAL};
    pid_t child = fork();

    ASSERT(child >= 0);
    s.rail = (struct rsk_rail *)shm_rail_new(fd, RING, child != 0);
    ASSERT(s.rail != NULL);
    if (child == 0) {
        w->rx_start(s.rail, 0);
        _exit(consume(&s) ? 0 : 3);
    }
    sys_close(fd);
    w->tx_start(s.rail, 0);
    EXPECT_EQ_INT(w->tx_open(s.rail), 0);
    EXPECT(produce(&s) != NULL);
    ASSERT_EQ_INT(waitpid(child, &status, 0), child);
    EXPECT_EQ_INT(status, 0);
    EXPECT_EQ_U64(w->tx_freed(s.rail), TOTAL);
    shm_rail_free(shm_of(s.rail));
}

/* ---- control messages */

TEST_CASE(shm_ctl, in_order_and_bounded)
{
    struct shm_pair p = shm_pair_new(RING);
    struct rsk_msg m = {0};

    for (uint64_t round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < 64; i++) {
            m.a = round * 64 + i;
            ASSERT_EQ_INT(w->ctl_send(p.a, &m), 0);
        }
        EXPECT_EQ_INT(w->ctl_send(p.a, &m), -EAGAIN);
        EXPECT_EQ_INT(w->poll(p.b, RSK_ANY) & RSK_CTL, RSK_CTL);
        for (uint64_t i = 0; i < 64; i++) {
            ASSERT_EQ_INT(w->ctl_recv(p.b, &m), 1);
            ASSERT_EQ_U64(m.a, round * 64 + i);
        }
        EXPECT_EQ_INT(w->ctl_recv(p.b, &m), 0);
        EXPECT_EQ_INT(w->poll(p.b, RSK_ANY) & RSK_CTL, 0);
    }
    EXPECT_EQ_INT(p.a->failed | p.b->failed, 0);
    shm_pair_free(p);
}

TEST_CASE(shm_ctl, lies_fail_the_rail)
{
    struct shm_pair p = shm_pair_new(RING);
    struct rsk_msg m = {0};

    atomic_store(&shm_of(p.a)->out->ctl.head, 1);
    EXPECT_EQ_INT(w->ctl_send(p.a, &m), -EPIPE);
    EXPECT_EQ_INT(p.a->failed, RSN_PEER_PROTOCOL);
    atomic_store(&shm_of(p.b)->in->seq[0], 77);
    EXPECT_EQ_INT(w->ctl_recv(p.b, &m), 0);
    EXPECT_EQ_INT(p.b->failed, RSN_PEER_PROTOCOL);
    shm_pair_free(p);
}

enum { SENDERS = 3, EACH = 5000 };

static struct rsk_rail *ctl_rail;

static void *send_many(void *arg)
{
    struct rsk_msg m = {.epoch = (uint32_t)(uintptr_t)arg};

    for (m.a = 0; m.a < EACH;) {
        int err = w->ctl_send(ctl_rail, &m);

        if (!err)
            m.a++;
        else if (err == -EAGAIN)
            sys_yield();
        else
            return NULL;
        m.b = m.a * 3;
    }
    return arg;
}

TEST_CASE(shm_ctl, several_senders)
{
    struct shm_pair p = shm_pair_new(RING);
    uint64_t next[SENDERS] = {0}, until = sys_now() + 20000000000u;
    pthread_t t[SENDERS];
    struct rsk_msg m;

    ctl_rail = p.a;
    for (uintptr_t i = 0; i < SENDERS; i++)
        pthread_create(&t[i], NULL, send_many, (void *)i);
    for (int n = 0; n < SENDERS * EACH && sys_now() < until;) {
        if (!w->ctl_recv(p.b, &m)) {
            sys_yield();
            continue;
        }
        n++;
        if (!EXPECT(m.epoch < SENDERS && m.a == next[m.epoch]++ && m.b == m.a * 3))
            break;
    }
    w->kill(p.a, RSN_ENDING); /* ends the senders if we broke off */
    for (int i = 0; i < SENDERS; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < SENDERS; i++)
        EXPECT_EQ_U64(next[i], EACH);
    EXPECT_EQ_INT(p.b->failed, 0);
    shm_pair_free(p);
}
