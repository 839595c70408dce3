/*
 * poll_test.c - poll over streams that are on a rail, or get on or off it while threads wait:
 * preload/pl_poll*.c over a fake engine (epoll_fake.h). Where the kernel defines the answer the same set is
 * asked of libc, too.
 */
#include "tests/asleep.h"
#include "tests/shim/shim.h"
#include "tests/unit/epoll_fake.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/time.h>
#include <unistd.h>

#include "preload/pl_poll.h"
#include "rsock/sys.h"

static uint64_t cpu(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* revents, 0 for a time-out, or -errno. */
static int one(struct fake *f, short events, int ms)
{
    struct pollfd p = {.fd = f->fd, .events = events, .revents = -1};
    int n = poll(&p, 1, ms);

    if (n < 0)
        return -errno;
    EXPECT_EQ_INT(n, p.revents != 0);
    return p.revents;
}

struct sleeper {
    pthread_t thread;
    struct pollfd p[3];
    int ms, n;
    nfds_t count;
    uint64_t took, cpu;
    _Atomic int tid;
    _Atomic bool done;
};

static void *sleep_once(void *arg)
{
    struct sleeper *s = arg;
    uint64_t begin = sys_now(), used = cpu();

    s->tid = gettid();
    s->n = poll(s->p, s->count, s->ms);
    s->took = sys_now() - begin;
    s->cpu = cpu() - used;
    atomic_store(&s->done, true);
    return NULL;
}

static void start(struct sleeper *s, int ms, nfds_t count, struct fake *a, int other)
{
    memset(s, 0, sizeof *s);
    s->ms = ms;
    s->count = count;
    s->p[0] = (struct pollfd){.fd = a->fd, .events = POLLIN};
    s->p[1] = (struct pollfd){.fd = other, .events = POLLIN};
    s->p[2] = (struct pollfd){.fd = -1, .events = POLLIN};
    ASSERT_EQ_INT(pthread_create(&s->thread, NULL, sleep_once, s), 0);
}

/* It has said what it waits for, and sleeps in the kernel: again, if it was woken before. */
static void asleep(struct sleeper *s)
{
    while (!atomic_load(&fake_sleepers))
        sys_yield();
    until_it_sleeps(&s->tid);
}

TEST_CASE(poll, plain_streams_are_the_kernels)
{
    struct fake *f = fake_new();
    struct sleeper s;

    EXPECT_EQ_INT(one(f, POLLIN | POLLOUT, 0), POLLOUT);
    EXPECT_EQ_INT(one(f, POLLIN, 5), 0);
    start(&s, 5000, 1, f, -1);
    asleep(&s);
    EXPECT_EQ_INT(atomic_load(&fake_sleepers), 1);
    EXPECT_EQ_INT(write(f->peer, "x", 1), 1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    EXPECT_EQ_INT(atomic_load(&fake_sleepers), 0);
    fake_close(f);
    EXPECT_EQ_INT(one(f, POLLIN, 0), POLLNVAL);
}

TEST_CASE(poll, rail)
{
    struct fake *f = fake_new();

    fake_board(f);
    EXPECT_EQ_INT(one(f, POLLIN, 0), 0);
    EXPECT_EQ_INT(one(f, POLLIN | POLLOUT, 0), POLLOUT);
    fake_arrive(f, 1);
    errno = 77;
    EXPECT_EQ_INT(one(f, POLLIN, -1), POLLIN);
    EXPECT_EQ_INT(errno, 77);
    EXPECT_EQ_INT(one(f, 0, 0), 0);
    fake_hangup(f);
    EXPECT_EQ_INT(one(f, 0, 100), POLLHUP);
    fake_close(f);
}

TEST_CASE(poll, set_of_everything)
{
    struct fake *f = fake_new(), *g = fake_new();
    int fd = eventfd(1, EFD_NONBLOCK);
    struct pollfd p[5] = {
        {.fd = f->fd, .events = POLLIN}, {.fd = -5, .events = POLLIN},
        {.fd = fd, .events = POLLIN},    {.fd = g->fd, .events = POLLOUT},
        {.fd = 4000, .events = POLLIN},
    };

    fake_board(f);
    EXPECT_EQ_INT(poll(p, 5, 1000), 3);
    EXPECT_EQ_INT(p[0].revents, 0);
    EXPECT_EQ_INT(p[1].revents, 0);
    EXPECT_EQ_INT(p[2].revents, POLLIN);
    EXPECT_EQ_INT(p[3].revents, POLLOUT);
    EXPECT_EQ_INT(p[4].revents, POLLNVAL);
    fake_arrive(f, 1);
    EXPECT_EQ_INT(poll(p, 5, 1000), 4);
    EXPECT_EQ_INT(p[0].revents, POLLIN);
    /* None is listened to: the events of before are gone. */
    for (int i = 0; i < 5; i++)
        p[i].fd = -1;
    EXPECT_EQ_INT(poll(p, 5, 0), 0);
    EXPECT_EQ_INT(p[0].revents, 0);
    fake_close(f);
    fake_close(g);
    close(fd);
}

/* Who waits for a rail and for the kernel's does not ask the kernel at every call, where it has just had nothing; but who
 * does not wait always does, as does who has made a call since, and who finds nothing on the rail. */
TEST_CASE(poll, kernel_is_not_asked_every_time)
{
    struct fake *f = fake_new();
    int box = eventfd(0, EFD_NONBLOCK);
    struct pollfd p[2] = {{.fd = f->fd, .events = POLLIN}, {.fd = box, .events = POLLIN}};
    uint64_t until = sys_now() + 20000000000ull, one = 1, n;
    int said = 0;

    fake_board(f);
    fake_arrive(f, 1);
    /* System calls of the test's own, which nobody has seen. */
    do {
        EXPECT_EQ_INT(poll(p, 2, 1000), 1);
        sys_write(box, &one, sizeof one);
        said = poll(p, 2, 1000);
        if (said == 2)
            sys_read(box, &n, sizeof n);
    } while (said == 2 && sys_now() < until);
    EXPECT_EQ_INT(said, 1); /* once in many, at least */
    EXPECT_EQ_INT(p[1].revents, 0);
    EXPECT_EQ_INT(poll(p, 2, 0), 2);
    EXPECT_EQ_INT(p[1].revents, POLLIN);
    for (int i = 0; i < 200; i++) {
        sys_read(box, &n, sizeof n);
        EXPECT_EQ_INT(poll(p, 2, 1000), 1);
        sys_write(box, &one, sizeof one);
        switch (i % 4) {
        case 0: /* seen, for a number that is nobody's */
            EXPECT(!pl_hold(box));
            EXPECT_EQ_INT(poll(p, 2, 1000), 2);
            break;
        case 1: /* another set */
            p[1].events = POLLIN | POLLPRI;
            EXPECT_EQ_INT(poll(p, 2, 1000), 2);
            p[1].events = POLLIN;
            break;
        case 2: /* nothing else ends the wait */
            EXPECT_EQ_INT(fake_read(f, 1), 1);
            EXPECT_EQ_INT(poll(p, 2, -1), 1);
            EXPECT_EQ_INT(p[1].revents, POLLIN);
            fake_arrive(f, 1);
            break;
        default: /* time has passed */
            for (uint64_t at = sys_now(); sys_now() - at < PL_KERNEL_NS;)
                ;
            EXPECT_EQ_INT(poll(p, 2, 1000), 2);
        }
    }
    fake_close(f);
    sys_close(box);
}

TEST_CASE(poll, large_set)
{
    enum { N = 900 };
    static struct pollfd p[N];
    struct fake *f = fake_new();

    for (int i = 0; i < N; i++)
        p[i] = (struct pollfd){.fd = -1};
    p[N - 1] = (struct pollfd){.fd = f->fd, .events = POLLIN};
    fake_board(f);
    EXPECT_EQ_INT(poll(p, N, 2), 0);
    fake_arrive(f, 1);
    EXPECT_EQ_INT(poll(p, N, 1000), 1);
    EXPECT_EQ_INT(p[N - 1].revents, POLLIN);
    fake_close(f);
}

TEST_CASE(poll, sleepers_are_woken)
{
    struct fake *f = fake_new();
    int fd = eventfd(0, EFD_NONBLOCK);
    uint64_t box = 1;

    fake_board(f);
    for (int i = 0; i < 60; i++) {
        struct sleeper s;

        start(&s, 5000, 3, f, fd);
        if (i % 3 == 1)
            while (!atomic_load(&fake_sleepers))
                sys_yield();
        if (i % 3 == 2)
            asleep(&s);
        if (i & 1)
            fake_arrive(f, 1);
        else
            EXPECT_EQ_INT(write(fd, &box, sizeof box), sizeof box);
        pthread_join(s.thread, NULL);
        ASSERT_EQ_INT(s.n, 1);
        EXPECT_EQ_INT(s.p[i & 1 ? 0 : 1].revents, POLLIN);
        fake_read(f, 1);
        (void)!read(fd, &box, sizeof box);
    }
    fake_close(f);
    close(fd);
}

TEST_CASE(poll, boards_and_leaves_while_a_thread_sleeps)
{
    for (int mixed = 0; mixed < 2; mixed++) {
        struct fake *f = fake_new(), *g = fake_new();
        struct sleeper s;

        if (mixed)
            fake_board(g);
        start(&s, 5000, 2, f, mixed ? g->fd : -1);
        asleep(&s);
        fake_board(f);
        EXPECT_EQ_INT(write(f->peer, "frame", 5), 5);
        asleep(&s);
        EXPECT(!atomic_load(&s.done));
        fake_arrive(f, 1);
        pthread_join(s.thread, NULL);
        EXPECT_EQ_INT(s.n, 1);
        EXPECT_EQ_INT(s.p[0].revents, POLLIN);
        fake_read(f, 1);
        {
            char frame[8];

            EXPECT_EQ_INT(read(f->fd, frame, sizeof frame), 5);
        }
        start(&s, 5000, 2, f, mixed ? g->fd : -1);
        asleep(&s);
        fake_leave(f);
        asleep(&s);
        EXPECT_EQ_INT(write(f->peer, "bytes", 5), 5);
        pthread_join(s.thread, NULL);
        EXPECT_EQ_INT(s.n, 1);
        EXPECT_EQ_INT(s.p[0].revents, POLLIN);
        fake_close(f);
        fake_close(g);
    }
}

TEST_CASE(poll, time_is_kept_and_costs_no_cpu)
{
    struct fake *f = fake_new();
    struct timespec ts = {0, 20000000};
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    struct sleeper s;
    uint64_t begin;

    fake_board(f);
    start(&s, 80, 1, f, -1);
    for (int i = 0; i < 10; i++) {
        fake_ms(3);
        fake_board(f);
    }
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 0);
    EXPECT(s.took >= 80000000 && s.took < 300000000);
    EXPECT(s.cpu < 20000000);
    begin = sys_now();
    EXPECT_EQ_INT(ppoll(&p, 1, &ts, NULL), 0);
    EXPECT(sys_now() - begin >= 20000000);
    EXPECT_EQ_INT(ts.tv_nsec, 20000000);
    ts.tv_nsec = -1;
    EXPECT_EQ_INT(ppoll(&p, 1, &ts, NULL), -1);
    EXPECT_EQ_INT(errno, EINVAL);
    fake_close(f);
}

/* The anchor's level that the engine says is nothing: no spinning on it, and nothing is missed. */
TEST_CASE(poll, hint_that_stays_costs_no_cpu)
{
    struct fake *f = fake_new();
    struct sleeper s;

    fake_board(f);
    f->deaf = true;
    sys_close(f->peer); /* POLLHUP */
    f->peer = -1;
    start(&s, 100, 1, f, -1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 0);
    EXPECT(s.cpu < 20000000);
    start(&s, 5000, 1, f, -1);
    asleep(&s);
    fake_arrive(f, 1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    fake_close(f);
}

static sigjmp_buf out;

static void jump(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

static void nothing(int sig)
{
    (void)sig;
}

static void catch (void (*fn)(int))
{
    struct sigaction sa = {.sa_handler = fn, .sa_flags = SA_RESTART};

    sigaction(SIGALRM, &sa, NULL);
}

static void alarm_in(int ms)
{
    struct itimerval it = {.it_value = {.tv_usec = ms * 1000}};

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

/* Who sleeps on the same processor, and is meant to be idle, is woken and does not run. */
static void *hogs(void *cpu)
{
    on_processor(pthread_self(), *(int *)cpu);
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

/* The kernel's poll has an event, which is a frame, and a handler runs before it returns: the application's poll was
 * interrupted. */
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
    alarm_in(10);
    EXPECT_EQ_INT(one(f, POLLIN, 5000), -EINTR);
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
    struct fake *f = fake_new();

    catch (jump);
    fake_board(f);
    for (int i = 0; i < 20; i++) {
        if (sigsetjmp(out, 1) == 0) {
            alarm_in(3);
            one(f, POLLIN, 5000);
            FAILF("was not interrupted");
        }
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
            fake_ms(1);
        pthread_cancel(t);
        pthread_join(t, &result);
        EXPECT(result == PTHREAD_CANCELED);
        EXPECT(!fake_watched(f));
        EXPECT_EQ_INT(atomic_load(&f->word_refs), 0);
    }
    fake_close(f);
}

TEST_CASE(poll, stream_in_an_epoll_instance)
{
    struct fake *f = fake_new();
    int ep = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN};
    struct sleeper s;

    epoll_ctl(ep, EPOLL_CTL_ADD, f->fd, &ev);
    fake_board(f);
    for (int i = 0; i < 5; i++) {
        start(&s, -1, 1, f, -1); /* one that is not told sleeps until the test is ended */
        asleep(&s);
        fake_arrive(f, 1);
        pthread_join(s.thread, NULL);
        EXPECT_EQ_INT(s.n, 1);
        fake_read(f, 1);
    }
    fake_close(f);
    pl_put(pl_take(ep));
    sys_close(ep);
}
