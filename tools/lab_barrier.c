/*
 * lab_barrier.c - who waits in which `lab-barrier NAME`.
 *
 * A barrier goes through `railsock lab` and not through the lab's network, so it holds
 * while a test cuts the network. A host whose command has ended cannot come any more;
 * its peers fail at once rather than wait for the time limit.
 */
#include "lab_barrier.h"

#include <errno.h>
#include <string.h>

static bool host_waits(const struct lab_barriers *b, unsigned host, const char *name)
{
    for (unsigned i = 0; i < b->n; i++)
        if (b->waiters[i].host == host && strcmp(b->waiters[i].name, name) == 0)
            return true;
    return false;
}

static void release(struct lab_barriers *b, const char *name, unsigned missing, lab_release_fn *fn,
                    void *arg)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < b->n; i++) {
        if (strcmp(b->waiters[i].name, name) == 0)
            fn(arg, &b->waiters[i], missing);
        else
            b->waiters[kept++] = b->waiters[i];
    }
    b->n = kept;
}

/* Releases a barrier if it is complete, or cannot be completed. Returns whether it did. */
static bool settle(struct lab_barriers *b, const char *name, lab_release_fn *fn, void *arg)
{
    char copy[LAB_BARRIER_NAME];
    bool complete = true;

    /* name may lie in the array that release() moves. */
    memcpy(copy, name, sizeof copy);
    for (unsigned h = 0; h < b->hosts; h++) {
        if (host_waits(b, h, copy))
            continue;
        complete = false;
        if (b->ended[h]) {
            release(b, copy, h + 1, fn, arg);
            return true;
        }
    }
    if (complete)
        release(b, copy, 0, fn, arg);
    return complete;
}

int lab_barrier_join(struct lab_barriers *b, const struct lab_waiter *waiter, lab_release_fn *fn,
                     void *arg)
{
    struct lab_waiter *w;

    if (b->n == LAB_BARRIER_WAITERS)
        return -ENOSPC;
    if (strnlen(waiter->name, sizeof waiter->name) == sizeof waiter->name)
        return -ENAMETOOLONG;
    w = &b->waiters[b->n++];
    *w = *waiter;
    settle(b, w->name, fn, arg);
    return 0;
}

void lab_barrier_left(struct lab_barriers *b, unsigned host, int pid)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < b->n; i++)
        if (b->waiters[i].host != host || b->waiters[i].pid != pid)
            b->waiters[kept++] = b->waiters[i];
    b->n = kept;
}

void lab_barrier_ended(struct lab_barriers *b, unsigned host, lab_release_fn *fn, void *arg)
{
    unsigned i = 0;

    b->ended[host] = true;
    while (i < b->n) {
        /* A release removes waiters before i too: begin again. */
        if (settle(b, b->waiters[i].name, fn, arg))
            i = 0;
        else
            i++;
    }
}
