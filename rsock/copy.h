/*
 * copy.h - bytes into a ring or out of one, which another processor reads or has
 * written. Any thread.
 *
 * The ring's lines come from that processor's cache, and a copy is as slow as that. What copy.c
 * does about it for more than 2 KiB was measured (tests/bench/LOG.md).
 */
#ifndef RSK_COPY_H
#define RSK_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

enum { RSK_COPY_PIECE = 2048, RSK_COPY_HALF = 16 };

enum rsk_way {
    RSK_INTO,   /* into a ring */
    RSK_OUT_OF, /* out of one */
    /* into one, past the caches: where the reader's is far away (ipoib_fallback/past.h) */
    RSK_PAST,
};

/* More than RSK_COPY_PIECE bytes, which do not overlap. */
void rsk_copy_much(void *to, const void *from, size_t n, enum rsk_way);

static inline bool rsk_is_few(size_t n)
{
    return n - 1 < 4 * RSK_COPY_HALF;
}

/* 1 to 15 bytes. */
static inline void rsk_copy_least(char *to, const char *from, size_t n)
{
    if (n >= sizeof(uint64_t)) {
        uint64_t first, last;

        memcpy(&first, from, sizeof first);
        memcpy(&last, from + n - sizeof last, sizeof last);
        memcpy(to, &first, sizeof first);
        memcpy(to + n - sizeof last, &last, sizeof last);
    } else if (n >= sizeof(uint32_t)) {
        uint32_t first, last;

        memcpy(&first, from, sizeof first);
        memcpy(&last, from + n - sizeof last, sizeof last);
        memcpy(to, &first, sizeof first);
        memcpy(to + n - sizeof last, &last, sizeof last);
    } else {
        char first = from[0], middle = from[n / 2], last = from[n - 1];

        to[0] = first;
        to[n / 2] = middle;
        to[n - 1] = last;
    }
}

/* 1 to 64 bytes, which most messages are: from 16 on two or four moves of 16 bytes, from both ends,
 * that may overlap. */
static inline void rsk_copy_few(char *to, const char *from, size_t n)
{
    char first[RSK_COPY_HALF], last[RSK_COPY_HALF];

    if (n < RSK_COPY_HALF) {
        rsk_copy_least(to, from, n);
        return;
    }
    memcpy(first, from, sizeof first);
    memcpy(last, from + n - sizeof last, sizeof last);
    if (n > sizeof first + sizeof last) {
        char second[RSK_COPY_HALF], third[RSK_COPY_HALF];

        memcpy(second, from + sizeof first, sizeof second);
        memcpy(third, from + n - sizeof last - sizeof third, sizeof third);
        memcpy(to + sizeof first, second, sizeof second);
        memcpy(to + n - sizeof last - sizeof third, third, sizeof third);
    }
    memcpy(to, first, sizeof first);
    memcpy(to + n - sizeof last, last, sizeof last);
}

static inline void rsk_copy(void *to, const void *from, size_t n, enum rsk_way way)
{
    if (__builtin_expect(n > RSK_COPY_PIECE, 0)) {
        rsk_copy_much(to, from, n, way);
    } else if (rsk_is_few(n)) {
        rsk_copy_few(to, from, n);
    } else {
        /* For a size of which it knows the most the compiler has the processor's string
         * instruction: it is not to know. */
        __asm__("" : "+r"(n));
        memcpy(to, from, n);
    }
}

/* The first n bytes of the two pieces of a ring, out and in. They hold so many. */
static inline void rsk_copy_out(void *to, const struct iovec piece[2], size_t n)
{
    size_t first = n < piece[0].iov_len ? n : piece[0].iov_len;

    rsk_copy(to, piece[0].iov_base, first, RSK_OUT_OF);
    if (n > first)
        rsk_copy((char *)to + first, piece[1].iov_base, n - first, RSK_OUT_OF);
}

static inline void rsk_copy_in(const struct iovec piece[2], const void *from, size_t n)
{
    size_t first = n < piece[0].iov_len ? n : piece[0].iov_len;

    rsk_copy(piece[0].iov_base, from, first, RSK_INTO);
    if (n > first)
        rsk_copy(piece[1].iov_base, (const char *)from + first, n - first, RSK_INTO);
}

#endif
