/*
 * epoll_shard_test.c - as epoll_test.c: the descriptors of an instance's shard, of which there are
 * many, or for which there is no room at first.
 */
#include "tests/shim/shim.h"
#include "tests/unit/epoll_calls.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "config/reason.h"

enum { SO_MANY = 30 };

/* How many numbers of ours the kernel has in ep, as /proc shows them; *tag: of the first, and
 * *alike so many have it. */
static int of_ours(int ep, uint64_t *tag, int *alike)
{
    char path[64], line[256];
    int n = 0;
    FILE *in;

    *alike = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", ep);
    in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in)) {
        unsigned long long data;
        unsigned tfd, events;

        if (sscanf(line, "tfd: %u events: %x data: %llx", &tfd, &events, &data) != 3 || tfd < 512)
            continue;
        if (n++ == 0)
            *tag = data;
        *alike += data == *tag;
    }
    if (in)
        fclose(in);
    return n;
}

static int an_eventfd(void)
{
    return sys_hide_fd(sys_eventfd(0, O_NONBLOCK | O_CLOEXEC));
}

static void wakes_and_reads(struct fake *f, int ep, uint64_t data)
{
    wakes_sleeper(f, ep, data);
    EXPECT_EQ_INT(fake_read(f, 1), 1);
}

/* In an instance, on the rail, whose shard has more and more descriptors. */
static struct fake *with_many(int ep)
{
    struct fake *f = fake_new();

    add(ep, f->fd, EPOLLIN, 7);
    fake_board(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    for (int i = 0; i < SO_MANY; i++)
        fake_shard_gets(atomic_load(&f->shard), an_eventfd());
    return f;
}

TEST_CASE(epoll, many_descriptors_change_their_tag)
{
    int ep = epoll_create1(0), alike, all;
    struct fake *f = with_many(ep), *g = fake_new();
    uint64_t tag = 0, before;

    all = of_ours(ep, &tag, &alike);
    EXPECT_EQ_INT(all, 2 + SO_MANY);
    EXPECT_EQ_INT(alike, all);
    before = tag;
    EXPECT_EQ_INT(add(ep, g->fd, EPOLLIN, tag), 0);
    EXPECT_EQ_INT(of_ours(ep, &tag, &alike), all);
    EXPECT(tag != before);
    EXPECT_EQ_INT(alike, all);
    wakes_and_reads(f, ep, 7);
    fake_close(f);
    fake_close(g);
    close_ep(ep);
}

TEST_CASE(epoll, many_descriptors_cross)
{
    int ep = epoll_create1(0), alike;
    struct fake *f = with_many(ep);
    uint64_t tag;

    wakes_and_reads(f, ep, 7);
    fake_leave(f);
    pl_epoll_cross_all();
    EXPECT_EQ_INT(of_ours(ep, &tag, &alike), 0);
    fake_close(f);
    close_ep(ep);
}

/* A file, which epoll does not take, stands for what it has no room for. */
TEST_CASE(epoll, a_descriptor_joins_later)
{
    for (int closes = 0; closes < 2; closes++) {
        int ep = epoll_create1(0), fd = sys_hide_fd(memfd_create("", MFD_CLOEXEC));
        struct fake *f = fake_new();

        add(ep, f->fd, EPOLLIN, 7);
        fake_board(f);
        EXPECT_EQ_U64(one(ep, 0), 0);
        fake_shard_gets(atomic_load(&f->shard), fd);
        EXPECT_EQ_INT(fake_time_passes(), 1);
        if (!closes) {
            EXPECT_EQ_INT(dup3(an_eventfd(), fd, O_CLOEXEC), fd);
            EXPECT_EQ_INT(fake_time_passes(), 1);
            wakes_and_reads(f, ep, 7);
        }
        fake_close(f);
        close_ep(ep);
        EXPECT_EQ_INT(fake_time_passes(), closes);
        EXPECT_EQ_INT(fake_time_passes(), 0);
    }
}

struct poller {
    pthread_t thread;
    struct pollfd p;
    int n;
};

static void *polls(void *arg)
{
    struct poller *p = arg;

    p->n = poll(&p->p, 1, 5000);
    return NULL;
}

TEST_CASE(epoll, poll_on_its_stream_is_watched_later)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new();
    struct poller p = {.p = {.fd = f->fd, .events = POLLIN}};

    add(ep, f->fd, EPOLLIN, 7);
    fake_board(f);
    EXPECT_EQ_U64(one(ep, 0), 0);
    fake_watch_fails = true;
    ASSERT_EQ_INT(pthread_create(&p.thread, NULL, polls, &p), 0);
    while (fake_watch_fails)
        sched_yield();
    EXPECT_EQ_INT(fake_time_passes(), 1);
    EXPECT_EQ_INT(fake_time_passes(), 0);
    fake_arrive(f, 1);
    pthread_join(p.thread, NULL);
    EXPECT_EQ_INT(p.n, 1);
    fake_close(f);
    close_ep(ep);
}

/* The calling thread's epoll instances have no room for numbers of ours. */
static void no_room_for_ours(void)
{
    enum { TOO_MANY = 28 /* ENOSPC */ };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, EPOLL_CTL_ADD, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 512, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | TOO_MANY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};

    ASSERT_EQ_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ_INT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

struct first {
    int ep;
    struct fake *f;
};

static void *adds_first(void *arg)
{
    struct first *first = arg;

    no_room_for_ours();
    EXPECT_EQ_INT(add(first->ep, first->f->fd, EPOLLIN, 7), 0);
    return NULL;
}

/* Nobody could wake who sleeps in it: the stream stays the kernel's. The next one may find room. */
TEST_CASE(epoll, no_room_for_the_first)
{
    struct first first = {epoll_create1(0), fake_new()};
    struct fake *g = fake_new();
    pthread_t t;

    ASSERT_EQ_INT(pthread_create(&t, NULL, adds_first, &first), 0);
    pthread_join(t, NULL);
    EXPECT_EQ_INT(atomic_load(&first.f->pinned), RSN_WATCHES);
    in_kernel(first.f, "x");
    EXPECT_EQ_U64(one(first.ep, 100), EVENT(7, EPOLLIN));
    fake_close(first.f);
    add(first.ep, g->fd, EPOLLIN, 8);
    EXPECT_EQ_INT(atomic_load(&g->pinned), 0);
    fake_board(g);
    EXPECT_EQ_U64(one(first.ep, 0), 0);
    wakes_and_reads(g, first.ep, 8);
    fake_close(g);
    close_ep(first.ep);
}
