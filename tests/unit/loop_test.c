/*
 * loop_test.c - the progress thread on both backends: posts, timers, watches.
 */
#include "tests/shim/shim.h"
#include "tests/unit/loop.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/sys.h"

/* ---- posts */

static int posted[1000], n_posted;

static void note_post(void *arg)
{
    posted[n_posted++] = (int)(intptr_t)arg;
    EXPECT(rsk_loop_is_self());
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

static void tell(void *sem)
{
    sem_post(sem);
}

/* Nobody wakes the thread for what it posts itself. */
static void tell_later(void *sem)
{
    EXPECT_EQ_INT(rsk_loop_post(tell, sem), 0);
}

static void *post_and_wait(void *arg)
{
    struct timespec until;
    sem_t *told = malloc(sizeof *told);

    sem_init(told, 0, 0);
    for (int i = 0; i < 20000; i++) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 20;
        EXPECT_EQ_INT(rsk_loop_post(i % 2 ? tell : tell_later, told), 0);
        if (!EXPECT_EQ_INT(sem_timedwait(told, &until), 0))
            return NULL; /* with told: the job may come yet */
    }
    free(told);
    return arg;
}

/* It says that it sleeps and looks once more; who has posted looks whether it sleeps. */
BOTH_BACKENDS(no_post_is_slept_over)
{
    pthread_t t[2];
    void *said;

    for (int i = 0; i < 2; i++)
        ASSERT_EQ_INT(pthread_create(&t[i], NULL, post_and_wait, t), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], &said);
        ASSERT(said == t);
    }
}

/* ---- timers */

static int order[3], n_order;
static uint64_t fired_at, adding; /* ns: so long did it take to add them */
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
    uint64_t begin = sys_now();
    struct rsk_timer *t;

    (void)arg;
    ASSERT(rsk_timer_add(30000000, note_timer, (void *)3));
    ASSERT(rsk_timer_add(10000000, note_timer, (void *)1));
    t = rsk_timer_add(15000000, note_timer, (void *)9);
    ASSERT(t != NULL);
    ASSERT(rsk_timer_add(20000000, note_timer, (void *)2));
    rsk_timer_cancel(t);
    adding = sys_now() - begin;
}

BOTH_BACKENDS(timers_fire_in_order_and_not_early)
{
    uint64_t before;
    int tries = 0;

    /* Who is held up in the middle of adding them has them due in another order. */
    do {
        before = sys_now();
        n_order = 0;
        sem_init(&fired, 0, 0);
        on_thread(add_timers, NULL);
        ASSERT(soon(&fired));
        EXPECT_EQ_INT(n_order, 3);
    } while (adding > 5000000 && ++tries < 100);
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

/* The thread looks at its descriptors again, and again. */
static void rounds_more(void)
{
    for (int i = 0; i < 5; i++)
        on_thread(nothing, NULL);
}

BOTH_BACKENDS(an_anchor_can_be_edge_triggered)
{
    ASSERT_EQ_INT(pipe(pipe_fds), 0);
    n_events = 0;
    stop_after = 2;
    sem_init(&seen, 0, 0);
    on_thread(add_watch, (void *)1);
    ASSERT_EQ_INT(write(pipe_fds[1], "x", 1), 1);
    while (!n_events)
        sched_yield();
    rounds_more();
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
    while (!pair_events)
        sched_yield();
    rounds_more();
    EXPECT_EQ_INT(pair_events, 1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}
