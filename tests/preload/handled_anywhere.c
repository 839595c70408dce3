/*
 * handled_anywhere.c - cancellation and handlers, in a child for one instruction after another:
 *  - a thread that may be cancelled in cancellation points alone sleeps in one, and a handler that
 *    has come over it is in a call on another connection when it is cancelled, at each of that
 *    call's instructions;
 *  - a thread that may be cancelled anywhere is in a call, and at each of its instructions a
 *    handler comes that jumps out, before it is cancelled, or in which it is cancelled. It makes no
 *    call afterwards.
 * It ends, and the connection goes on.
 */
#include "cancelled.h"

#include <setjmp.h>

static int other[2];
static sigjmp_buf out;
static _Atomic int main_tid;

struct trial {
    const char *name;
    void (*make)(void);
    void (*handler)(int);
    unsigned each; /* odd: see set_handler */
    bool deferred; /* the handler makes the call, and is come by signal */
};
static const struct trial *trial;

static void made(void)
{
    trial->make();
    both->over = true;
    if (!both->wish)
        raise(SIGTRAP); /* it did not come by that instruction this time */
}

static void makes(int sig)
{
    (void)sig;
    raise(SIGTRAP);
    made();
}

static void jumps(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

/* Below all that has been on the stack, which is written over: by that the library knows that the
 * handler is there no more. */
static void deep(void)
{
    char room[65536];

    memset(room, 0, sizeof(room));
    __asm__ volatile("" ::"r"(room) : "memory");
    both->wish = 1;
    for (;;)
        ;
}

/* It is cancelled in the handler, but that may have come where the thread cannot end, and its call
 * is no cancellation point. */
static void goes_on_after(int sig)
{
    int n;

    (void)sig;
    cancel_it_there();
    ioctl(p[1], FIONREAD, &n);
}

static void *canceller(void *unused)
{
    (void)unused;
    if (trial->deferred) {
        until_it_sleeps(&main_tid);
        syscall(SYS_tgkill, getpid(), main_tid, SIGUSR1);
    }
    cancel_first(after);
    return NULL;
}

static const struct trial trials[] = {{"write in a handler", write_piece, makes, 65, true},
                                      {"jump out of read", read_piece, jumps, 65, false},
                                      {"jump out of write", write_piece, jumps, 65, false},
                                      {"read", read_piece, goes_on_after, 65, false}};

/* Every other one on a stack of its own. */
static void set_handler(bool on_stack)
{
    static char stack[65536];
    struct sigaction act = {.sa_handler = trial->handler,
                            .sa_flags = SA_RESTART | (on_stack ? SA_ONSTACK : 0)};

    must(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack)}, NULL) == 0 &&
             sigaction(SIGUSR1, &act, NULL) == 0,
         "handler");
}

static void child(unsigned n)
{
    pthread_t t;
    char c;

    must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    alarm(120);
    first = pthread_self();
    connected(p);
    in_hand();
    if (trial->deferred)
        connected(other);
    set_handler(n % 2);
    must(pthread_create(&t, NULL, canceller, NULL) == 0, "thread");
    if (trial->deferred) {
        main_tid = gettid();
        for (;;)
            (void)!read(other[1], &c, 1);
    }
    must(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0, "type");
    if (sigsetjmp(out, 1) == 0) {
        raise(SIGTRAP);
        made();
    }
    deep();
}

/* One child, at its n'th place, or walked through. */
static void one(struct walk *w, unsigned n)
{
    pid_t pid = next_child();
    int status;

    if (pid == 0) {
        child(n);
        _exit(1);
    }
    status = first_stop(pid);
    if (trial->deferred)
        must(WIFSTOPPED(status) && WSTOPSIG(status) == SIGUSR1 &&
                 goes_on(pid, PTRACE_CONT, SIGUSR1, &status),
             "the signal");
    if (!at_place(w, n, pid, status))
        return;
    if (trial->deferred)
        cancel_it_there();
    goes_well(w, n, pid, trial->deferred ? 0 : SIGUSR1, trial->name);
}

/* Closer together at its end, where a function gives its frame back. */
static unsigned step(const struct walk *w, unsigned n)
{
    return w->places - n < 32 ? 3 : walk_step(w, trial->each);
}

int main(void)
{
    static struct walk w;

    if (!may_trace())
        return 0;
    for (unsigned i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        trial = &trials[i];
        w.places = 0;
        for (unsigned n = 0; n == 0 || n < w.places; n += step(&w, n))
            one(&w, n);
        printf("%s: cancelled\n", trial->name);
    }
    return 0;
}
