/*
 * lock.h - the library's mutex: one word, futex only when contended. Not recursive. Held for short
 * stretches and, but for `reading`, never across a call that may block. The longest that waits for
 * anything is of 2 us, a receive with an empty ring (quick.c), and ends when somebody sleeps on the
 * lock. But tx and rx are held while bytes are copied to and from the application's memory, and
 * that may have to be paged in: so the progress thread does not wait for them (link_lock), and
 * neither does who ends the process (exit.c) for long.
 *
 * All locks, in the order in which they may be taken, and what each protects:
 *   links      heir.c: the links to forked children. In a child, `told` of heir_child.c: what it
 *              has heard
 *   tx         one per stream: the sending half (struct fb_tx) and the rail's tx_* calls
 *   rx         one per stream: the receiving half (struct fb_rx) and the rail's rx_* calls.
 *              tx before rx where both are needed; from rx, tx only by trying
 *   ctl        one per stream: takes control messages off the rail into the mailbox
 *   watchers   one per stream: the list of watchers, and `rail` against wakes
 *   (below: an epoll instance's own lock, a wire's own locks)
 *   sleeper    one per thread that polls, sleepers.c: its record. From rx, to look at it
 *   tap        one per tap, tap.c: its ring. Nothing is taken while it is held
 *   nothing    io.c: the number that is kept for who closes. From tx and rx. Nothing is taken while
 *              it is held
 *   givers     given.c: whose words are mapped. Nothing is taken while it is held
 *   registry   stream.c: which slots are free, and the sums over closed connections. Whoever drops
 *              the last reference takes it
 *   reading    rule.c: while the rules' files are read, which may block. With it no other lock is
 *              held but pl_heir.c's
 * Who cannot get a lock by trying leaves a bit in tx_todo or rx_todo; who unlocks looks at them
 * after the unlock and serves them, so no event is lost and nobody waits.
 */
#ifndef FB_LOCK_H
#define FB_LOCK_H

#include "rsock/sys.h"

#include <stdatomic.h>
#include <stdbool.h>

struct fb_lock {
    _Atomic uint32_t word; /* 0 free, 1 held, 2 held with sleepers */
};

void fb_lock_slow(struct fb_lock *);

/* Sequentially consistent, and so is the unlock: who finds the lock taken leaves a bit, and who
 * gives it back looks at that. */
static inline bool fb_trylock(struct fb_lock *l)
{
    uint32_t free = 0;

    return atomic_compare_exchange_strong(&l->word, &free, 1);
}

static inline void fb_lock(struct fb_lock *l)
{
    if (!fb_trylock(l))
        fb_lock_slow(l);
}

/* Does somebody hold it? If not, what its last holder wrote is seen. */
static inline bool fb_lock_held(const struct fb_lock *l)
{
    return atomic_load_explicit(&l->word, memory_order_acquire) != 0;
}

/* Does somebody sleep until the lock is given back? */
static inline bool fb_lock_sought(const struct fb_lock *l)
{
    return atomic_load_explicit(&l->word, memory_order_relaxed) == 2;
}

static inline void fb_unlock(struct fb_lock *l)
{
    if (atomic_exchange(&l->word, 0) == 2)
        sys_futex(&l->word, FUTEX_WAKE_PRIVATE, 1, NULL);
}

#endif
