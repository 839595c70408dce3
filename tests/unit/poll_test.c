/*
 * poll_test.c - poll over streams that are on a rail, or get on or off it while threads wait:
 * preload/pl_poll*.c over a fake engine (epoll_fake.h). Where the kernel defines the answer the
 * same set is asked of libc, too.
 */
#include "tests/unit/poll_sleeper.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <unistd.h>

#include "preload/pl_poll.h"
#include "rsock/sys.h"

TEST_CASE(poll, plain_streams_are_the_kernels)
{
    struct fake *f = fake_new();
    struct sleeper s;

    EXPECT_EQ_INT(one(f, POLLIN | POLLOUT, 0), POLLOUT);
    EXPECT_EQ_INT(one(f, POLLIN, 5), 0);
    start(&s, 5000, 1, f, -1);
    asleep(&s);
    EXPECT_EQ_INT(atomic_load(&fake_sleepers), 1);
    EXPECT_EQ_INT(write(f->peer, "x", 1), 1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    EXPECT_EQ_INT(atomic_load(&fake_sleepers), 0);
    fake_close(f);
    EXPECT_EQ_INT(one(f, POLLIN, 0), POLLNVAL);
}

TEST_CASE(poll, rail)
{
    struct fake *f = fake_new();

    fake_board(f);
    EXPECT_EQ_INT(one(f, POLLIN, 0), 0);
    EXPECT_EQ_INT(one(f, POLLIN | POLLOUT, 0), POLLOUT);
    fake_arrive(f, 1);
    errno = 77;
    EXPECT_EQ_INT(one(f, POLLIN, -1), POLLIN);
    EXPECT_EQ_INT(errno, 77);
    EXPECT_EQ_INT(one(f, 0, 0), 0);
    fake_hangup(f);
    EXPECT_EQ_INT(one(f, 0, 100), POLLHUP);
    fake_close(f);
}

TEST_CASE(poll, set_of_everything)
{
    struct fake *f = fake_new(), *g = fake_new();
    int fd = eventfd(1, EFD_NONBLOCK);
    struct pollfd p[5] = {
        {.fd = f->fd, .events = POLLIN}, {.fd = -5, .events = POLLIN},
        {.fd = fd, .events = POLLIN},    {.fd = g->fd, .events = POLLOUT},
        {.fd = 4000, .events = POLLIN},
    };

    fake_board(f);
    EXPECT_EQ_INT(poll(p, 5, 1000), 3);
    EXPECT_EQ_INT(p[0].revents, 0);
    EXPECT_EQ_INT(p[1].revents, 0);
    EXPECT_EQ_INT(p[2].revents, POLLIN);
    EXPECT_EQ_INT(p[3].revents, POLLOUT);
    EXPECT_EQ_INT(p[4].revents, POLLNVAL);
    fake_arrive(f, 1);
    EXPECT_EQ_INT(poll(p, 5, 1000), 4);
    EXPECT_EQ_INT(p[0].revents, POLLIN);
    /* None is listened to: the events of before are gone. */
    for (int i = 0; i < 5; i++)
        p[i].fd = -1;
    EXPECT_EQ_INT(poll(p, 5, 0), 0);
    EXPECT_EQ_INT(p[0].revents, 0);
    fake_close(f);
    fake_close(g);
    close(fd);
}

/* Who waits for a rail and for the kernel's does not ask the kernel at every call, where it has
 * just had nothing; but who does not wait always does, as does who has made a call since, and who
 * finds nothing on the rail. */
TEST_CASE(poll, kernel_is_not_asked_every_time)
{
    struct fake *f = fake_new();
    int box = eventfd(0, EFD_NONBLOCK);
    struct pollfd p[2] = {{.fd = f->fd, .events = POLLIN}, {.fd = box, .events = POLLIN}};
    uint64_t until = sys_now() + 20000000000ull, one = 1, n;
    int said = 0;

    fake_board(f);
    fake_arrive(f, 1);
    /* System calls of the test's own, which nobody has seen. */
    do {
        EXPECT_EQ_INT(poll(p, 2, 1000), 1);
        sys_write(box, &one, sizeof one);
        said = poll(p, 2, 1000);
        if (said == 2)
            sys_read(box, &n, sizeof n);
    } while (said == 2 && sys_now() < until);
    EXPECT_EQ_INT(said, 1); /* once in many, at least */
    EXPECT_EQ_INT(p[1].revents, 0);
    EXPECT_EQ_INT(poll(p, 2, 0), 2);
    EXPECT_EQ_INT(p[1].revents, POLLIN);
    for (int i = 0; i < 200; i++) {
        sys_read(box, &n, sizeof n);
        EXPECT_EQ_INT(poll(p, 2, 1000), 1);
        sys_write(box, &one, sizeof one);
        switch (i % 4) {
        case 0: /* seen, for a number that is nobody's */
            EXPECT(!pl_hold(box));
            EXPECT_EQ_INT(poll(p, 2, 1000), 2);
            break;
        case 1: /* another set */
            p[1].events = POLLIN | POLLPRI;
            EXPECT_EQ_INT(poll(p, 2, 1000), 2);
            p[1].events = POLLIN;
            break;
        case 2: /* nothing else ends the wait */
            EXPECT_EQ_INT(fake_read(f, 1), 1);
            EXPECT_EQ_INT(poll(p, 2, -1), 1);
            EXPECT_EQ_INT(p[1].revents, POLLIN);
            fake_arrive(f, 1);
            break;
        default: /* time has passed */
            for (uint64_t at = sys_now(); sys_now() - at < PL_KERNEL_NS;)
                ;
            EXPECT_EQ_INT(poll(p, 2, 1000), 2);
        }
    }
    fake_close(f);
    sys_close(box);
}

/* A stream that is not plain any more, and not on a rail yet, is one of the kernel's: asked with
 * the others, and not every time. */
TEST_CASE(poll, kernel_alone_is_asked_with_the_rest)
{
    struct fake *rail = fake_new(), *f = fake_new();
    struct pollfd p[2] = {{.fd = rail->fd, .events = POLLIN}, {.fd = f->fd, .events = POLLIN}};
    uint64_t until = sys_now() + 20000000000ull;
    int asked = 0, polls = 0;
    char byte;

    fake_board(rail);
    fake_arrive(rail, 1);
    fake_board(f);
    f->alone = true;
    do {
        EXPECT_EQ_INT(poll(p, 2, 1000), 1);
        EXPECT_EQ_INT(p[1].revents, 0);
        asked = atomic_load(&f->nothings);
        polls++;
    } while (asked > polls / 2 && sys_now() < until);
    EXPECT(asked > 0 && asked <= polls / 2);
    EXPECT_EQ_INT(atomic_load(&f->readies), 0);
    EXPECT_EQ_INT(sys_write(f->peer, "x", 1), 1);
    EXPECT_EQ_INT(poll(p, 2, 0), 2);
    EXPECT_EQ_INT(p[1].revents, POLLIN);
    EXPECT(atomic_load(&f->readies) > 0); /* it is the engine that says what that means */
    EXPECT_EQ_INT(sys_read(f->fd, &byte, 1), 1);
    f->alone = false; /* now it is on one */
    fake_arrive(f, 1);
    EXPECT_EQ_INT(poll(p, 2, 1000), 2);
    EXPECT_EQ_INT(p[1].revents, POLLIN);
    fake_close(rail);
    fake_close(f);
}

TEST_CASE(poll, large_set)
{
    enum { N = 900 };
    static struct pollfd p[N];
    struct fake *f = fake_new();

    for (int i = 0; i < N; i++)
        p[i] = (struct pollfd){.fd = -1};
    p[N - 1] = (struct pollfd){.fd = f->fd, .events = POLLIN};
    fake_board(f);
    EXPECT_EQ_INT(poll(p, N, 2), 0);
    fake_arrive(f, 1);
    EXPECT_EQ_INT(poll(p, N, 1000), 1);
    EXPECT_EQ_INT(p[N - 1].revents, POLLIN);
    fake_close(f);
}

TEST_CASE(poll, sleepers_are_woken)
{
    struct fake *f = fake_new();
    int fd = eventfd(0, EFD_NONBLOCK);
    uint64_t box = 1;

    fake_board(f);
    for (int i = 0; i < 60; i++) {
        struct sleeper s;

        start(&s, 5000, 3, f, fd);
        if (i % 3 == 1)
            while (!atomic_load(&fake_sleepers))
                sys_yield();
        if (i % 3 == 2)
            asleep(&s);
        if (i & 1)
            fake_arrive(f, 1);
        else
            EXPECT_EQ_INT(write(fd, &box, sizeof box), sizeof box);
        pthread_join(s.thread, NULL);
        ASSERT_EQ_INT(s.n, 1);
        EXPECT_EQ_INT(s.p[i & 1 ? 0 : 1].revents, POLLIN);
        fake_read(f, 1);
        (void)!read(fd, &box, sizeof box);
    }
    fake_close(f);
    close(fd);
}

TEST_CASE(poll, boards_and_leaves_while_a_thread_sleeps)
{
    for (int mixed = 0; mixed < 2; mixed++) {
        struct fake *f = fake_new(), *g = fake_new();
        struct sleeper s;

        if (mixed)
            fake_board(g);
        start(&s, 5000, 2, f, mixed ? g->fd : -1);
        asleep(&s);
        fake_board(f);
        EXPECT_EQ_INT(write(f->peer, "frame", 5), 5);
        asleep(&s);
        EXPECT(!atomic_load(&s.done));
        fake_arrive(f, 1);
        pthread_join(s.thread, NULL);
        EXPECT_EQ_INT(s.n, 1);
        EXPECT_EQ_INT(s.p[0].revents, POLLIN);
        fake_read(f, 1);
        {
            char frame[8];

            EXPECT_EQ_INT(read(f->fd, frame, sizeof frame), 5);
        }
        start(&s, 5000, 2, f, mixed ? g->fd : -1);
        asleep(&s);
        fake_leave(f);
        asleep(&s);
        EXPECT_EQ_INT(write(f->peer, "bytes", 5), 5);
        pthread_join(s.thread, NULL);
        EXPECT_EQ_INT(s.n, 1);
        EXPECT_EQ_INT(s.p[0].revents, POLLIN);
        fake_close(f);
        fake_close(g);
    }
}

/* As close does: whoever sleeps goes on, unless he was woken for what the stream had before, and
 * has not come to look yet. */
TEST_CASE(poll, closed_while_a_thread_sleeps)
{
    static const short had[] = {0, POLLOUT, POLLIN, POLLHUP};

    for (size_t i = 0; i < sizeof had / sizeof *had; i++) {
        struct fake *f = fake_new(), *g = fake_new();
        struct pl_file *file = pl_get(f->fd);
        bool ends = had[i] && had[i] != POLLOUT; /* which nobody waits for */
        unsigned long before;
        struct sleeper s;

        fake_board(f);
        fake_board(g);
        start(&s, -1, 2, f, g->fd);
        asleep(&s);
        before = sleep_of(s.tid);
        atomic_store(&file->closing, PL_GONE | pl_held_bits(had[i]));
        fake_wake(f, 0);
        if (!ends) {
            unsigned long now;

            while ((now = sleep_of(s.tid)) == 0 || now == before)
                sys_yield();
            EXPECT(!atomic_load(&s.done));
            fake_arrive(g, 1);
        }
        pthread_join(s.thread, NULL);
        EXPECT_EQ_INT(s.n, ends ? 1 : 2);
        EXPECT_EQ_INT(s.p[0].revents, POLLNVAL);
        EXPECT_EQ_INT(s.p[1].revents, ends ? 0 : POLLIN);
        pl_put(file);
        fake_close(f);
        fake_close(g);
    }
}

/* From a closed connection's peer nothing is told any more: who waits for nothing else would
 * sleep for ever. */
TEST_CASE(poll, all_closed_while_a_thread_sleeps)
{
    struct fake *f = fake_new();
    struct pl_file *file = pl_get(f->fd);
    struct sleeper s;

    fake_board(f);
    start(&s, -1, 1, f, -1);
    asleep(&s);
    atomic_store(&file->closing, PL_GONE);
    fake_wake(f, 0);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    EXPECT_EQ_INT(s.p[0].revents, POLLNVAL);
    pl_put(file);
    fake_close(f);
}

TEST_CASE(poll, time_is_kept_and_costs_no_cpu)
{
    struct fake *f = fake_new();
    struct timespec ts = {0, 20000000};
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    struct sleeper s;
    uint64_t begin;

    fake_board(f);
    start(&s, 80, 1, f, -1);
    for (int i = 0; i < 10; i++) {
        until_it_sleeps(&s.tid);
        fake_board(f);
    }
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 0);
    EXPECT(s.took >= 80000000 && s.took < 10000000000u);
    EXPECT(s.cpu < 20000000);
    begin = sys_now();
    EXPECT_EQ_INT(ppoll(&p, 1, &ts, NULL), 0);
    EXPECT(sys_now() - begin >= 20000000);
    EXPECT_EQ_INT(ts.tv_nsec, 20000000);
    ts.tv_nsec = -1;
    EXPECT_EQ_INT(ppoll(&p, 1, &ts, NULL), -1);
    EXPECT_EQ_INT(errno, EINVAL);
    fake_close(f);
}

/* The anchor's level that the engine says is nothing: no spinning on it, and nothing is missed. */
TEST_CASE(poll, hint_that_stays_costs_no_cpu)
{
    struct fake *f = fake_new();
    struct sleeper s;

    fake_board(f);
    f->deaf = true;
    sys_close(f->peer); /* POLLHUP */
    f->peer = -1;
    start(&s, 100, 1, f, -1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 0);
    EXPECT(s.cpu < 20000000);
    start(&s, 5000, 1, f, -1);
    asleep(&s);
    fake_arrive(f, 1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    fake_close(f);
}

TEST_CASE(poll, stream_in_an_epoll_instance)
{
    struct fake *f = fake_new();
    int ep = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN};
    struct sleeper s;

    epoll_ctl(ep, EPOLL_CTL_ADD, f->fd, &ev);
    fake_board(f);
    for (int i = 0; i < 5; i++) {
        start(&s, -1, 1, f, -1); /* one that is not told sleeps until the test is ended */
        asleep(&s);
        fake_arrive(f, 1);
        pthread_join(s.thread, NULL);
        EXPECT_EQ_INT(s.n, 1);
        fake_read(f, 1);
    }
    fake_close(f);
    pl_put(pl_take(ep));
    sys_close(ep);
}

/* A number that was closed stands for a file by now; or a handler has been put off: nobody waits
 * for the kernel's close. */
TEST_CASE(poll, waits_for_no_close_that_has_been)
{
    int p[2], pair[2];

    ASSERT(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pl_poll_until_closed(p[0], UINT64_MAX);
    rsk_sig.pending |= RSK_HANDLER;
    pl_poll_until_closed(pair[0], UINT64_MAX);
    rsk_sig.pending &= ~(uint32_t)RSK_HANDLER;
    close(pair[0]);
    pl_poll_until_closed(pair[0], UINT64_MAX);
    close(pair[1]);
    close(p[0]);
    close(p[1]);
}
