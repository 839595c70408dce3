/*
 * floor.h - what the preloaded floors share: the function behind ours, memory that two processes
 * know by a name, and bytes into and out of a ring in it.
 */
#ifndef BENCH_FLOOR_H
#define BENCH_FLOOR_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* The same function of whoever would have been called, which is looked up once. */
#define NEXT(name)                                              \
    ({                                                          \
        static __typeof__(name) *next;                          \
        if (__builtin_expect(!next, 0))                         \
            next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name); \
        next;                                                   \
    })

enum { FLOOR_RING = 65536 };

/* The memory of that name, as shm_open(3) wants it. NULL: it is not there, and shall not be
 * made. */
static inline void *floor_memory(const char *name, size_t size, bool make)
{
    int fd = name ? shm_open(name, O_RDWR | (make ? O_CREAT : 0), 0600) : -1;
    void *p;

    if (fd < 0 && !make)
        return NULL;
    if (fd < 0 || (make && ftruncate(fd, (off_t)size) < 0))
        abort();
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        abort();
    close(fd);
    return p;
}

/* n bytes at number `at` of a stream. */
static inline void floor_put(char *ring, uint64_t number, const void *p, size_t n)
{
    size_t at = number % FLOOR_RING, first = n < FLOOR_RING - at ? n : FLOOR_RING - at;

    memcpy(ring + at, p, first);
    memcpy(ring, (const char *)p + first, n - first);
}

static inline void floor_take(void *p, const char *ring, uint64_t number, size_t n)
{
    size_t at = number % FLOOR_RING, first = n < FLOOR_RING - at ? n : FLOOR_RING - at;

    memcpy(p, ring + at, first);
    memcpy((char *)p + first, ring, n - first);
}

#endif
