/*
 * shm_ring_test.c - the shm wire's rings, without a rendezvous: cursors, limits, a peer that lies
 * about them; and the memory.
 */
#include "tests/shim/shim.h"
#include "tests/unit/shm_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "config/reason.h"
#include "tests/unit/shm_pair.h"

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
    EXPECT_EQ_INT(w->poll(p.a, RSK_ANY), RSK_TX);
    shm_pair_free(p);
}

TEST_CASE(shm_ring, poll_tells_what_holds)
{
    struct shm_pair p = shm_pair_new(RING);
    uint8_t buf[RING] = {0};

    EXPECT_EQ_INT(w->poll(p.a, RSK_ANY), 0);
    shm_pair_open(p, 7);
    EXPECT_EQ_INT(w->poll(p.a, RSK_ANY), RSK_TX);
    EXPECT_EQ_INT(w->poll(p.b, RSK_ANY), RSK_TX);
    shm_put(p.a, buf, RING);
    EXPECT_EQ_INT(w->poll(p.a, RSK_ANY), 0);
    EXPECT_EQ_INT(w->poll(p.b, RSK_ANY), RSK_TX | RSK_RX);
    EXPECT_EQ_INT(w->arm(p.b, RSK_RX, RSK_BY_FUTEX), RSK_RX);
    EXPECT_EQ_INT(w->arm(p.a, RSK_TX, RSK_BY_FUTEX), 0);
    shm_take(p.b, buf, 1);
    EXPECT_EQ_INT(w->poll(p.a, RSK_ANY), RSK_TX);
    shm_take(p.b, buf, RING);
    EXPECT_EQ_INT(w->arm(p.b, RSK_RX, RSK_BY_FUTEX), 0);
    w->kill(p.a, RSN_RAIL_FAILED);
    EXPECT_EQ_INT(w->poll(p.a, RSK_ANY), RSK_FAIL);
    EXPECT_EQ_INT(w->arm(p.a, RSK_RX, RSK_BY_FUTEX), RSK_FAIL);
    EXPECT_EQ_INT(shm_put(p.a, buf, 1), 0);
    EXPECT_EQ_INT(w->tx_put(p.a, 1), -EPIPE);
    shm_pair_free(p);
}

/* A drain is told of room once, and only if somebody has asked. */
TEST_CASE(shm_ring, poll_tells_of_room_who_has_asked)
{
    struct shm_pair p = shm_pair_new(RING);
    uint8_t buf[RING] = {0};

    shm_pair_open(p, 7);
    EXPECT_EQ_INT(w->poll(p.a, RSK_TX_ASKED), 0);
    EXPECT_EQ_INT(w->poll(p.a, RSK_TX), RSK_TX);
    EXPECT_EQ_INT(w->arm(p.a, RSK_TX, RSK_BY_SHARD),
                  RSK_TX); /* another may sleep who asked before */
    EXPECT_EQ_INT(w->poll(p.a, RSK_RX | RSK_CTL | RSK_TX_ASKED), RSK_TX);
    EXPECT_EQ_INT(w->poll(p.a, RSK_RX | RSK_CTL | RSK_TX_ASKED), 0);
    shm_put(p.a, buf, RING);
    EXPECT_EQ_INT(w->arm(p.a, RSK_RX, RSK_BY_SHARD), 0);
    shm_take(p.b, buf, RING);
    EXPECT_EQ_INT(w->poll(p.a, RSK_TX_ASKED), 0); /* only of bytes */
    shm_put(p.a, buf, RING);
    EXPECT_EQ_INT(w->arm(p.a, RSK_TX, RSK_BY_SHARD), 0);
    EXPECT_EQ_INT(w->poll(p.a, RSK_TX_ASKED), 0);
    shm_take(p.b, buf, RING);
    EXPECT_EQ_INT(w->poll(p.a, RSK_TX_ASKED), RSK_TX);
    EXPECT_EQ_INT(w->poll(p.a, RSK_TX_ASKED), 0);
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

/* Its sender, which has been told that they are accepted, may be killed before they
 * have gone by TCP. */
TEST_CASE(shm_ring, bytes_put_under_a_failure_arrive)
{
    struct shm_pair p = shm_pair_new(RING);
    struct iovec v[2];

    shm_pair_open(p, 0);
    ASSERT(w->tx_space(p.a, v) > 3);
    memcpy(v[0].iov_base, "abc", 3);
    w->kill(p.a, RSN_RAIL_FAILED);
    EXPECT_EQ_INT(w->tx_put(p.a, 3), -EPIPE);
    EXPECT_EQ_U64(w->rx_peek(p.b, v), 3);
    EXPECT_MEMEQ(v[0].iov_base, "abc", 3);
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
    EXPECT_EQ_INT(w->poll(p.b, RSK_ANY) & RSK_RX, 0);
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
    EXPECT_EQ_INT(w->poll(p.a, RSK_ANY), 0);
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

/* In one step, at every place of the ring; the credit that the sender knows of is
 * not the newest. */
TEST_CASE(shm_ring, give_and_take)
{
    struct shm_pair p = shm_pair_new(RING);
    const uint64_t S = UINT32_MAX - 3000ull;
    uint8_t in[RING], out[RING];

    shm_pair_open(p, S);
    for (uint64_t at = S; at < S + 20 * RING; at += 1021) {
        fill(in, at, 1021);
        ASSERT_EQ_INT(w->tx_give(p.a, in, 1021), 1021);
        ASSERT_EQ_INT(w->rx_take(p.b, out, 21), 21);
        ASSERT_EQ_INT(w->rx_take(p.b, out + 21, sizeof(out) - 21), 1000);
        ASSERT_EQ_INT(w->rx_take(p.b, out, 1), 0);
        right(out, at, 1021);
    }
    ASSERT_EQ_INT(w->tx_give(p.a, in, RING), RING);
    EXPECT_EQ_INT(w->tx_give(p.a, in, 1), 0);
    EXPECT_EQ_INT(w->rx_take(p.b, out, 5), 5);
    EXPECT_EQ_INT(w->tx_give(p.a, in, 6), 0);
    EXPECT_EQ_INT(w->tx_give(p.a, in, 5), 5);
    EXPECT_EQ_INT(w->poll(p.a, RSK_ANY), 0);
    EXPECT_EQ_INT(w->poll(p.b, RSK_ANY), RSK_RX | RSK_TX);
    EXPECT_EQ_INT(w->poll(p.b, RSK_TX), RSK_TX);
    EXPECT_EQ_INT(w->poll(p.b, RSK_CTL), 0);
    shm_pair_free(p);
}

/* Messages of 16 to 64 bytes: there are as many as there is room for, who sleeps is woken by them,
 * and nothing is taken from behind a tail that cannot be right. */
TEST_CASE(shm_ring, give_and_take_few)
{
    struct shm_pair p = shm_pair_new(RING);
    uint8_t in[64], out[64];
    uint32_t word;

    shm_pair_open(p, 40);
    for (int round = 0; round < 3; round++) {
        EXPECT_EQ_INT(w->arm(p.b, RSK_RX, RSK_BY_FUTEX), 0);
        word = atomic_load(p.b->rx_word);
        for (uint64_t at = 0; at < RING; at += sizeof(in)) {
            fill(in, at, sizeof(in));
            ASSERT_EQ_INT(w->tx_give(p.a, in, sizeof(in)), sizeof(in));
            EXPECT_EQ_U64(atomic_load(p.b->rx_word), word + 1);
        }
        ASSERT_EQ_INT(w->tx_give(p.a, in, 16), 0);
        EXPECT_EQ_INT(w->arm(p.a, RSK_TX, RSK_BY_FUTEX), 0);
        word = atomic_load(p.a->tx_word);
        for (uint64_t at = 0; at < RING; at += sizeof(out)) {
            ASSERT_EQ_INT(w->rx_take(p.b, out, sizeof(out)), sizeof(out));
            right(out, at, sizeof(out));
        }
        EXPECT_EQ_U64(atomic_load(p.a->tx_word), word + 1);
        EXPECT_EQ_INT(w->rx_take(p.b, out, sizeof(out)), 0);
    }
    atomic_fetch_add(&shm_of(p.b)->in->producer.tail, RING + 1);
    EXPECT_EQ_INT(w->rx_take(p.b, out, sizeof(out)), 0);
    EXPECT_EQ_INT(p.b->failed, RSN_PEER_PROTOCOL);
    shm_pair_free(p);
}

/* They leave to the other operations whatever is not usual, and have done nothing then. */
TEST_CASE(shm_ring, give_and_take_refuse)
{
    struct shm_pair p = shm_pair_new(RING);
    uint8_t buf[100] = {0};
    struct iovec v[2];

    EXPECT_EQ_INT(w->tx_give(p.a, buf, 1), 0); /* not begun */
    EXPECT_EQ_INT(w->rx_take(p.b, buf, 1), 0);
    w->tx_start(p.a, 7);
    w->rx_start(p.b, 7);
    EXPECT_EQ_INT(w->tx_give(p.a, buf, 1), 0); /* not open: what is put is staged */
    EXPECT_EQ_INT(w->tx_push(p.a), 0);
    EXPECT_EQ_INT(w->tx_open(p.a), 0);
    EXPECT_EQ_INT(w->tx_give(p.a, "abc", 3), 3);
    EXPECT_EQ_U64(w->rx_freeze(p.b), 10);
    EXPECT_EQ_INT(w->rx_take(p.b, buf, 100), 0); /* frozen */
    EXPECT_EQ_INT(shm_take(p.b, buf, 1), 1);
    w->tx_stop(p.a);
    EXPECT_EQ_INT(w->tx_give(p.a, buf, 1), 0);
    shm_pair_free(p);

    p = shm_pair_new(RING);
    shm_pair_open(p, 0);
    EXPECT_EQ_INT(w->tx_give(p.a, "abc", 3), 3);
    w->kill(p.a, RSN_RAIL_FAILED);
    w->kill(p.b, RSN_RAIL_FAILED);
    EXPECT_EQ_INT(w->tx_give(p.a, "d", 1), 0);
    EXPECT_EQ_INT(w->tx_kept(p.a, 0, 3, v), 3);
    EXPECT_EQ_INT(w->rx_take(p.b, buf, 100), 0);
    EXPECT_EQ_INT(w->rx_peek(p.b, v), 3);
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
                w->poll(r, RSK_ANY);
                w->arm(r, RSK_RX | RSK_TX, RSK_BY_FUTEX | RSK_BY_SHARD);
                (void)w->ctl_send(r, &m);
                w->ctl_recv(r, &m);
            }
        }
        w->rx_freeze(p.a);
        shm_pair_free(p);
    }
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
