/*
 * iov_test.c - copying between lists of buffers against a flat copy, cut at random places.
 */
#include "tests/shim/shim.h"

#include "ipoib_fallback/iov.h"

#include <string.h>

enum { SIZE = 200, PARTS = 6 };

static uint64_t rng = 1;

static size_t rnd(size_t n)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (size_t)(rng >> 33) % n;
}

/* Cuts a part of mem into buffers, some of them empty, of which one may have no address. */
static int cut(struct iovec *v, char *mem, size_t *total)
{
    int n = (int)rnd(PARTS + 1);
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        size_t len = rnd(4) ? rnd(SIZE / PARTS) : 0;

        v[i] = (struct iovec){len ? mem + at : NULL, len};
        at += len;
    }
    *total = at;
    return n;
}

TEST_CASE(iov, copies_as_a_flat_copy_does)
{
    for (int round = 0; round < 100000; round++) {
        char from[SIZE], to[SIZE], wanted[SIZE];
        struct iovec vf[PARTS], vt[PARTS];
        size_t have, room, limit = rnd(3) ? rnd(SIZE) : SIZE, n, expect;
        int nf = cut(vf, from, &have), nt = cut(vt, to, &room);

        for (size_t i = 0; i < SIZE; i++)
            from[i] = (char)rnd(256);
        memset(to, 0x5a, SIZE);
        memset(wanted, 0x5a, SIZE);
        expect = have < room ? have : room;
        if (expect > limit)
            expect = limit;
        memcpy(wanted, from, expect);
        n = fb_iov_copy(vt, nt, vf, nf, limit, RSK_INTO);
        ASSERT_EQ_U64(n, expect);
        ASSERT_MEMEQ(to, wanted, SIZE);
    }
}

/* In pieces: every byte, and none beyond, at sizes around theirs. */
TEST_CASE(iov, large_copies_are_whole)
{
    enum { ROOM = 5 * RSK_COPY_PIECE };
    static char from[ROOM], to[ROOM], wanted[ROOM];

    for (size_t i = 0; i < ROOM; i++)
        from[i] = (char)rnd(256);
    for (int round = 0; round < 2000; round++) {
        size_t n = round % 5 == 4 ? rnd(80) /* the few have ways of their own */
                                  : (size_t)(round % 5) * RSK_COPY_PIECE +
                                        rnd(3) * (RSK_COPY_PIECE / 2) + rnd(3);
        size_t in = rnd(100), out = rnd(100);

        memset(to, 0x5a, ROOM);
        memset(wanted, 0x5a, ROOM);
        memcpy(wanted + out, from + in, n);
        rsk_copy(to + out, from + in, n, (enum rsk_way)rnd(3));
        ASSERT_MEMEQ(to, wanted, ROOM);
    }
}
