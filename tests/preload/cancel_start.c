/*
 * cancel_start.c - threads that are cancelled at any moment of their first calls, in which the
 * library begins to work: its thread, its rendezvous. Whatever the cancelled thread has left,
 * another connection of the process works, and boards. Each try is a process of its own.
 */
#include "pair.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { TRIES = 60 };

static int p[2];
static _Atomic int begun;

static void *first_calls(void *unused)
{
    (void)unused;
    begun = 1;
    for (int i = 0; i < 20; i++) {
        pass(p, 0);
        pass(p, 1);
    }
    return NULL;
}

/* 0, or what the child was ended by. */
static int one_try(unsigned steps)
{
    pid_t child = fork();
    int status;

    must(child >= 0, "fork");
    if (child == 0) {
        struct sockaddr_in at;
        int l = listener(&at), q[2];
        pthread_t t;

        alarm(120);
        pair_at(l, &at, p);
        pthread_create(&t, NULL, first_calls, NULL);
        while (!begun)
            sched_yield();
        for (volatile unsigned n = steps; n; n--)
            ;
        pthread_cancel(t);
        pthread_join(t, NULL);
        pair_at(l, &at, q);
        warm(q);
        deliver(q[0], q[1], "works");
        _exit(0);
    }
    must(waitpid(child, &status, 0) == child, "waitpid");
    return status;
}

int main(void)
{
    fflush(stdout);
    for (unsigned i = 0; i < TRIES; i++) {
        int status = one_try(i * 7919u % 300000);

        if (status)
            printf("try %u ended with status %d\n", i, status);
    }
    puts("tried");
    return 0;
}
