/*
 * pl_signal.h - what the old names of sigaction(2) (pl_signal_old.c), who makes a connection, and
 * pl_cancel.c need of pl_signal.c.
 */
#ifndef PL_SIGNAL_H
#define PL_SIGNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

/* From now on handlers are called by us. Before there is a stream or an epoll instance that a
 * handler might jump out of a call on; not in a section. Any thread of the owner's, any
 * number of times. */
void pl_signals_on(void);
bool pl_signals_active(void);
/* Which of our two functions the kernel calls for it; -1: neither. */
int pl_signal_which(const struct sigaction *);

/* For a handler: where the thread was interrupted, and goes on. */
static inline uintptr_t *pl_signal_pc(ucontext_t *uc)
{
#if defined(__x86_64__)
    return (uintptr_t *)&uc->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t *)&uc->uc_mcontext.pc;
#endif
}

static inline uintptr_t pl_signal_sp(const ucontext_t *uc)
{
#if defined(__x86_64__)
    return (uintptr_t)uc->uc_mcontext.gregs[REG_RSP];
#else
    return (uintptr_t)uc->uc_mcontext.sp;
#endif
}

#endif
