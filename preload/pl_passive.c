/*
 * pl_passive.c - the library retires: everything is plain TCP from now on, and no wrapper does a
 * system call that libc's function would not do. That is so after a seccomp filter, which knows
 * only what the program needs; and when a thread gets a descriptor table of its own.
 *
 * Streams leave and are forgotten, the progress thread ends, epoll instances are given back to the
 * kernel, the table of numbers is emptied. A stream that has not read up to a switch stays known,
 * and takes the frames out of what the application's own calls bring. So does one whose peer does
 * not take it back within five seconds; it is served as well as the filter lets us, and its end is
 * a reset, since nobody would finish it. If the call then fails, the process stays on TCP all the
 * same. Nothing is given up for a call that the kernel refuses in any case, for want of
 * no_new_privs or a capability (may_filter).
 *
 * RAILSOCK_SECCOMP=rail says that the filter allows what the library needs: the thread comes back
 * under the filter, and connections board again.
 */
#include "preload/pl_own.h"

#include "config/env.h"
#include "config/log.h"
#include "config/reason.h"
#include "rsock/sys.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static void forget(struct pl_file *f, void *unused)
{
    struct pl_file *taken;

    (void)unused;
    if (f->kind == PL_STREAM && !fb_retire(f->stream, f->fd))
        return;
    taken = pl_take(f->fd);
    if (taken)
        pl_put(taken);
}

void pl_plain_for_good(int reason)
{
    /* What was inherited and never used: an owner that has it on a rail is not asked any more,
     * once this is so. */
    if (atomic_load(&pl_heirs))
        pl_heir_exec(true);
    fb_plain_for_good(reason);
    pl_epoll_cross_all();
    atomic_store(&pl_passive, true);
    atomic_store(&rsk_sections_on, false); /* a handler that is put off is sent by a call of ours */
    pl_each(forget, NULL);
    atomic_store(&pl_heirs, false);
}

/* Will the kernel refuse it in any case? Then nothing is given up for it. */
static bool may_filter(void)
{
    return SYS6(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0) == 1 || sys_capable(CAP_SYS_ADMIN);
}

void pl_filter_begin(struct pl_hold *h, bool strict, const void *filter)
{
    *h = (struct pl_hold){.saved = errno};
    /* Without a filter it is a question whether there are filters. */
    if ((!strict && (!filter || !may_filter())) || !pl_is_owner())
        return;
    pl_hold_begin(h, RSN_SECCOMP, FB_HOLD_THREAD);
    if (cfg.seccomp_rail && !strict)
        return;
    h->on = false;
    if (pl_started())
        pl_plain_for_good(RSN_SECCOMP);
    log_info("a seccomp filter comes: nothing is logged any more");
    cfg_log_to(0, NULL);
    errno = h->saved;
}

PL_EXPORT int prctl(int option, ...)
{
    unsigned long a[4];
    struct pl_hold h;
    va_list ap;
    int r;

    va_start(ap, option);
    for (int i = 0; i < 4; i++)
        a[i] = va_arg(ap, unsigned long);
    va_end(ap);
    pl_ready();
    if (option != PR_SET_SECCOMP)
        return pl_real.prctl(option, a[0], a[1], a[2], a[3]);
    pl_filter_begin(&h, a[0] == SECCOMP_MODE_STRICT, (const void *)a[1]);
    r = pl_real.prctl(option, a[0], a[1], a[2], a[3]);
    pl_hold_end(&h);
    return r;
}
