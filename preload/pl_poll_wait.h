/*
 * pl_poll_wait.h - the wait of a poll that the library serves: pl_poll_serve.c looks, spins and
 * sleeps, pl_poll_arm.c asks for the wakes.
 */
#ifndef PL_POLL_WAIT_H
#define PL_POLL_WAIT_H

#include "preload/pl_poll.h"

struct pl_entry {
    struct fb_watcher watcher; /* first: wake() gets it */
    struct pl_poll_wait *wait;
    struct pl_file *file; /* reference; NULL: the kernel's alone */
    bool hot;             /* not plain at the last look */
    bool alone;           /* hot, but nothing of it is on a rail now: the kernel is asked */
    bool watched;
    bool hinted; /* hot, and the kernel reported something in the last sleep: to be verified */
    bool muted;  /* the engine denied that: left out for a while, or it would end each sleep */
    bool joined; /* an epoll instance that knows of us */
    bool gone;   /* its number was closed meanwhile */
    bool ended;  /* gone, and the call ends: something had come before the close */
    _Atomic unsigned armed; /* of an instance: pl_epoll_arm's */
    struct fb_words words;
};

/* What `woken` is: how the thread is to be woken, or that it has been. */
enum { PL_WAKE_FD, PL_WAKE_WORD, PL_WOKEN };

struct pl_poll_wait {
    struct pl_block block; /* first */
    _Atomic uint32_t woken;
    int efd; /* or -errno */
    nfds_t n;
    bool leans;       /* on the common shard */
    bool gone, ended; /* an entry is */
    bool waited;      /* the kernel has been asked, and nothing was ready */
    unsigned unsure;
    struct pollfd *kernel;      /* n + 1 */
    nfds_t place;               /* of efd in there: the last, or one that is free */
    bool crowded;               /* no more than n are allowed, and none is free */
    struct fb_sleeper *sleeper; /* of the last sleep, and which that was */
    uintptr_t sleep;
    struct pl_words words;
    struct pl_entry entry[];
};

static inline short pl_poll_asked(const struct pollfd *p)
{
    return (short)(p->events | POLLERR | POLLHUP);
}

/* ---- pl_poll_arm.c ---- */

/* Is there nothing in the set but streams on rails, with words for all that is asked? */
bool pl_poll_by_words(const struct pl_poll_wait *, const struct pollfd *fds);
/* Asks for wakes, by words or not, all of them in one way; *words: in which, which can change to
 * false. True: something holds already, or changed. */
bool pl_poll_arm(struct pl_poll_wait *, const struct pollfd *fds, bool *words);
/* After a sleep on words. */
void pl_poll_put_words(struct pl_poll_wait *);
/* The progress thread need not drain the common shard for us any more. */
void pl_poll_stand(struct pl_poll_wait *);

#endif
