/*
 * epoll_stress_test.c - no lost wake-up: every byte is read, whatever changes meanwhile.
 */
#include "tests/shim/shim.h"
#include "tests/unit/epoll_calls.h"
#include "tests/unit/epoll_fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "preload/pl_epoll.h"
#include "rsock/sys.h"

enum { STRESS_STREAMS = 4, STRESS_MS = 700 };

struct stress {
    int ep;
    uint32_t flags;
    struct fake *f[STRESS_STREAMS];
    _Atomic int sent[STRESS_STREAMS], got[STRESS_STREAMS];
    _Atomic bool stop;
};

static void take_all(struct stress *s, uint64_t i)
{
    int n;

    while ((n = fake_read(s->f[i], 100)) > 0)
        atomic_fetch_add(&s->got[i], n);
    while ((n = fake_take(s->f[i], 64)) > 0)
        atomic_fetch_add(&s->got[i], n);
}

static void *consumer(void *arg)
{
    struct stress *s = arg;

    while (!atomic_load(&s->stop)) {
        struct epoll_event ev[2];
        int n = epoll_wait(s->ep, ev, 2, 6000);

        for (int i = 0; i < n && ev[i].data.u64 < STRESS_STREAMS; i++) {
            take_all(s, ev[i].data.u64);
            if (s->flags & EPOLLONESHOT)
                mod(s->ep, s->f[ev[i].data.u64]->fd, s->flags, ev[i].data.u64);
        }
    }
    return NULL;
}

/* What is known of a stream whose bytes nobody was told of. */
static void tell(struct stress *s, int k)
{
    struct pl_file *file = pl_get(s->ep);
    struct pl_epoll *ep = pl_epoll_of(file);
    struct pollfd p = {.fd = s->f[k]->fd, .events = POLLIN};

    FAILF(
        "descriptor %d: plain %d, the kernel %d; instance: dirty %u, ready %u, inbox %d, asleep %u, kicked %u, "
        "flips %llu",
        p.fd, fb_plain(&s->f[k]->s), poll(&p, 1, 0), ep->ndirty, ep->nready, ep->inbox != NULL,
        ep->asleep, ep->kicked, (unsigned long long)ep->flips);
    for (uint32_t i = 0; i < ep->buckets; i++)
        for (struct pl_member *m = ep->bucket[i]; m; m = m->hash_next)
            FAILF("member %d: hot %d, stash %x, in the kernel %x, became hot %llu, plain %llu",
                  m->fd, m->hot, m->stash, m->kevents, (unsigned long long)m->flip,
                  (unsigned long long)m->cooled);
    pl_put(file);
}

/* As if the thread had lost its processor. */
static void dawdle(int n)
{
    static _Atomic unsigned calls;

    if (n && atomic_fetch_add(&calls, 1) % 4 == 0)
        fake_ms(1);
}

static void stress(uint32_t flags, int threads)
{
    static struct stress s;
    unsigned seed = (unsigned)test_seed();
    pthread_t t[4];
    uint64_t end;
    int lag = 0, bell = eventfd(0, EFD_NONBLOCK);

    memset(&s, 0, sizeof s);
    fake_drained = threads > 1 ? dawdle : NULL;
    s.ep = epoll_create1(0);
    s.flags = flags;
    for (int i = 0; i < STRESS_STREAMS; i++) {
        s.f[i] = fake_new();
        s.f[i]->by_thread = i & 1;
        s.f[i]->counts = i & 2;
        add(s.ep, s.f[i]->fd, flags, (uint64_t)i);
        fake_board(s.f[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_create(&t[i], NULL, consumer, &s);
    end = sys_now() + (uint64_t)STRESS_MS * 1000000;
    while (sys_now() < end && lag < 3) {
        int i = (int)(rand_r(&seed) % STRESS_STREAMS);
        uint64_t limit;

        /* What is unread stays with its half in this engine: only then it may change. */
        if (rand_r(&seed) % 8 == 0 && atomic_load(&s.got[i]) == atomic_load(&s.sent[i]))
            fake_switch(s.f[i]);
        atomic_fetch_add(&s.sent[i], 1);
        if (!fake_send(s.f[i]))
            atomic_fetch_sub(&s.sent[i], 1);
        if (rand_r(&seed) % 4)
            continue;
        /* Everything must arrive without another push, long before their time-out. */
        limit = sys_now() + 3000000000;
        for (int k = 0; k < STRESS_STREAMS; k++)
            while (atomic_load(&s.got[k]) < atomic_load(&s.sent[k]) && sys_now() < limit)
                sys_yield();
        for (int k = 0; k < STRESS_STREAMS; k++)
            if (!EXPECT_EQ_INT(atomic_load(&s.got[k]), atomic_load(&s.sent[k]))) {
                tell(&s, k);
                lag++;
            }
    }
    atomic_store(&s.stop, true);
    add(s.ep, bell, EPOLLIN, STRESS_STREAMS);
    (void)!write(bell, &end, sizeof end);
    for (int i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    fake_drained = NULL;
    close(bell);
    for (int i = 0; i < STRESS_STREAMS; i++)
        fake_close(s.f[i]);
    close_ep(s.ep);
}

TEST_CASE(epoll, stress_level)
{
    stress(EPOLLIN, 1);
}

TEST_CASE(epoll, stress_level_two_threads)
{
    stress(EPOLLIN, 2);
}

TEST_CASE(epoll, stress_edge)
{
    stress(EPOLLIN | EPOLLET, 1);
}

TEST_CASE(epoll, stress_edge_three_threads)
{
    stress(EPOLLIN | EPOLLET, 3);
}

TEST_CASE(epoll, stress_one_shot)
{
    stress(EPOLLIN | EPOLLONESHOT, 2);
}

/* A hint that was taken from the kernel, and not looked at before the stream was plain again: the
 * kernel's edge is used up, and what is registered looks the same. */
TEST_CASE(epoll, hint_of_a_stream_that_leaves)
{
    int ep = epoll_create1(0), p[2];
    struct fake *f = fake_new();
    struct epoll_event ev[4];
    char byte;

    ASSERT_EQ_INT(pipe(p), 0);
    add(ep, f->fd, EPOLLIN | EPOLLET, 7);
    add(ep, p[0], EPOLLIN, 8);
    /* The sending half alone is on a rail. */
    atomic_store(&f->s.tx_gate, 1);
    fake_wake(f, FB_EV_STATE);
    EXPECT_EQ_INT(epoll_wait(ep, ev, 4, 20), 0);
    in_kernel(f, "x");
    ASSERT_EQ_INT(write(p[1], "x", 1), 1);
    ASSERT_EQ_INT(epoll_wait(ep, ev, 4, 100), 1);
    EXPECT_EQ_U64(ev[0].data.u64, 8);
    ASSERT_EQ_INT(read(p[0], &byte, 1), 1);
    fake_leave(f);
    ASSERT_EQ_INT(epoll_wait(ep, ev, 4, 200), 1);
    EXPECT_EQ_U64(ev[0].data.u64, 7);
    close(p[0]);
    close(p[1]);
    fake_close(f);
    close_ep(ep);
}
