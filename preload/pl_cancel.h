/*
 * pl_cancel.h - what the application's handlers need of pl_cancel.c, for which pl_signal.c calls it around each: a handler may come
 * where the thread can be cancelled at any instruction only because it is in a cancellation point.
 */
#ifndef PL_CANCEL_H
#define PL_CANCEL_H

#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

struct pl_over;

/* Of handlers that have begun on this thread, in which it was asynchronous: for who cancels it. */
struct pl_overs {
    uint64_t windows; /* opened when the innermost one came */
    const struct pl_over
        *stays; /* of the outermost one over a place where the thread must not end */
    bool stays_on_signal_stack;
};

/* In the frame that calls the handler. */
struct pl_over {
    const struct pl_over *self; /* as long as that frame is there, if `stays` */
    struct pl_overs was;
    int type;
    bool asynchronous, sleeps, no_point;
};

/* A handler of the application's is to run over this context; it is as cancellable as the program wants the thread. No section is
 * entered before. */
void pl_cancel_handler_begins(struct pl_over *, ucontext_t *);
/* It has returned, and everything else is as it was: the thread may end here. */
void pl_cancel_handler_ends(const struct pl_over *);

#endif
