/*
 * run_witness.h - for `railsock run --report`: was a signal for us alone, or for our process group
 * or control group?
 */
#ifndef TOOLS_RUN_WITNESS_H
#define TOOLS_RUN_WITNESS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct witness {
    pid_t pid;               /* 0: there is none, and nobody but us has got anything */
    int fd;                  /* it ends when this is closed */
    unsigned long long owed; /* signals that its predecessor has got, and nobody has asked for */
};

/* These are blocked, here and in the witness. */
void witness_begin(struct witness *w, const sigset_t *signals);
/* Has it got that signal, too? Waits some milliseconds for it. */
bool witnessed(struct witness *w, int signal, const sigset_t *signals);
/* Nothing has come to us for a while: forgets what has come to the witness alone. */
void witness_refresh(struct witness *w, const sigset_t *signals);
void witness_end(struct witness *w);

#endif
