/*
 * epoll_switch_test.c - as epoll_test.c: streams get on and off their rail, numbers come and go,
 * while threads wait.
 */
#include "tests/shim/shim.h"
#include "tests/unit/epoll_calls.h"
#include "tests/unit/epoll_fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "preload/pl_epoll.h"
#include "rsock/sys.h"

TEST_CASE(epoll, sleeper_is_woken_by_the_rail)
{
    for (int by_thread = 0; by_thread < 2; by_thread++) {
        int ep = epoll_create1(0);
        struct fake *f = fake_new();
        struct waiter w;

        f->by_thread = by_thread;
        add(ep, f->fd, EPOLLIN, 7);
        fake_board(f);
        for (int i = 0; i < 20; i++) {
            start(&w, ep, 5000);
            if (i % 2)
                until_it_sleeps(&w.tid);
            fake_arrive(f, 1);
            pthread_join(w.thread, NULL);
            ASSERT_EQ_INT(w.n, 1);
            EXPECT_EQ_INT(fake_read(f, 1), 1);
        }
        fake_close(f);
        close_ep(ep);
    }
}

TEST_CASE(epoll, boards_while_a_thread_sleeps)
{
    int ep = epoll_create1(0);
    struct fake *f;
    struct waiter w;

    /* It sleeps in an instance that has never seen a stream. */
    start(&w, ep, 5000);
    until_it_sleeps(&w.tid);
    f = fake_new();
    add(ep, f->fd, EPOLLIN, 7);
    until_it_sleeps(&w.tid);
    fake_board(f);
    until_it_sleeps(&w.tid);
    /* A frame of the library's in the anchor's queue: nothing for the application. */
    in_kernel(f, "frame");
    until_it_sleeps(&w.tid);
    EXPECT(!atomic_load(&w.done));
    fake_arrive(f, 1);
    pthread_join(w.thread, NULL);
    EXPECT_EQ_INT(w.n, 1);
    EXPECT_EQ_U64(w.ev[0].data.u64, 7);
    fake_close(f);
    close_ep(ep);
}

/* The gate is up and the frame is there before anybody has come to change the registration. */
TEST_CASE(epoll, frame_is_not_reported)
{
    for (int et = 0; et < 2; et++) {
        int ep = epoll_create1(0);
        struct fake *f = fake_new();
        struct waiter w;

        add(ep, f->fd, EPOLLIN | (et ? EPOLLET : 0u), 7);
        start(&w, ep, 50);
        until_it_sleeps(&w.tid);
        atomic_store(&f->s.rx_gate, 1);
        fake_board(f);
        in_kernel(f, "frame");
        pthread_join(w.thread, NULL);
        EXPECT_EQ_INT(w.n, 0);
        fake_close(f);
        close_ep(ep);
    }
}

TEST_CASE(epoll, leaves_while_a_thread_sleeps)
{
    for (int et = 0; et < 2; et++) {
        int ep = epoll_create1(0);
        struct fake *f = fake_new();
        struct waiter w;

        add(ep, f->fd, EPOLLIN | (et ? EPOLLET : 0u), 7);
        fake_board(f);
        start(&w, ep, 5000);
        until_it_sleeps(&w.tid);
        fake_leave(f);
        until_it_sleeps(&w.tid);
        in_kernel(f, "bytes");
        pthread_join(w.thread, NULL);
        EXPECT_EQ_INT(w.n, 1);
        EXPECT_EQ_U64(w.ev[0].data.u64, 7);
        EXPECT_EQ_INT(w.ev[0].events, EPOLLIN);
        fake_close(f);
        close_ep(ep);
    }
}

/* An edge is told once, whatever track the stream changes to; what comes after it is another
 * one. */
TEST_CASE(epoll, edge_is_told_once)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    struct epoll_event ev[4];

    f->counts = true;
    add(ep, f->fd, EPOLLIN | EPOLLOUT | EPOLLET, 7);
    ASSERT_EQ_INT(epoll_wait(ep, ev, 4, 100), 1);
    EXPECT_EQ_U64(ev[0].data.u64, 7);
    EXPECT_EQ_INT(ev[0].events, EPOLLOUT);
    fake_board(f);
    EXPECT_EQ_INT(epoll_wait(ep, ev, 4, 20), 0);
    fake_arrive(f, 2);
    ASSERT_EQ_INT(epoll_wait(ep, ev, 4, 100), 1);
    EXPECT_EQ_INT(ev[0].events, EPOLLIN | EPOLLOUT);
    for (int i = 0; i < 4; i++) {
        fake_switch(f);
        EXPECT_EQ_INT(epoll_wait(ep, ev, 4, 20), 0);
    }
    EXPECT_EQ_INT(fake_read(f, 1), 1);
    fake_wake(f, RSK_RX | RSK_TX);
    EXPECT_EQ_INT(epoll_wait(ep, ev, 4, 20), 0);
    fake_arrive(f, 1);
    ASSERT_EQ_INT(epoll_wait(ep, ev, 4, 100), 1);
    EXPECT_EQ_INT(ev[0].events, EPOLLIN | EPOLLOUT);
    fake_leave(f);
    EXPECT_EQ_INT(epoll_wait(ep, ev, 4, 20), 0);
    in_kernel(f, "x");
    ASSERT_EQ_INT(epoll_wait(ep, ev, 4, 100), 1);
    EXPECT_EQ_U64(ev[0].data.u64, 7);
    EXPECT_EQ_INT(ev[0].events, EPOLLIN | EPOLLOUT);
    fake_board(f);
    EXPECT_EQ_INT(epoll_wait(ep, ev, 4, 20), 0);
    /* A send that found no room: told when there is some, though nothing was sent. */
    fake_room(f, false);
    EXPECT_EQ_INT(epoll_wait(ep, ev, 4, 20), 0);
    fake_room(f, true);
    ASSERT_EQ_INT(epoll_wait(ep, ev, 4, 100), 1);
    /* Registered anew, it is told again. */
    mod(ep, f->fd, EPOLLIN | EPOLLET, 8);
    ASSERT_EQ_INT(epoll_wait(ep, ev, 4, 100), 1);
    EXPECT_EQ_U64(ev[0].data.u64, 8);
    EXPECT_EQ_INT(epoll_wait(ep, ev, 4, 20), 0);
    fake_hangup(f);
    ASSERT_EQ_INT(epoll_wait(ep, ev, 4, 100), 1);
    fake_wake(f, RSK_FAIL);
    EXPECT_EQ_INT(epoll_wait(ep, ev, 4, 20), 0);
    fake_close(f);
    close_ep(ep);
}

/* Closed, while a number of the library's keeps its socket. */
static void closed(bool boards, bool lingers)
{
    int ep = epoll_create1(0), kept, peer;
    struct fake *f = fake_new();
    struct waiter w;

    add(ep, f->fd, EPOLLIN | EPOLLOUT, 7);
    if (boards) {
        fake_board(f);
        start(&w, ep, 0);
        pthread_join(w.thread, NULL);
        fake_leave(f);
    }
    start(&w, ep, 0);
    pthread_join(w.thread, NULL);
    EXPECT_EQ_INT(w.n, 1);
    f->lingers = lingers;
    f->found = !lingers;
    kept = dup(f->fd);
    peer = dup(f->peer);
    fake_close(f);
    start(&w, ep, 0);
    pthread_join(w.thread, NULL);
    EXPECT_EQ_INT(w.n, 0);
    close(kept);
    close(peer);
    close_ep(ep);
}

/* Plain again, and its last bytes are on their way. */
TEST_CASE(epoll, closed_and_lingering)
{
    closed(true, true);
}

/* Its peer asks for it just then: it gets a rail, and with it such a number. */
TEST_CASE(epoll, closed_and_found)
{
    closed(false, false);
}

/* One whose drain has found nothing, and who is held up before it lets others drain. */
static struct fake *behind;

static void arrive_behind(int n)
{
    uint64_t limit = sys_now() + 2000000000;

    (void)n;
    fake_drained = NULL;
    fake_arrive(behind, 1);
    while (!atomic_load(&fake_drains_due) && sys_now() < limit)
        sys_yield();
}

static void *drain_once(void *shard)
{
    rsk_shard_drain(shard);
    return NULL;
}

TEST_CASE(epoll, news_behind_a_drain_reaches_a_sleeper)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    struct pl_file *file = pl_get(ep);
    struct waiter w;
    uint64_t limit;

    add(ep, f->fd, EPOLLIN | EPOLLET, 7);
    fake_board(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    behind = f;
    start(&w, ep, 10000);
    while (!atomic_load(&pl_epoll_of(file)->asleep))
        sys_yield();
    fake_drained = arrive_behind;
    limit = sys_now() + 5000000000;
    drain_once(pl_epoll_of(file)->shard);
    while (!atomic_load(&w.done) && sys_now() < limit)
        sys_yield();
    EXPECT(atomic_load(&w.done)); /* not by its time-out, which looks once more */
    pthread_join(w.thread, NULL);
    EXPECT_EQ_INT(w.n, 1);
    EXPECT_EQ_U64(w.ev[0].data.u64, 7);
    pl_put(file);
    fake_close(f);
    close_ep(ep);
}

TEST_CASE(epoll, news_behind_a_drain_is_not_overlooked)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    struct pl_file *file = pl_get(ep);
    pthread_t t;

    add(ep, f->fd, EPOLLIN | EPOLLET, 7);
    fake_board(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    behind = f;
    fake_drained = arrive_behind;
    ASSERT_EQ_INT(pthread_create(&t, NULL, drain_once, pl_epoll_of(file)->shard), 0);
    while (!atomic_load(&f->dirty))
        sys_yield();
    EXPECT_EQ_U64(one(ep, 0), EVENT(7, EPOLLIN));
    pthread_join(t, NULL);
    pl_put(file);
    fake_close(f);
    close_ep(ep);
}

/* Which data those have got that have returned: a bit each. */
static int taken(struct waiter *w, int n)
{
    int seen = 0;

    for (int k = 0; k < n; k++)
        for (int j = 0; atomic_load(&w[k].done) && j < w[k].n; j++)
            seen |= 1 << w[k].ev[j].data.u64;
    return seen;
}

TEST_CASE(epoll, all_sleepers_are_served)
{
    enum { THREADS = 4 };
    int ep = epoll_create1(0);
    struct fake *f[THREADS];
    struct waiter w[THREADS];
    uint64_t limit;

    for (int i = 0; i < THREADS; i++) {
        f[i] = fake_new();
        add(ep, f[i]->fd, EPOLLIN | EPOLLONESHOT, (uint64_t)i);
        fake_board(f[i]);
    }
    for (int i = 0; i < THREADS; i++)
        start(&w[i], ep, 60000);
    for (int i = 0; i < THREADS; i++)
        until_it_sleeps(&w[i].tid);
    limit = sys_now() + 30000000000; /* less than their time-out */
    for (int i = 0; i < THREADS; i++) {
        fake_arrive(f[i], 1);
        while (!(taken(w, THREADS) >> i & 1) && sys_now() < limit)
            sys_yield();
    }
    EXPECT_EQ_INT(taken(w, THREADS), (1 << THREADS) - 1);
    /* Some thread may have got two: let the others go. */
    for (int i = 0; i < THREADS; i++) {
        mod(ep, f[i]->fd, EPOLLIN, (uint64_t)i);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(w[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        fake_close(f[i]);
    close_ep(ep);
}

TEST_CASE(epoll, registered_before_it_is_tracked)
{
    for (int shot = 0; shot < 2; shot++) {
        int ep = epoll_create1(0), other = epoll_create1(0);
        struct fake *f = fake_untracked();

        EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN | (shot ? EPOLLONESHOT : 0u), 7), 0);
        EXPECT_EQ_U64(one(ep, 0), 0);
        fake_track(f);
        fake_board(f);
        fake_arrive(f, 1);
        EXPECT_EQ_U64(one(ep, 1000), EVENT(7, EPOLLIN));
        EXPECT_EQ_INT(f->pinned, 0);
        EXPECT_EQ_U64(one(other, 0), 0);
        fake_close(f);
        close_ep(ep);
        close_ep(other);
    }
}

/* A number on our list that the kernel has dropped, because it was closed unseen. */
TEST_CASE(epoll, stale_numbers_do_no_harm)
{
    int ep = epoll_create1(0), fd = eventfd(0, EFD_NONBLOCK);
    struct fake *f;

    EXPECT_EQ_INT(add(ep, fd, EPOLLIN, 5), 0);
    sys_close(fd);
    f = fake_untracked();
    EXPECT_EQ_INT(f->fd, fd);
    fake_track(f);
    fake_board(f);
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(ep, 5), 0);
    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN, 6), 0);
    EXPECT_EQ_U64(one(ep, 100), EVENT(6, EPOLLIN));
    fake_close(f);
    close_ep(ep);
}

TEST_CASE(epoll, exclusive_does_not_board)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();

    fake_board(f);
    EXPECT_EQ_INT(add(ep, f->fd, EPOLLIN | EPOLLEXCLUSIVE, 7), 0);
    EXPECT(f->pinned != 0);
    in_kernel(f, "x");
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    fake_close(f);
    close_ep(ep);
}

static void closed_while_a_duplicate_lives(bool boards)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    int dup_fd = sys_fcntl(f->fd, F_DUPFD, 3), peer = f->peer;

    add(ep, f->fd, EPOLLIN, 7);
    if (boards)
        fake_board(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    atomic_store(&f->s.fds, 2);
    f->peer = -1;
    fake_close(f); /* the number only */
    f->peer = peer;
    /* As the kernel has it: the registration lives with the description. Also who has not
     * boarded never does. */
    EXPECT(f->pinned != 0);
    in_kernel(f, "x");
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    sys_close(dup_fd);
    EXPECT_EQ_U64(one(ep, 0), 0);
    sys_close(f->peer);
    close_ep(ep);
}

TEST_CASE(epoll, close_while_a_duplicate_lives)
{
    for (int boards = 0; boards < 2; boards++)
        closed_while_a_duplicate_lives(boards);
}

static void board_other(struct fake *f)
{
    fake_board(f->with);
    if (!f->with->anew)
        fake_arrive(f->with, 1);
}

/* The kernel has reported it as plain, and it boards before the rails are looked at: once in the
 * array. And what has just left is not overlooked. */
TEST_CASE(epoll, boards_after_the_kernel_has_reported_it)
{
    int ep = epoll_create1(0);
    struct fake *f[3];

    for (uint64_t i = 0; i < 3; i++) {
        f[i] = fake_new();
        f[i]->by_thread = true;
        add(ep, f[i]->fd, EPOLLIN, i);
    }
    in_kernel(f[0], "x");
    /* The kernel comes first in one call of 16. */
    for (int i = 0; i < 60; i++) {
        f[1]->with = f[0];
        f[2]->with = f[1];
        f[1]->anew = f[2]->anew = board_other;
        fake_board(f[2]);
        EXPECT_EQ_U64(one(ep, 0), EVENT(0, EPOLLIN));
        EXPECT(!f[1]->anew);
        EXPECT_EQ_U64(one(ep, 0), EVENT(0, EPOLLIN));
        EXPECT_EQ_INT(fake_read(f[0], 1), 1);
        for (int k = 0; k < 3; k++)
            fake_leave(f[k]);
        EXPECT_EQ_U64(one(ep, 0), EVENT(0, EPOLLIN));
        /* So that it is another of the three calls each time. */
        if (i % 4 == 0)
            EXPECT_EQ_U64(one(ep, 0), EVENT(0, EPOLLIN));
    }
    for (int k = 0; k < 3; k++)
        fake_close(f[k]);
    close_ep(ep);
}

static void bytes_and_leave(struct fake *f)
{
    in_kernel(f->with, "bytes");
    fake_leave(f->with);
    fake_board(f->with->with);
}

static void take_bytes(struct fake *f)
{
    char buf[16];

    EXPECT_EQ_INT(read(f->with->fd, buf, sizeof buf), 5);
}

/* Only its sender is on a rail, so the kernel tells of bytes under the stub's registration. They
 * are taken, and the stream is plain, before that is judged: nothing for the application. */
TEST_CASE(epoll, leaves_after_the_kernel_has_told_of_bytes)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new(), *first = fake_new(), *second = fake_new();

    f->by_thread = first->by_thread = second->by_thread = true;
    add(ep, f->fd, EPOLLIN, 7);
    add(ep, first->fd, EPOLLIN, 8);
    add(ep, second->fd, EPOLLIN, 9);
    first->with = second->with = f;
    f->with = second;
    for (int i = 0; i < 40; i++) {
        fake_board(f);
        atomic_store(&f->s.rx_gate, 0);
        EXPECT_EQ_U64(one(ep, 0), 0);
        first->anew = bytes_and_leave;
        second->anew = take_bytes;
        fake_board(first);
        EXPECT_EQ_U64(one(ep, 0), 0);
        EXPECT(!second->anew);
        fake_leave(first);
        fake_leave(second);
        EXPECT_EQ_U64(one(ep, 0), 0);
    }
    in_kernel(f, "x");
    EXPECT_EQ_U64(one(ep, 0), EVENT(7, EPOLLIN));
    fake_close(f);
    fake_close(first);
    fake_close(second);
    close_ep(ep);
}
