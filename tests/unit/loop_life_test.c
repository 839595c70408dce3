/*
 * loop_life_test.c - the progress thread begins, pauses, ends, and is not there in a forked child;
 * what it opened goes with it.
 */
#include "tests/shim/shim.h"
#include "tests/unit/numbers.h"
#include "tests/unit/forked.h"
#include "tests/unit/loop.h"

#include <fcntl.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/shard.h"
#include "rsock/sys.h"

/* ---- start, stop, fork */

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

/* Watches, timers and jobs of before and of meanwhile are all there afterwards, and nothing
 * runs in between. */
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
        EXPECT_EQ_INT(rsk_loop_start(true), -EBUSY);
        EXPECT_EQ_INT(rsk_loop_resume(), 0);
        EXPECT_EQ_INT(rsk_loop_start(true), -EBUSY);
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

/* The kernel interrupts whoever made a ring that is closed: that must not be a thread
 * of the program. */
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
    child = own_fork();
    ASSERT(child >= 0);
    if (child == 0) {
        EXPECT_EQ_INT(hidden_fds(), 0);
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

/* Another thread is about to have a child on its own descriptor table: that is no business
 * of this one's. */
TEST_CASE(loop, a_childs_descriptors_go_by_who_forked)
{
    pthread_t other;
    int status = -1;
    pid_t child;

    ASSERT_EQ_INT(rsk_loop_start(false), 0);
    ASSERT_EQ_INT(pthread_create(&other, NULL, shares_files, NULL), 0);
    pthread_join(other, NULL);
    child = own_fork();
    ASSERT(child >= 0);
    if (child == 0) {
        for (int i = 512; i < 640; i++)
            EXPECT(fcntl(i, F_GETFD) < 0);
        _exit(0);
    }
    ASSERT_EQ_INT(waitpid(child, &status, 0), child);
    EXPECT_EQ_INT(status, 0);
    rsk_loop_stop();
}

static _Atomic bool done;

static void *opens_and_closes(void *arg)
{
    (void)arg;
    /* As the library does: who watches threads would take a number that is closed and given anew
     * for one thing. */
    while (!atomic_load(&done))
        rsk_own_close(rsk_own_fd(sys_eventfd(0, EFD_CLOEXEC)));
    return NULL;
}

/* Unless the other thread stands still for longer than a fork waits for it: those do not count. */
TEST_CASE(loop, a_child_has_what_is_being_opened_or_closed_whole_or_not_at_all)
{
    enum { ENOUGH = 200 };
    pthread_t other;
    int left = 0, counted = 0;

    atomic_store(&done, false);
    ASSERT_EQ_INT(pthread_create(&other, NULL, opens_and_closes, NULL), 0);
    for (int i = 0; i < 5 * ENOUGH && counted < ENOUGH; i++) {
        uint64_t began = sys_now();
        int status = -1;
        pid_t child = own_fork();
        bool slow = sys_now() - began > 50000000; /* half of what it waits */

        if (child == 0)
            _exit(hidden_fds());
        ASSERT(child > 0);
        ASSERT_EQ_INT(waitpid(child, &status, 0), child);
        counted += !slow;
        left += !slow && status != 0;
    }
    atomic_store(&done, true);
    pthread_join(other, NULL);
    EXPECT(counted > ENOUGH / 20);
    EXPECT_EQ_INT(left, 0);
}

/* A signal handler may fork, whatever its thread is at, and so may two threads. */
TEST_CASE(loop, who_forks_in_the_middle_of_opening_does_not_wait_for_itself)
{
    int status = -1;
    pid_t child;

    rsk_own_enter();
    rsk_own_fork_begin();
    child = own_fork();
    if (child == 0) {
        rsk_own_leave();
        rsk_own_close(rsk_own_fd(eventfd(0, EFD_CLOEXEC)));
        _exit(hidden_fds());
    }
    rsk_own_fork_end();
    rsk_own_leave();
    ASSERT_EQ_INT(waitpid(child, &status, 0), child);
    EXPECT_EQ_INT(status, 0);
}

/* A new descriptor of ours has the lowest number for a moment: not while somebody takes one. On
 * a machine that lets a thread stand still for longer than the others wait, a number can be
 * wrong, and for some steps after it, while they wait less: those do not count, until that many
 * in a row were right. */
TEST_CASE(loop, who_takes_a_number_does_not_meet_ours)
{
    enum { ENOUGH = 200000, AFTER = 64 };
    pthread_t other;
    int lowest = dup(0), wrong = 0, counted = 0, left_out = 0;

    close(lowest);
    atomic_store(&done, false);
    ASSERT_EQ_INT(pthread_create(&other, NULL, opens_and_closes, NULL), 0);
    for (int i = 0; i < 5 * ENOUGH && counted < ENOUGH; i++) {
        uint64_t began = sys_now();
        bool met;

        rsk_own_take();
        met = dup(0) != lowest;
        close(lowest);
        rsk_own_taken();
        if (sys_now() - began > 100000) /* half of what they wait at least */
            left_out = AFTER;
        if (left_out) {
            left_out = met ? AFTER : left_out - 1;
        } else {
            counted++;
            wrong += met;
        }
    }
    atomic_store(&done, true);
    pthread_join(other, NULL);
    EXPECT(counted > ENOUGH / 20);
    EXPECT_EQ_INT(wrong, 0);
}

static void *takes(void *sleeping)
{
    rsk_own_take();
    atomic_store(&done, true);
    pthread_mutex_lock(sleeping);
    rsk_own_taken();
    return NULL;
}

struct two_calls {
    _Atomic unsigned first, met, second, over; /* in which round each has come last */
};

static void comes(_Atomic unsigned *what, unsigned round)
{
    while (atomic_load(what) < round && !atomic_load(&done))
        sched_yield();
}

/* In each round a call that ends about when a step no longer waits for it, and one that lasts. */
static void *calls_twice(void *arg)
{
    struct two_calls *t = arg;

    for (unsigned round = 1; !atomic_load(&done); round++) {
        uint64_t until;

        rsk_own_take();
        atomic_store(&t->first, round);
        until = sys_now() + 180000 + round * 7919 % 200000;
        while (sys_now() < until)
            ;
        rsk_own_taken();
        comes(&t->met, round);
        rsk_own_take();
        atomic_store(&t->second, round);
        comes(&t->over, round);
        rsk_own_taken();
    }
    return NULL;
}

#ifdef RAILSOCK_SANITIZED
enum { CALLS = 300 };
#else
enum { CALLS = 1000 };
#endif

/* A step that gives up waiting for a call as it ends has not found that one sleeps. (That takes it
 * 0.2 ms, once it has waited in vain several times.) */
TEST_CASE(loop, a_call_is_waited_for_whatever_the_one_before_did)
{
    struct two_calls t = {0};
    pthread_t other;
    int not_waited_for = 0;

    atomic_store(&done, false);
    ASSERT_EQ_INT(pthread_create(&other, NULL, calls_twice, &t), 0);
    for (unsigned round = 1; round <= CALLS; round++) {
        uint64_t began;

        comes(&t.first, round);
        rsk_own_enter();
        rsk_own_leave();
        atomic_store(&t.met, round);
        comes(&t.second, round);
        began = sys_now();
        rsk_own_enter();
        not_waited_for += sys_now() - began < 100000;
        rsk_own_leave();
        atomic_store(&t.over, round);
    }
    atomic_store(&done, true);
    pthread_join(other, NULL);
    EXPECT_EQ_INT(not_waited_for, 0);
}

/* As open() does on a FIFO. And a handler's calls in the middle of another call, or of our
 * steps, go on. */
TEST_CASE(loop, who_takes_a_number_and_sleeps_stops_nobody)
{
    pthread_mutex_t sleeping = PTHREAD_MUTEX_INITIALIZER;
    pthread_t other;

    atomic_store(&done, false);
    pthread_mutex_lock(&sleeping);
    ASSERT_EQ_INT(pthread_create(&other, NULL, takes, &sleeping), 0);
    while (!atomic_load(&done))
        sched_yield();
    for (int i = 0; i < 100; i++)
        rsk_own_close(rsk_own_fd(eventfd(0, EFD_CLOEXEC)));
    rsk_own_take();
    rsk_own_take();
    rsk_own_close(rsk_own_fd(eventfd(0, EFD_CLOEXEC)));
    rsk_own_taken();
    rsk_own_taken();
    rsk_own_enter();
    rsk_own_take();
    rsk_own_look();
    rsk_own_taken();
    rsk_own_leave();
    pthread_mutex_unlock(&sleeping);
    pthread_join(other, NULL);
    EXPECT_EQ_INT((int)atomic_load(&rsk_own_inside.n), 0);
}

static void note_policy(void *policy)
{
    *(int *)policy = sched_getscheduler(0);
}

TEST_CASE(loop, has_no_real_time_priority)
{
    const struct sched_param some = {.sched_priority = 1}, none = {0};
    int policy = -1;

    if (sched_setscheduler(0, SCHED_FIFO, &some) < 0)
        SKIP("no real-time priority is to be had");
    ASSERT_EQ_INT(rsk_loop_start(true), 0);
    EXPECT_EQ_INT(sched_getscheduler(0), SCHED_FIFO);
    ASSERT_EQ_INT(sched_setscheduler(0, SCHED_OTHER, &none), 0);
    on_thread(note_policy, &policy);
    EXPECT_EQ_INT(policy, SCHED_OTHER);
    rsk_loop_stop();
}

/* What it has not inherited is not there to be given back: the place may be another mapping's. */
TEST_CASE(own, child_leaves_alone_what_it_has_not)
{
    static struct rsk_own_map has, has_not;
    size_t len = 4096;
    struct rsk_own_map *both[] = {&has, &has_not};
    int status;
    pid_t child;

    for (int i = 0; i < 2; i++)
        rsk_own_map(both[i],
                    mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
                    len);
    ASSERT_EQ_INT(madvise(has_not.addr, len, MADV_DONTFORK), 0);
    has_not.left_out = true;
    child = fork();
    if (!child) {
        void *was = has.addr, *mine = has_not.addr;

        if (mmap(mine, len, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != mine)
            _exit(1);
        rsk_loop_after_fork_child();
        *(volatile char *)mine = 1;
        status = msync(was, len, MS_ASYNC) < 0 && errno == ENOMEM ? 0 : 2;
        SYS6(SYS_exit_group, status, 0, 0, 0, 0, 0); /* no sanitizer's word on what was before */
    }
    ASSERT_EQ_INT(waitpid(child, &status, 0), child);
    EXPECT_EQ_INT(status, 0);
    rsk_own_unmap(&has);
    rsk_own_unmap(&has_not);
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
