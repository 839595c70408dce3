/*
 * proof_test.c - digests of a stream that is cut in different places, and the proofs that two
 * ends make of them.
 */
#include "tests/shim/shim.h"

#include "config/reason.h"
#include "ipoib_fallback/proof.h"

#include <stdlib.h>
#include <string.h>

static uint64_t rng;

static uint32_t rnd(uint32_t n)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(rng >> 33) % n;
}

#define LEN 70000u
static uint8_t stream[LEN];

static void fill(uint32_t which)
{
    for (uint32_t i = 0; i < LEN; i++)
        stream[i] = (uint8_t)((i * 2654435761u + which) >> 11);
}

/* All of [from, to) in pieces of 1..most bytes, each in up to three parts. */
static void feed(struct fb_digest *d, uint64_t from, uint64_t to, uint32_t most)
{
    while (from < to) {
        uint64_t n = 1 + rnd(most), a, b;
        struct iovec v[3];

        if (n > to - from)
            n = to - from;
        a = rnd((uint32_t)n + 1);
        b = a + rnd((uint32_t)(n - a) + 1);
        v[0] = (struct iovec){stream + from, a};
        v[1] = (struct iovec){stream + from + a, b - a};
        v[2] = (struct iovec){stream + from + b, n - b + 100}; /* more room than was used */
        if (from + n + 100 > LEN)
            v[2].iov_len = n - b;
        fb_digest_add(d, from, v, 3, n);
        from += n;
    }
}

static void expect_same_where_both(const struct fb_digest *a, const struct fb_digest *b)
{
    for (uint64_t left = a->valid & b->valid; left; left &= left - 1)
        EXPECT_EQ_U64(a->ring[__builtin_ctzll(left) % 8], b->ring[__builtin_ctzll(left) % 8]);
}

static void expect_same(const struct fb_digest *a, const struct fb_digest *b)
{
    EXPECT_EQ_U64(a->valid, b->valid);
    expect_same_where_both(a, b);
}

TEST_CASE(digest, cuts_do_not_matter)
{
    static const uint32_t most[] = {1, 7, 255, 256, 257, 5000, LEN};
    struct fb_digest whole, cut;
    struct iovec v = {stream, LEN};

    rng = test_seed();
    fill(1);
    fb_digest_init(&whole);
    fb_digest_add(&whole, 0, &v, 1, LEN);
    EXPECT_EQ_U64(whole.valid, 0xffu << 5); /* 512, 1024, ... 65536 */
    for (unsigned i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
        fb_digest_init(&cut);
        feed(&cut, 0, LEN, most[i]);
        expect_same(&whole, &cut);
    }
}

/* The bytes that checkpoint i covers: [from, to). */
static void window(unsigned i, uint64_t *from, uint64_t *to)
{
    *to = 16ull << i;
    *from = i == 0 ? 0 : *to <= 512 ? *to / 2 : *to - 256;
}

TEST_CASE(digest, each_byte_of_a_window_counts)
{
    struct fb_digest a, b;

    rng = test_seed();
    for (int i = 0; i < 200; i++) {
        uint32_t at = rnd(1024);

        fill(1);
        fb_digest_init(&a);
        feed(&a, 0, 1024, 100);
        stream[at] ^= 1;
        fb_digest_init(&b);
        feed(&b, 0, 1024, 100);
        for (unsigned k = 0; k < 7; k++) {
            uint64_t from, to;

            window(k, &from, &to);
            EXPECT((a.ring[k] != b.ring[k]) == (at >= from && at < to));
        }
    }
}

/* Where it begins does not matter to the checkpoints whose bytes it has all seen, and it
 * has no others. */
TEST_CASE(digest, begins_anywhere)
{
    struct fb_digest whole, late;

    rng = test_seed();
    fill(1);
    for (int i = 0; i < 300; i++) {
        uint64_t at = rnd(1500), end = at + rnd(2500);
        uint64_t from, to;

        memset(&whole, 0, sizeof whole);
        memset(&late, 0, sizeof late);
        fb_digest_begin(&whole, 0);
        feed(&whole, 0, end, 300);
        fb_digest_begin(&late, at);
        feed(&late, at, end, 300);
        EXPECT_EQ_INT(late.index, whole.index);
        for (unsigned k = 0; k < 9; k++) {
            window(k, &from, &to);
            EXPECT((late.valid >> k & 1) == (from >= at && to <= end && k + 8 >= late.index));
        }
        expect_same_where_both(&whole, &late);
    }
}

/* What may be had byte by byte need not be had whole. */
TEST_CASE(digest, wants_little_of_much)
{
    struct fb_digest whole, little;
    uint64_t from, to, taken;

    rng = test_seed();
    fill(1);
    for (int i = 0; i < 300; i++) {
        uint64_t at = rnd(1500), end = at + rnd(LEN - 1500);

        memset(&whole, 0, sizeof whole);
        fb_digest_begin(&whole, 0);
        feed(&whole, 0, at, 300);
        little = whole;
        feed(&whole, at, end, 3000);
        taken = 0;
        for (uint64_t next = at; fb_digest_next(&little, next, end, &from, &to); next = to) {
            ASSERT(to - from <= 256);
            fb_digest_add(&little, from, &(struct iovec){stream + from, to - from}, 1, to - from);
            taken += to - from;
        }
        EXPECT(taken <= 512 + 8 * 256);
        EXPECT_EQ_INT(little.index, whole.index);
        expect_same(&whole, &little);
        feed(&whole, end, LEN, 3000); /* and it goes on */
        feed(&little, end, LEN, 3000);
        expect_same(&whole, &little);
    }
}

/* What is asked of the mark alone, for calls that need not look further. */
TEST_CASE(digest, mark_misses_nothing)
{
    struct fb_digest d = {0}, before;

    rng = test_seed();
    fill(1);
    fb_digest_begin(&d, 0);
    for (uint64_t at = 0, n; at < LEN; at += n) {
        n = 1 + rnd(90);
        if (n > LEN - at)
            n = LEN - at;
        before = d;
        fb_digest_add(&d, at, &(struct iovec){stream + at, n}, 1, n);
        if (!fb_digest_wants(fb_digest_mark(&before), at + n))
            EXPECT(before.index == d.index && before.valid == d.valid && before.next == d.next &&
                   before.sip.len == d.sip.len);
    }
    EXPECT(fb_digest_wants(FB_DIGEST_NOW, 1));
    EXPECT(!fb_digest_wants(FB_DIGEST_LATER, 16384 - 257));
    EXPECT(fb_digest_wants(FB_DIGEST_LATER, 16384));
    EXPECT(!fb_digest_wants(FB_NO_DIGEST, UINT64_MAX / 2 - 257));
}

TEST_CASE(digest, unseen_bytes_spoil_only_their_windows)
{
    struct fb_digest seen, d;

    rng = test_seed();
    fill(1);
    fb_digest_init(&seen);
    feed(&seen, 0, LEN, 999);
    for (int i = 0; i < 300; i++) {
        uint64_t from = rnd(6000), n = 1 + rnd(6000);

        fb_digest_init(&d);
        feed(&d, 0, from, 500);
        fb_digest_unseen(&d, from, n);
        feed(&d, from + n, LEN, 500);
        for (unsigned k = 5; k < 13; k++) { /* the last eight */
            uint64_t start, end;
            bool spoilt;

            window(k, &start, &end);
            spoilt = from < end && from + n > start;
            EXPECT((d.valid >> k & 1) == !spoilt);
            if (!spoilt)
                EXPECT_EQ_U64(d.ring[k % 8], seen.ring[k % 8]);
        }
    }
}

TEST_CASE(digest, the_last_eight_are_kept)
{
    struct fb_digest d;
    struct iovec v = {stream, 65536};

    fill(1);
    fb_digest_init(&d);
    for (uint64_t at = 0; at < 16ull << 20; at += 65536)
        fb_digest_add(&d, at, &v, 1, 65536);
    EXPECT_EQ_U64(d.valid, 0xffu << 13); /* 16 * 2^20 is the newest, 16 * 2^13 the oldest */
}

TEST_CASE(checkpoint, newest_in_common)
{
    EXPECT_EQ_U64(fb_checkpoints_common(0, 0), 0);
    EXPECT_EQ_U64(fb_checkpoints_common(1, 2), 0);
    EXPECT_EQ_U64(fb_checkpoints_common(0x0f, 0x07), 7);
    EXPECT_EQ_U64(fb_checkpoints_common(0x7f8, 0x3fc), 0x3c0);
    EXPECT_EQ_U64(fb_checkpoints_common(1ull << 54, 1ull << 54 | 1), 1ull << 54);
    EXPECT_EQ_INT(fb_checkpoint_newest(0), -1);
    EXPECT_EQ_INT(fb_checkpoint_newest(0x3c0), 9);
    EXPECT_EQ_U64(fb_checkpoints_cover(0), 0);
    EXPECT_EQ_U64(fb_checkpoints_cover(1), 16);
    EXPECT_EQ_U64(fb_checkpoints_cover(7), 64);
    EXPECT_EQ_U64(fb_checkpoints_cover(8), 64);
    EXPECT_EQ_U64(fb_checkpoints_cover(0x3c0), 1024);
    EXPECT_EQ_U64(fb_checkpoints_cover(~0ull), 512 + 49 * 256);
}

/* Two ends of one stream; up has gone by up_n bytes at each. */
struct ends {
    struct fb_digest tx[2], rx[2];
    uint8_t nonce0[16], nonce1[16];
};

static void move(struct ends *e, uint32_t up, uint32_t down)
{
    for (int i = 0; i < 2; i++) {
        fb_digest_init(&e->tx[i]);
        fb_digest_init(&e->rx[i]);
    }
    feed(&e->tx[0], 0, up, 300);
    feed(&e->rx[1], 0, up, 700);
    feed(&e->tx[1], 0, down, 700);
    feed(&e->rx[0], 0, down, 300);
    for (int i = 0; i < 16; i++) {
        e->nonce0[i] = (uint8_t)rnd(256);
        e->nonce1[i] = (uint8_t)rnd(256);
    }
}

static struct fb_proof_in known(const struct ends *e, int end, uint8_t role, uint64_t up,
                                uint64_t down)
{
    return (struct fb_proof_in){.nonce0 = e->nonce0,
                                .nonce1 = e->nonce1,
                                .up = end ? &e->rx[1] : &e->tx[0],
                                .down = end ? &e->tx[1] : &e->rx[0],
                                .up_at = up,
                                .down_at = down,
                                .role = role};
}

static bool prove(const struct ends *e, int end, uint8_t role, uint64_t up, uint64_t down,
                  uint8_t out[16])
{
    struct fb_proof_in in = known(e, end, role, up, down);

    return fb_proof(&in, out);
}

/* What end 1 says of end 0's proof. */
static int judged(const struct ends *e, uint64_t up, uint64_t down, const uint8_t theirs[16])
{
    struct fb_proof_in in = known(e, 1, 0, up, down);

    return fb_judge(&in, theirs);
}

TEST_CASE(proof, both_ends_agree)
{
    uint8_t a[16], b[16], other[16];
    struct ends e;

    rng = test_seed();
    fill(1);
    for (int i = 0; i < 50; i++) {
        uint64_t up, down;

        move(&e, 16 + rnd(9000), rnd(3) ? rnd(9000) : 0);
        up = fb_checkpoints_common(e.tx[0].valid, e.rx[1].valid);
        down = fb_checkpoints_common(e.tx[1].valid, e.rx[0].valid);
        for (uint8_t role = 0; role < 2; role++) {
            ASSERT(prove(&e, 0, role, up, down, a));
            ASSERT(prove(&e, 1, role, up, down, b));
            EXPECT_MEMEQ(a, b, 16);
        }
        prove(&e, 0, 0, up, down, other);
        EXPECT(!fb_same(a, other, 16)); /* one role's proof is not the other's */
        EXPECT(memcmp(a, a + 8, 8) != 0);
    }
}

/* 5000 bytes up and 800 down: 1024, 2048 and 4096 can be proved by, and 128 to 512. */
enum { UP = 7 << 6, DOWN = 7 << 3 };

TEST_CASE(proof, what_differs_shows)
{
    uint8_t a[16], b[16];
    struct ends e, f;

    rng = test_seed();
    fill(1);
    move(&e, 5000, 800);
    ASSERT(prove(&e, 0, 0, UP, DOWN, a));
    f = e;
    f.nonce0[7] ^= 1;
    ASSERT(prove(&f, 1, 0, UP, DOWN, b));
    EXPECT(!fb_same(a, b, 16));
    f = e;
    f.nonce1[0] ^= 0x80;
    ASSERT(prove(&f, 1, 0, UP, DOWN, b));
    EXPECT(!fb_same(a, b, 16));
    ASSERT(prove(&e, 1, 0, 3 << 6, DOWN, b)); /* other checkpoints */
    EXPECT(!fb_same(a, b, 16));
    ASSERT(prove(&e, 1, 0, UP, 0, b)); /* a direction left out */
    EXPECT(!fb_same(a, b, 16));
    for (unsigned i = 0; i < 3; i++) { /* another stream: a byte of each window */
        stream[(1024u << i) - 100] ^= 1;
        move(&f, 5000, 800);
        stream[(1024u << i) - 100] ^= 1;
        memcpy(f.nonce0, e.nonce0, 16);
        memcpy(f.nonce1, e.nonce1, 16);
        ASSERT(prove(&f, 1, 0, UP, DOWN, b));
        EXPECT(!fb_same(a, b, 16));
    }
}

TEST_CASE(proof, site_key)
{
    static const uint8_t none[16];
    uint8_t key[16], other[16], plain[16], a[16], b[16];
    struct fb_proof_in in, theirs;
    struct ends e;

    rng = test_seed();
    fill(1);
    move(&e, 5000, 800);
    ASSERT(prove(&e, 0, 0, UP, DOWN, plain));
    for (unsigned i = 0; i < 16; i++)
        key[i] = (uint8_t)rnd(256);
    in = known(&e, 0, 0, UP, DOWN);
    theirs = known(&e, 1, 0, UP, DOWN);
    in.key = key;
    ASSERT(fb_proof(&in, a));
    EXPECT(!fb_same(a, plain, 16));
    EXPECT_EQ_INT(fb_judge(&theirs, a), RSN_PROOF); /* who has none does not believe it */
    theirs.key = key;
    EXPECT_EQ_INT(fb_judge(&theirs, a), 0);
    EXPECT_EQ_INT(fb_judge(&theirs, plain), RSN_PROOF);
    theirs.key = none; /* sixteen zeros are a key, too */
    EXPECT_EQ_INT(fb_judge(&theirs, plain), RSN_PROOF);
    theirs.key = other;
    for (unsigned bit = 0; bit < 128; bit++) { /* all of it counts, in both halves */
        memcpy(other, key, 16);
        other[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ASSERT(fb_proof(&theirs, b));
        EXPECT(memcmp(a, b, 8) != 0 && memcmp(a + 8, b + 8, 8) != 0);
    }
    in.role = 1; /* one role's proof is not the other's */
    ASSERT(fb_proof(&in, b));
    EXPECT(!fb_same(a, b, 16));
}

/* As a program in another language has computed it from what proof.h and proof.c say. */
TEST_CASE(proof, site_key_vector)
{
    static const uint8_t wanted[16] = {0xcf, 0xaa, 0xb4, 0xbc, 0xed, 0x44, 0x40, 0xd7,
                                       0xb5, 0xce, 0xc5, 0xb7, 0x57, 0x41, 0x23, 0x72};
    uint8_t bytes[48], out[16];
    struct iovec v = {bytes, 16};
    struct fb_digest up, down;
    struct fb_proof_in in = {.nonce0 = bytes,
                             .nonce1 = bytes + 16,
                             .key = bytes + 32,
                             .up = &up,
                             .down = &down,
                             .up_at = 1};

    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    fb_digest_init(&up);
    fb_digest_init(&down);
    fb_digest_add(&up, 0, &v, 1, 16);
    ASSERT(fb_proof(&in, out));
    EXPECT_MEMEQ(out, wanted, 16);
}

TEST_CASE(proof, needs_something_to_prove)
{
    uint8_t out[16];
    struct ends e;

    rng = test_seed();
    fill(1);
    move(&e, 15, 15);
    EXPECT_EQ_U64(e.tx[0].valid, 0);
    EXPECT(!prove(&e, 0, 0, 0, 0, out));
    EXPECT(!prove(&e, 0, 0, 1, 0, out)); /* not held */
    EXPECT(!prove(&e, 0, 0, 1ull << FB_CHECKPOINTS, 0, out));
    move(&e, 16, 0);
    EXPECT(prove(&e, 0, 0, 1, 0, out));
    EXPECT(!prove(&e, 0, 0, 1, 1, out));
    EXPECT(!prove(&e, 0, 0, 3, 0, out));
}

TEST_CASE(proof, not_yet_only_where_a_checkpoint_was_run_past)
{
    struct iovec v = {stream, 65536};
    uint8_t a[16], wrong[16];
    struct ends e;

    rng = test_seed();
    fill(1);
    move(&e, 5000, 800);
    ASSERT(prove(&e, 0, 0, UP, DOWN, a));
    memcpy(wrong, a, 16);
    wrong[15] ^= 1;
    EXPECT_EQ_INT(judged(&e, UP, DOWN, a), 0);
    EXPECT_EQ_INT(judged(&e, UP, DOWN, wrong), RSN_PROOF);
    EXPECT_EQ_INT(judged(&e, 1 << 9, DOWN, a), RSN_PROOF); /* it has never been one */
    EXPECT_EQ_INT(judged(&e, 0, 0, a), RSN_PROOF);
    EXPECT_EQ_INT(judged(&e, 1ull << FB_CHECKPOINTS, DOWN, a), RSN_PROOF);
    EXPECT_EQ_INT(judged(&e, 1ull << FB_CHECKPOINTS | 1, DOWN, a), RSN_PROOF);
    /* 16 * 2^14 is the newest then, 16 * 2^7 the oldest. */
    fb_digest_init(&e.rx[1]);
    for (uint64_t at = 0; at < 320u << 10; at += 65536)
        fb_digest_add(&e.rx[1], at, &v, 1, 65536);
    EXPECT_EQ_U64(e.rx[1].valid, 0xffu << 7);
    EXPECT_EQ_INT(judged(&e, UP, DOWN, a), RSN_NOT_YET); /* its oldest is gone */
    EXPECT_EQ_INT(judged(&e, UP, 0, wrong), RSN_NOT_YET);
    EXPECT_EQ_INT(judged(&e, 3 << 7, DOWN, a), RSN_PROOF);
    EXPECT_EQ_INT(judged(&e, 1 << 15, DOWN, a), RSN_PROOF);
    EXPECT_EQ_INT(judged(&e, 0, DOWN, a), RSN_PROOF);
}

TEST_CASE(tag, covers_bytes_and_both_nonces)
{
    uint8_t n0[16] = {1}, n1[16] = {2}, data[48] = {3}, a[16], b[16];

    fb_tag(n0, n1, data, sizeof(data), a);
    for (unsigned i = 0; i < sizeof(data); i++) {
        data[i] ^= 1;
        fb_tag(n0, n1, data, sizeof(data), b);
        EXPECT(!fb_same(a, b, 16));
        data[i] ^= 1;
    }
    fb_tag(n1, n0, data, sizeof(data), b);
    EXPECT(!fb_same(a, b, 16));
    n1[15] = 1;
    fb_tag(n0, n1, data, sizeof(data), b);
    EXPECT(!fb_same(a, b, 16));
}
