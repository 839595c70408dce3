/*
 * rounds.h - for the programs about signals: a thread that is sent signals while it is in a call, a
 * call on a stream that is really on a rail, and a deadline of the program's own.
 */
#ifndef TESTS_PRELOAD_ROUNDS_H
#define TESTS_PRELOAD_ROUNDS_H

#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

/* A thread in a call, round by round. */
struct victim {
    _Atomic int tid;
    _Atomic unsigned round;    /* it is in the call of this round, or about to be */
    _Atomic unsigned returned; /* of this one it has returned */
};

/* Or until the round is over. */
static inline void until_asleep(struct victim *v, unsigned round)
{
    while (v->returned < round && state_of(v->tid) != 'S')
        sched_yield();
}

/* Not for a moment, as for a lock: it is the same sleep at several looks. */
static inline void until_fast_asleep(struct victim *v, unsigned round)
{
    enum { LOOKS = 4 };
    unsigned long sleeps = 0;

    for (int same = 0; v->returned < round && same < LOOKS; sched_yield()) {
        unsigned long now = sleep_of(v->tid);

        same = now && now == sleeps ? same + 1 : 0;
        sleeps = now;
    }
}

static inline void hit(struct victim *v, int sig)
{
    syscall(SYS_tgkill, getpid(), v->tid, sig);
}

/* The program ends by itself if something hangs. */
static void *deadline(void *what)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    sleep(250);
    printf("HANGS: %s\n", *(const char *_Atomic *)what);
    fflush(stdout);
    _exit(3);
}

static const char *_Atomic doing = "";

static inline void start_deadline(void)
{
    pthread_t t;

    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_create(&t, NULL, deadline, (void *)&doing);
}

/* Long spins, so that signals find threads that spin. The library reads it when it is loaded. */
static inline void with_spin(char **argv, const char *us)
{
    if (getenv("RAILSOCK_SPIN"))
        return;
    setenv("RAILSOCK_SPIN", us, 1);
    execv("/proc/self/exe", argv);
    give_up("exec");
}

#endif
