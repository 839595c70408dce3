/*
 * loop.h - for the tests of the progress thread: it runs, on either backend, and is waited for.
 */
#ifndef TESTS_UNIT_LOOP_H
#define TESTS_UNIT_LOOP_H

#include "tests/shim/shim.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "rsock/loop.h"

static inline bool start(bool uring)
{
    if (rsk_loop_start(uring))
        return false;
    return strcmp(rsk_loop_backend(), uring ? "io_uring" : "epoll") == 0;
}

#define BOTH_BACKENDS(name)                         \
    static void name(void);                         \
    TEST_CASE(loop_epoll, name)                     \
    {                                               \
        ASSERT(start(false));                       \
        name();                                     \
        rsk_loop_stop();                            \
    }                                               \
    TEST_CASE(loop_uring, name)                     \
    {                                               \
        if (!start(true)) {                         \
            rsk_loop_stop();                        \
            SKIP("io_uring is not to be had here"); \
        }                                           \
        name();                                     \
        rsk_loop_stop();                            \
    }                                               \
    static void name(void)

static inline bool soon(sem_t *s)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += 10;
    return sem_timedwait(s, &ts) == 0;
}

/* Runs fn on the thread and waits for it. */
struct call {
    void (*fn)(void *arg);
    void *arg;
    sem_t done;
};

static inline void call_run(void *arg)
{
    struct call *c = arg;

    c->fn(c->arg);
    sem_post(&c->done);
}

static inline void on_thread(void (*fn)(void *arg), void *arg)
{
    struct call c = {.fn = fn, .arg = arg};

    sem_init(&c.done, 0, 0);
    ASSERT_EQ_INT(rsk_loop_post(call_run, &c), 0);
    ASSERT(soon(&c.done));
}

/* ---- posts */

static inline void nothing(void *arg)
{
    (void)arg;
}

/* ---- watches */

static int pipe_fds[2];
static struct rsk_watch *watch;
static atomic_int n_events, stop_after;
static sem_t seen;

static inline void on_event(void *arg, uint32_t events)
{
    (void)arg;
    EXPECT(events & POLLIN);
    if (++n_events == stop_after) {
        rsk_unwatch(watch);
        sem_post(&seen);
    }
}

static inline void add_watch(void *arg)
{
    bool edge = arg != NULL;

    watch = rsk_watch_fd(pipe_fds[0], edge ? EPOLLIN | EPOLLET : POLLIN, edge, on_event, NULL);
    ASSERT(watch != NULL);
}

#endif
