/*
 * epoll_test.c - epoll over streams that are on a rail, or get on or off it while threads wait:
 * the wrappers of preload/pl_epoll*.c over a fake engine (epoll_fake.c). This program defines
 * epoll_wait and the rest itself, as the preloaded library would.
 */
#include "tests/shim/shim.h"
#include "tests/unit/epoll_fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "preload/pl_epoll.h"
#include "rsock/sys.h"

#define MANY 16

static int add(int ep, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = {.events = events, .data.u64 = data};

    return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

static int mod(int ep, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = {.events = events, .data.u64 = data};

    return epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev);
}

/* One event, or 0 events after ms: as (data << 32 | events). */
static uint64_t one(int ep, int ms)
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
static void close_ep(int ep)
{
    struct pl_file *f = pl_take(ep);

    if (f)
        pl_put(f);
    sys_close(ep);
}

static void in_kernel(struct fake *f, const char *what)
{
    EXPECT_EQ_INT(write(f->peer, what, strlen(what)), strlen(what));
}

/* A thread that waits once and keeps what it got. */
struct waiter {
    pthread_t thread;
    int ep, ms, n;
    struct epoll_event ev[MANY];
    uint64_t took; /* ns */
    _Atomic bool done;
};

static void *wait_once(void *arg)
{
    struct waiter *w = arg;
    uint64_t begin = sys_now();

    w->n = epoll_wait(w->ep, w->ev, MANY, w->ms);
    w->took = sys_now() - begin;
    atomic_store(&w->done, true);
    return NULL;
}

static void start(struct waiter *w, int ep, int ms)
{
    *w = (struct waiter){.ep = ep, .ms = ms};
    ASSERT_EQ_INT(pthread_create(&w->thread, NULL, wait_once, w), 0);
}

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

TEST_CASE(epoll, one_shot_goes_to_one_thread)
{
    enum { THREADS = 4, ROUNDS = 200 };
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
        fake_ms(3);
        fake_board(f); /* wakes, and nothing holds */
    }
    pthread_join(w.thread, NULL);
    EXPECT_EQ_INT(w.n, 0);
    EXPECT(w.took >= 60000000 && w.took < 200000000);
    begin = sys_now();
    EXPECT_EQ_INT(epoll_pwait2(ep, &ev, 1, &ts, NULL), 0);
    EXPECT(sys_now() - begin >= 30000000);
    begin = sys_now();
    EXPECT_EQ_INT(epoll_pwait(ep, &ev, 1, 0, NULL), 0);
    EXPECT(sys_now() - begin < 20000000);
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
            fake_ms(i % 3);
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
    fake_ms(5);
    f = fake_new();
    add(ep, f->fd, EPOLLIN, 7);
    fake_ms(5);
    fake_board(f);
    fake_ms(5);
    /* A frame of the library's in the anchor's queue: nothing for the application. */
    in_kernel(f, "frame");
    fake_ms(5);
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
        fake_ms(5);
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
        fake_ms(5);
        fake_leave(f);
        fake_ms(5);
        in_kernel(f, "bytes");
        pthread_join(w.thread, NULL);
        EXPECT_EQ_INT(w.n, 1);
        EXPECT_EQ_U64(w.ev[0].data.u64, 7);
        EXPECT_EQ_INT(w.ev[0].events, EPOLLIN);
        fake_close(f);
        close_ep(ep);
    }
}

TEST_CASE(epoll, all_sleepers_are_served)
{
    enum { THREADS = 4 };
    int ep = epoll_create1(0);
    struct fake *f[THREADS];
    struct waiter w[THREADS];
    int seen = 0;

    for (int i = 0; i < THREADS; i++) {
        f[i] = fake_new();
        add(ep, f[i]->fd, EPOLLIN | EPOLLONESHOT, (uint64_t)i);
        fake_board(f[i]);
    }
    for (int i = 0; i < THREADS; i++)
        start(&w[i], ep, 5000);
    fake_ms(10);
    for (int i = 0; i < THREADS; i++) {
        fake_arrive(f[i], 1);
        fake_ms(2);
    }
    for (int i = 0; i < 300; i++) { /* 3 s, less than their time-out */
        fake_ms(10);
        for (int k = 0; k < THREADS; k++) {
            for (int j = 0; atomic_load(&w[k].done) && j < w[k].n; j++)
                seen |= 1 << w[k].ev[j].data.u64;
        }
        if (seen == (1 << THREADS) - 1)
            break;
    }
    EXPECT_EQ_INT(seen, (1 << THREADS) - 1);
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

/* The tag of our own events, from /proc as anybody may read it. */
static uint64_t our_tag(int ep)
{
    char path[64], line[256];
    unsigned long long data = 0, found = 0;
    unsigned tfd, events;
    FILE *in;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", ep);
    in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in))
        if (sscanf(line, "tfd: %u events: %x data: %llx", &tfd, &events, &data) == 3 && tfd >= 512)
            found = data;
    if (in)
        fclose(in);
    return found;
}

TEST_CASE(epoll, data_equal_to_our_tag)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new(), *g = fake_new();
    struct epoll_event ev[2];
    uint64_t tag;
    struct waiter w;

    add(ep, f->fd, EPOLLIN, 7);
    tag = our_tag(ep);
    ASSERT(tag != 0);
    fake_board(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    EXPECT_EQ_INT(add(ep, g->fd, EPOLLIN, tag), 0);
    EXPECT(our_tag(ep) != tag);
    in_kernel(g, "x");
    EXPECT_EQ_INT(epoll_wait(ep, ev, 2, 100), 1);
    EXPECT_EQ_U64(ev[0].data.u64, tag);
    EXPECT_EQ_INT(read(g->fd, ev, 1), 1);
    start(&w, ep, 5000);
    fake_ms(5);
    fake_arrive(f, 1);
    pthread_join(w.thread, NULL);
    EXPECT_EQ_INT(w.n, 1);
    fake_close(f);
    fake_close(g);
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

TEST_CASE(epoll, close_while_a_duplicate_lives)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    int dup_fd = sys_fcntl(f->fd, F_DUPFD, 3);

    add(ep, f->fd, EPOLLIN, 7);
    fake_board(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    atomic_store(&f->s.fds, 2);
    {
        int peer = f->peer;

        f->peer = -1;
        fake_close(f); /* the number only */
        f->peer = peer;
    }
    /* As the kernel has it: the registration lives with the description. */
    EXPECT(f->pinned != 0);
    in_kernel(f, "x");
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    sys_close(dup_fd);
    EXPECT_EQ_U64(one(ep, 0), 0);
    sys_close(f->peer);
    close_ep(ep);
}

TEST_CASE(epoll, in_two_instances)
{
    int a = epoll_create1(0), b = epoll_create1(0);
    struct fake *f = fake_new();
    struct waiter w;

    add(a, f->fd, EPOLLIN | EPOLLET, 1);
    add(b, f->fd, EPOLLIN, 2);
    fake_board(f);
    EXPECT_EQ_U64(one(a, 0), 0);
    EXPECT_EQ_U64(one(b, 0), 0);
    /* Nobody waits in a, whose shard the rail is on. */
    for (int i = 0; i < 5; i++) {
        start(&w, b, 5000);
        fake_ms(5);
        fake_arrive(f, 1);
        pthread_join(w.thread, NULL);
        EXPECT_EQ_INT(w.n, 1);
        EXPECT_EQ_U64(w.ev[0].data.u64, 2);
        EXPECT_EQ_U64(one(a, 100), EVENT(1, EPOLLIN));
        fake_read(f, 1);
    }
    fake_close(f);
    close_ep(a);
    close_ep(b);
}

TEST_CASE(epoll, polled)
{
    int ep = epoll_create1(0), plain = eventfd(0, EFD_NONBLOCK);
    struct pollfd p = {.fd = ep, .events = POLLIN};
    struct fake *f = fake_new();
    uint64_t box = 1;

    add(ep, f->fd, EPOLLIN | EPOLLET, 1);
    add(ep, plain, EPOLLIN | EPOLLET, 2);
    fake_board(f);
    EXPECT_EQ_INT(poll(&p, 1, 0), 0);
    EXPECT_EQ_INT(poll(&p, 1, 5), 0);
    fake_arrive(f, 1);
    EXPECT_EQ_INT(poll(&p, 1, 1000), 1);
    EXPECT_EQ_INT(poll(&p, 1, 1000), 1); /* asking takes nothing */
    EXPECT_EQ_U64(one(ep, 0), EVENT(1, EPOLLIN));
    EXPECT_EQ_INT(poll(&p, 1, 0), 0);
    /* An edge of the kernel's survives being looked at. */
    EXPECT_EQ_INT(write(plain, &box, sizeof box), sizeof box);
    EXPECT_EQ_INT(poll(&p, 1, 1000), 1);
    EXPECT_EQ_INT(poll(&p, 1, 1000), 1);
    EXPECT_EQ_U64(one(ep, 100), EVENT(2, EPOLLIN));
    EXPECT_EQ_U64(one(ep, 0), 0);
    EXPECT_EQ_INT(poll(&p, 1, 5), 0);
    fake_close(f);
    close(plain);
    close_ep(ep);
}

TEST_CASE(epoll, nested)
{
    for (int late = 0; late < 2; late++) {
        int outer = epoll_create1(0), inner = epoll_create1(0);
        struct fake *f = fake_new();
        struct waiter w;

        if (!late)
            add(inner, f->fd, EPOLLIN, 1);
        EXPECT_EQ_INT(add(outer, inner, EPOLLIN, 2), 0);
        if (late)
            add(inner, f->fd, EPOLLIN, 1);
        fake_board(f);
        EXPECT_EQ_U64(one(outer, 5), 0);
        for (int i = 0; i < 5; i++) {
            start(&w, outer, 5000);
            fake_ms(5);
            fake_arrive(f, 1);
            pthread_join(w.thread, NULL);
            ASSERT_EQ_INT(w.n, 1);
            EXPECT_EQ_U64(w.ev[0].data.u64, 2);
            EXPECT_EQ_U64(one(outer, 100), EVENT(2, EPOLLIN));
            EXPECT_EQ_U64(one(inner, 0), EVENT(1, EPOLLIN));
            EXPECT_EQ_INT(fake_read(f, 1), 1);
            EXPECT_EQ_U64(one(outer, 0), 0);
        }
        fake_close(f);
        EXPECT_EQ_INT(epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL), 0);
        close_ep(inner);
        close_ep(outer);
    }
}

TEST_CASE(epoll, crossing_takes_our_descriptors_out)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();

    add(ep, f->fd, EPOLLIN, 7);
    fake_board(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    EXPECT(our_tag(ep) != 0);
    fake_leave(f);
    pl_epoll_cross_all();
    EXPECT_EQ_U64(our_tag(ep), 0);
    EXPECT(f->pinned != 0);
    in_kernel(f, "x");
    EXPECT_EQ_U64(one(ep, 100), EVENT(7, EPOLLIN));
    fake_close(f);
    close_ep(ep);
}

/* ---- no lost wake-up: every byte is read, whatever changes meanwhile */

enum { STRESS_STREAMS = 4, STRESS_MS = 1500 };

struct stress {
    int ep;
    uint32_t flags;
    struct fake *f[STRESS_STREAMS];
    _Atomic int sent[STRESS_STREAMS], got[STRESS_STREAMS];
    _Atomic bool stop;
};

static void take_all(struct stress *s, uint64_t i)
{
    char buf[64];
    ssize_t n;

    while ((n = fake_read(s->f[i], 100)) > 0)
        atomic_fetch_add(&s->got[i], (int)n);
    while ((n = read(s->f[i]->fd, buf, sizeof buf)) > 0)
        atomic_fetch_add(&s->got[i], (int)n);
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

static void stress(uint32_t flags, int threads)
{
    static struct stress s;
    unsigned seed = (unsigned)test_seed();
    pthread_t t[4];
    uint64_t end;
    int lag = 0, bell = eventfd(0, EFD_NONBLOCK);

    memset(&s, 0, sizeof s);
    s.ep = epoll_create1(0);
    s.flags = flags;
    for (int i = 0; i < STRESS_STREAMS; i++) {
        s.f[i] = fake_new();
        s.f[i]->by_thread = i & 1;
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
        if (rand_r(&seed) % 8 == 0 && atomic_load(&s.got[i]) == atomic_load(&s.sent[i])) {
            if (fb_plain(&s.f[i]->s))
                fake_board(s.f[i]);
            else
                fake_leave(s.f[i]);
        }
        atomic_fetch_add(&s.sent[i], 1);
        if (!fb_plain(&s.f[i]->s))
            fake_arrive(s.f[i], 1);
        else if (write(s.f[i]->peer, "x", 1) != 1)
            atomic_fetch_sub(&s.sent[i], 1);
        if (rand_r(&seed) % 4)
            continue;
        /* Everything must arrive without another push, long before their time-out. */
        limit = sys_now() + 3000000000;
        for (int k = 0; k < STRESS_STREAMS; k++)
            while (atomic_load(&s.got[k]) < atomic_load(&s.sent[k]) && sys_now() < limit)
                sys_yield();
        for (int k = 0; k < STRESS_STREAMS; k++)
            if (!EXPECT_EQ_INT(atomic_load(&s.got[k]), atomic_load(&s.sent[k])))
                lag++;
    }
    atomic_store(&s.stop, true);
    add(s.ep, bell, EPOLLIN, STRESS_STREAMS);
    (void)!write(bell, &end, sizeof end);
    for (int i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
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
