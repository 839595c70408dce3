/*
 * poll_crowd_test.c - a thread in a crowd: what pl_wait.c makes of ipoib_fallback/spin.h's
 * decision, and which waits of poll and epoll_wait ask for it. How often the thread was thrown off
 * its processor says the getrusage of this file.
 */
#include "tests/answers.h"
#include "tests/shim/shim.h"
#include "tests/unit/epoll_calls.h"
#include "tests/unit/epoll_fake.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ipoib_fallback/processors.h"
#include "preload/pl_wait.h"
#include "rsock/sys.h"

static _Atomic unsigned asked;
static _Atomic long off;

/* Thrown off once for each of the waits that went by since. */
int getrusage(__rusage_who_t who, struct rusage *usage)
{
    memset(usage, 0, sizeof *usage);
    EXPECT_EQ_INT(who, RUSAGE_THREAD);
    usage->ru_nivcsw = atomic_fetch_add(&off, 64);
    atomic_fetch_add(&asked, 1);
    return 0;
}

static void two_processors(void)
{
    cpu_set_t may;

    if (sched_getaffinity(0, sizeof may, &may) == 0 && CPU_COUNT(&may) == 1)
        SKIP("one processor: nothing spins");
}

/* A wait for so many streams that has found something at once. Its budget. */
static uint64_t wait_for(unsigned streams)
{
    uint64_t budget = pl_spin_budget(streams);

    pl_spin_ready(1);
    pl_spin_result(sys_now(), 0);
    return budget;
}

/* Waits until one does not spin, or for so long. */
static bool rests(unsigned streams, uint64_t ns)
{
    uint64_t until = sys_now() + ns;

    while (sys_now() < until)
        if (wait_for(streams) == 0)
            return true;
    return false;
}

TEST_CASE(poll_crowd, who_waits_for_several_and_is_thrown_off_rests)
{
    two_processors();
    EXPECT_EQ_U64(pl_spin_budget(0), 0);
    EXPECT(!rests(1, 300000000));
    EXPECT_EQ_INT(atomic_load(&asked), 0);
    ASSERT(rests(2, 60000000000));
    EXPECT(atomic_load(&asked) > 2);
    /* Who waits for one does spin. */
    EXPECT(pl_spin_budget(1) != 0);
    EXPECT_EQ_U64(pl_spin_budget(2), 0);
    /* And who has a rail over a slow wire, until he has none: there is no such thing. */
    atomic_store(&fake_slow_wire, true);
    EXPECT(pl_spin_budget(2) != 0);
    atomic_store(&asked, 0);
    EXPECT(!rests(2, 300000000));
    EXPECT_EQ_INT(atomic_load(&asked), 0);
    atomic_store(&fake_slow_wire, false);
}

/* ---- which waits ask */

/* How often a shard was looked at, which who spins does again and again. */
static _Atomic unsigned looks;

static void looked(int n)
{
    (void)n;
    atomic_fetch_add(&looks, 1);
}

struct wait {
    struct fake *f;
    int tid;
    _Atomic unsigned looks; /* before it */
};

/* A byte for a wait that has begun: it spins, or sleeps already. */
static void feed(void *arg)
{
    struct wait *w = arg;

    while (atomic_load(&looks) - atomic_load(&w->looks) < 3 && state_of(w->tid) != 'S')
        sys_yield();
    fake_arrive(w->f, 1);
}

struct wait_set {
    bool by_epoll;
    int ep;
    struct pollfd p[2];
    nfds_t n;
};

/* So many waits, or as many as it takes until getrusage was asked. How many there were. */
static unsigned waits(struct wait_set *w, struct fake *f, unsigned most)
{
    struct wait this = {.f = f, .tid = gettid()};
    struct answers feeder = {.give = feed, .arg = &this};
    struct epoll_event e[2];
    unsigned n = 0;

    atomic_store(&asked, 0);
    fake_drained = looked;
    ASSERT(answers_begin(&feeder));
    for (; n < most && !atomic_load(&asked); n++) {
        atomic_store(&this.looks, atomic_load(&looks));
        answers_ask(&feeder);
        EXPECT_EQ_INT(w->by_epoll ? epoll_wait(w->ep, e, 2, -1) : poll(w->p, w->n, -1), 1);
        EXPECT_EQ_INT(fake_read(f, 1), 1);
    }
    answers_end(&feeder);
    fake_drained = NULL;
    return n;
}

static void asks(bool by_epoll)
{
    struct fake *f = fake_new(), *g = fake_new();
    struct wait_set w = {.by_epoll = by_epoll, .ep = epoll_create1(0), .n = 2};
    unsigned n;

    two_processors();
    fake_board(f);
    fake_board(g);
    w.p[0] = (struct pollfd){.fd = f->fd, .events = POLLIN};
    w.p[1] = (struct pollfd){.fd = g->fd, .events = POLLIN};
    ASSERT_EQ_INT(add(w.ep, f->fd, EPOLLIN, 1), 0);
    ASSERT_EQ_INT(add(w.ep, g->fd, EPOLLIN, 2), 0);
    n = waits(&w, f, 20000);
    EXPECT_EQ_INT(atomic_load(&asked), 1);
    /* The same set, in which one is on TCP. */
    fake_leave(g);
    waits(&w, f, 10 * n);
    EXPECT_EQ_INT(atomic_load(&asked), 0);
    fake_close(f);
    fake_close(g);
    close_ep(w.ep);
}

TEST_CASE(poll_crowd, poll_for_several_rails)
{
    asks(false);
}

TEST_CASE(poll_crowd, epoll_wait_for_several_rails)
{
    asks(true);
}

/* A thread that has learnt nothing yet. */
static void *kept_on_one(void *unused)
{
    cpu_set_t one;

    (void)unused;
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    ASSERT_EQ_INT(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT(pl_spin_budget(1) != 0);
    atomic_store(&fb_one_processor, true);
    EXPECT_EQ_U64(pl_spin_budget(1), 0);
    atomic_store(&fb_one_processor, false);
    return NULL;
}

/* On a machine with one processor nobody spins. Who is kept on one of several does: the peer may be
 * kept on another. */
TEST_CASE(poll_crowd, one_processor)
{
    pthread_t t;

    ASSERT(pthread_create(&t, NULL, kept_on_one, NULL) == 0 && pthread_join(t, NULL) == 0);
}
