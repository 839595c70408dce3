/*
 * copy.c - see copy.h. On the data path of large sends and receives; no locks, nothing is kept.
 */
#include "rsock/copy.h"

#include <stdint.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LINE = 64, STEP = 256, AHEAD = 1024, FETCHED = 8192 };

/* For more libc's memcpy has the processor's own string instruction (rep movsb), which between two
 * caches is up to three times slower than its loop of vectors, and not the same from run to run. */
static void in_pieces(char *to, const char *from, size_t n)
{
    while (n) {
        size_t piece = n < RSK_COPY_PIECE ? n : RSK_COPY_PIECE;

        __asm__("" : "+r"(piece));
        memcpy(to, from, piece);
        to += piece;
        from += piece;
        n -= piece;
    }
}

/* What comes next is fetched meanwhile, but nothing beyond the end, where the other
 * processor is at work. */
static void fetched(char *to, const char *from, size_t n)
{
    for (; n >= AHEAD + STEP; to += STEP, from += STEP, n -= STEP) {
        size_t step = STEP;

#pragma GCC unroll 4
        for (size_t i = 0; i < STEP; i += LINE)
            __builtin_prefetch(from + AHEAD + i);
        __asm__("" : "+r"(step));
        memcpy(to, from, step);
    }
    in_pieces(to, from, n);
}

#ifdef __SSE2__
/* The lines are written to memory, and are fetched from nowhere before. */
static void past(char *to, const char *from, size_t n)
{
    size_t first = -(uintptr_t)to % LINE;

    memcpy(to, from, first);
    to += first;
    from += first;
    n -= first;
    for (; n >= LINE; to += LINE, from += LINE, n -= LINE)
        for (size_t i = 0; i < LINE; i += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(void *)(to + i),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
    memcpy(to, from, n);
    /* They are not ordered with what is stored after them, such as the ring's cursor. */
    _mm_sfence();
}
#endif

void rsk_copy_much(void *to, const void *from, size_t n, enum rsk_way way)
{
#ifdef __SSE2__
    if (way == RSK_PAST) {
        past(to, from, n);
        return;
    }
#endif
    if (way == RSK_OUT_OF && n >= FETCHED)
        fetched(to, from, n);
    else
        in_pieces(to, from, n);
}
