/*
 * arena.h - memory that is only ever given back as a whole. One mapping, whose pages come when
 * they are touched.
 */
#ifndef CFG_ARENA_H
#define CFG_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cfg_arena {
    char *base;
    size_t used, size;
};

/* False: no memory. */
bool cfg_arena_open(struct cfg_arena *, size_t size);
void cfg_arena_close(struct cfg_arena *);
/* Zeroed, aligned for anything. NULL: it is full. */
void *cfg_arena_take(struct cfg_arena *, size_t);
/* A copy with a NUL after it. */
char *cfg_arena_copy(struct cfg_arena *, const char *, size_t);
/* Nothing more will be taken: what is left goes back. */
void cfg_arena_trim(struct cfg_arena *);

#endif
