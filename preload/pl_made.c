/*
 * pl_made.c - the numbers that socket() gave for TCP and that were not closed since, so that connect() need
 * not ask the kernel what it has connected.
 *
 * A number is wrongly held for TCP if no wrapper saw its close, and it then became an internet socket of
 * another kind where no wrapper saw that either; or if the kernel has made something else of it (Multipath TCP, by
 * a BPF program). Hence a stream is asked for its protocol before it gets a rail (rdv.c), and until then
 * its calls are the kernel's.
 *
 * Any thread, also in signal handlers; no lock.
 */
#include "preload/pl_own.h"

enum { MADE = 1 << 20 }; /* of higher numbers the kernel is asked */
static _Atomic uint64_t made[MADE / 64];

bool pl_made(int fd)
{
    unsigned n = (unsigned)fd;

    return n < MADE && (atomic_load_explicit(&made[n / 64], memory_order_relaxed) >> (n % 64) & 1);
}

void pl_made_note(int fd)
{
    unsigned n = (unsigned)fd;

    if (n < MADE)
        atomic_fetch_or(&made[n / 64], 1ull << (n % 64));
}

void pl_made_forget(int fd)
{
    unsigned n = (unsigned)fd;

    if (pl_made(fd))
        atomic_fetch_and(&made[n / 64], ~(1ull << (n % 64)));
}

void pl_made_forget_range(unsigned int first, unsigned int last)
{
    for (unsigned n = first; n < MADE && n <= last; n = (n | 63) + 1)
        for (unsigned i = n; atomic_load(&made[n / 64]) && i <= (n | 63) && i <= last; i++)
            pl_made_forget((int)i);
}
