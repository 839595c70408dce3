/*
 * verbs_cq_test.c - armings of completion queues, on adapters that ignore one while the event of
 * the one before has not been taken: whoever sleeps is woken without the timer of verbs_mind.c, and
 * no arming is ignored.
 */
#include "tests/shim/shim.h"
#include "tests/unit/fake_adapter.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- one thread that sleeps, with edges as its epoll instance has them */

static bool edge;

static void fire(void)
{
    edge = true;
}

static void begin_alone(enum kind k, unsigned n)
{
    begin(k, n);
    interrupted = fire;
    edge = false;
}

/* Until there is an edge. False: for ever, unless there is one. */
static bool sleep_once(void)
{
    atomic_fetch_add(&armed, 1);
    if (vb_shard_arm(&part.base))
        drain();
    interrupt();
    return edge;
}

static void wake(void)
{
    edge = false;
    atomic_fetch_sub(&armed, 1);
    drain();
}

TEST_CASE(verbs_cq, an_event_comes_after_its_completion_was_polled)
{
    for (enum kind k = 0; k < KINDS; k++) {
        begin_alone(k, 1);
        atomic_fetch_add(&armed, 1);
        EXPECT(!vb_shard_arm(&part.base));
        complete(0);
        atomic_fetch_sub(&armed, 1);
        drain(); /* before the interrupt */
        if (sleep_once()) {
            wake();
            EXPECT(!sleep_once()); /* nothing is there */
        }
        complete(0);
        interrupt();
        EXPECT(edge);
        wake();
        EXPECT_EQ_INT(taken, 2);
        EXPECT_EQ_INT(ignored, 0);
    }
}

TEST_CASE(verbs_cq, the_event_of_one_of_two)
{
    for (enum kind k = 0; k < KINDS; k++) {
        begin_alone(k, 2);
        EXPECT(!vb_part_arm(&part));
        complete(0);
        interrupt();
        drain(); /* takes the event of the first, and nobody sleeps */
        complete(1);
        drain();
        edge = false;
        interrupt();
        edge = false; /* seen by another thread, that is busy elsewhere */
        EXPECT(!sleep_once());
        complete(1);
        interrupt();
        EXPECT(edge);
        wake();
        EXPECT_EQ_INT(ignored, 0);
    }
}

/* A futex sleeper arms his own CQ only, and takes events of others, on which somebody
 * else has relied. */
TEST_CASE(verbs_cq, who_takes_the_event_of_another_arms_that_as_well)
{
    for (enum kind k = 0; k < KINDS; k++) {
        begin_alone(k, 2);
        EXPECT(!vb_part_arm(&part));
        complete(0);
        complete(1);
        EXPECT(vb_part_peek(&part));
        interrupt();
        vb_arm_cq(&part, &cqs[0]);
        vb_arm_cq(&part, &cqs[1]);
        drain();
        edge = false;
        for (unsigned i = 0; i < 2; i++) {
            complete(i);
            interrupt();
            EXPECT(edge);
            edge = false;
            self = true;
            part.sleepers = 1;
            drain();
            self = false;
        }
        EXPECT_EQ_INT(taken, 4);
        EXPECT_EQ_INT(ignored, 0);
    }
}

/* mlx5 takes completions of a queue pair that ends out of the CQ: it has fired for what
 * nobody has polled. */
TEST_CASE(verbs_cq, a_completion_that_nobody_has_polled)
{
    for (unsigned i = 0; i < 2 * KINDS; i++) {
        begin_alone((enum kind)(i / 2), 1);
        EXPECT(!sleep_once());
        complete(0);
        if (i % 2)
            interrupt();
        throw_away(0);
        self = true;
        vb_cq_release(&part, &cqs[0]);
        self = false;
        interrupt();
        EXPECT(edge);
        wake();
        EXPECT(!sleep_once());
        complete(0);
        interrupt();
        EXPECT(edge);
        EXPECT_EQ_INT(ignored, 0);
    }
}

TEST_CASE(verbs_cq, what_it_costs)
{
    begin_alone(NUMBER, 1);
    EXPECT(!sleep_once());
    for (unsigned i = 0; i < 100; i++) {
        complete(0);
        interrupt();
        wake();
        /* Time-outs that come meanwhile. */
        for (unsigned k = 0; k < 3; k++) {
            EXPECT(!sleep_once());
            wake();
        }
        EXPECT(!sleep_once());
    }
    EXPECT_EQ_INT(events, 100);
    EXPECT_EQ_INT(empty_reads, 0);
    EXPECT_EQ_INT(arms, 101);
    drain();
    atomic_fetch_sub(&armed, 1);
    /* While nobody sleeps there is one event. */
    for (unsigned i = 0; i < 100; i++) {
        complete(0);
        interrupt();
        drain();
    }
    EXPECT_EQ_INT(events, 101);
    EXPECT_EQ_INT(empty_reads, 0);
    EXPECT_EQ_INT(arms, 101);
}

/* ---- completion vectors */

enum { VECTORS = 4 };

static unsigned made[VECTORS];
static int newest;

static struct ibv_cq *make_cq(struct ibv_context *ctx, int cqe, void *context,
                              struct ibv_comp_channel *channel, int vector)
{
    static struct ibv_cq cq;

    (void)ctx, (void)cqe, (void)context, (void)channel;
    newest = vector;
    if (!EXPECT(vector >= 0 && vector < VECTORS))
        return NULL;
    made[vector]++;
    cq.cqe = VB_SQ + VB_RQ; /* one rail */
    return &cq;
}

static void make(unsigned n)
{
    int reason;

    for (unsigned i = 0; i < n; i++)
        ASSERT(vb_cq_reserve(&part, &reason) != NULL);
    for (unsigned i = 0; i < n; i++)
        free(part.cq[i]);
    atomic_store(&part.n_cq, 0);
}

TEST_CASE(verbs_cq, vectors_are_spread)
{
    struct ibv_context context = {.num_comp_vectors = VECTORS};
    struct vb_dev dev = {.ctx = &context, .max_cqe = 4096};
    unsigned seen = 0;

    begin(ALWAYS, 0);
    vdl.create_cq = make_cq;
    part.dev = &dev;
    make(2 * VECTORS);
    for (unsigned i = 0; i < VECTORS; i++)
        EXPECT_EQ_INT(made[i], 2);
    /* Of processes, each of which makes one. */
    for (unsigned i = 0; i < 4 * VECTORS; i++) {
        int status = 0;
        pid_t pid = fork();

        if (pid == 0) {
            make(1);
            _exit(newest);
        }
        ASSERT(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        seen |= 1u << WEXITSTATUS(status);
    }
    EXPECT(seen & (seen - 1)); /* more than one */
    /* A provider that has not said. */
    context.num_comp_vectors = 0;
    make(2);
    EXPECT_EQ_INT(newest, 0);
}

/* ---- threads */

enum { MESSAGES = 3000 };

static int channel_fd;
static pthread_mutex_t drain_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool over;

static void ring(void)
{
    const uint64_t one = 1;

    EXPECT(write(channel_fd, &one, sizeof(one)) == sizeof(one));
}

static void locked_drain(void)
{
    pthread_mutex_lock(&drain_lock);
    drain();
    pthread_mutex_unlock(&drain_lock);
}

static void *sleeper(void *arg)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
    int ep = epoll_create1(EPOLL_CLOEXEC);

    (void)arg;
    EXPECT(epoll_ctl(ep, EPOLL_CTL_ADD, channel_fd, &ev) == 0);
    while (!over) {
        locked_drain();
        atomic_fetch_add(&armed, 1);
        if (vb_shard_arm(&part.base))
            locked_drain();
        (void)epoll_wait(ep, &ev, 1, -1);
        atomic_fetch_sub(&armed, 1);
    }
    close(ep);
    return NULL;
}

TEST_CASE(verbs_cq, threads_that_sleep)
{
    for (enum kind k = 0; k < KINDS; k++) {
        pthread_t t[2];
        unsigned sent = 0;
        bool all = true;

        begin(k, 2);
        channel_fd = eventfd(0, EFD_CLOEXEC);
        interrupted = ring;
        over = false;
        for (unsigned i = 0; i < 2; i++)
            ASSERT(pthread_create(&t[i], NULL, sleeper, NULL) == 0);
        dice_state = test_seed();
        while (sent < MESSAGES && all) {
            uint64_t until = sys_now() + 20000000000u;

            for (unsigned i = 1 + dice(2); i; i--, sent++)
                complete(dice(2));
            for (unsigned i = dice(2000); i; i--)
                sys_pause_cpu();
            interrupt();
            while (atomic_load(&taken) != sent && (all = sys_now() < until)) {
                sys_yield();
                interrupt(); /* EAGER */
            }
        }
        EXPECT(all);
        EXPECT_EQ_INT(ignored, 0);
        over = true;
        for (unsigned i = 0; i < 2; i++) {
            void *none;

            while (pthread_tryjoin_np(t[i], &none) != 0) {
                ring();
                sys_yield();
            }
        }
        close(channel_fd);
    }
}
