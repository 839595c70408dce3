/*
 * cut_anywhere.c - a signal whose handler does not restart calls, at each instruction of a recv()
 * that waits, in turn: wherever it comes after the call has begun, the call ends with it, and does
 * not sleep. The receiver has learnt to expect its bytes soon, so the call looks for them for a
 * moment before anything else.
 */
#include "../answers.h"
#include "rounds.h"
#include "walk.h"

enum {
    EXPECTS = 8,
    /* instructions before the kernel's call, or before the library's has begun: 43 to 137 were
     * seen */
    ROOM = 200
};

static int p[2];

/* Of both processes. */
static struct shared {
    volatile bool back; /* the call has returned */
    volatile bool over; /* the parent has been everywhere */
    unsigned lost;
} * both;

static _Atomic bool at_once, fed;

/* A byte, at once or when the receiver sleeps. */
static void feed(void *unused)
{
    (void)unused;
    while (!at_once && state_of(getpid()) != 'S')
        sched_yield();
    fed = true;
    must(write(p[0], "x", 1) == 1, "write");
}

static struct answers feeder = {.give = feed};

static volatile bool in_call, cut;

static void handler(int sig)
{
    (void)sig;
    /* After the byte has come it is too late for the call to end with it. */
    cut = cut || (in_call && !fed);
}

static void expect_soon(void)
{
    char c;

    /* What is given to who was cut off. */
    at_once = true;
    answers_all_given(&feeder);
    while (recv(p[1], &c, 1, MSG_DONTWAIT) == 1)
        ;
    for (int n = 0; n < EXPECTS; n++) {
        answers_ask(&feeder);
        while (recv(p[1], &c, 1, 0) != 1)
            ;
    }
    at_once = false;
}

static int child(void)
{
    struct sigaction sa = {.sa_handler = handler};

    must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    start_deadline();
    doing = "recv";
    must(sigaction(SIGUSR1, &sa, NULL) == 0, "sigaction");
    tcp_pair(p);
    on_rail(p);
    must(answers_begin(&feeder), "a thread");
    while (!both->over) {
        char c;
        ssize_t n;

        expect_soon();
        fed = cut = both->back = false;
        raise(SIGTRAP);
        in_call = true;
        answers_ask(&feeder);
        n = recv(p[1], &c, 1, 0);
        in_call = false;
        both->back = true;
        if (n == 1 && cut)
            both->lost++;
    }
    at_once = true;
    answers_end(&feeder);
    return 0;
}

/* The child is in its raise: what it goes on with. */
static int next(pid_t pid)
{
    static struct walk w;
    static unsigned n;
    int signal = walk_on(&w, &n, pid, &both->back);

    both->over = signal < 0;
    return both->over ? 0 : signal;
}

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (!CAN_WALK)
        return 0;
    both = shared_by_all(sizeof(*both));
    trace_child(child, next);
    if (both->lost <= ROOM)
        puts("a signal ends it wherever it comes");
    else
        printf("slept after %u of its signals\n", both->lost);
    return 0;
}
