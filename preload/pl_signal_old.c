/*
 * pl_signal_old.c - the other names of sigaction: signal, sigset, siginterrupt and their family.
 * libc's own do not go through the sigaction that is intercepted, so they are made of it here, to
 * the letter of glibc's. Until handlers are ours (pl_signal.c) they are libc's.
 */
#include "preload/pl_signal.h"

#include "preload/real.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>

/* Signals that siginterrupt has spoken of: signal() then sets no SA_RESTART. libc has a set of its
 * own, which is right as long as libc's functions are called. */
static _Atomic uint64_t interrupts;

static uint64_t bit(int sig)
{
    return sig > 0 && sig < NSIG ? 1ull << (sig - 1) : 0;
}

static sighandler_t set(int sig, sighandler_t handler, int flags, bool itself)
{
    struct sigaction act = {.sa_flags = flags}, old;

    if (handler == SIG_ERR || sig < 1 || sig >= NSIG) {
        errno = EINVAL;
        return SIG_ERR;
    }
    act.sa_handler = handler;
    if (itself)
        sigaddset(&act.sa_mask, sig);
    return sigaction(sig, &act, &old) < 0 ? SIG_ERR : old.sa_handler;
}

PL_EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
    pl_ready();
    if (!pl_signals_active()) {
        sighandler_t old = pl_real.signal(sig, handler);

        /* They may have become ours meanwhile. */
        if (old != SIG_ERR && pl_signals_active())
            return set(sig, handler, atomic_load(&interrupts) & bit(sig) ? 0 : SA_RESTART, true) ==
                           SIG_ERR
                       ? SIG_ERR
                       : old;
        return old;
    }
    return set(sig, handler, atomic_load(&interrupts) & bit(sig) ? 0 : SA_RESTART, true);
}

PL_EXPORT sighandler_t bsd_signal(int sig, sighandler_t handler);
PL_ALIAS(bsd_signal, signal);
PL_ALIAS(ssignal, signal);

PL_EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler)
{
    pl_ready();
    return set(sig, handler, (int)(SA_RESETHAND | SA_NODEFER | SA_INTERRUPT), false);
}

PL_ALIAS(__sysv_signal, sysv_signal);

PL_EXPORT int sigignore(int sig)
{
    struct sigaction act = {.sa_flags = 0};

    pl_ready();
    act.sa_handler = SIG_IGN;
    return sigaction(sig, &act, NULL);
}

PL_EXPORT int siginterrupt(int sig, int flag)
{
    struct sigaction act;
    uint64_t was = atomic_load(&interrupts);

    pl_ready();
    if (!pl_signals_active()) {
        int r = pl_real.siginterrupt(sig, flag);

        if (r == 0 && flag)
            atomic_fetch_or(&interrupts, bit(sig));
        else if (r == 0)
            atomic_fetch_and(&interrupts, ~bit(sig));
        return r;
    }
    if (sigaction(sig, NULL, &act) < 0)
        return -1;
    if (flag) {
        atomic_fetch_or(&interrupts, bit(sig));
        act.sa_flags &= ~SA_RESTART;
    } else {
        atomic_fetch_and(&interrupts, ~bit(sig));
        act.sa_flags |= SA_RESTART;
    }
    if (sigaction(sig, &act, NULL) == 0)
        return 0;
    atomic_store(&interrupts, was);
    return -1;
}

PL_EXPORT sighandler_t sigset(int sig, sighandler_t disposition)
{
    struct sigaction act = {.sa_flags = 0}, old;
    sigset_t one, mask;

    pl_ready();
    if (disposition == SIG_ERR || sig < 1 || sig >= NSIG) {
        errno = EINVAL;
        return SIG_ERR;
    }
    sigemptyset(&one);
    sigaddset(&one, sig);
    if (disposition == SIG_HOLD) {
        if (sigprocmask(SIG_BLOCK, &one, &mask) < 0)
            return SIG_ERR;
        if (sigismember(&mask, sig))
            return SIG_HOLD;
        return sigaction(sig, NULL, &old) < 0 ? SIG_ERR : old.sa_handler;
    }
    act.sa_handler = disposition;
    if (sigaction(sig, &act, &old) < 0 || sigprocmask(SIG_UNBLOCK, &one, &mask) < 0)
        return SIG_ERR;
    return sigismember(&mask, sig) ? SIG_HOLD : old.sa_handler;
}
