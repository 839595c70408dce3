/*
 * lab_barrier.h - who waits in which `lab-barrier NAME`. Pure bookkeeping, no I/O.
 */
#ifndef RAILSOCK_LAB_BARRIER_H
#define RAILSOCK_LAB_BARRIER_H

#include <stdbool.h>

#include "lab.h"

#define LAB_BARRIER_WAITERS 256
#define LAB_BARRIER_NAME    64

struct lab_waiter {
    unsigned host; /* index, from 0 */
    int pid;       /* in that host; the one to be told */
    char name[LAB_BARRIER_NAME];
};

/* Zero-initialised but for hosts. */
struct lab_barriers {
    unsigned hosts;
    bool ended[LAB_MAX_HOSTS]; /* the host's command has ended: it joins nothing more */
    unsigned n;
    struct lab_waiter waiters[LAB_BARRIER_WAITERS];
};

/* Told of each waiter to release; missing is a host (from 1) that will not come, or 0. */
typedef void lab_release_fn(void *arg, const struct lab_waiter *waiter, unsigned missing);

/*
 * A process waits. When every host has one in this barrier, all of them are released and
 * the name is free again. Returns 0, or -ENOSPC or -ENAMETOOLONG without joining.
 */
int lab_barrier_join(struct lab_barriers *b, const struct lab_waiter *waiter, lab_release_fn *fn,
                     void *arg) __attribute__((warn_unused_result));

/* That process of a host waits no more. */
void lab_barrier_left(struct lab_barriers *b, unsigned host, int pid);

/* A host's command has ended; those who wait for that host are released as failed. */
void lab_barrier_ended(struct lab_barriers *b, unsigned host, lab_release_fn *fn, void *arg);

#endif
