/*
 * shm_bytes.h - for the tests of the shm wire: bytes that are a function of their number.
 */
#ifndef TESTS_UNIT_SHM_BYTES_H
#define TESTS_UNIT_SHM_BYTES_H

#include "tests/unit/shm_pair.h"

enum { RING = 4096 };

static const struct rsk_wire *const w = &rsk_shm_wire;

/* Byte number n of every stream here. */
static inline uint8_t byte_at(uint64_t n)
{
    return (uint8_t)(n * 0x9e3779b97f4a7c15ull >> 56);
}

static inline void fill(uint8_t *p, uint64_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(from + i);
}

static inline bool right(const uint8_t *p, uint64_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte_at(from + i)) {
            FAILF("byte %llu is wrong", (unsigned long long)(from + i));
            return false;
        }
    return true;
}

#endif
