/*
 * loop.c - the progress thread: posted jobs, timers, watches (loop_watch.c), and the common shard
 * (loop_common.c), on one of two backends (loop_uring.c, loop_epoll.c).
 *
 * The life lock orders start, stop and the fork child's reset; the thread never takes it. Posting
 * takes no lock: a stack that the thread takes whole. Everything else belongs to the thread alone.
 */
#include "rsock/loop.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "config/log.h"
#include "rsock/loop_backend.h"
#include "rsock/loop_timer.h"
#include "rsock/own.h"
#include "rsock/section.h"
#include "rsock/shard.h"
#include "rsock/sys.h"

enum { BATCH = 64, FORK_HOOKS = 8, ROUNDS = 8 };

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static atomic_bool running, stopping;
/* rsk_loop_pause: paused counts the callers that have not resumed yet. resting: the thread has been
 * ended for them, or could not be started again after them, and its work waits. */
static int paused;
static atomic_bool resting;
static atomic_bool lost;    /* the start after a pause has failed, and none has succeeded since */
static atomic_bool turning; /* another thread does the lost thread's work: rsk_loop_turn */
static bool with_uring;
static _Atomic int tid;
static sem_t begun; /* the thread has tried to open its backend, with this result: */
static int opened;
static _Thread_local bool is_self;

static int wake_fd = -1;
static struct rsk_watch *wake_watch, *anchor_watch;
static struct rsk_job *_Atomic jobs;
static atomic_bool asleep; /* or about to be */

static void (*fork_hooks[FORK_HOOKS])(void);
static int n_fork_hooks;

/* ---- jobs */

static void push(struct rsk_job *j)
{
    const uint64_t one = 1;
    struct rsk_job *top = atomic_load_explicit(&jobs, memory_order_relaxed);

    do
        j->next = top;
    while (!atomic_compare_exchange_weak(&jobs, &top, j));
    /* Whoever finds the stack empty wakes; the eventfd stays readable until the thread reads it,
     * and the thread takes the stack after that, so no job is left behind. The thread says that it
     * sleeps, then looks at the stack: if we do not see it asleep, that look sees our job. It also
     * finds there what the thread itself has posted. */
    if (!top && !is_self && atomic_load(&asleep))
        sys_write(wake_fd, &one, sizeof one);
}

static int push_new(void (*fn)(void *arg), void *arg)
{
    struct rsk_job *j = malloc(sizeof *j);

    if (!j)
        return -ENOMEM;
    *j = (struct rsk_job){.fn = fn, .arg = arg, .allocated = true};
    push(j);
    return 0;
}

int rsk_loop_post(void (*fn)(void *arg), void *arg)
{
    if (!atomic_load(&running))
        return -ESRCH;
    return push_new(fn, arg);
}

int rsk_loop_post_job(struct rsk_job *j)
{
    if (!atomic_load(&running))
        return -ESRCH;
    if (!atomic_exchange(&j->posted, true))
        push(j);
    return 0;
}

/* From here on the job may be posted again. A read-modify-write: a poster that still found it
 * posted has pushed nothing, and fn, which runs next, sees what that poster wrote before. */
static void let_go(struct rsk_job *j)
{
    if (j->allocated)
        free(j);
    else
        (void)atomic_exchange(&j->posted, false);
}

static void run_posted(void)
{
    struct rsk_job *j = atomic_exchange_explicit(&jobs, NULL, memory_order_acquire), *first = NULL;

    while (j) {
        struct rsk_job *next = j->next;

        j->next = first;
        first = j;
        j = next;
    }
    while (first) {
        struct rsk_job *next = first->next;
        void (*fn)(void *arg) = first->fn;
        void *arg = first->arg;

        let_go(first); /* before: what is posted from now on is another run */
        fn(arg);
        first = next;
    }
}

/* Also what those post, with no look at the kernel between; descriptors and timers have a turn. */
static void run_jobs(void)
{
    for (int i = 0; i < ROUNDS && atomic_load_explicit(&jobs, memory_order_relaxed); i++)
        run_posted();
}

static void on_wake(void *arg, uint32_t events)
{
    uint64_t n;

    (void)arg, (void)events;
    sys_read(wake_fd, &n, sizeof n);
}

/* ---- anchors */

static void on_anchors(void *arg, uint32_t events)
{
    struct epoll_event ev[BATCH] = {0};
    int n = sys_epoll_wait(loop_anchor_ep, ev, BATCH, 0);

    (void)arg, (void)events;
    for (int i = 0; i < n; i++)
        loop_event(ev[i].data.ptr, ev[i].events);
}

/* ---- the thread */

static void wait_for_news(struct rsk_shard *shard)
{
    uint64_t ns = timers_next(), again = loop_watch_retry();
    bool armed = false;

    if (again < ns)
        ns = again;

    (void)atomic_exchange(&asleep, true); /* not a store: emulated arm64, README */
    if (atomic_load(&jobs))
        ns = 0;
    if (ns) {
        armed = true;
        if (rsk_shard_arm(shard))
            ns = 0;
    }
    loop_backend->wait(ns);
    atomic_store_explicit(&asleep, false, memory_order_relaxed);
    if (armed)
        rsk_shard_disarm(shard);
    loop_watch_bury();
}

/* Posted once the thread is known to run. Whoever asked before that whether it runs was told no,
 * and has posted nothing: what it left behind is for this hook to find. */
static struct rsk_job start_job;

void rsk_at_loop_start(void (*fn)(void *unused))
{
    start_job.fn = fn;
}

/* Without these two it would hear of nothing. 0 or -errno. */
static int first_watches(void)
{
    wake_watch = rsk_watch_fd(wake_fd, POLLIN, false, on_wake, NULL);
    anchor_watch =
        wake_watch ? rsk_watch_fd(loop_anchor_ep, POLLIN, false, on_anchors, NULL) : NULL;
    if (anchor_watch)
        return 0;
    rsk_unwatch(wake_watch);
    wake_watch = NULL;
    return loop_watch_error;
}

/*
 * On the thread itself: the kernel interrupts whoever has made a ring once more when it is closed,
 * and an application's thread would get EINTR from its epoll_wait for no reason.
 */
static int open_backend(void)
{
    int err;

    if (loop_backend == &loop_uring) {
        err = loop_backend->open();
        if (!err)
            return 0;
        log_info("io_uring is not to be had (error %d): the progress thread uses epoll", -err);
    }
    loop_backend = &loop_epoll;
    return loop_backend->open();
}

static void close_backend(void)
{
    loop_backend->close();
    loop_watch_rest();
    loop_watch_bury();
}

static void *run(void *again)
{
    struct rsk_shard *shard = rsk_shard_common();

    is_self = true;
    atomic_store(&tid, sys_gettid());
    SYS6(SYS_prctl, PR_SET_NAME, "railsock", 0, 0, 0, 0);
    opened = open_backend();
    if (!opened) {
        opened = again ? loop_watch_again(wake_watch, anchor_watch) : first_watches();
        if (opened)
            close_backend();
    }
    sem_post(&begun);
    if (opened)
        return NULL;
    if (!again)
        loop_common_watch();
    for (;;) {
        run_jobs();
        timers_run();
        rsk_shard_drain(shard);
        if (atomic_load_explicit(&resting, memory_order_acquire))
            return NULL;
        if (atomic_load_explicit(&stopping, memory_order_acquire) &&
            !atomic_load_explicit(&jobs, memory_order_relaxed))
            return NULL;
        wait_for_news(shard);
    }
}

/* With a backend, when this returns 0. */
static int spawn(bool again)
{
    int err;

    loop_backend = with_uring && !sys_filtered() ? &loop_uring : &loop_epoll;
    sem_init(&begun, 0, 0);
    err = loop_spawn(&thread, run, again ? &resting : NULL);
    if (err)
        return err;
    while (sem_wait(&begun))
        ;
    if (opened)
        pthread_join(thread, NULL);
    return opened;
}

static void close_fds(void)
{
    rsk_own_close(wake_fd);
    rsk_own_close(loop_anchor_ep);
    wake_fd = loop_anchor_ep = -1;
}

/* What waited since the pause goes on. */
static int start_again(void)
{
    int err;

    atomic_store(&resting, false);
    err = spawn(true);
    /* While it is tried again it stays lost: who took it for running would sleep for good. */
    if (err)
        atomic_store(&resting, true);
    atomic_store_explicit(&lost, err != 0, memory_order_release);
    return err;
}

static int start_locked(bool use_uring)
{
    int err;

    if (paused || atomic_load(&turning))
        return -EBUSY;
    if (atomic_load(&resting))
        return start_again();
    if (atomic_load(&running))
        return 0;
    with_uring = use_uring;
    err = loop_common_open();
    if (err)
        return err;
    wake_fd = rsk_own_fd(sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    loop_anchor_ep = rsk_own_fd(sys_epoll_create1(EPOLL_CLOEXEC));
    atomic_store(&stopping, false);
    err = wake_fd < 0 ? wake_fd : loop_anchor_ep < 0 ? loop_anchor_ep : spawn(false);
    if (err) {
        close_fds();
        return err;
    }
    atomic_store(&running, true);
    if (start_job.fn)
        (void)rsk_loop_post_job(&start_job);
    return 0;
}

int rsk_loop_start(bool use_uring)
{
    int err, saved = errno;

    if (rsk_loop_running())
        return 0;
    RSK_UNCANCELLED;
    pthread_mutex_lock(&life);
    err = start_locked(use_uring);
    pthread_mutex_unlock(&life);
    errno = saved;
    return err;
}

bool rsk_loop_running(void)
{
    return atomic_load_explicit(&running, memory_order_acquire) &&
           !atomic_load_explicit(&resting, memory_order_acquire) && !rsk_loop_lost();
}

bool rsk_loop_lost(void)
{
    return atomic_load_explicit(&lost, memory_order_acquire);
}

bool rsk_loop_is_self(void)
{
    return is_self;
}

const char *rsk_loop_backend(void)
{
    return loop_backend ? loop_backend->name : "none";
}

static void set_stopping(void *arg)
{
    (void)arg;
    atomic_store_explicit(&stopping, true, memory_order_release);
}

/* A joined thread counts as one until the kernel has let go of it. Waits for that, 1 s at most. */
static void wait_until_gone(void)
{
    uint64_t until = sys_now() + 1000000000u;

    while (sys_now() < until && SYS6(SYS_tgkill, sys_getpid(), atomic_load(&tid), 0, 0, 0, 0) == 0)
        sys_yield();
}

void rsk_loop_pause(void)
{
    const struct timespec step = {0, 50000};
    const uint64_t one = 1;

    RSK_UNCANCELLED;
    pthread_mutex_lock(&life);
    if (paused++ == 0 && rsk_loop_running()) {
        atomic_store_explicit(&resting, true, memory_order_release);
        sys_write(wake_fd, &one, sizeof one);
        pthread_join(thread, NULL);
        wait_until_gone();
        close_backend();
    }
    pthread_mutex_unlock(&life);
    /* by a thread of less priority, it may be, which a yield would not let run */
    while (atomic_load(&turning))
        (void)sys_ppoll(NULL, 0, &step, NULL);
}

int rsk_loop_resume(void)
{
    int err = 0;

    RSK_UNCANCELLED;
    pthread_mutex_lock(&life);
    if (paused && --paused == 0 && atomic_load(&resting))
        err = start_again();
    pthread_mutex_unlock(&life);
    return err;
}

bool rsk_loop_turn(void)
{
    int saved = errno;
    bool may, mine;

    RSK_UNCANCELLED;
    pthread_mutex_lock(&life);
    may = !paused && rsk_loop_lost();
    mine = may && !atomic_exchange(&turning, true);
    pthread_mutex_unlock(&life);
    if (!mine)
        return may;
    is_self = true;
    loop_backend = &loop_none;
    loop_watch_look();
    run_jobs();
    timers_run();
    rsk_shard_drain(rsk_shard_common());
    loop_watch_bury();
    is_self = false;
    atomic_store(&turning, false);
    errno = saved;
    return true;
}

static _Atomic bool no_libraries;

void rsk_loop_no_libraries(void)
{
    atomic_store(&no_libraries, true);
}

bool rsk_loop_may_load(void)
{
    return !atomic_load(&no_libraries);
}

void rsk_loop_stop(void)
{
    RSK_UNCANCELLED;
    pthread_mutex_lock(&life);
    if (rsk_loop_running()) {
        /* First no new jobs, then the last one: what was posted before still runs. */
        atomic_store(&running, false);
        while (push_new(set_stopping, NULL))
            sys_yield();
        pthread_join(thread, NULL);
        /* A poster that saw `running` may have come after the last look: as if it had not. */
        for (struct rsk_job *j = atomic_exchange(&jobs, NULL), *next; j; j = next) {
            next = j->next;
            let_go(j);
        }
        close_backend();
        timers_clear();
        loop_watch_forget();
        free(wake_watch);
        free(anchor_watch);
        loop_common_free();
        close_fds();
    }
    pthread_mutex_unlock(&life);
}

/* ---- fork */

void rsk_at_fork_child(void (*fn)(void))
{
    if (n_fork_hooks < FORK_HOOKS)
        fork_hooks[n_fork_hooks++] = fn;
}

void rsk_loop_after_fork_child(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

    /* Memory stays where it is: the allocator may have been caught mid-step. */
    rsk_own_after_fork_child();
    life = fresh;
    atomic_store(&running, false);
    atomic_store(&stopping, false);
    atomic_store(&resting, false);
    atomic_store(&turning, false);
    atomic_store(&lost, false);
    paused = 0;
    loop_watch_forget();
    atomic_store(&jobs, NULL);
    atomic_store(&start_job.posted, false);
    is_self = false;
    wake_fd = loop_anchor_ep = -1;
    wake_watch = anchor_watch = NULL;
    loop_common_forget();
    timers_forget();
    for (int i = 0; i < n_fork_hooks; i++)
        fork_hooks[i]();
}
