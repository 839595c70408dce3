/*
 * jumps_out.h - a handler that jumps out of a call in which the thread sleeps, and who
 * sends it the signal.
 */
#ifndef TESTS_UNIT_JUMPS_OUT_H
#define TESTS_UNIT_JUMPS_OUT_H

#include "tests/asleep.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static sigjmp_buf out;

static _Atomic int in_call; /* and not yet out of it */
static _Atomic int sleeper;

static void jump(int sig)
{
    (void)sig;
    if (!in_call)
        return;
    in_call = 0;
    siglongjmp(out, 1);
}

/* The signal is for who sleeps, and not for what precedes that: a library's function that is not to
 * be jumped out of. Again where a handler is put off, as who watches threads does. */
static void *wakes(void *thread)
{
    until_it_sleeps(&sleeper);
    while (in_call) {
        pthread_kill(*(pthread_t *)thread, SIGALRM);
        usleep(3000);
    }
    return NULL;
}

#endif
