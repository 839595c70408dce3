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

enum { RSK_COPY_PIECE = 2048 };

static inline void rsk_copy(void *to, const void *from, size_t n)
{
    while (__builtin_expect(n > RSK_COPY_PIECE, 0)) {
        size_t piece = RSK_COPY_PIECE;

        __asm__(
            ""
            : "+r"(piece)); /* for a size that it knows the compiler has that instruction, too */
        memcpy(to, from, piece);
        to = (char *)to + piece;
        from = (const char *)from + piece;
        n -= piece;
    }
    memcpy(to, from, n);
}

#endif
