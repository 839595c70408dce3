/*
 * pl_wait.h - what poll, select and epoll_wait have in common: deadlines, how long to
 * spin, and a thread's scratch blocks.
 *
 * A block is memory for one wait in progress. It is a mapping of the thread's own, never the
 * stack: watchers and poll sets in it are looked at by other threads, and a signal handler may
 * longjmp out of the wait (iperf3 does), after which its stack is gone. The thread's next wait
 * finds such a block and undoes it.
 */
#ifndef PL_WAIT_H
#define PL_WAIT_H

#include "preload/pl.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* ---- time: nanoseconds of CLOCK_MONOTONIC; PL_FOREVER = no limit ---- */

#define PL_FOREVER UINT64_MAX

/* When a wait of this many milliseconds ends; negative: never. 0 for none: then the clock
 * is not asked. */
uint64_t pl_deadline_ms(int timeout);
/* The same for a relative time; NULL: never. The caller has checked that it is valid. */
uint64_t pl_deadline_ts(const struct timespec *timeout);
/* What remains, 0 at least. NULL for PL_FOREVER, else ts. */
struct timespec *pl_remaining(uint64_t deadline, struct timespec *ts);
/* The same in milliseconds for epoll_wait, rounded up: never early. */
int pl_remaining_ms(uint64_t deadline);
/* Whether it has passed. */
bool pl_expired(uint64_t deadline);
static inline bool pl_ts_valid(const struct timespec *ts)
{
    return ts->tv_sec >= 0 && ts->tv_nsec >= 0 && ts->tv_nsec < 1000000000;
}

/* ---- spinning ---- */

/* When a thread that spins shall look at the kernel's descriptors again, after a look from `before`
 * to `after`: these looks take at most a ninth of the time, because nobody looks at the rails
 * meanwhile. Times in ns. */
static inline uint64_t pl_spin_kernel_at(uint64_t before, uint64_t after)
{
    uint64_t pause = 8 * (after - before);

    return after + (pause > 4000 ? pause : 4000);
}

/* For how long who waits need not ask the kernel again where it had nothing. */
#define PL_KERNEL_NS 50000u

/* How long this thread, which waits for so many streams on rails, should spin before it sleeps, at
 * most fb_spin_most(); 0 on one CPU. Called for each wait that pl_spin_result may be called for. */
uint64_t pl_spin_budget(unsigned streams);
/* Was this thread's last wait allowed to spin? */
bool pl_spins(void);
/* What came of it: the wait that began at `began`, spinning and sleeping together, has found
 * something. now: when it did; 0 if the caller has not asked the clock. */
void pl_spin_result(uint64_t began, uint64_t now);
/* So many descriptors are ready, whether or not that was waited for. */
void pl_spin_ready(unsigned n);

/* May there be a filter for system calls, which kills who makes one that it does not know? */
bool pl_filtered(void);

/* ---- blocks ---- */

struct pl_block {
    struct pl_block *outer;          /* the wait that this one interrupted, or the next free one */
    const void *frame;               /* of the function that waits */
    size_t size;                     /* of the whole mapping */
    void (*undo)(struct pl_block *); /* ends the wait: run by pl_block_put, or much later */
    bool listed;
};

/* A block of at least size bytes, struct pl_block at its head; the rest is not cleared. NULL when
 * out of memory. Reclaims the blocks of waits that are dead. undo may be NULL. */
struct pl_block *pl_block_get(size_t size, const void *frame, void (*undo)(struct pl_block *));
void pl_block_put(struct pl_block *);
/* A handler that came in the wait has forked, and this is the child: what was raised is
 * the parent's. */
static inline bool pl_block_lost(const struct pl_block *b)
{
    return !b->undo;
}

/* ---- an eventfd of the thread's own, for what wakes a poll ---- */

/* Its number, made at the first call; -errno. Not blocking, out of the application's way. */
int pl_thread_fd(void);

/* In a forked child: what the thread had belongs to the parent. */
void pl_wait_after_fork_child(void);

#endif
