/*
 * actions.c - what sigaction and its family say and do, before a stream has boarded and after: a
 * program reads back what it has set, and its handlers run with the masks, on the stacks and with
 * the words that it asked for.
 */
#include "rounds.h"

#include <stdint.h>
#include <sys/wait.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#include <ucontext.h>

static int p[2];
static volatile sig_atomic_t count, nested, deepest, blocked, on_stack, value, first, ordered;
static char stack[1 << 16];

static void plain(int sig)
{
    (void)sig;
    count++;
}

static void with_info(int sig, siginfo_t *info, void *uc)
{
    char here;

    (void)sig;
    (void)uc;
    count++;
    on_stack = (uintptr_t)&here - (uintptr_t)stack < sizeof(stack);
    value = info->si_code == SI_QUEUE ? info->si_value.sival_int : -1;
}

static void nesting(int sig)
{
    sigset_t now;

    pthread_sigmask(SIG_SETMASK, NULL, &now);
    blocked = sigismember(&now, sig) * 10 + sigismember(&now, SIGUSR2);
    nested++;
    if (nested > deepest)
        deepest = nested;
    if (deepest < 3 && count++ < 3)
        raise(sig);
    nested--;
}

static const char *name_of(void (*h)(int))
{
    return h == plain                              ? "plain"
           : h == (void (*)(int))(void *)with_info ? "with_info"
           : h == nesting                          ? "nesting"
           : h == SIG_DFL                          ? "SIG_DFL"
           : h == SIG_IGN                          ? "SIG_IGN"
           : h == SIG_ERR                          ? "SIG_ERR"
           : h == SIG_HOLD                         ? "SIG_HOLD"
                                                   : "something else";
}

static void show(const char *what, int sig)
{
    struct sigaction sa;

    must(sigaction(sig, NULL, &sa) == 0, "sigaction");
    printf("%s: %s, flags %x, mask %d%d%d\n", what, name_of(sa.sa_handler),
           (unsigned)sa.sa_flags & ~0x04000000u, sigismember(&sa.sa_mask, SIGUSR2),
           sigismember(&sa.sa_mask, sig), sigismember(&sa.sa_mask, SIGTERM));
}

static void set(int sig, void *handler, int flags, int masked)
{
    struct sigaction sa = {.sa_flags = flags}, old;

    sa.sa_handler = (void (*)(int))handler;
    if (masked)
        sigaddset(&sa.sa_mask, masked);
    SHOW(sigaction(sig, &sa, &old));
    printf("    before: %s, flags %x\n", name_of(old.sa_handler),
           (unsigned)old.sa_flags & ~0x04000000u);
}

static void family(void)
{
    sigset_t mask;

    SHOW(sigaction(0, NULL, NULL));
    SHOW(sigaction(65, NULL, NULL));
    SHOW(sigaction(SIGKILL, &(struct sigaction){.sa_handler = plain}, NULL));
    SHOW(sigaction(32, &(struct sigaction){.sa_handler = plain}, NULL));
    printf("signal: %s\n", name_of(signal(SIGHUP, plain)));
    show("signal", SIGHUP);
    printf("signal: %s\n", name_of(signal(SIGHUP, SIG_IGN)));
    printf("signal: %s\n", name_of(signal(SIGKILL, plain)));
    printf("signal: %s\n", name_of(signal(99, plain)));
    printf("signal: %s\n", name_of(signal(SIGHUP, plain)));
    SHOW(siginterrupt(SIGHUP, 1));
    show("siginterrupt 1", SIGHUP);
    signal(SIGHUP, plain);
    show("signal after it", SIGHUP);
    SHOW(siginterrupt(SIGHUP, 0));
    show("siginterrupt 0", SIGHUP);
    printf("ssignal: %s\n", name_of(ssignal(SIGHUP, plain)));
    printf("sysv_signal: %s\n", name_of(sysv_signal(SIGHUP, plain)));
    show("sysv_signal", SIGHUP);
    printf("sigset: %s\n", name_of(sigset(SIGHUP, SIG_HOLD)));
    printf("sigset: %s\n", name_of(sigset(SIGHUP, plain)));
    show("sigset", SIGHUP);
    SHOW(sigignore(SIGHUP));
    show("sigignore", SIGHUP);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    printf("blocked: %d\n", sigismember(&mask, SIGHUP));
    signal(SIGHUP, SIG_DFL);
}

static void behaviour(void)
{
    stack_t ss = {.ss_sp = stack, .ss_size = sizeof(stack)}, old;
    int status;
    pid_t pid;

    count = 0;
    set(SIGUSR1, plain, (int)SA_RESETHAND, SIGUSR2);
    raise(SIGUSR1);
    printf("ran %d times\n", count);
    show("after SA_RESETHAND", SIGUSR1);
    pid = fork();
    if (pid == 0) {
        set(SIGUSR1, plain, (int)SA_RESETHAND, 0);
        raise(SIGUSR1);
        raise(SIGUSR1);
        _exit(0);
    }
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    printf("the second one killed: %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);

    sigaltstack(&ss, &old);
    set(SIGUSR1, (void *)with_info, SA_SIGINFO | SA_ONSTACK, 0);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 77});
    printf("on its stack %d, value %d\n", on_stack, value);
    set(SIGUSR1, (void *)with_info, SA_SIGINFO, 0);
    raise(SIGUSR1);
    printf("on its stack %d, value %d\n", on_stack, value);
    sigaltstack(&old, NULL);

    count = nested = deepest = 0;
    set(SIGUSR1, nesting, SA_NODEFER, SIGUSR2);
    raise(SIGUSR1);
    printf("deepest %d, blocked %02d\n", deepest, blocked);
    count = nested = deepest = 0;
    set(SIGUSR1, nesting, 0, SIGUSR2);
    raise(SIGUSR1);
    printf("deepest %d, blocked %02d\n", deepest, blocked);
    set(SIGUSR1, SIG_IGN, 0, 0);
    raise(SIGUSR1);
    set(SIGUSR1, SIG_DFL, 0, 0);
    show("at last", SIGUSR1);
}

/* Signals that find the thread inside our calls, too: each value once, and in order. */
static void counting(int sig, siginfo_t *info, void *uc)
{
    sigset_t now;

    (void)uc;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    if (!sigismember(&now, sig) || !sigismember(&now, SIGUSR2) || sigismember(&now, SIGTERM))
        blocked = -1;
    if (info->si_value.sival_int != first)
        ordered = 0;
    first++;
}

enum { QUEUED = 1000 };
static pthread_t victim_thread;

static void *queueing(void *directed)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (int i = 0; i < QUEUED; i++) {
        union sigval number = {.sival_int = i};

        while ((directed ? pthread_sigqueue(victim_thread, SIGRTMIN + 3, number)
                         : sigqueue(getpid(), SIGRTMIN + 3, number)) != 0)
            sched_yield(); /* too many are waiting */
        for (int limit = 0; i - first > 1 && limit < 50; limit++)
            sched_yield();
    }
    return NULL;
}

static void queued(void *directed)
{
    struct sigaction sa = {.sa_sigaction = counting, .sa_flags = SA_SIGINFO | SA_RESTART}, was;
    pthread_t t;
    char bytes[100];

    doing = "queued";
    first = blocked = 0;
    ordered = 1;
    sigaddset(&sa.sa_mask, SIGUSR2);
    must(sigaction(SIGRTMIN + 3, &sa, &was) == 0, "sigaction");
    victim_thread = pthread_self();
    pthread_create(&t, NULL, queueing, directed);
    while (first < QUEUED) {
        ssize_t n = write(p[0], "some bytes", 10), have = 0;

        must(n == 10, "write");
        while (have < 10) {
            n = read(p[1], bytes, sizeof(bytes));
            must(n > 0, "read");
            have += n;
        }
    }
    pthread_join(t, NULL);
    printf("%d queued signals, in order: %d, masks: %d\n", first, ordered, blocked);
    sigaction(SIGRTMIN + 3, &was, NULL);
}

/* A handler that was there before the library had a reason to know. */
static void older(void)
{
    count = 0;
    show("older", SIGCHLD);
    raise(SIGCHLD);
    printf("ran %d times\n", count);
    signal(SIGCHLD, SIG_DFL);
}

int main(void)
{
    struct sigaction sa = {.sa_handler = plain, .sa_flags = SA_NODEFER | SA_RESTART};

    start_deadline();
    sigaddset(&sa.sa_mask, SIGTERM);
    must(sigaction(SIGCHLD, &sa, NULL) == 0, "sigaction");
    puts("-- before");
    family();
    tcp_pair(p);
    on_rail(p);
    puts("-- after");
    older();
    family();
    behaviour();
    queued(NULL);
    queued(p);
    on_rail(p);
    return 0;
}
