/*
 * loop_backend.h - what loop.c asks of io_uring or epoll. One backend is open at a
 * time; all but close run on the progress thread, and close after it.
 */
#ifndef RSK_LOOP_BACKEND_H
#define RSK_LOOP_BACKEND_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rsk_watch {
    int fd;
    uint32_t events;
    bool anchor;
    _Atomic bool dropped; /* the kernel does not know it any more (rsk_watch_drop) */
    bool dead;            /* unwatched; freed once no event of it can be under way */
    bool pending; /* io_uring: a poll is in the kernel, its completion will name this watch */
    bool again;   /* the backend could not take it: loop_watch_retry */
    void (*fn)(void *arg, uint32_t events);
    void *arg;
    struct rsk_watch *next_dead;
    struct rsk_watch *next, **prev; /* of those that are not anchors; loop_watch.c's */
};

#define LOOP_FOREVER UINT64_MAX

struct loop_backend {
    const char *name;
    /* Takes what it needs from the kernel. 0 or -errno. */
    int (*open)(void);
    int (*add)(struct rsk_watch *);
    void (*del)(struct rsk_watch *);
    /* Sleeps at most ns nanoseconds and calls loop_event for what happened. */
    void (*wait)(uint64_t ns);
    void (*close)(void);
};

extern const struct loop_backend loop_epoll, loop_uring;
/* A wait of a backend's has failed at once, by -errno: for a moment nothing is done. */
void loop_backoff(int err);
/* No backend: what is watched waits for the next one, or is looked at by loop_watch_look.
 * Only add and del. */
extern const struct loop_backend loop_none;

/* loop_watch.c, loop.c: the open backend, and the epoll instance with the anchors. */
extern const struct loop_backend *loop_backend;
extern int loop_anchor_ep;
extern int loop_watch_error; /* why the last rsk_watch_fd gave NULL: -errno */
/* Frees what was unwatched and is in no batch. */
void loop_watch_bury(void);
/* The backend was closed: no poll of it is under way. */
void loop_watch_rest(void);
/* Another one was opened: it gets the watches. 0, or -errno if it does not take these two. */
int loop_watch_again(struct rsk_watch *wake, struct rsk_watch *anchors);
/* The backend could not take it back. */
void loop_watch_later(struct rsk_watch *);
/* Gives the backend what it could not take. When to try once more, in ns; LOOP_FOREVER: it
 * has them all. */
uint64_t loop_watch_retry(void);
/* Without a backend: calls for what has news now. */
void loop_watch_look(void);
void loop_watch_forget(void);

/* ---- loop_spawn.c */

/* 0 or -errno; -EAGAIN: there may be no thread more, or no memory for its stack. */
int loop_spawn(pthread_t *, void *(*run)(void *), void *arg);

/* ---- loop_common.c, under loop.c's life lock or on the thread ---- */

/* Makes the common shard, if there is none. 0 or -ENOMEM. */
int loop_common_open(void);
/* A first thread begins: it watches the shard's descriptors. */
void loop_common_watch(void);
/* The thread and its backend are gone. */
void loop_common_free(void);
/* In a forked child. */
void loop_common_forget(void);

/* Calls the watch's function, unless it is dead. (The static analysis does not know that the
 * kernel fills in events, hence the test for NULL.) */
static inline void loop_event(struct rsk_watch *w, uint32_t events)
{
    if (w && !w->dead)
        w->fn(w->arg, events);
}

#endif
