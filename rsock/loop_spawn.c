/*
 * loop_spawn.c - the making of the progress thread: with all signals blocked, a small
 * stack, and no hurry.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "rsock/loop_backend.h"
#include "rsock/sys.h"

enum { STACK = 256 * 1024 };

/* The thread does not inherit a real-time priority of the starter's, with which it would keep
 * others from their processor. But under a seccomp filter, which may kill whoever asks for the
 * policy, nothing is asked, and the starter's stays. */
static void not_in_a_hurry(pthread_attr_t *attr)
{
    const struct sched_param none = {0};
    long policy = sys_filtered() ? SCHED_OTHER : SYS6(SYS_sched_getscheduler, 0, 0, 0, 0, 0, 0);

    if ((policy & ~(long)SCHED_RESET_ON_FORK) != SCHED_FIFO &&
        (policy & ~(long)SCHED_RESET_ON_FORK) != SCHED_RR)
        return;
    pthread_attr_setinheritsched(attr, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(attr, SCHED_OTHER);
    pthread_attr_setschedparam(attr, &none);
}

int loop_spawn(pthread_t *thread, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int err = pthread_attr_init(&attr);

    if (err)
        return -err;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_setstacksize(&attr, STACK);
    not_in_a_hurry(&attr);
    err = pthread_create(thread, &attr, run, arg);
    /* Much thread-local memory in the program comes off the stack: EINVAL if it does not fit. */
    if (err == EINVAL) {
        pthread_attr_destroy(&attr);
        pthread_attr_init(&attr);
        not_in_a_hurry(&attr);
        err = pthread_create(thread, &attr, run, arg);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -err;
}
