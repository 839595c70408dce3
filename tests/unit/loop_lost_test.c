/*
 * loop_lost_test.c - the progress thread where it cannot begin, or go on after a pause: without
 * threads, or without epoll watches.
 */
#include "tests/shim/shim.h"
#include "tests/unit/forked.h"
#include "tests/unit/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rsock/loop.h"
#include "rsock/sys.h"

static sem_t fired_after, done_after;

static void fire(void *arg)
{
    sem_post(arg);
}

static void add_timer(void *arg)
{
    ASSERT(rsk_timer_add(1000000, fire, arg) != NULL);
}

/* ---- a pause after which there may be no thread */

static struct rlimit of_threads;

/* For who is root it holds as another user without capabilities. */
static void forbid_threads(void)
{
    const struct rlimit one = {1, of_threads.rlim_max};

    if (!getuid())
        ASSERT_EQ_INT(setresuid(54321, 54321, 0), 0);
    ASSERT_EQ_INT(setrlimit(RLIMIT_NPROC, &one), 0);
}

static void allow_threads(void)
{
    if (getuid() == 54321)
        ASSERT_EQ_INT(setresuid(0, 0, 0), 0);
    ASSERT_EQ_INT(setrlimit(RLIMIT_NPROC, &of_threads), 0);
}

/* Who has nothing else to do does its work meanwhile; when there may be one again, it goes on. */
BOTH_BACKENDS(its_work_is_done_where_it_cannot_go_on)
{
    ASSERT_EQ_INT(getrlimit(RLIMIT_NPROC, &of_threads), 0);
    sem_init(&seen, 0, 0);
    sem_init(&fired_after, 0, 0);
    sem_init(&done_after, 0, 0);
    for (int edge = 0; edge < 2; edge++) {
        time_t begin = time(NULL);

        ASSERT_EQ_INT(pipe(pipe_fds), 0);
        n_events = 0;
        stop_after = 1;
        on_thread(add_watch, edge ? (void *)1 : NULL);
        rsk_loop_turn();
        EXPECT(!rsk_loop_lost());
        rsk_loop_pause();
        forbid_threads();
        EXPECT_EQ_INT(rsk_loop_resume(), -EAGAIN);
        EXPECT(rsk_loop_lost() && !rsk_loop_running());
        EXPECT_EQ_INT(rsk_loop_start(true), -EAGAIN);
        ASSERT_EQ_INT(write(pipe_fds[1], "x", 1), 1);
        EXPECT_EQ_INT(rsk_loop_post(add_timer, &fired_after), 0);
        EXPECT_EQ_INT(rsk_loop_post(fire, &done_after), 0);
        do
            rsk_loop_turn();
        while (sem_trywait(&fired_after) && time(NULL) - begin < 20);
        EXPECT_EQ_INT(sem_trywait(&seen), 0);
        EXPECT_EQ_INT(sem_trywait(&done_after), 0);
        EXPECT_EQ_INT(n_events, 1);
        /* What comes to be watched meanwhile the next thread watches. */
        stop_after = 2;
        EXPECT_EQ_INT(rsk_loop_post(add_watch, edge ? (void *)1 : NULL), 0);
        rsk_loop_turn();
        EXPECT(!rsk_loop_is_self());
        allow_threads();
        EXPECT_EQ_INT(rsk_loop_start(true), 0);
        EXPECT(rsk_loop_running() && !rsk_loop_lost());
        EXPECT(soon(&seen));
        on_thread(nothing, NULL);
        close(pipe_fds[1]);
        close(pipe_fds[0]);
    }
}

/* ---- without epoll watches */

/* As where a user has used up fs.epoll.max_user_watches. For the caller's life. */
static bool no_watches(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, EPOLL_CTL_ADD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {sizeof f / sizeof *f, f};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) == 0;
}

static bool child_is_well(pid_t child)
{
    int status = -1;

    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* It would hear of nothing: no job would be done, and a pause would wait for ever. */
TEST_CASE(loop, no_thread_begins_that_hears_of_nothing)
{
    pid_t child = own_fork();

    if (child == 0) {
        if (!no_watches())
            _exit(2);
        for (int i = 0; i < 3; i++)
            if (rsk_loop_start(false) != -ENOSPC || rsk_loop_running() || hidden_fds())
                _exit(1);
        _exit(0);
    }
    EXPECT(child_is_well(child));
}

TEST_CASE(loop, no_thread_goes_on_that_hears_of_nothing)
{
    pid_t child = own_fork();

    if (child == 0) {
        sem_init(&done_after, 0, 0);
        if (rsk_loop_start(false))
            _exit(2);
        rsk_loop_pause();
        if (!no_watches())
            _exit(3);
        if (rsk_loop_resume() != -ENOSPC || !rsk_loop_lost() || rsk_loop_start(false) != -ENOSPC)
            _exit(1);
        rsk_loop_post(fire, &done_after);
        rsk_loop_turn();
        _exit(sem_trywait(&done_after) ? 4 : 0);
    }
    EXPECT(child_is_well(child));
}

/* What the kernel does not take now it is asked to take until it does. */
TEST_CASE(loop_epoll, a_watch_that_is_refused_is_made_later)
{
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), saved;

    ASSERT(start(false));
    ASSERT_EQ_INT(pipe(pipe_fds), 0);
    saved = dup(pipe_fds[0]);
    sem_init(&seen, 0, 0);
    n_events = 0;
    stop_after = 1;
    on_thread(add_watch, NULL);
    rsk_loop_pause();
    ASSERT_EQ_INT(dup2(file, pipe_fds[0]), pipe_fds[0]); /* EPERM */
    EXPECT_EQ_INT(rsk_loop_resume(), 0);
    on_thread(nothing, NULL);
    ASSERT_EQ_INT(write(pipe_fds[1], "x", 1), 1);
    on_thread(nothing, NULL);
    EXPECT_EQ_INT(n_events, 0);
    ASSERT_EQ_INT(dup2(saved, pipe_fds[0]), pipe_fds[0]);
    EXPECT(soon(&seen));
    rsk_loop_stop();
    close(file);
    close(saved);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}
