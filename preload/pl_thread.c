/*
 * pl_thread.c - a main thread that ends by pthread_exit. The process then lives until its last thread
 * has ended, and ends with status 0. Our progress thread never ends, so it looks whether it is the only
 * one that is left, and then does what the last thread would have done.
 */
#include "preload/pl_own.h"

#include "rsock/loop.h"
#include "rsock/sys.h"

#include <stdlib.h>

#define LOOK_NS 20000000u

/* Progress thread. The main thread stays a zombie until the process ends, and is counted. */
static void look(void *unused)
{
    (void)unused;
    if (pl_alone())
        exit(0);
    rsk_timer_add(LOOK_NS, look, NULL);
}

PL_EXPORT void pthread_exit(void *value)
{
    pl_ready();
    if (sys_gettid() == sys_getpid() && rsk_loop_running())
        rsk_loop_post(look, NULL);
    pl_real.pthread_exit(value);
    __builtin_unreachable();
}
