/*
 * pl_signal.h - what the old names of sigaction(2) (pl_signal_old.c), and who makes a connection, need of
 * pl_signal.c.
 */
#ifndef PL_SIGNAL_H
#define PL_SIGNAL_H

#include <signal.h>
#include <stdbool.h>

/* From now on handlers are called by us. Before there is a stream or an epoll instance that a handler might
 * jump out of a call on; not in a section. Any thread of the owner's, any number of times. */
void pl_signals_on(void);
bool pl_signals_active(void);
/* Which of our two functions the kernel calls for it; -1: neither. */
int pl_signal_which(const struct sigaction *);

#endif
