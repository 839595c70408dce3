/*
 * pl_signal.h - what the old names of sigaction(2) (pl_signal_old.c), and who wants a rail, need of
 * pl_signal.c.
 */
#ifndef PL_SIGNAL_H
#define PL_SIGNAL_H

#include <signal.h>
#include <stdbool.h>

/* A rail is wanted: from now on handlers are called by us. Progress thread, before it does anything. */
void pl_signals_on(void);
bool pl_signals_active(void);
/* Which of our two functions the kernel calls for it; -1: neither. */
int pl_signal_which(const struct sigaction *);

#endif
