/*
 * arena.c - see arena.h.
 */
#include "config/arena.h"

#include <string.h>
#include <sys/mman.h>

bool cfg_arena_open(struct cfg_arena *a, size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    *a = (struct cfg_arena){.base = p == MAP_FAILED ? NULL : p, .size = size};
    return a->base != NULL;
}

void cfg_arena_close(struct cfg_arena *a)
{
    if (a->base)
        munmap(a->base, a->size);
    *a = (struct cfg_arena){0};
}

void *cfg_arena_take(struct cfg_arena *a, size_t n)
{
    void *p;

    n = (n + 15) & ~(size_t)15;
    if (n > a->size - a->used)
        return NULL;
    p = a->base + a->used;
    a->used += n;
    return p;
}

char *cfg_arena_copy(struct cfg_arena *a, const char *text, size_t n)
{
    char *p = cfg_arena_take(a, n + 1);

    if (p)
        memcpy(p, text, n); /* the NUL is there */
    return p;
}

void cfg_arena_trim(struct cfg_arena *a)
{
    size_t keep = (a->used + 4095) & ~(size_t)4095;

    if (keep == 0 || keep >= a->size)
        return;
    /* With pages larger than that this does nothing. */
    if (munmap(a->base + keep, a->size - keep) == 0)
        a->size = keep;
}
