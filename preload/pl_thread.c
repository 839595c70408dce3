/*
 * pl_thread.c - a main thread that ends by pthread_exit or thrd_exit, or is cancelled. The process
 * then lives until its last thread has ended, and ends with status 0. Our progress thread never
 * ends, so it looks whether it is the only one that is left, and then does what the last thread
 * would have done. Where it cannot see that, for want of a /proc, it ends first, for good, and libc
 * counts the others itself.
 */
#include "preload/pl_own.h"

#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/sys.h"

#include <pthread.h>
#include <stdlib.h>
#include <threads.h>

#define LOOK_NS   20000000u
#define LOOK_MOST 1000000000u

static _Atomic bool main_ended;

/* Progress thread. The main thread stays a zombie until the process ends, and is counted. Where the
 * others go on for long nobody waits for the end by the millisecond. */
static void look(void *unused)
{
    static uint32_t pause = LOOK_NS;

    (void)unused;
    if (pl_alone())
        exit(0);
    rsk_timer_add(pause, look, NULL);
    if (pause < LOOK_MOST)
        pause += pause / 8;
}

/* The progress thread has begun: a rail is wanted. main_ends() sets the flag, then posts look(),
 * which fails if this thread does not run; this thread runs, then reads the flag: at least one of
 * the two starts look(). If both do, no harm is done. */
static void started(void *unused)
{
    (void)unused;
    if (atomic_load(&main_ended))
        look(NULL);
}

/* A child's main thread is the one that forked. */
static void in_child(void)
{
    atomic_store(&main_ended, false);
}

static void main_ends(void)
{
    if (atomic_load_explicit(&pl_passive, memory_order_relaxed) || sys_gettid() != sys_getpid())
        return;
    if (!pl_sees_threads()) {
        struct pl_hold h;

        if (!pl_is_owner())
            return;
        pl_hold_begin(&h, RSN_CALL, FB_HOLD_THREAD); /* without an end */
        if (pl_started())
            pl_plain_for_good(RSN_CALL);
        return;
    }
    atomic_store(&main_ended, true);
    /* Also while it is away for a call of another thread's (pl_hold.c), after which it goes on with
     * what was posted. */
    (void)rsk_loop_post(look, NULL);
}

static void destroyed(void *unused)
{
    (void)unused;
    main_ends();
}

__attribute__((constructor)) static void at_load(void)
{
    static pthread_key_t key;

    rsk_at_loop_start(started);
    rsk_at_fork_child(in_child);
    /* A main thread that is cancelled comes by none of the functions below. */
    if (pthread_key_create(&key, destroyed) == 0)
        pthread_setspecific(key, &key);
}

int pl_thread_ends(int status)
{
    if (!pl_is_owner())
        return status;
    if (pl_alone()) {
        pl_ending();
        SYS6(SYS_exit_group, status, 0, 0, 0, 0, 0);
    }
    main_ends();
    return status;
}

PL_EXPORT void pthread_exit(void *value)
{
    pl_ready();
    main_ends();
    pl_real.pthread_exit(value);
    __builtin_unreachable();
}

PL_EXPORT void thrd_exit(int value)
{
    pl_ready();
    main_ends();
    pl_real.thrd_exit(value);
    __builtin_unreachable();
}
