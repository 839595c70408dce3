/*
 * poll_sleeper.h - a thread that sleeps in poll, over the fake engine (epoll_fake.h), for
 * poll_test.c and poll_signal_test.c.
 */
#ifndef TESTS_UNIT_POLL_SLEEPER_H
#define TESTS_UNIT_POLL_SLEEPER_H

#include "tests/asleep.h"
#include "tests/shim/shim.h"
#include "tests/unit/epoll_fake.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rsock/sys.h"

static inline uint64_t cpu(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* revents, 0 for a time-out, or -errno. */
static inline int one(struct fake *f, short events, int ms)
{
    struct pollfd p = {.fd = f->fd, .events = events, .revents = -1};
    int n = poll(&p, 1, ms);

    if (n < 0)
        return -errno;
    EXPECT_EQ_INT(n, p.revents != 0);
    return p.revents;
}

struct sleeper {
    pthread_t thread;
    struct pollfd p[3];
    int ms, n;
    nfds_t count;
    uint64_t took, cpu;
    _Atomic int tid;
    _Atomic bool done;
};

static inline void *sleep_once(void *arg)
{
    struct sleeper *s = arg;
    uint64_t begin = sys_now(), used = cpu();

    s->tid = gettid();
    s->n = poll(s->p, s->count, s->ms);
    s->took = sys_now() - begin;
    s->cpu = cpu() - used;
    atomic_store(&s->done, true);
    return NULL;
}

static inline void start(struct sleeper *s, int ms, nfds_t count, struct fake *a, int other)
{
    memset(s, 0, sizeof *s);
    s->ms = ms;
    s->count = count;
    s->p[0] = (struct pollfd){.fd = a->fd, .events = POLLIN};
    s->p[1] = (struct pollfd){.fd = other, .events = POLLIN};
    s->p[2] = (struct pollfd){.fd = -1, .events = POLLIN};
    ASSERT_EQ_INT(pthread_create(&s->thread, NULL, sleep_once, s), 0);
}

/* It has said what it waits for, and sleeps in the kernel: again, if it was woken before. */
static inline void asleep(struct sleeper *s)
{
    while (!atomic_load(&fake_sleepers))
        sys_yield();
    until_it_sleeps(&s->tid);
}

#endif
