/*
 * epoll_test.c - epoll over streams that are on a rail: the wrappers of preload/pl_epoll*.c over a
 * fake engine (epoll_fake.c). This program defines epoll_wait and the rest itself, as the
 * preloaded library would.
 */
#include "tests/shim/shim.h"
#include "tests/unit/epoll_calls.h"
#include "tests/unit/epoll_fake.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rsock/sys.h"

TEST_CASE(epoll, level_is_reported_until_it_is_read)
{
    int ep = epoll_create1(EPOLL_CLOEXEC);
    struct fake *f = fake_new();

    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN, 7), 0);
    fake_board(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    fake_arrive(f, 3);
    for (int i = 0; i < 20; i++)
        EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    EXPECT_EQ_INT(fake_read(f, 10), 3);
    EXPECT_EQ_U64(one(ep, 0), 0);
    EXPECT_EQ_U64(one(ep, 5), 0);
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(ep, -1), EVENT(7, EPOLLIN));
    fake_close(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    close_ep(ep);
}

TEST_CASE(epoll, edge_is_reported_once_for_each_arrival)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();

    fake_board(f);
    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN | EPOLLET, 7), 0);
    fake_arrive(f, 3);
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    EXPECT_EQ_U64(one(ep, 0), 0);
    EXPECT_EQ_U64(one(ep, 5), 0);
    fake_arrive(f, 3); /* not read, and yet an edge */
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    EXPECT_EQ_INT(fake_read(f, 10), 6);
    EXPECT_EQ_U64(one(ep, 0), 0);
    fake_arrive(f, 1);
    EXPECT_EQ_INT(fake_read(f, 10), 1); /* gone before it was asked for */
    EXPECT_EQ_U64(one(ep, 0), 0);
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(ep, -1), EVENT(7, EPOLLIN));
    fake_close(f);
    close_ep(ep);
}

TEST_CASE(epoll, edge_tells_both_directions)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();

    fake_board(f);
    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 7), 0);
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLOUT));
    EXPECT_EQ_U64(one(ep, 0), 0);
    fake_room(f, false);
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    fake_room(f, true);
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN | EPOLLOUT));
    fake_hangup(f);
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP));
    EXPECT_EQ_U64(one(ep, 0), 0);
    fake_close(f);
    close_ep(ep);
}

TEST_CASE(epoll, one_shot_is_reported_once_until_mod)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();

    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN | EPOLLONESHOT, 7), 0);
    /* Plain: from the kernel. */
    in_kernel(f, "x");
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    EXPECT_EQ_U64(one(ep, 0), 0);
    /* It has fired: boarding does not arm it again. */
    fake_board(f);
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(ep, 5), 0);
    EXPECT_EQ_INT(mod(ep, f->fd, EPOLLIN | EPOLLONESHOT, 8), 0);
    EXPECT_EQ_U64(one(ep, 100), EVENT(8, EPOLLIN));
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(ep, 5), 0);
    /* Nor does leaving. */
    fake_leave(f);
    in_kernel(f, "x");
    EXPECT_EQ_U64(one(ep, 5), 0);
    EXPECT_EQ_INT(mod(ep, f->fd, EPOLLIN | EPOLLONESHOT, 9), 0);
    EXPECT_EQ_U64(one(ep, 100), EVENT(9, EPOLLIN));
    EXPECT_EQ_U64(one(ep, 0), 0);
    fake_close(f);
    close_ep(ep);
}

/* The peer is proved, the gate is up, and nothing has changed track: what the kernel tells of a
 * stream that is registered as plain is told, and not only once. */
TEST_CASE(epoll, one_shot_of_a_stream_about_to_board)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    struct epoll_event ev;
    char byte;

    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, 7), 0);
    for (uint64_t round = 0; round < 3; round++) {
        atomic_store(&f->s.tx_gate, 1);
        ASSERT_EQ_INT(write(f->peer, "x", 1), 1);
        ASSERT_EQ_INT(epoll_wait(ep, &ev, 1, 2000), 1);
        EXPECT_EQ_INT(ev.events, EPOLLIN);
        EXPECT_EQ_INT(epoll_wait(ep, &ev, 1, 0), 0);
        ASSERT_EQ_INT(read(f->fd, &byte, 1), 1);
        atomic_store(&f->s.tx_gate, 0);
        EXPECT_EQ_INT(mod(ep, f->fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, 8 + round), 0);
    }
    fake_close(f);
    close_ep(ep);
}

TEST_CASE(epoll, one_shot_goes_to_one_thread)
{
    enum { THREADS = 4, ROUNDS = 60 };
    int ep = epoll_create1(0);
    struct fake *f = fake_new();

    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN | EPOLLONESHOT, 7), 0);
    fake_board(f);
    for (int round = 0; round < ROUNDS; round++) {
        struct waiter w[THREADS];
        int got = 0;

        EXPECT_EQ_INT(mod(ep, f->fd, EPOLLIN | EPOLLONESHOT, 7), 0);
        for (int i = 0; i < THREADS; i++)
            start(&w[i], ep, 20);
        fake_arrive(f, 1);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(w[i].thread, NULL);
            got += w[i].n;
        }
        if (got == 0) /* their time was over before there was something */
            got = one(ep, 5000) != 0;
        if (!EXPECT_EQ_INT(got, 1))
            break;
        fake_read(f, 1);
        if (round % 3 == 0)
            fake_leave(f);
        if (round % 3 == 0)
            fake_board(f);
    }
    fake_close(f);
    close_ep(ep);
}

TEST_CASE(epoll, mod_and_del)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();

    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN, 7), 0);
    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN, 7), -1);
    EXPECT_EQ_INT(errno, EEXIST);
    fake_board(f);
    fake_arrive(f, 1);
    EXPECT_EQ_INT(mod(ep, f->fd, EPOLLOUT, 8), 0);
    EXPECT_EQ_U64(one(ep, 100), EVENT(8, EPOLLOUT));
    EXPECT_EQ_INT(mod(ep, f->fd, 0, 9), 0);
    EXPECT_EQ_U64(one(ep, 5), 0);
    EXPECT_EQ_INT(mod(ep, f->fd, EPOLLIN | EPOLLET, 10), 0); /* ready: MOD is an edge */
    EXPECT_EQ_U64(one(ep, 100), EVENT(10, EPOLLIN));
    EXPECT_EQ_U64(one(ep, 0), 0);
    EXPECT_EQ_INT(epoll_ctl(ep, EPOLL_CTL_DEL, f->fd, NULL), 0);
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(ep, 5), 0);
    EXPECT_EQ_INT(mod(ep, f->fd, EPOLLIN, 7), -1);
    EXPECT_EQ_INT(errno, ENOENT);
    EXPECT_EQ_INT(epoll_ctl(ep, EPOLL_CTL_DEL, f->fd, NULL), -1);
    EXPECT_EQ_INT(errno, ENOENT);
    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN, 11), 0);
    EXPECT_EQ_U64(one(ep, 100), EVENT(11, EPOLLIN));
    fake_close(f);
    close_ep(ep);
}

static int (*kernels_ctl)(int, int, int, struct epoll_event *);
static int asked;

static int counted_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
    asked++;
    return kernels_ctl(ep, op, fd, ev);
}

/* What a stream on a rail is waited for changes for each message with many programs. The kernel has
 * no part in it. */
TEST_CASE(epoll, interest_changes_without_the_kernel)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();

    add(ep, f->fd, EPOLLIN, 7);
    fake_board(f);
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    kernels_ctl = pl_real.epoll_ctl;
    pl_real.epoll_ctl = counted_ctl;
    for (int i = 0; i < 10; i++) {
        EXPECT_EQ_INT(mod(ep, f->fd, EPOLLOUT, 8), 0);
        EXPECT_EQ_U64(one(ep, 100), EVENT(8, EPOLLOUT));
        EXPECT_EQ_INT(mod(ep, f->fd, EPOLLIN | EPOLLONESHOT, 9), 0);
        EXPECT_EQ_U64(one(ep, 100), EVENT(9, EPOLLIN));
        EXPECT_EQ_U64(one(ep, 0), 0);
        EXPECT_EQ_INT(mod(ep, f->fd, EPOLLIN | EPOLLET, 10), 0);
        EXPECT_EQ_U64(one(ep, 100), EVENT(10, EPOLLIN));
        EXPECT_EQ_U64(one(ep, 0), 0);
        EXPECT_EQ_INT(epoll_ctl(ep, EPOLL_CTL_DEL, f->fd, NULL), 0);
        EXPECT_EQ_U64(one(ep, 0), 0);
        EXPECT_EQ_INT(add(ep, f->fd, 0, 11), 0);
        EXPECT_EQ_U64(one(ep, 0), 0);
    }
    EXPECT_EQ_INT(asked, 0);
    pl_real.epoll_ctl = kernels_ctl;
    fake_close(f);
    close_ep(ep);
}

TEST_CASE(epoll, errors_are_the_kernels)
{
    struct epoll_event ev = {.events = EPOLLIN};
    int ep = epoll_create1(0);
    struct fake *f = fake_new();

    add(ep, f->fd, EPOLLIN, 1);
    fake_board(f);
    errno = 77;
    EXPECT_EQ_INT(epoll_wait(ep, &ev, 0, 0), -1);
    EXPECT_EQ_INT(errno, EINVAL);
    EXPECT_EQ_INT(epoll_wait(f->fd, &ev, 1, 0), -1);
    EXPECT_EQ_INT(errno, EINVAL);
    EXPECT_EQ_INT(epoll_wait(-1, &ev, 1, 0), -1);
    EXPECT_EQ_INT(errno, EBADF);
    EXPECT_EQ_INT(epoll_ctl(ep, EPOLL_CTL_ADD, f->fd, NULL), -1);
    EXPECT_EQ_INT(errno, EFAULT);
    EXPECT_EQ_INT(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &ev), -1);
    EXPECT_EQ_INT(errno, EINVAL);
    errno = 77;
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(ep, 10), EVENT(1, EPOLLIN));
    EXPECT_EQ_INT(errno, 77);
    fake_close(f);
    close_ep(ep);
}

TEST_CASE(epoll, small_array_starves_nobody)
{
    enum { STREAMS = 8, CALLS = 17 * 12 };
    int ep = epoll_create1(0), plain = eventfd(1, EFD_NONBLOCK), seen[STREAMS + 1] = {0};
    struct fake *f[STREAMS];

    for (int i = 0; i < STREAMS; i++) {
        f[i] = fake_new();
        add(ep, f[i]->fd, EPOLLIN, (uint64_t)i);
        fake_board(f[i]);
        fake_arrive(f[i], 1);
    }
    add(ep, plain, EPOLLIN, STREAMS);
    for (int i = 0; i < CALLS; i++) {
        struct epoll_event ev;

        ASSERT_EQ_INT(epoll_wait(ep, &ev, 1, 0), 1);
        seen[ev.data.u64]++;
    }
    for (int i = 0; i < STREAMS; i++)
        EXPECT(seen[i] >= CALLS / STREAMS / 2);
    EXPECT(seen[STREAMS] >= CALLS / 17);
    for (int i = 0; i < STREAMS; i++)
        fake_close(f[i]);
    close(plain);
    close_ep(ep);
}

TEST_CASE(epoll, large_array_gets_everything_once)
{
    int ep = epoll_create1(0), plain = eventfd(1, EFD_NONBLOCK);
    struct fake *f[4];

    for (int i = 0; i < 4; i++) {
        f[i] = fake_new();
        add(ep, f[i]->fd, EPOLLIN, (uint64_t)i);
        fake_board(f[i]);
        fake_arrive(f[i], 1);
    }
    add(ep, plain, EPOLLIN, 4);
    for (int round = 0; round < 40; round++) {
        struct epoll_event ev[MANY];
        int n = epoll_wait(ep, ev, MANY, 100), seen = 0;

        for (int i = 0; i < n; i++) {
            EXPECT(!(seen & 1 << ev[i].data.u64));
            seen |= 1 << ev[i].data.u64;
        }
        EXPECT_EQ_INT(seen & 15, 15);
    }
    for (int i = 0; i < 4; i++)
        fake_close(f[i]);
    close(plain);
    close_ep(ep);
}

/* More than are taken off the list together. */
TEST_CASE(epoll, crowds_are_reported_in_turn)
{
    enum { CROWD = 40, HALF = CROWD / 2 };
    int ep = epoll_create1(0);
    struct fake *f[CROWD];
    struct epoll_event ev[CROWD + 1];
    uint64_t before = 0;

    for (int i = 0; i < CROWD; i++) {
        f[i] = fake_new();
        add(ep, f[i]->fd, EPOLLIN, (uint64_t)i);
        fake_board(f[i]);
        fake_arrive(f[i], 1);
    }
    for (int round = 0; round < 40; round++) {
        int max = round < 4 ? CROWD + 1 : HALF, n = epoll_wait(ep, ev, max, 100);
        uint64_t seen = 0;

        ASSERT_EQ_INT(n, round < 4 ? CROWD : HALF);
        for (int i = 0; i < n; i++) {
            EXPECT(!(seen & 1ull << ev[i].data.u64));
            seen |= 1ull << ev[i].data.u64;
        }
        if (round > 4) /* who has just had a turn has the next but one */
            EXPECT_EQ_U64(seen & before, 0);
        before = seen;
    }
    /* Those that hold nothing any more are not reported, wherever they are on the list. */
    for (int i = 0; i < CROWD; i += 3)
        EXPECT_EQ_INT(fake_read(f[i], 1), 1);
    ASSERT_EQ_INT(epoll_wait(ep, ev, CROWD, 100), CROWD - (CROWD + 2) / 3);
    for (int i = 0; i < CROWD; i++)
        fake_close(f[i]);
    close_ep(ep);
}

static struct {
    int ep;
    _Atomic int there, twice;
} both;

static void *collects(void *unused)
{
    struct epoll_event ev[64];

    atomic_fetch_add(&both.there, 1);
    while (atomic_load(&both.there) < 2)
        sys_yield();
    for (int round = 0; round < 20000; round++) {
        int n = epoll_wait(both.ep, ev, 64, 0);
        uint64_t seen = 0;

        for (int i = 0; i < n; i++) {
            if (seen & 1ull << ev[i].data.u64)
                atomic_fetch_add(&both.twice, 1);
            seen |= 1ull << ev[i].data.u64;
        }
    }
    return unused;
}

/* While one has some of them in hand, the other takes the rest; the first is not to
 * go round again. */
TEST_CASE(epoll, an_array_names_nobody_twice)
{
    enum { CROWD = 20 };
    struct fake *f[CROWD];
    pthread_t other;

    both.ep = epoll_create1(0);
    both.there = both.twice = 0;
    for (int i = 0; i < CROWD; i++) {
        f[i] = fake_new();
        add(both.ep, f[i]->fd, EPOLLIN, (uint64_t)i);
        fake_board(f[i]);
        fake_arrive(f[i], 1);
    }
    ASSERT_EQ_INT(pthread_create(&other, NULL, collects, NULL), 0);
    collects(NULL);
    pthread_join(other, NULL);
    EXPECT_EQ_INT(both.twice, 0);
    for (int i = 0; i < CROWD; i++)
        fake_close(f[i]);
    close_ep(both.ep);
}

TEST_CASE(epoll, time_is_kept)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    struct timespec ts = {0, 30000000};
    struct epoll_event ev;
    struct waiter w;
    uint64_t begin;

    add(ep, f->fd, EPOLLIN, 1);
    fake_board(f);
    start(&w, ep, 60);
    for (int i = 0; i < 10; i++) {
        until_it_sleeps(&w.tid);
        fake_board(f); /* wakes, and nothing holds */
    }
    pthread_join(w.thread, NULL);
    EXPECT_EQ_INT(w.n, 0);
    EXPECT(w.took >= 60000000 && w.took < 10000000000u);
    begin = sys_now();
    EXPECT_EQ_INT(epoll_pwait2(ep, &ev, 1, &ts, NULL), 0);
    EXPECT(sys_now() - begin >= 30000000);
    begin = sys_now();
    EXPECT_EQ_INT(epoll_pwait(ep, &ev, 1, 0, NULL), 0);
    EXPECT(sys_now() - begin < 1000000000);
    fake_close(f);
    close_ep(ep);
}

TEST_CASE(epoll, idle_wait_takes_no_cpu)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    struct timespec a, b;

    add(ep, f->fd, EPOLLIN, 1);
    fake_board(f);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    EXPECT_EQ_U64(one(ep, 100), 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    EXPECT((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec < 20000000);
    fake_close(f);
    close_ep(ep);
}
