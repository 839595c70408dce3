/*
 * epoll_spin_test.c - a spin in epoll_wait that looks at rings by itself, and those who
 * sleep beside it.
 */
#include "tests/asleep.h"
#include "tests/shim/shim.h"
#include "tests/unit/epoll_calls.h"
#include "tests/unit/epoll_fake.h"

#include "config/env.h"
#include "preload/pl_epoll.h"
#include "rsock/sys.h"

static struct waits {
    int ep;
    struct fake *f;
    pthread_t first, second;
    _Atomic int done, tid;      /* bytes received, by both; the second one's */
    _Atomic int held, go, rest; /* see hold() */
    _Atomic bool stop;
} w;

static void *waiter(void *unused)
{
    struct epoll_event ev;

    (void)unused;
    while (!atomic_load(&w.stop))
        if (epoll_wait(w.ep, &ev, 1, 5000) == 1 && fake_read(w.f, 1) == 1)
            atomic_fetch_add(&w.done, 1);
    return NULL;
}

static void *second(void *unused)
{
    atomic_store(&w.tid, gettid());
    return waiter(unused);
}

static bool becomes(_Atomic int *n, int most, uint64_t ms)
{
    uint64_t end = sys_now() + ms * 1000000;

    while (atomic_load(n) <= most && sys_now() < end)
        sys_yield();
    return atomic_load(n) > most;
}

static bool is_armed(uint64_t ms)
{
    uint64_t end = sys_now() + ms * 1000000;

    while (!atomic_load(&w.f->armed) && sys_now() < end)
        sys_yield();
    return atomic_load(&w.f->armed) == EPOLLIN;
}

/* A thread that waits for one stream on a rail, again and again, and spins for long. */
static uint32_t begin(void)
{
    uint32_t spin_ns = cfg.stream.spin_ns;

    memset(&w, 0, sizeof w);
    w.ep = epoll_create1(0);
    w.f = fake_new();
    cfg.stream.spin_ns = 300000000;
    add(w.ep, w.f->fd, EPOLLIN, 1);
    fake_board(w.f);
    ASSERT_EQ_INT(pthread_create(&w.first, NULL, waiter, NULL), 0);
    return spin_ns;
}

static void end(uint32_t spin_ns)
{
    atomic_store(&w.stop, true);
    fake_arrive(w.f, 2);
    pthread_join(w.first, NULL);
    if (w.second)
        pthread_join(w.second, NULL);
    cfg.stream.spin_ns = spin_ns;
    fake_close(w.f);
    close_ep(w.ep);
}

/* Nobody is asked to tell of the ring until who spins goes to sleep. */
TEST_CASE(epoll, spin_asks_nobody_to_ring)
{
    uint32_t spin_ns = 0;
    int unasked = 0;

    /* Its waits spin once one of them has, and some of them for so briefly that it sleeps soon.
     * Where a busy machine has taught it not to, another one begins. */
    for (int tries = 0; tries < 10 && !unasked; tries++) {
        uint64_t late = sys_now() + 3000000000;

        if (tries)
            end(spin_ns);
        spin_ns = begin();
        while (unasked < 20 && sys_now() < late) {
            int done = atomic_load(&w.done), looks = atomic_load(&w.f->glanced);

            while (!atomic_load(&w.f->armed) && atomic_load(&w.f->glanced) == looks &&
                   sys_now() < late)
                sys_yield();
            unasked += !atomic_load(&w.f->armed) && atomic_load(&w.f->glanced) != looks;
            fake_arrive(w.f, 1);
            ASSERT(becomes(&w.done, done, 30000));
        }
    }
    EXPECT(unasked > 0);
    EXPECT(is_armed(30000));
    end(spin_ns);
}

/* In the first thread, when it has found nothing and is about to leave it unarmed. */
static void hold(struct fake *f)
{
    if (f != w.f || atomic_exchange(&w.held, 1))
        return;
    while (!atomic_load(&w.go))
        sys_yield();
}

/* It looks no more after that. */
static void drained(int n)
{
    (void)n;
    while (atomic_load(&w.go) && !atomic_load(&w.rest) && pthread_equal(pthread_self(), w.first))
        sys_yield();
}

/* It is held up with a byte that came just before that: on with it, and then once more. */
static bool let_go_again(int done)
{
    bool read;

    atomic_store(&w.rest, 1);
    atomic_store(&w.go, 1);
    read = becomes(&w.done, done, 30000);
    atomic_store(&w.go, 0);
    atomic_store(&w.rest, 0);
    atomic_store(&w.held, 0);
    return read;
}

/* Another thread goes to sleep while who spins has the stream off the list, to leave it
 * there unarmed. */
TEST_CASE(epoll, sleeps_while_another_begins_to_spin)
{
    uint64_t late = sys_now() + 20000000000;
    uint32_t spin_ns;

    fake_glances = hold;
    fake_drained = drained;
    spin_ns = begin();
    while (!atomic_load(&w.held) && sys_now() < late) {
        int done = atomic_load(&w.done);

        fake_arrive(w.f, 1);
        while (atomic_load(&w.done) == done && !atomic_load(&w.held) && sys_now() < late)
            sys_yield();
        if (atomic_load(&w.held) && atomic_load(&w.done) == done)
            ASSERT(let_go_again(done));
        else
            becomes(&w.held, 0, 20);
    }
    ASSERT(atomic_load(&w.held));
    EXPECT_EQ_INT((int)atomic_load(&w.f->armed), 0);
    ASSERT_EQ_INT(pthread_create(&w.second, NULL, second, NULL), 0);
    until_it_sleeps(&w.tid);
    atomic_store(&w.go, 1);
    EXPECT(is_armed(3000)); /* by the second */
    atomic_store(&w.rest, 1);
    end(spin_ns);
    fake_glances = NULL;
    fake_drained = NULL;
}

/* Who polls the instance has looked, and then a wait of another thread's has left a
 * stream on the list. */
TEST_CASE(epoll, polled_after_a_wait)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    struct epoll_event ev;
    struct pl_file *file = pl_get(ep);
    struct pl_epoll *inside = pl_epoll_of(file);
    _Atomic unsigned armed = 0;

    add(ep, f->fd, EPOLLIN, 1);
    fake_board(f);
    fake_arrive(f, 1);
    ASSERT_EQ_INT(epoll_wait(ep, &ev, 1, 1000), 1);
    EXPECT_EQ_INT(fake_read(f, 1), 1);
    EXPECT_EQ_INT((int)atomic_load(&f->armed), 0);
    pl_epoll_join(inside);
    EXPECT(pl_epoll_arm(inside, &armed)); /* it is to look once more, */
    EXPECT(!pl_epoll_readable(inside));   /* which arms it */
    EXPECT_EQ_INT((int)atomic_load(&f->armed), EPOLLIN);
    EXPECT(!pl_epoll_arm(inside, &armed));
    pl_epoll_part(inside, &armed);
    pl_put(file);
    fake_close(f);
    close_ep(ep);
}
