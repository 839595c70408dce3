/*
 * set_ids.c - who asks for asynchronous cancellation first, for which the library starts a thread
 * and cancels it, while another thread changes ids, for which libc waits until every thread has
 * answered. Each try is a process of its own.
 */
#include "pair.h"

#include <pthread.h>
#include <sys/wait.h>

enum { TRIES = 15 };

static _Atomic bool begun, over;

static void *setting(void *unused)
{
    (void)unused;
    for (; !over; begun = true)
        must(setgid(getgid()) == 0, "setgid");
    return NULL;
}

static void one_try(unsigned steps)
{
    pthread_t t;

    alarm(20);
    must(pthread_create(&t, NULL, setting, NULL) == 0, "thread");
    while (!begun)
        sched_yield();
    for (volatile unsigned n = steps; n; n--)
        ;
    must(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0, "type");
    over = true;
    must(pthread_join(t, NULL) == 0, "join");
    _exit(0);
}

int main(void)
{
    fflush(stdout);
    for (unsigned i = 0; i < TRIES; i++) {
        pid_t child = fork();
        int status;

        must(child >= 0, "fork");
        if (child == 0)
            one_try(i * 7919 % 30000);
        must(waitpid(child, &status, 0) == child, "waitpid");
        if (status)
            printf("try %u ended with status %d\n", i, status);
    }
    puts("tried");
    return 0;
}
