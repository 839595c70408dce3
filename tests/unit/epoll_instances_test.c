/*
 * epoll_instances_test.c - as epoll_test.c: a stream in several instances, instances in others and
 * in poll, and what of ours is in them.
 */
#include "tests/shim/shim.h"
#include "tests/unit/epoll_calls.h"
#include "tests/unit/epoll_fake.h"

#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "preload/pl_epoll.h"

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
    wakes_sleeper(f, ep, 7);
    fake_close(f);
    fake_close(g);
    close_ep(ep);
}

struct adder {
    pthread_t thread;
    int ep, fd, r;
};

static void *adds(void *arg)
{
    struct adder *a = arg;

    a->r = add(a->ep, a->fd, EPOLLIN, 7);
    return NULL;
}

/* By another thread, which does not find it on the list yet, while who adds it has
 * found no stream. */
TEST_CASE(epoll, connected_while_it_is_added)
{
    struct adder a = {.ep = epoll_create1(0)};
    struct fake *f = fake_untracked();
    struct pl_file *file = pl_get(a.ep);
    struct fb_lock *ctl = &pl_epoll_of(file)->ctl;

    a.fd = f->fd;
    fb_lock(ctl);
    ASSERT_EQ_INT(pthread_create(&a.thread, NULL, adds, &a), 0);
    while (!fb_lock_sought(ctl))
        sched_yield();
    fake_track(f);
    fb_unlock(ctl);
    pthread_join(a.thread, NULL);
    pl_put(file);
    EXPECT_EQ_INT(a.r, 0);
    EXPECT(fake_watched(f));
    fake_board(f);
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(a.ep, 1000), EVENT(7, EPOLLIN));
    fake_close(f);
    close_ep(a.ep);
}

TEST_CASE(epoll, in_two_instances)
{
    int a = epoll_create1(0), b = epoll_create1(0);
    struct fake *f = fake_new();

    add(a, f->fd, EPOLLIN | EPOLLET, 1);
    add(b, f->fd, EPOLLIN, 2);
    fake_board(f);
    EXPECT_EQ_U64(one(a, 0), 0);
    EXPECT_EQ_U64(one(b, 0), 0);
    /* Nobody waits in a, whose shard the rail is on. */
    for (int i = 0; i < 5; i++) {
        wakes_sleeper(f, b, 2);
        EXPECT_EQ_U64(one(a, 100), EVENT(1, EPOLLIN));
        fake_read(f, 1);
    }
    fake_close(f);
    close_ep(a);
    close_ep(b);
}

/* Data is there, and who drains the shard that its news is on has not come to it yet. */
TEST_CASE(epoll, level_holds_before_its_news)
{
    int a = epoll_create1(0), b = epoll_create1(0);
    struct epoll_event ev[MANY];
    struct fake *f = fake_new();

    add(a, f->fd, EPOLLIN, 1);
    add(b, f->fd, EPOLLIN, 2);
    fake_board(f);
    EXPECT_EQ_U64(one(b, 0), 0);
    fake_arrive_unheard(f, 1);
    EXPECT_EQ_U64(one(b, 0), EVENT(2, EPOLLIN));
    EXPECT_EQ_INT(epoll_wait(b, ev, MANY, 0), 1);
    fake_read(f, 1);
    EXPECT_EQ_U64(one(b, 0), 0);
    /* An edge waits for its news. */
    EXPECT_EQ_INT(mod(b, f->fd, EPOLLIN | EPOLLET, 2), 0);
    EXPECT_EQ_U64(one(b, 0), 0);
    EXPECT_EQ_U64(one(b, 0), 0);
    fake_close(f);
    close_ep(a);
    close_ep(b);
}

/* While it is not registered, its stream goes over to a rail whose news another shard has. */
TEST_CASE(epoll, added_again_on_another_rail)
{
    int a = epoll_create1(0), b = epoll_create1(0);
    struct fake *f = fake_new(), *other = fake_new();

    add(a, f->fd, EPOLLIN, 1);
    add(b, other->fd, EPOLLIN, 2);
    fake_board(f);
    fake_arrive(f, 1);
    EXPECT_EQ_U64(one(a, 100), EVENT(1, EPOLLIN));
    EXPECT_EQ_INT(epoll_ctl(a, EPOLL_CTL_DEL, f->fd, NULL), 0);
    EXPECT_EQ_INT(fake_read(f, 1), 1);
    atomic_store(&f->shard, atomic_load(&other->shard));
    fake_board(f);
    EXPECT_EQ_U64(one(a, 0), 0);
    add(a, f->fd, EPOLLIN, 3);
    EXPECT_EQ_U64(one(a, 0), 0);
    fake_arrive_unheard(f, 1);
    EXPECT_EQ_U64(one(a, 0), EVENT(3, EPOLLIN));
    fake_close(f);
    fake_close(other);
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

        if (!late)
            add(inner, f->fd, EPOLLIN, 1);
        EXPECT_EQ_INT(add(outer, inner, EPOLLIN, 2), 0);
        if (late)
            add(inner, f->fd, EPOLLIN, 1);
        fake_board(f);
        EXPECT_EQ_U64(one(outer, 5), 0);
        for (int i = 0; i < 5; i++) {
            wakes_sleeper(f, outer, 2);
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

static struct fake *reported;

static void leaves_reported(struct fake *f)
{
    (void)f;
    fake_glances = NULL;
    fake_leave(reported);
    shutdown(reported->peer, SHUT_RDWR);
}

/* An edge from the list, and then, since it has left, from the kernel, which is asked in the same
 * wait: one event. */
TEST_CASE(epoll, reported_and_leaves)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new(), *idle = fake_new();
    struct epoll_event ev[8];

    f->by_thread = idle->by_thread = true;
    add(ep, f->fd, EPOLLIN | EPOLLRDHUP | EPOLLET, 7);
    add(ep, idle->fd, EPOLLIN, 8);
    fake_board(f);
    fake_board(idle);
    EXPECT_EQ_U64(one(ep, 0), 0);
    fake_arrive(f, 1);
    fake_wake(idle, RSK_RX);
    fake_ms(2); /* since the kernel was asked */
    reported = f;
    fake_glances = leaves_reported;
    EXPECT_EQ_INT(epoll_wait(ep, ev, 8, 0), 1);
    EXPECT(!fake_glances);
    EXPECT_EQ_U64(ev[0].data.u64, 7);
    EXPECT_EQ_U64(ev[0].events & EPOLLHUP, EPOLLHUP);
    fake_close(f);
    fake_close(idle);
    close_ep(ep);
}

static void ends_and_leaves(struct fake *f)
{
    shutdown(f->with->peer, SHUT_RDWR);
    fake_leave(f->with);
}

/* The kernel tells of the end under the stub's registration, which does not ask for bytes; before
 * that is judged the stream is plain, and the registration the application's again: it gets all
 * that the kernel would have told. */
TEST_CASE(epoll, ends_and_leaves)
{
    static const uint32_t how[] = {0, EPOLLET, EPOLLONESHOT};

    for (int i = 0; i < 3; i++) {
        int ep = epoll_create1(0);
        struct fake *f = fake_new(), *other = fake_new();

        f->by_thread = other->by_thread = true;
        add(ep, f->fd, EPOLLIN | EPOLLRDHUP | how[i], 7);
        add(ep, other->fd, EPOLLIN, 8);
        fake_board(f);
        EXPECT_EQ_U64(one(ep, 0), 0);
        other->with = f;
        other->anew = ends_and_leaves;
        fake_board(other);
        EXPECT_EQ_U64(one(ep, 0), EVENT(7, EPOLLIN | EPOLLRDHUP | EPOLLHUP));
        EXPECT(!other->anew);
        fake_close(f);
        fake_close(other);
        close_ep(ep);
    }
}

/* From then on a look that finds something asks the kernel, too. */
static void until_asked_again(int ep)
{
    struct pl_file *f = pl_get(ep);

    ASSERT(f);
    while (sys_now() - atomic_load(&pl_epoll_of(f)->kernel_at) < PL_KERNEL_NS)
        sched_yield();
    pl_put(f);
}

/* The kernel fills what is left of the array with levels that are told by the next call: this one
 * ends all the same. */
TEST_CASE(epoll, levels_that_are_put_off_keep_nobody_waiting)
{
    int ep = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event ev[2];
    struct fake *f[2];
    uint64_t seen;

    EXPECT_EQ_INT(add(outer, ep, EPOLLIN, 9), 0);
    for (uint64_t i = 0; i < 2; i++) {
        f[i] = fake_new();
        f[i]->by_thread = true;
        add(ep, f[i]->fd, EPOLLIN, i);
        fake_board(f[i]);
    }
    fake_arrive(f[0], 1);
    EXPECT_EQ_U64(one(outer, 0), EVENT(9, EPOLLIN));
    /* In one call of 16 the kernel comes first. */
    for (int i = 0; i < 40; i++) {
        EXPECT_EQ_U64(one(ep, 0), EVENT(0, EPOLLIN));
        in_kernel(f[1], "x");
        until_asked_again(ep);
        fake_leave(f[1]);
        seen = 0;
        /* It is asked at the next look but for a moment after the last one. */
        for (int k = 0; k < 16 && seen != 3; k++)
            for (int n = epoll_wait(ep, ev, 2, 0); n > 0; n--)
                seen |= 1u << ev[n - 1].data.u64;
        ASSERT_EQ_U64(seen, 3);
        EXPECT_EQ_INT(fake_take(f[1], 1), 1);
        fake_board(f[1]);
    }
    fake_close(f[0]);
    fake_close(f[1]);
    close_ep(outer);
    close_ep(ep);
}

/* While a sleeper that the other one's frame has woken settles: the frame is taken, and that one is
 * plain again, which is settled as well. */
static void frame_taken_meanwhile(struct fake *f)
{
    struct fake *of = f->with;
    struct pl_epoll *ep = atomic_load(&((struct pl_member *)of->watchers)->ep);
    char frame[8];

    EXPECT_EQ_INT(sys_recv(of->fd, frame, sizeof(frame), MSG_DONTWAIT), 5);
    fake_leave(of);
    fb_lock(&ep->lock);
    pl_ready_absorb(ep);
    fb_unlock(&ep->lock);
}

TEST_CASE(epoll, a_one_shot_is_not_used_up_by_a_frame)
{
    int ep = epoll_create1(0);
    struct fake *f = fake_new(), *other = fake_new();
    struct waiter w;

    f->alone = f->deaf = true;
    other->with = f;
    add(ep, f->fd, EPOLLIN | EPOLLONESHOT, 7);
    add(ep, other->fd, EPOLLIN, 8);
    for (int i = 0; i < 50; i++) {
        fake_leave(other);
        fake_board(f);
        start(&w, ep, 5000);
        until_it_sleeps(&w.tid);
        in_kernel(f, "frame");
        other->anew = frame_taken_meanwhile;
        fake_board(other);
        until_it_sleeps(&w.tid);
        ASSERT(!atomic_load(&w.done));
        in_kernel(f, "x");
        pthread_join(w.thread, NULL);
        ASSERT_EQ_INT(w.n, 1);
        EXPECT_EQ_U64(w.ev[0].data.u64, 7);
        ASSERT_EQ_INT(fake_take(f, 1), 1);
        EXPECT_EQ_INT(mod(ep, f->fd, EPOLLIN | EPOLLONESHOT, 7), 0);
    }
    fake_close(f);
    fake_close(other);
    close_ep(ep);
}

static struct pl_epoll *kicked_meanwhile;

static void kick(struct fake *f)
{
    (void)f;
    pl_ready_kick(kicked_meanwhile);
}

/* Who asks the instance takes the edge that was to wake a sleeper, and finds something that is not
 * on the list: the sleeper gets another one. */
TEST_CASE(epoll, who_takes_the_edge_of_a_sleeper_gives_it_back)
{
    int ep = epoll_create1(0), outer = epoll_create1(0);
    struct fake *hot = fake_new(), *plain = fake_new();
    struct epoll_event ev[MANY] = {0};
    struct pl_file *f;

    EXPECT_EQ_INT(add(outer, ep, EPOLLIN, 9), 0);
    add(ep, hot->fd, EPOLLIN, 1);
    add(ep, plain->fd, EPOLLIN | EPOLLET, 2);
    fake_board(hot);
    EXPECT_EQ_U64(one(outer, 0), 0);
    f = pl_get(ep);
    ASSERT(f);
    kicked_meanwhile = pl_epoll_of(f);
    while (sys_epoll_wait(kicked_meanwhile->kfd, ev, MANY, 0) > 0)
        ;
    atomic_fetch_add(&kicked_meanwhile->asleep, 1);
    in_kernel(plain, "x");
    fake_news(hot);
    fake_glances = kick;
    EXPECT(pl_epoll_readable(kicked_meanwhile));
    fake_glances = NULL;
    ASSERT_EQ_INT(sys_epoll_wait(kicked_meanwhile->kfd, ev, MANY, 0), 1);
    EXPECT_EQ_U64((uint32_t)ev[0].data.u64, PL_COOKIE_WAKE);
    atomic_fetch_sub(&kicked_meanwhile->asleep, 1);
    pl_put(f);
    EXPECT_EQ_U64(one(ep, 0), EVENT(2, EPOLLIN));
    fake_close(hot);
    fake_close(plain);
    close_ep(outer);
    close_ep(ep);
}
