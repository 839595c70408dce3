/*
 * copy.h - bytes into a ring or out of one, which another processor reads or has written. Any thread.
 *
 * For more than some 2 KiB libc's memcpy has the processor's own string instruction (rep movsb). Where the lines are in
 * another processor's cache that is up to three times slower than the loop of vectors that it has for less, and
 * not the same from run to run (tests/bench/README.md). So it gets less.
 */
#ifndef RSK_COPY_H
#define RSK_COPY_H

#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

enum { RSK_COPY_PIECE = 2048, RSK_COPY_HALF = 16 };

/* 16 to 64 bytes, which most messages are: two or four moves of 16 bytes, from both ends, that may overlap. */
static inline void rsk_copy_few(char *to, const char *from, size_t n)
{
    char first[RSK_COPY_HALF], last[RSK_COPY_HALF];

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

static inline void rsk_copy(void *to, const void *from, size_t n)
{
    /* For a size of which it knows the least or the most the compiler has that instruction, too: it is not to know. */
    while (__builtin_expect(n > RSK_COPY_PIECE, 0)) {
        size_t piece = RSK_COPY_PIECE;

        __asm__("" : "+r"(piece));
        memcpy(to, from, piece);
        to = (char *)to + piece;
        from = (const char *)from + piece;
        n -= piece;
    }
    if (n - RSK_COPY_HALF <= 3 * RSK_COPY_HALF) {
        rsk_copy_few(to, from, n);
    } else {
        __asm__("" : "+r"(n));
        memcpy(to, from, n);
    }
}

/* The first n bytes of the two pieces of a ring, out and in. They hold so many. */
static inline void rsk_copy_out(void *to, const struct iovec piece[2], size_t n)
{
    size_t first = n < piece[0].iov_len ? n : piece[0].iov_len;

    rsk_copy(to, piece[0].iov_base, first);
    if (n > first)
        rsk_copy((char *)to + first, piece[1].iov_base, n - first);
}

static inline void rsk_copy_in(const struct iovec piece[2], const void *from, size_t n)
{
    size_t first = n < piece[0].iov_len ? n : piece[0].iov_len;

    rsk_copy(piece[0].iov_base, from, first);
    if (n > first)
        rsk_copy(piece[1].iov_base, (const char *)from + first, n - first);
}

#endif
