/*
 * pl_made.c - the numbers that socket() gave for TCP and that were not closed since, so that connect() need
 * not ask the kernel what it has connected, and what else stands for their sockets by then.
 *
 * A number is wrongly held for TCP if no wrapper saw its close, and it then became an internet socket of
 * another kind where no wrapper saw that either; or if the kernel has made something else of it (Multipath TCP, by
 * a BPF program). Hence a stream is asked for its protocol before it gets a rail (rdv.c), and until then
 * its calls are the kernel's.
 *
 * Any thread, also in signal handlers; no lock.
 */
#include "preload/pl_own.h"

enum { MADE = 1 << 20, WORDS = MADE / 64 }; /* of higher numbers the kernel is asked */

typedef _Atomic uint64_t numbers[WORDS];
static numbers made;
static numbers
    twice; /* there is, or was, another number for its socket, which was not yet connected */
static numbers away;           /* a FILE has it, or another process */
static _Atomic bool any_other; /* some were noted in those two */
static _Atomic unsigned most;  /* no number in `made` is above it */

static bool has(numbers *in, unsigned n)
{
    return n < MADE && (atomic_load_explicit(&(*in)[n / 64], memory_order_relaxed) >> (n % 64) & 1);
}

static void note(numbers *in, unsigned n)
{
    if (n < MADE)
        atomic_fetch_or(&(*in)[n / 64], 1ull << (n % 64));
}

static void forget(numbers *in, unsigned n)
{
    if (has(in, n))
        atomic_fetch_and(&(*in)[n / 64], ~(1ull << (n % 64)));
}

bool pl_made(int fd)
{
    return has(&made, (unsigned)fd);
}

void pl_made_note(int fd)
{
    unsigned n = (unsigned)fd, top = atomic_load_explicit(&most, memory_order_relaxed);

    while (n < MADE && n > top && !atomic_compare_exchange_weak(&most, &top, n))
        ;
    note(&made, n);
}

void pl_made_forget(int fd)
{
    forget(&made, (unsigned)fd);
    /* A vfork child closes its own numbers, and has our memory. */
    if (atomic_load_explicit(&any_other, memory_order_relaxed) && pl_is_owner_here()) {
        forget(&twice, (unsigned)fd);
        forget(&away, (unsigned)fd);
    }
}

void pl_made_forget_range(unsigned int first, unsigned int last)
{
    for (unsigned n = first; n < MADE && n <= last; n = (n | 63) + 1)
        for (unsigned i = n; atomic_load(&made[n / 64]) && i <= (n | 63) && i <= last; i++)
            pl_made_forget((int)i);
}

void pl_made_dup(int fd, int newfd)
{
    if (!pl_made(fd) || (unsigned)newfd >= MADE || !pl_is_owner_here())
        return;
    atomic_store(&any_other, true);
    note(&twice, (unsigned)fd);
    note(&twice, (unsigned)newfd);
    pl_made_note(newfd);
}

void pl_made_away(int fd)
{
    if (!pl_made(fd) || !pl_is_owner_here())
        return;
    atomic_store(&any_other, true);
    note(&away, (unsigned)fd);
}

void pl_made_forking(void)
{
    uint64_t word;

    for (unsigned i = 0; i <= atomic_load(&most) / 64; i++) {
        word = atomic_load_explicit(&made[i], memory_order_relaxed);
        if (word & ~atomic_load_explicit(&away[i], memory_order_relaxed)) {
            atomic_store(&any_other, true);
            atomic_fetch_or(&away[i], word);
        }
    }
}

bool pl_made_is_away(int fd)
{
    return has(&away, (unsigned)fd);
}

bool pl_made_is_twice(int fd)
{
    return has(&twice, (unsigned)fd);
}

int pl_made_next_twice(int fd)
{
    for (unsigned n = (unsigned)fd + 1; n <= atomic_load(&most); n++) {
        uint64_t left = atomic_load(&twice[n / 64]) >> (n % 64);

        if (left)
            return (int)n + __builtin_ctzll(left);
        n |= 63;
    }
    return -1;
}
