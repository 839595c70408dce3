/*
 * epoll_calls.h - for the tests of epoll over the fake engine (epoll_fake.h): one call,
 * one waiting thread.
 */
#ifndef TESTS_UNIT_EPOLL_CALLS_H
#define TESTS_UNIT_EPOLL_CALLS_H

#include "tests/asleep.h"
#include "tests/shim/shim.h"
#include "tests/unit/epoll_fake.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "preload/pl_epoll.h"
#include "rsock/sys.h"

#define MANY 16

static inline int add(int ep, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = {.events = events, .data.u64 = data};

    return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

static inline int mod(int ep, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = {.events = events, .data.u64 = data};

    return epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev);
}

/* One event, or 0 events after ms: as (data << 32 | events). */
static inline uint64_t one(int ep, int ms)
{
    struct epoll_event ev[MANY];
    int n = epoll_wait(ep, ev, MANY, ms);

    if (n <= 0)
        return (uint64_t)n;
    EXPECT_EQ_INT(n, 1);
    return ev[0].data.u64 << 32 | ev[0].events;
}
#define EVENT(data, events) ((uint64_t)(data) << 32 | (events))

/* The application's close: the instance is forgotten, too. */
static inline void close_ep(int ep)
{
    struct pl_file *f = pl_take(ep);

    if (f)
        pl_put(f);
    sys_close(ep);
}

static inline void in_kernel(struct fake *f, const char *what)
{
    EXPECT_EQ_INT(write(f->peer, what, strlen(what)), strlen(what));
}

/* A thread that waits once and keeps what it got. */
struct waiter {
    pthread_t thread;
    int ep, ms, n;
    struct epoll_event ev[MANY];
    uint64_t took; /* ns */
    _Atomic int tid;
    _Atomic bool done;
};

static inline void *wait_once(void *arg)
{
    struct waiter *w = arg;
    uint64_t begin = sys_now();

    w->tid = gettid();
    w->n = epoll_wait(w->ep, w->ev, MANY, w->ms);
    w->took = sys_now() - begin;
    atomic_store(&w->done, true);
    return NULL;
}

static inline void start(struct waiter *w, int ep, int ms)
{
    *w = (struct waiter){.ep = ep, .ms = ms};
    ASSERT_EQ_INT(pthread_create(&w->thread, NULL, wait_once, w), 0);
}

/* A byte on its rail is an event for a thread that sleeps in ep: the one with this data. */
static inline void wakes_sleeper(struct fake *f, int ep, uint64_t data)
{
    struct waiter w;

    start(&w, ep, 5000);
    until_it_sleeps(&w.tid);
    fake_arrive(f, 1);
    pthread_join(w.thread, NULL);
    ASSERT_EQ_INT(w.n, 1);
    EXPECT_EQ_U64(w.ev[0].data.u64, data);
}

#endif
