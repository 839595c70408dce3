/*
 * shm_ring_test.c - the shm wire's rings and control messages, without a rendezvous.
 */
#include "tests/shim/shim.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "config/reason.h"
#include "tests/unit/shm_pair.h"

enum { RING = 4096 };

static const struct rsk_wire *const w = &rsk_shm_wire;

/* Byte number n of every stream here. */
static uint8_t byte_at(uint64_t n)
{
    return (uint8_t)(n * 0x9e3779b97f4a7c15ull >> 56);
}

static void fill(uint8_t *p, uint64_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(from + i);
}

static bool right(const uint8_t *p, uint64_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte_at(from + i)) {
            FAILF("byte %llu is wrong", (unsigned long long)(from + i));
            return false;
        }
    return true;
}

TEST_CASE(shm_ring, wraps_at_every_offset)
{
    uint8_t in[RING], out[RING];

    for (uint64_t S = 0; S < RING; S += 61) {
        struct shm_pair p = shm_pair_new(RING);
        struct iovec v[2];

        ASSERT(p.a && p.b);
        shm_pair_open(p, S);
        fill(in, S, RING);
        ASSERT_EQ_INT(shm_put(p.a, in, RING), RING);
        ASSERT_EQ_INT(w->tx_space(p.a, v), 0);
        ASSERT_EQ_INT(w->rx_peek(p.b, v), RING);
        ASSERT_EQ_INT(v[1].iov_len, 0);
        ASSERT_EQ_INT(shm_take(p.b, out, RING), RING);
        ASSERT_MEMEQ(in, out, RING);
        ASSERT_EQ_INT(w->tx_space(p.a, v), RING);
        ASSERT_EQ_U64(w->tx_freed(p.a), S + RING);
        shm_pair_free(p);
    }
}

TEST_CASE(shm_ring, one_byte_at_a_time)
{
    struct shm_pair p = shm_pair_new(RING);
    const uint64_t S = UINT32_MAX - 5000ull;
    uint8_t c;

    shm_pair_open(p, S);
    for (uint64_t i = S; i < S + 3 * RING; i++) {
        c = byte_at(i);
        ASSERT_EQ_INT(shm_put(p.a, &c, 1), 1);
        ASSERT_EQ_INT(shm_put(p.b, &c, 1), 1);
        ASSERT_EQ_INT(shm_take(p.b, &c, 1), 1);
        ASSERT_EQ_INT(c, byte_at(i));
        ASSERT_EQ_INT(shm_take(p.a, &c, 1), 1);
        ASSERT_EQ_INT(shm_take(p.a, &c, 1), 0);
    }
    EXPECT_EQ_INT(w->poll(p.a), RSK_TX);
    shm_pair_free(p);
}

TEST_CASE(shm_ring, poll_tells_what_holds)
{
    struct shm_pair p = shm_pair_new(RING);
    uint8_t buf[RING] = {0};

    EXPECT_EQ_INT(w->poll(p.a), 0);
    shm_pair_open(p, 7);
    EXPECT_EQ_INT(w->poll(p.a), RSK_TX);
    EXPECT_EQ_INT(w->poll(p.b), RSK_TX);
    shm_put(p.a, buf, RING);
    EXPECT_EQ_INT(w->poll(p.a), 0);
    EXPECT_EQ_INT(w->poll(p.b), RSK_TX | RSK_RX);
    EXPECT_EQ_INT(w->arm(p.b, RSK_RX, RSK_BY_FUTEX), RSK_RX);
    EXPECT_EQ_INT(w->arm(p.a, RSK_TX, RSK_BY_FUTEX), 0);
    shm_take(p.b, buf, 1);
    EXPECT_EQ_INT(w->poll(p.a), RSK_TX);
    shm_take(p.b, buf, RING);
    EXPECT_EQ_INT(w->arm(p.b, RSK_RX, RSK_BY_FUTEX), 0);
    w->kill(p.a, RSN_RAIL_FAILED);
    EXPECT_EQ_INT(w->poll(p.a), RSK_FAIL);
    EXPECT_EQ_INT(w->arm(p.a, RSK_RX, RSK_BY_FUTEX), RSK_FAIL);
    EXPECT_EQ_INT(shm_put(p.a, buf, 1), 0);
    EXPECT_EQ_INT(w->tx_put(p.a, 1), -EPIPE);
    shm_pair_free(p);
}

TEST_CASE(shm_ring, bytes_that_arrived_outlive_a_failure)
{
    struct shm_pair p = shm_pair_new(RING);
    uint8_t buf[100];

    shm_pair_open(p, 3);
    fill(buf, 3, sizeof buf);
    shm_put(p.a, buf, sizeof buf);
    w->kill(p.b, RSN_RAIL_FAILED);
    EXPECT_EQ_INT(shm_take(p.b, buf, 50), 50);
    EXPECT_EQ_U64(w->rx_freeze(p.b), 103);
    EXPECT_EQ_INT(shm_take(p.b, buf + 50, 100), 50);
    right(buf, 3, 100);
    EXPECT_EQ_U64(w->tx_freed(p.a), 103);
    shm_pair_free(p);
}

TEST_CASE(shm_ring, freeze_ignores_what_comes_later)
{
    struct shm_pair p = shm_pair_new(RING);
    uint8_t buf[RING] = {0};

    shm_pair_open(p, 0);
    shm_put(p.a, buf, 10);
    EXPECT_EQ_U64(w->rx_freeze(p.b), 10);
    shm_put(p.a, buf, 10);
    EXPECT_EQ_U64(w->rx_freeze(p.b), 10);
    EXPECT_EQ_INT(shm_take(p.b, buf, RING), 10);
    EXPECT_EQ_INT(w->poll(p.b) & RSK_RX, 0);
    /* The stream went on elsewhere and boards again, on the same rail. */
    w->tx_stop(p.a);
    EXPECT_EQ_INT(shm_put(p.a, buf, 1), 0);
    w->tx_start(p.a, 5000);
    EXPECT_EQ_INT(shm_put(p.a, "again", 5), 5);
    EXPECT_EQ_U64(w->tx_freed(p.a), 5000);
    w->rx_start(p.b, 5000);
    EXPECT_EQ_INT(shm_take(p.b, buf, RING), 0);
    EXPECT_EQ_INT(p.b->failed, 0);
    EXPECT_EQ_INT(w->tx_open(p.a), 0);
    EXPECT_EQ_INT(shm_take(p.b, buf, RING), 5);
    EXPECT_MEMEQ(buf, "again", 5);
    EXPECT_EQ_U64(w->tx_freed(p.a), 5005);
    EXPECT_EQ_INT(p.a->failed, 0);
    shm_pair_free(p);
}

TEST_CASE(shm_ring, nothing_leaves_before_open)
{
    struct shm_pair p = shm_pair_new(RING);
    const uint64_t S = 4000; /* so that it passes the ring's end */
    uint8_t in[RING], out[RING], zero[2 * RING] = {0};
    struct iovec v[2];

    fill(in, S, RING);
    w->tx_start(p.a, S);
    w->rx_start(p.b, S);
    EXPECT_EQ_INT(shm_put(p.a, in, 1000), 1000);
    EXPECT_EQ_INT(shm_put(p.a, in + 1000, RING), RING - 1000);
    EXPECT_EQ_INT(w->tx_space(p.a, v), 0);
    EXPECT_EQ_INT(w->tx_push(p.a), RING);
    EXPECT_EQ_INT(w->poll(p.a), 0);
    EXPECT_EQ_INT(w->rx_peek(p.b, v), 0);
    EXPECT_MEMEQ(shm_of(p.b)->in_data, zero, sizeof zero);
    EXPECT_EQ_INT(w->tx_kept(p.a, S + 10, S + RING, v), RING - 10);
    EXPECT_MEMEQ(v[0].iov_base, in + 10, RING - 10);
    EXPECT_EQ_INT(w->tx_open(p.a), 0);
    EXPECT_EQ_INT(w->tx_push(p.a), 0);
    EXPECT_EQ_INT(w->tx_kept(p.a, S + 10, S + RING, v), RING - 10);
    EXPECT_MEMEQ(v[0].iov_base, in + 10, RING - 10);
    EXPECT_EQ_INT(shm_take(p.b, out, RING), RING);
    EXPECT_MEMEQ(in, out, RING);
    shm_pair_free(p);
}

TEST_CASE(shm_ring, kept_is_what_is_not_freed)
{
    struct shm_pair p = shm_pair_new(RING);
    uint8_t buf[RING];
    struct iovec v[2];
    uint64_t tx = 100, rx = 100;
    unsigned seed = (unsigned)test_seed();

    shm_pair_open(p, 100);
    for (int i = 0; i < 3000; i++) {
        size_t n = (size_t)rand_r(&seed) % RING;
        uint64_t F;

        fill(buf, tx, n);
        tx += shm_put(p.a, buf, n);
        n = (size_t)rand_r(&seed) % RING;
        n = shm_take(p.b, buf, n);
        ASSERT(right(buf, rx, n));
        rx += n;
        F = w->tx_freed(p.a);
        ASSERT_EQ_U64(F, rx);
        ASSERT_EQ_INT(w->tx_kept(p.a, F, tx, v), tx - F);
        ASSERT(right(v[0].iov_base, F, v[0].iov_len));
        ASSERT_EQ_INT(w->tx_kept(p.a, F, tx + 1, v), 0);
        ASSERT_EQ_INT(w->tx_kept(p.a, F - 1, tx, v), 0);
    }
    shm_pair_free(p);
}

TEST_CASE(shm_ring, the_owner_can_limit_what_is_kept)
{
    struct shm_pair p = shm_pair_new(RING);
    uint8_t buf[RING] = {0};

    p.a->tx_limit = 1000;
    shm_pair_open(p, 0);
    EXPECT_EQ_INT(shm_put(p.a, buf, RING), 1000);
    EXPECT_EQ_INT(w->arm(p.a, RSK_TX, RSK_BY_FUTEX), 0);
    EXPECT_EQ_INT(shm_take(p.b, buf, 249), 249);
    EXPECT_EQ_INT(*p.a->tx_word, 0);
    EXPECT_EQ_INT(shm_take(p.b, buf, 1), 1);
    EXPECT_EQ_INT(*p.a->tx_word, 1); /* told after a quarter of the limit, not of the ring */
    EXPECT_EQ_INT(shm_put(p.a, buf, RING), 250);
    shm_pair_free(p);
}

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

/* Sleeps until the event may hold. False: nothing came for 5 s, which is a lost wake-up. */
static bool sleep_for(struct side *s, unsigned event)
{
    _Atomic uint32_t *word = event == RSK_RX ? s->rail->rx_word : s->rail->tx_word;
    const struct timespec limit = {5, 0};
    uint32_t v = atomic_load(word);
    struct epoll_event ev;
    bool ok = true;

    if (!s->shard) {
        if (w->arm(s->rail, event, RSK_BY_FUTEX))
            return true;
        /* FUTEX_WAIT's time is relative */
        return (int)SYS6(SYS_futex, word, FUTEX_WAIT, v, &limit, 0, 0) != -ETIMEDOUT;
    }
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
            int page, event;

            side[i].ep = sys_epoll_create1(EPOLL_CLOEXEC);
            shm_bell_fds(shm_bell_of(shard[i % 2], 0), &page, &event);
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

/* ---- a peer that lies */

TEST_CASE(shm_ring, a_tail_out_of_bounds_fails_the_rail)
{
    const int64_t lies[] = {RING + 1, 1 << 30, -1, -RING, INT64_MIN};

    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct shm_pair p = shm_pair_new(RING);
        uint8_t buf[100];
        struct iovec v[2];

        shm_pair_open(p, 10000);
        fill(buf, 10000, 100);
        shm_put(p.a, buf, 100);
        ASSERT_EQ_INT(shm_take(p.b, buf, 40), 40);
        atomic_store(&shm_of(p.a)->out->producer.tail, 10040 + (uint64_t)lies[i]);
        EXPECT_EQ_INT(w->rx_peek(p.b, v), 60);
        EXPECT_EQ_INT(p.b->failed, RSN_PEER_PROTOCOL);
        EXPECT_EQ_U64(w->rx_freeze(p.b), 10100);
        EXPECT_EQ_INT(shm_take(p.b, buf, 100), 60);
        EXPECT_EQ_INT(w->rx_peek(p.b, v), 0);
        EXPECT_EQ_INT(*p.b->rx_word, 1); /* sleepers heard of it */
        EXPECT_EQ_INT(*p.b->tx_word, 1);
        shm_pair_free(p);
    }
}

TEST_CASE(shm_ring, a_credit_out_of_bounds_fails_the_rail)
{
    const int64_t lies[] = {1, RING, -101, -102, INT64_MAX};

    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct shm_pair p = shm_pair_new(RING);
        uint8_t buf[RING] = {0};
        struct iovec v[2];

        shm_pair_open(p, 10000);
        ASSERT_EQ_INT(shm_put(p.a, buf, RING), RING);
        ASSERT_EQ_INT(shm_take(p.b, buf, 100), 100);
        ASSERT_EQ_U64(w->tx_freed(p.a), 10100);
        atomic_store(&shm_of(p.a)->out->consumer.consumed,
                     lies[i] > 0 ? 10000 + RING + (uint64_t)lies[i] : 10200 + (uint64_t)lies[i]);
        EXPECT_EQ_U64(w->tx_freed(p.a), 10100);
        EXPECT_EQ_INT(p.a->failed, RSN_PEER_PROTOCOL);
        EXPECT_EQ_INT(w->tx_space(p.a, v), 0);
        EXPECT_EQ_INT(w->tx_kept(p.a, 10100, 10000 + RING, v), RING - 100);
        shm_pair_free(p);
    }
}

/* Random garbage all over the header must not crash, loop, or read outside the rings. */
TEST_CASE(shm_ring, garbage_in_the_header)
{
    unsigned seed = (unsigned)test_seed();

    for (int i = 0; i < 300; i++) {
        struct shm_pair p = shm_pair_new(RING);
        struct shm_header *h = (struct shm_header *)(void *)shm_of(p.b)->map.addr;
        uint8_t buf[RING] = {0};
        struct rsk_msg m = {0};
        struct iovec v[2];

        shm_pair_open(p, (uint64_t)i * 1000);
        for (int k = 0; k < 50; k++) {
            _Atomic uint64_t *word =
                (_Atomic uint64_t *)(void *)h + (size_t)rand_r(&seed) % (sizeof *h / 8);

            if (k % 2)
                atomic_store(word, (uint64_t)rand_r(&seed) << (rand_r(&seed) % 34));
            else
                atomic_fetch_add(word, (uint64_t)rand_r(&seed) % 5000);
            for (int e = 0; e < 2; e++) {
                struct rsk_rail *r = e ? p.a : p.b;
                size_t n = w->rx_peek(r, v);

                ASSERT(n <= RING);
                shm_take(r, buf, n);
                ASSERT(w->tx_space(r, v) <= RING);
                shm_put(r, buf, (size_t)rand_r(&seed) % RING);
                w->tx_freed(r);
                w->poll(r);
                w->arm(r, RSK_RX | RSK_TX, RSK_BY_FUTEX | RSK_BY_SHARD);
                (void)w->ctl_send(r, &m);
                w->ctl_recv(r, &m);
            }
        }
        w->rx_freeze(p.a);
        shm_pair_free(p);
    }
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
        EXPECT_EQ_INT(w->poll(p.b) & RSK_CTL, RSK_CTL);
        for (uint64_t i = 0; i < 64; i++) {
            ASSERT_EQ_INT(w->ctl_recv(p.b, &m), 1);
            ASSERT_EQ_U64(m.a, round * 64 + i);
        }
        EXPECT_EQ_INT(w->ctl_recv(p.b, &m), 0);
        EXPECT_EQ_INT(w->poll(p.b) & RSK_CTL, 0);
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

/* ---- memory */

TEST_CASE(shm_map, only_a_sealed_memfd_of_the_right_size_is_good)
{
    int fd = shm_memfd_new(RING);

    EXPECT(shm_memfd_good(fd, RING));
    EXPECT(!shm_memfd_good(fd, 2 * RING));
    EXPECT(!shm_memfd_good(fd, RING + 1));
    EXPECT(!shm_memfd_good(fd, 0));
    EXPECT(sys_ftruncate(fd, 0) < 0);
    sys_close(fd);
    fd = sys_memfd_create("open", MFD_ALLOW_SEALING);
    EXPECT_EQ_INT(sys_ftruncate(fd, SHM_HEADER + 2 * RING), 0);
    EXPECT(!shm_memfd_good(fd, RING));
    sys_close(fd);
    fd = sys_open("/dev/zero", O_RDWR, 0);
    EXPECT(!shm_memfd_good(fd, RING));
    sys_close(fd);
    EXPECT_EQ_INT(shm_ring_size(0), 256 * 1024);
    EXPECT_EQ_INT(shm_ring_size(65537), 131072);
    EXPECT_EQ_INT(shm_ring_size(SIZE_MAX / 2), 64 * 1024 * 1024);
}
