/*
 * poll_signal_test.c - signals and cancellation in a poll over streams on rails; as poll_test.c,
 * over a fake engine.
 */
#include "tests/unit/jumps_out.h"
#include "tests/unit/poll_sleeper.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "preload/pl_poll.h"

static void nothing(int sig)
{
    (void)sig;
}

static void catch (void (*fn)(int))
{
    struct sigaction sa = {.sa_handler = fn, .sa_flags = SA_RESTART};

    sigaction(SIGALRM, &sa, NULL);
}

/* And every so often from then on: the first may come before the call that it is
 * for. 0: no more. */
static void alarms_every(int ms)
{
    struct itimerval it = {{.tv_usec = ms * 1000}, {.tv_usec = ms * 1000}};

    setitimer(ITIMER_REAL, &it, NULL);
}

static _Atomic bool hogging;

static void on_processor(pthread_t thread, int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    pthread_setaffinity_np(thread, sizeof set, &set);
}

/* Who sleeps on the same processor, and is meant to be idle, is woken and does not run: not at all
 * where this thread may be a real-time one. */
static void *hogs(void *cpu)
{
    const struct sched_param first = {.sched_priority = 1};

    on_processor(pthread_self(), *(int *)cpu);
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
    atomic_store(&hogging, true);
    while (atomic_load(&hogging))
        ;
    return NULL;
}

static void counted(int sig)
{
    (void)sig;
    rsk_sig.seen++;
}

/* The kernel's poll has an event, which is a frame, and a handler runs before it returns: the
 * application's poll was interrupted. */
TEST_CASE(poll, signal_beside_a_frame)
{
    struct sigaction sa = {.sa_handler = counted, .sa_flags = SA_RESTART};
    const struct sched_param none = {0};
    struct fake *f = fake_new();
    int cpu = sched_getcpu();
    struct sleeper s;
    pthread_t hog;

#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer puts handlers off until a call of libc's returns");
#endif
    sigaction(SIGUSR1, &sa, NULL);
    for (int i = 0; i < 5; i++) {
        start(&s, 20000, 1, f, -1);
        on_processor(s.thread, cpu);
        pthread_setschedparam(s.thread, SCHED_IDLE, &none);
        asleep(&s);
        ASSERT_EQ_INT(pthread_create(&hog, NULL, hogs, &cpu), 0);
        while (!atomic_load(&hogging))
            sys_yield();
        EXPECT_EQ_INT(write(f->peer, "f", 1), 1);
        fake_board(f);
        pthread_kill(s.thread, SIGUSR1);
        atomic_store(&hogging, false);
        pthread_join(hog, NULL);
        pthread_join(s.thread, NULL);
        EXPECT_EQ_INT(s.n, -1);
        fake_leave(f);
        EXPECT_EQ_INT(read(f->fd, &(char){0}, 1), 1);
    }
    fake_close(f);
}

TEST_CASE(poll, signals_interrupt)
{
    struct fake *f = fake_new();
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    sigset_t block, empty;

    catch (nothing);
    fake_board(f);
    alarms_every(10);
    EXPECT_EQ_INT(one(f, POLLIN, 5000), -EINTR);
    alarms_every(0);
    /* Blocked outside, let in by ppoll. */
    sigemptyset(&empty);
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    sigprocmask(SIG_BLOCK, &block, NULL);
    raise(SIGALRM);
    EXPECT_EQ_INT(one(f, POLLIN, 5), 0);
    EXPECT_EQ_INT(ppoll(&p, 1, NULL, &empty), -1);
    EXPECT_EQ_INT(errno, EINTR);
    sigprocmask(SIG_UNBLOCK, &block, NULL);
    fake_close(f);
}

TEST_CASE(poll, handler_jumps_out_of_the_wait)
{
    pthread_t t, self = pthread_self();
    struct fake *f = fake_new();

    catch (jump);
    fake_board(f);
    for (int i = 0; i < 20; i++) {
        in_call = 1;
        atomic_store(&sleeper, 0);
        pthread_create(&t, NULL, wakes, &self);
        if (sigsetjmp(out, 1) == 0) {
            atomic_store(&sleeper, gettid());
            one(f, POLLIN, 5000);
            in_call = 0;
            FAILF("was not interrupted");
        }
        pthread_join(t, NULL);
        /* Its watcher is still there, in memory of its own; and the next wait undoes it. */
        fake_arrive(f, 1);
        fake_room(f, true);
        EXPECT_EQ_INT(one(f, POLLIN, 1000), POLLIN);
        EXPECT(!fake_watched(f));
        fake_read(f, 1);
        EXPECT_EQ_INT(one(f, POLLIN, 1), 0);
        EXPECT(!fake_watched(f));
    }
    fake_close(f);
}

static void *sleep_for_ever(void *arg)
{
    one(arg, POLLIN, -1);
    return NULL;
}

TEST_CASE(poll, cancelled)
{
    struct fake *f = fake_new();
    pthread_t t;
    void *result;

#ifdef __SANITIZE_THREAD__
    SKIP("a thread cancelled inside an interceptor is invisible to ThreadSanitizer from then on");
#endif
#ifdef __SANITIZE_ADDRESS__
    SKIP(
        "frames that are unwound leave redzones, on which AddressSanitizer's own sigaltstack fails");
#endif
    fake_board(f);
    for (int words = 0; words < 2; words++) {
        f->has_words = words;
        pthread_create(&t, NULL, sleep_for_ever, f);
        while (words ? !atomic_load(&f->word_refs) : !fake_watched(f))
            sys_yield();
        pthread_cancel(t);
        pthread_join(t, &result);
        EXPECT(result == PTHREAD_CANCELED);
        EXPECT(!fake_watched(f));
        EXPECT_EQ_INT(atomic_load(&f->word_refs), 0);
    }
    fake_close(f);
}
