/*
 * pl_cancel.h - what pl_signal.c calls of pl_cancel.c around each of the application's handlers. A
 * handler may interrupt a sleep, for which the thread has been made asynchronously cancellable, by
 * us or by libc; while the handler runs, the thread is only as cancellable as the program wants it.
 */
#ifndef PL_CANCEL_H
#define PL_CANCEL_H

#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

struct pl_over;

/* Of the handlers that run on this thread: what must_not_end() asks for when the thread
 * is cancelled. */
struct pl_overs {
    uint64_t windows; /* rsk_sig.ids when the innermost one came: later windows are its own */
    const struct pl_over
        *stays; /* the outermost one over a place where the (asynchronous) thread must not end */
    bool stays_on_signal_stack;
};

/* In the frame that calls the handler. */
struct pl_over {
    const struct pl_over *self; /* itself; else its frame was left and written over (`stays`) */
    struct pl_overs was;
    int type;
    bool asynchronous, sleeps, no_point;
};

/* A handler of the application's is to run over this context; it is as cancellable as the program
 * wants the thread. No section is entered before. */
void pl_cancel_handler_begins(struct pl_over *, ucontext_t *);
/* It has returned, and everything else is as it was: the thread may end here. */
void pl_cancel_handler_ends(const struct pl_over *);

#endif
