/*
 * poll_words_test.c - poll over streams on rails alone: the thread sleeps on their words, and hears
 * of all else by their watchers. As poll_test.c, over a fake engine.
 */
#include "tests/asleep.h"
#include "tests/shim/shim.h"
#include "tests/unit/epoll_fake.h"
#include "tests/unit/jumps_out.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "preload/pl_poll.h"
#include "rsock/sys.h"
#include "rsock/waitv.h"

enum { MOST = 90 };

struct sleeper {
    pthread_t thread;
    struct pollfd p[MOST];
    nfds_t count;
    int ms, n;
    _Atomic int tid;
    _Atomic bool done;
};

static struct fake *words_new(void)
{
    struct fake *f = fake_new();

    f->has_words = true;
    fake_board(f);
    return f;
}

static void *sleep_once(void *arg)
{
    struct sleeper *s = arg;

    s->tid = gettid();
    s->n = poll(s->p, s->count, s->ms);
    atomic_store(&s->done, true);
    return NULL;
}

static void start(struct sleeper *s, int ms, struct fake *const f[], nfds_t count)
{
    memset(s, 0, sizeof *s);
    s->ms = ms;
    s->count = count;
    for (nfds_t i = 0; i < count; i++)
        s->p[i] = (struct pollfd){.fd = f[i] ? f[i]->fd : -1, .events = POLLIN};
    ASSERT_EQ_INT(pthread_create(&s->thread, NULL, sleep_once, s), 0);
}

/* It sleeps on the words of this stream, and others. */
static void asleep(struct sleeper *s, struct fake *f)
{
    while (!atomic_load(&f->word_refs))
        sys_yield();
    until_it_sleeps(&s->tid);
}

/* ---- where the system call is not there, or may be forbidden */

static void filter(uint32_t answer)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {4, code};

    ASSERT_EQ_INT(syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ_INT(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0), 0);
}

/* Waits for a byte and for the time, in a process with such a filter; it is known before
 * or it is not. */
static void filtered(bool known, uint32_t answer)
{
    pid_t pid = fork();
    int status;

    ASSERT(pid >= 0);
    if (pid == 0) {
        struct fake *f = words_new();
        struct pollfd p = {.fd = f->fd, .events = POLLIN};
        struct sleeper s;

        if (known)
            EXPECT(rsk_waitv_usable());
        filter(answer);
        /* Who is held up for that long does not come to sleep. */
        for (int i = 0; i == 0 || (i < 1000 && rsk_waitv_usable()); i++)
            EXPECT_EQ_INT(poll(&p, 1, 5), 0);
        EXPECT(!rsk_waitv_usable());
        start(&s, 20000, &f, 1);
        while (!atomic_load(&fake_sleepers))
            sys_yield();
        fake_arrive(f, 1);
        pthread_join(s.thread, NULL);
        EXPECT_EQ_INT(s.n, 1);
        _exit(0);
    }
    ASSERT(waitpid(pid, &status, 0) == pid);
    EXPECT_EQ_INT(status, 0);
}

/* The first case: nobody has asked yet whether it is usable. */
TEST_CASE(poll_words, a_filter_forbids_it)
{
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer has no threads in a forked child");
#endif
    filtered(false, SECCOMP_RET_KILL_PROCESS);
    filtered(true, SECCOMP_RET_ERRNO | ENOSYS);
}

/* ---- who wakes */

TEST_CASE(poll_words, bytes_wake_by_the_word)
{
    struct fake *f[3] = {words_new(), NULL, words_new()};

    ASSERT(rsk_waitv_usable());
    for (int i = 0; i < 60; i++) {
        struct fake *to = f[i & 1 ? 2 : 0];
        struct sleeper s;

        start(&s, i & 2 ? -1 : 20000, f, 3);
        if (i % 3)
            asleep(&s, to);
        fake_arrive(to, 1);
        pthread_join(s.thread, NULL);
        ASSERT_EQ_INT(s.n, 1);
        EXPECT_EQ_INT(s.p[i & 1 ? 2 : 0].revents, POLLIN);
        EXPECT_EQ_INT(atomic_load(&f[0]->word_refs) + atomic_load(&f[2]->word_refs), 0);
        fake_read(to, 1);
    }
    EXPECT_EQ_INT(atomic_load(&fake_sleepers), 0);
    fake_close(f[0]);
    fake_close(f[2]);
}

/* What comes on the anchor, and changes of state, are told by the watcher. */
TEST_CASE(poll_words, the_watcher_wakes)
{
    struct fake *f[2] = {words_new(), words_new()};
    struct sleeper s;

    start(&s, 20000, f, 2);
    asleep(&s, f[0]);
    fake_hangup(f[0]);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    EXPECT_EQ_INT(s.p[0].revents, POLLIN | POLLHUP);
    fake_close(f[0]);

    /* It goes back to TCP, and what comes there is seen. */
    f[0] = words_new();
    start(&s, 20000, f, 2);
    asleep(&s, f[0]);
    fake_leave(f[0]);
    while (atomic_load(&f[0]->word_refs))
        sys_yield();
    until_it_sleeps(&s.tid);
    EXPECT(!atomic_load(&s.done));
    EXPECT_EQ_INT(write(f[0]->peer, "x", 1), 1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    EXPECT_EQ_INT(s.p[0].revents, POLLIN);

    /* And on its rail again, while the thread sleeps in the kernel. */
    (void)!read(f[0]->fd, &(char){0}, 1);
    start(&s, 20000, f, 2);
    while (!atomic_load(&fake_sleepers))
        sys_yield();
    fake_board(f[0]);
    asleep(&s, f[0]);
    fake_arrive(f[1], 1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    EXPECT_EQ_INT(s.p[1].revents, POLLIN);
    fake_close(f[0]);
    fake_close(f[1]);
}

static void sleeps_in_the_kernel(struct fake *const f[2])
{
    struct sleeper s;

    start(&s, 20000, f, 2);
    while (!atomic_load(&fake_sleepers))
        sys_yield();
    until_it_sleeps(&s.tid);
    EXPECT_EQ_INT(atomic_load(&f[0]->word_refs), 0);
    fake_arrive(f[0], 1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    fake_read(f[0], 1);
}

/* One of them has no words, or the set is too large, or somebody's mask holds meanwhile: the thread
 * sleeps in the kernel. */
TEST_CASE(poll_words, not_possible)
{
    struct fake *f[MOST], *other;
    struct sleeper s;
    struct pollfd p;
    struct timespec ts = {.tv_nsec = 1000000};
    sigset_t none;

    for (int i = 0; i < MOST; i++)
        f[i] = words_new();
    other = f[1];
    other->has_words = false;
    sleeps_in_the_kernel(f);
    other->has_words = true;

    /* Found out when the first one is armed already. */
    other->words_gone = true;
    sleeps_in_the_kernel(f);
    other->words_gone = false;

    sigemptyset(&none);
    p = (struct pollfd){.fd = f[0]->fd, .events = POLLIN};
    atomic_store(&f[0]->by_words, 0);
    EXPECT_EQ_INT(ppoll(&p, 1, &ts, &none), 0);
    EXPECT_EQ_INT(atomic_load(&f[0]->by_words), 0);
    EXPECT_EQ_INT(ppoll(&p, 1, &ts, NULL), 0);
    EXPECT_EQ_INT(atomic_load(&f[0]->by_words), 1);

    /* One word each is enough for so many. */
    start(&s, 20000, f, MOST);
    asleep(&s, f[MOST - 1]);
    fake_arrive(f[MOST - 1], 1);
    pthread_join(s.thread, NULL);
    EXPECT_EQ_INT(s.n, 1);
    for (int i = 0; i < MOST; i++)
        fake_close(f[i]);
}

TEST_CASE(poll_words, larger_than_the_kernel_takes)
{
    static struct pl_words w;
    _Atomic uint32_t own = 0, other = 0;
    struct fb_words two = {.word = {&other, &other}, .n = 2};
    int added = 0;

    pl_words_begin(&w, &own, 0);
    while (pl_words_add(&w, &two))
        added++;
    EXPECT_EQ_INT(added, 63);
    EXPECT_EQ_INT(w.n, 127);
    EXPECT_EQ_INT(pl_words_sleep(&w, sys_now() + 1000000, rsk_sig.seen), 0);
}

static uint64_t cpu(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

TEST_CASE(poll_words, time_is_kept_and_costs_no_cpu)
{
    struct fake *f = words_new();
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    struct timespec ts = {.tv_nsec = 80000000};
    uint64_t begin = sys_now(), used = cpu();

    EXPECT_EQ_INT(poll(&p, 1, 80), 0);
    EXPECT(sys_now() - begin >= 80000000);
    begin = sys_now();
    EXPECT_EQ_INT(ppoll(&p, 1, &ts, NULL), 0);
    EXPECT(sys_now() - begin >= 80000000);
    EXPECT(cpu() - used < 20000000);
    EXPECT_EQ_INT(atomic_load(&f->word_refs), 0);
    fake_close(f);
}

/* Two answers that differ are no reason to keep a processor busy. */
TEST_CASE(poll_words, unsure)
{
    struct fake *f = words_new();
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    uint64_t begin = sys_now();

    f->unsure = true;
    EXPECT_EQ_INT(poll(&p, 1, 20), 0);
    EXPECT((uint64_t)atomic_load(&f->arms) <= 5 + (sys_now() - begin) / 1000000);
    EXPECT_EQ_INT(atomic_load(&f->word_refs), 0);
    f->unsure = false;
    fake_close(f);
}

/* As preload/pl_signal.c does around a program's handler. */
static void counted(int sig, siginfo_t *info, void *context)
{
    mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;

    (void)sig, (void)info;
    rsk_sig.seen++;
#if defined(__x86_64__)
    m->gregs[REG_RIP] = (greg_t)rsk_sleep_rewind((uintptr_t)m->gregs[REG_RIP]);
#elif defined(__aarch64__)
    m->pc = rsk_sleep_rewind(m->pc);
#endif
}

/* And every so often from then on: the first may come before the call that it is
 * for. 0: no more. */
static void alarms_every(int ms)
{
    struct itimerval it = {{.tv_usec = ms * 1000}, {.tv_usec = ms * 1000}};

    setitimer(ITIMER_REAL, &it, NULL);
}

/* poll is never restarted, with a time-out or without. */
TEST_CASE(poll_words, signals_interrupt)
{
    struct sigaction sa = {.sa_sigaction = counted, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct fake *f = words_new();
    struct pollfd p = {.fd = f->fd, .events = POLLIN};

#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer puts handlers off until a call of libc's returns");
#endif
    sigaction(SIGALRM, &sa, NULL);
    for (int i = 0; i < 4; i++) {
        alarms_every(5);
        EXPECT_EQ_INT(poll(&p, 1, i & 1 ? -1 : 20000), -1);
        EXPECT_EQ_INT(errno, EINTR);
        alarms_every(0);
        EXPECT_EQ_INT(atomic_load(&f->word_refs), 0);
    }
    fake_close(f);
}

TEST_CASE(poll_words, handler_jumps_out_of_the_sleep)
{
    struct sigaction sa = {.sa_handler = jump};
    pthread_t t, self = pthread_self();
    struct fake *f = words_new();
    struct pollfd p = {.fd = f->fd, .events = POLLIN};

    sigaction(SIGALRM, &sa, NULL);
    for (int i = 0; i < 20; i++) {
        in_call = 1;
        atomic_store(&sleeper, 0);
        pthread_create(&t, NULL, wakes, &self);
        if (sigsetjmp(out, 1) == 0) {
            atomic_store(&sleeper, gettid());
            poll(&p, 1, 20000);
            in_call = 0;
            FAILF("was not interrupted");
        }
        pthread_join(t, NULL);
        /* Its reference is still there, and the next wait gives it back. */
        fake_arrive(f, 1);
        EXPECT_EQ_INT(poll(&p, 1, 20000), 1);
        EXPECT(!fake_watched(f));
        EXPECT_EQ_INT(atomic_load(&f->word_refs), 0);
        fake_read(f, 1);
    }
    fake_close(f);
}

/* ---- no lost wake-up */

enum { STREAMS = 4, ROUNDS = 3000 };

struct stress {
    struct fake *f[STREAMS];
    _Atomic int sent[STREAMS], got[STREAMS];
    _Atomic bool stop;
};

static void *consumer(void *arg)
{
    struct stress *s = arg;

    while (!atomic_load(&s->stop)) {
        struct pollfd p[STREAMS];

        for (int i = 0; i < STREAMS; i++)
            p[i] = (struct pollfd){.fd = s->f[i]->fd, .events = POLLIN};
        poll(p, STREAMS, 20000);
        for (int i = 0; i < STREAMS; i++) {
            char buf[64];
            ssize_t n = fake_read(s->f[i], 100);

            atomic_fetch_add(&s->got[i], (int)n);
            if ((n = recv(p[i].fd, buf, sizeof buf, MSG_DONTWAIT)) > 0)
                atomic_fetch_add(&s->got[i], (int)n);
        }
    }
    return NULL;
}

TEST_CASE(poll_words, stress)
{
    static struct stress s;
    unsigned seed = (unsigned)test_seed();
    pthread_t t[2];
    int lost = 0;

    for (int i = 0; i < STREAMS; i++)
        s.f[i] = words_new();
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, consumer, &s);
    for (int r = 0; r < ROUNDS && !lost; r++) {
        int i = (int)(rand_r(&seed) % STREAMS);
        uint64_t limit = sys_now() + 5000000000u;

        /* Not the first: who sleeps on a set of plain streams is woken by a frame, and
         * here is none. */
        if (i > 0 && rand_r(&seed) % 8 == 0)
            fake_switch(s.f[i]);
        atomic_fetch_add(&s.sent[i], 1);
        EXPECT(fake_send(s.f[i]));
        while (atomic_load(&s.got[i]) < atomic_load(&s.sent[i]) && !lost) {
            lost = sys_now() > limit;
            sys_yield();
        }
    }
    EXPECT_EQ_INT(lost, 0);
    atomic_store(&s.stop, true);
    for (int i = 0; i < STREAMS; i++)
        fake_hangup(s.f[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < STREAMS; i++) {
        EXPECT_EQ_INT(atomic_load(&s.f[i]->word_refs), 0);
        fake_close(s.f[i]);
    }
}
