/*
 * shm_page.h - the page of a bell, and what its writers do (shm_bell.c says how they and the reader
 * find each other).
 */
#ifndef RSK_SHM_PAGE_H
#define RSK_SHM_PAGE_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "rsock/fence.h"
#include "rsock/own.h"
#include "rsock/shm_bell.h"
#include "rsock/sys.h"

enum { SHM_PAGE_WORDS = SHM_BELL_SLOTS / 64, SHM_PAGE_SIZE = 65536 };

struct shm_page {
    _Atomic uint32_t armed __attribute__((aligned(64))); /* the arming's number; 0: nobody sleeps */
    _Atomic uint32_t sent; /* bytes that are in the socket, were, or are about to be */
    _Atomic uint64_t summary __attribute__((aligned(64)));
    _Atomic uint64_t dirty[SHM_PAGE_WORDS] __attribute__((aligned(64)));
};

/* The length is that of the largest pages, of which the first 4 KiB are used. */
static inline struct shm_page *shm_page_map(int fd, struct rsk_own_map *map)
{
    void *p = mmap(NULL, SHM_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return NULL;
    rsk_own_map(map, p, SHM_PAGE_SIZE);
    return p;
}

static inline void shm_page_mark(struct shm_page *p, uint32_t slot)
{
    uint64_t word = 1ull << (slot / 64);

    /* Release: whoever takes the bit sees the cursor that it tells of. In one order with the look
     * at the summary and with the reader's two: who clears the summary after it was seen set looks
     * at the bit after that. */
    atomic_fetch_or(&p->dirty[slot / 64], 1ull << (slot % 64));
    if (!(atomic_load(&p->summary) & word))
        atomic_fetch_or_explicit(&p->summary, word, memory_order_release);
}

static inline void shm_page_fire(int event)
{
    const uint64_t one = 1;

    sys_write(event, &one, sizeof one);
}

/* Other than 0: the caller is to wake who sleeps there, and then to say so by shm_page_woken(). */
static inline uint32_t shm_page_ring(struct shm_page *p, uint32_t slot)
{
    shm_page_mark(p, slot);
    rsk_fence(); /* pairs with the one in bell_arm */
    return atomic_load_explicit(&p->armed, memory_order_relaxed);
}

static inline void shm_page_woken(struct shm_page *p, uint32_t arming)
{
    atomic_compare_exchange_strong_explicit(&p->armed, &arming, 0, memory_order_acq_rel,
                                            memory_order_relaxed);
}

/* A forked child has none of the peers'. */
void shm_peer_bells_forget(void);

#endif
