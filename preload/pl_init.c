/*
 * pl_init.c - where the library wakes up: at load, or at the first connection when some
 * other library's constructor makes one before that.
 */
#include "preload/pl_own.h"

#include "config/env.h"
#include "config/log.h"
#include "rsock/sys.h"

/* The log's descriptor has the lowest number as long as it is there. */
static void around_a_line(bool begins)
{
    if (begins)
        rsk_own_enter();
    else
        rsk_own_leave();
}

static _Atomic int state; /* 0: nothing yet, 1: under way, 2: done */

bool pl_started(void)
{
    int none = 0;

    if (__builtin_expect(atomic_load_explicit(&state, memory_order_acquire) == 2, 1))
        return true;
    /* Under way: a connection made from inside it, or by another thread meanwhile, is plain TCP. */
    if (!atomic_compare_exchange_strong(&state, &none, 1))
        return false;
    cfg_log_around = around_a_line;
    cfg_log_note_stderr();
    pl_process_init();
    cfg_init();
    atomic_store_explicit(&state, 2, memory_order_release);
    return true;
}

__attribute__((constructor)) static void at_load(int argc, char **argv)
{
    pl_ready();
    if (pl_started() && argc > 1)
        cfg_note_arguments(argv);
}
