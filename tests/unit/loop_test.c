/*
 * loop_test.c - the progress thread on both backends: posts, timers, watches, stop, fork.
 */
#include "tests/shim/shim.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/shard.h"
#include "rsock/sys.h"

static bool start(bool uring)
{
    if (rsk_loop_start(uring))
        return false;
    return strcmp(rsk_loop_backend(), uring ? "io_uring" : "epoll") == 0;
}

#define BOTH_BACKENDS(name)                         \
    static void name(void);                         \
    TEST_CASE(loop_epoll, name)                     \
    {                                               \
        ASSERT(start(false));                       \
        name();                                     \
        rsk_loop_stop();                            \
    }                                               \
    TEST_CASE(loop_uring, name)                     \
    {                                               \
        if (!start(true)) {                         \
            rsk_loop_stop();                        \
            SKIP("io_uring is not to be had here"); \
        }                                           \
        name();                                     \
        rsk_loop_stop();                            \
    }                                               \
    static void name(void)

static bool soon(sem_t *s)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += 10;
    return sem_timedwait(s, &ts) == 0;
}

/* Runs fn on the thread and waits for it. */
struct call {
    void (*fn)(void *arg);
    void *arg;
    sem_t done;
};

static void call_run(void *arg)
{
    struct call *c = arg;

    c->fn(c->arg);
    sem_post(&c->done);
}

static void on_thread(void (*fn)(void *arg), void *arg)
{
    struct call c = {.fn = fn, .arg = arg};

    sem_init(&c.done, 0, 0);
    ASSERT_EQ_INT(rsk_loop_post(call_run, &c), 0);
    ASSERT(soon(&c.done));
}

/* ---- posts */

static int posted[1000], n_posted;

static void note_post(void *arg)
{
    posted[n_posted++] = (int)(intptr_t)arg;
    EXPECT(rsk_loop_is_self());
}

static void nothing(void *arg)
{
    (void)arg;
}

BOTH_BACKENDS(posts_run_in_order)
{
    n_posted = 0;
    EXPECT(!rsk_loop_is_self());
    EXPECT(rsk_loop_running());
    EXPECT(rsk_shard_common() != NULL);
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ_INT(rsk_loop_post(note_post, (void *)(intptr_t)i), 0);
    on_thread(nothing, NULL);
    ASSERT_EQ_INT(n_posted, 1000);
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ_INT(posted[i], i);
}

static atomic_int counted;

static void count(void *arg)
{
    (void)arg;
    atomic_fetch_add(&counted, 1);
}

static void *post_many(void *arg)
{
    for (int i = 0; i < 2000; i++)
        EXPECT_EQ_INT(rsk_loop_post(count, arg), 0);
    return NULL;
}

BOTH_BACKENDS(posts_of_several_threads_all_run)
{
    pthread_t t[3];

    counted = 0;
    for (int i = 0; i < 3; i++)
        ASSERT_EQ_INT(pthread_create(&t[i], NULL, post_many, NULL), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    on_thread(nothing, NULL);
    EXPECT_EQ_INT(counted, 6000);
}

/* ---- timers */

static int order[3], n_order;
static uint64_t fired_at;
static sem_t fired;

static void note_timer(void *arg)
{
    order[n_order++] = (int)(intptr_t)arg;
    if (n_order == 3) {
        fired_at = sys_now();
        sem_post(&fired);
    }
}

static void add_timers(void *arg)
{
    struct rsk_timer *t;

    (void)arg;
    ASSERT(rsk_timer_add(30000000, note_timer, (void *)3));
    ASSERT(rsk_timer_add(10000000, note_timer, (void *)1));
    t = rsk_timer_add(15000000, note_timer, (void *)9);
    ASSERT(t != NULL);
    ASSERT(rsk_timer_add(20000000, note_timer, (void *)2));
    rsk_timer_cancel(t);
}

BOTH_BACKENDS(timers_fire_in_order_and_not_early)
{
    uint64_t before = sys_now();

    n_order = 0;
    sem_init(&fired, 0, 0);
    on_thread(add_timers, NULL);
    ASSERT(soon(&fired));
    EXPECT_EQ_INT(n_order, 3);
    for (int i = 0; i < 3; i++)
        EXPECT_EQ_INT(order[i], i + 1);
    EXPECT(fired_at - before >= 30000000);
}

/* Between these moments it is due: the adding thread may have to wait for a processor. */
struct random_timer {
    uint64_t earliest, latest;
    struct rsk_timer *t;
};

static int n_random;
static uint64_t last_due;

static void random_fired(void *arg)
{
    const struct random_timer *r = arg;

    EXPECT(r->latest >= last_due);
    if (r->earliest > last_due)
        last_due = r->earliest;
    if (++n_random == 350)
        sem_post(&fired);
}

static void add_random(void *arg)
{
    static struct random_timer r[500];
    unsigned seed = (unsigned)test_seed();

    (void)arg;
    for (int i = 0; i < 500; i++) {
        uint64_t ns = 20000000 + (uint64_t)(rand_r(&seed) % 10) * 20000000;

        r[i].earliest = sys_now() + ns;
        r[i].t = rsk_timer_add(ns, random_fired, &r[i]);
        ASSERT(r[i].t != NULL);
        r[i].latest = sys_now() + ns;
    }
    for (int i = 0; i < 500; i++)
        if (i % 10 < 3)
            rsk_timer_cancel(r[i].t);
}

BOTH_BACKENDS(many_timers_and_cancels)
{
    n_random = 0;
    last_due = 0;
    sem_init(&fired, 0, 0);
    on_thread(add_random, NULL);
    EXPECT(soon(&fired));
}

/* ---- watches */

static int pipe_fds[2];
static struct rsk_watch *watch;
static atomic_int n_events, stop_after;
static sem_t seen;

static void on_event(void *arg, uint32_t events)
{
    (void)arg;
    EXPECT(events & POLLIN);
    if (++n_events == stop_after) {
        rsk_unwatch(watch);
        sem_post(&seen);
    }
}

static void add_watch(void *arg)
{
    bool edge = arg != NULL;

    watch = rsk_watch_fd(pipe_fds[0], edge ? EPOLLIN | EPOLLET : POLLIN, edge, on_event, NULL);
    ASSERT(watch != NULL);
}

static void drop_watch(void *arg)
{
    (void)arg;
    rsk_unwatch(watch);
}

BOTH_BACKENDS(a_watch_is_level_triggered)
{
    ASSERT_EQ_INT(pipe(pipe_fds), 0);
    n_events = 0;
    stop_after = 5;
    sem_init(&seen, 0, 0);
    on_thread(add_watch, NULL);
    ASSERT_EQ_INT(write(pipe_fds[1], "x", 1), 1);
    ASSERT(soon(&seen));
    on_thread(nothing, NULL);
    EXPECT_EQ_INT(n_events, 5);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

BOTH_BACKENDS(an_anchor_can_be_edge_triggered)
{
    ASSERT_EQ_INT(pipe(pipe_fds), 0);
    n_events = 0;
    stop_after = 2;
    sem_init(&seen, 0, 0);
    on_thread(add_watch, (void *)1);
    ASSERT_EQ_INT(write(pipe_fds[1], "x", 1), 1);
    usleep(20000);
    on_thread(nothing, NULL);
    EXPECT_EQ_INT(n_events, 1);
    ASSERT_EQ_INT(write(pipe_fds[1], "x", 1), 1);
    ASSERT(soon(&seen));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

BOTH_BACKENDS(no_event_after_unwatch_and_the_file_is_let_go)
{
    char c;

    stop_after = -1;
    for (int i = 0; i < 50; i++) {
        ASSERT_EQ_INT(pipe(pipe_fds), 0);
        n_events = 0;
        on_thread(add_watch, NULL);
        on_thread(drop_watch, NULL);
        ASSERT_EQ_INT(write(pipe_fds[1], "x", 1), 1);
        ASSERT_EQ_INT(read(pipe_fds[0], &c, 1), 1);
        close(pipe_fds[1]);
        /* No writer is left, not even within the kernel's poll. */
        ASSERT_EQ_INT(read(pipe_fds[0], &c, 1), 0);
        close(pipe_fds[0]);
        on_thread(nothing, NULL);
        ASSERT_EQ_INT(n_events, 0);
    }
}

static struct rsk_watch *pair[2];
static atomic_int pair_events;

static void on_pair(void *arg, uint32_t events)
{
    (void)arg, (void)events;
    pair_events++;
    /* Both are ready and in one batch: the other one must not be called any more. */
    rsk_unwatch(pair[0]);
    rsk_unwatch(pair[1]);
}

static void add_pair(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) {
        pair[i] = rsk_watch_fd(pipe_fds[i], POLLIN, false, on_pair, NULL);
        ASSERT(pair[i] != NULL);
    }
}

BOTH_BACKENDS(unwatch_of_another_in_the_same_batch)
{
    pair_events = 0;
    for (int i = 0; i < 2; i++)
        ASSERT((pipe_fds[i] = eventfd(1, 0)) >= 0);
    on_thread(add_pair, NULL);
    usleep(20000);
    on_thread(nothing, NULL);
    EXPECT_EQ_INT(pair_events, 1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* ---- start, stop, fork */

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n - 3; /* ".", "..", and the directory's own */
}

TEST_CASE(loop, stop_gives_everything_back)
{
    int before;

    ASSERT(start(false));
    rsk_loop_stop();
    before = count_fds();
    for (int i = 0; i < 6; i++) {
        ASSERT_EQ_INT(rsk_loop_start(i & 1), 0);
        ASSERT_EQ_INT(rsk_loop_start(i & 1), 0);
        on_thread(nothing, NULL);
        rsk_loop_stop();
        EXPECT(!rsk_loop_running());
        EXPECT_EQ_INT(rsk_loop_post(nothing, NULL), -ESRCH);
    }
    rsk_loop_stop();
    EXPECT_EQ_INT(count_fds(), before);
}

/* ---- pause */

static int threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static sem_t fired_after, done_after;

static void fire(void *arg)
{
    sem_post(arg);
}

static void add_timer(void *arg)
{
    ASSERT(rsk_timer_add(1000000, fire, arg) != NULL);
}

/* Watches, timers and jobs of before and of meanwhile are all there afterwards, and nothing runs in between. */
BOTH_BACKENDS(a_pause_ends_the_thread_and_keeps_its_work)
{
    int with = threads();

    sem_init(&seen, 0, 0);
    sem_init(&fired_after, 0, 0);
    sem_init(&done_after, 0, 0);
    for (int edge = 0; edge < 2; edge++) {
        ASSERT_EQ_INT(pipe(pipe_fds), 0);
        n_events = 0;
        stop_after = 1;
        on_thread(add_watch, edge ? (void *)1 : NULL);
        rsk_loop_pause();
        rsk_loop_pause();
        EXPECT_EQ_INT(threads(), with - 1);
        EXPECT(!rsk_loop_running());
        ASSERT_EQ_INT(write(pipe_fds[1], "x", 1), 1);
        EXPECT_EQ_INT(rsk_loop_post(add_timer, &fired_after), 0);
        EXPECT_EQ_INT(rsk_loop_post(fire, &done_after), 0);
        EXPECT_EQ_INT(rsk_loop_start(true), -EAGAIN);
        EXPECT_EQ_INT(rsk_loop_resume(), 0);
        EXPECT_EQ_INT(rsk_loop_start(true), -EAGAIN);
        EXPECT_EQ_INT(n_events, 0);
        EXPECT_EQ_INT(sem_trywait(&done_after), -1);
        EXPECT_EQ_INT(rsk_loop_resume(), 0);
        EXPECT(rsk_loop_running());
        EXPECT_EQ_INT(threads(), with);
        EXPECT(soon(&seen));
        EXPECT(soon(&done_after));
        EXPECT(soon(&fired_after));
        close(pipe_fds[0]);
        close(pipe_fds[1]);
    }
}

/* The kernel interrupts whoever made a ring that is closed: that must not be a thread of the program. */
BOTH_BACKENDS(a_pause_interrupts_nobody)
{
    int ep = epoll_create1(0);

    for (int i = 0; i < 60; i++) {
        struct epoll_event ev;

        rsk_loop_pause();
        ASSERT_EQ_INT(epoll_wait(ep, &ev, 1, 3), 0);
        ASSERT_EQ_INT(rsk_loop_resume(), 0);
    }
    close(ep);
}

static _Atomic bool enough;

static void *post_and_start(void *arg)
{
    (void)arg;
    while (!enough) {
        rsk_loop_start(true);
        rsk_loop_post(nothing, NULL);
    }
    return NULL;
}

/* Other threads that start and post do not bring it back. */
BOTH_BACKENDS(nobody_starts_it_during_a_pause)
{
    pthread_t other;
    int with = threads();

    enough = false;
    ASSERT_EQ_INT(pthread_create(&other, NULL, post_and_start, NULL), 0);
    for (int i = 0; i < 200; i++) {
        rsk_loop_pause();
        EXPECT_EQ_INT(threads(), with);
        EXPECT_EQ_INT(rsk_loop_resume(), 0);
    }
    enough = true;
    pthread_join(other, NULL);
    on_thread(nothing, NULL);
}

static int hook_ran;

static void hook(void)
{
    hook_ran++;
}

BOTH_BACKENDS(a_forked_child_has_nothing_and_can_start_anew)
{
    int status = -1, before;
    pid_t child;

    rsk_at_fork_child(hook);
    on_thread(nothing, NULL);
    before = count_fds();
    child = fork();
    ASSERT(child >= 0);
    if (child == 0) {
        struct dirent *e;
        DIR *d;

        rsk_loop_after_fork_child();
        d = opendir("/proc/self/fd");
        while ((e = readdir(d)))
            EXPECT(atoi(e->d_name) < 512);
        closedir(d);
        EXPECT(!rsk_loop_running());
        EXPECT(hook_ran > 0);
        EXPECT(rsk_shard_common() == NULL);
#if !defined(__SANITIZE_THREAD__) /* which refuses threads in a child of a threaded process */
        EXPECT(rsk_loop_start(true) == 0);
        on_thread(nothing, NULL);
        rsk_loop_stop();
#endif
        _exit(0);
    }
    ASSERT_EQ_INT(waitpid(child, &status, 0), child);
    EXPECT_EQ_INT(status, 0);
    on_thread(nothing, NULL);
    EXPECT_EQ_INT(count_fds(), before);
}

static void *shares_files(void *arg)
{
    (void)arg;
    rsk_own_files_are_shared(true);
    return NULL;
}

/* Another thread is about to have a child on its own descriptor table: that is no business of this one's. */
TEST_CASE(loop, a_childs_descriptors_go_by_who_forked)
{
    pthread_t other;
    int status = -1;
    pid_t child;

    ASSERT_EQ_INT(rsk_loop_start(false), 0);
    ASSERT_EQ_INT(pthread_create(&other, NULL, shares_files, NULL), 0);
    pthread_join(other, NULL);
    child = fork();
    ASSERT(child >= 0);
    if (child == 0) {
        rsk_loop_after_fork_child();
        for (int i = 512; i < 640; i++)
            EXPECT(fcntl(i, F_GETFD) < 0);
        _exit(0);
    }
    ASSERT_EQ_INT(waitpid(child, &status, 0), child);
    EXPECT_EQ_INT(status, 0);
    rsk_loop_stop();
}

TEST_CASE(loop, descriptors_are_out_of_the_way)
{
    bool low[512];

    for (int i = 0; i < 512; i++)
        low[i] = fcntl(i, F_GETFD) >= 0;
    ASSERT_EQ_INT(rsk_loop_start(true), 0);
    on_thread(nothing, NULL);
    for (int i = 0; i < 512; i++)
        EXPECT_EQ_INT(fcntl(i, F_GETFD) >= 0, low[i]);
    rsk_loop_stop();
}
