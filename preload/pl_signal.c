/*
 * pl_signal.c - the application's signal handlers. Once there is a connection the kernel has a
 * function of ours in the place of each handler, everything else of the action (mask, flags,
 * restorer) being the application's; whoever asks reads back his own. Ours counts the handler, so
 * that no sleep misses it, and calls it, or puts it off if the thread is in a section
 * (rsock/section.h).
 *
 * Putting off: the signal is sent to this thread once more, with the same siginfo, and all signals
 * are blocked in the interrupted context. At the section's end the mask is put back, and the kernel
 * delivers it anew, by its own rules: mask, alternate stack, flags. Nothing is allocated.
 *
 * SIG_DFL and SIG_IGN stay what they are. Until the process has its first connection or epoll
 * instance nothing is changed at all; then the thread that makes it goes through all signals, with
 * all of its own blocked, before there is anything that a handler could jump out of. A vfork child,
 * which has handlers of its own in the kernel but its parent's memory, sets the bare handler, and
 * so does who has a filter (pl_passive.c).
 *
 * sigaction: any thread, also in handlers. The functions before_* run in handlers.
 */
#include "preload/pl_signal.h"

#include "ipoib_fallback/lock.h"
#include "preload/pl_cancel.h"
#include "preload/pl_own.h"
#include "rsock/loop.h"
#include "rsock/sys.h"

#include <errno.h>
#include <string.h>

enum { SIGNALS = 65, REAL_TIME = 34 }; /* libc keeps 32 and 33 */

/* Two handlers for each signal: the one that the kernel's action means, and the one before it,
 * which a thread may be on its way to. Which is which the kernel's action says: it has a
 * function for each. */
struct handler {
    void (*_Atomic fn)(int, siginfo_t *, void *);
    _Atomic int flags; /* as the application gave them */
};
static struct handler handlers[SIGNALS][2];

/* Serializes who changes actions. Its holder is in a section: no handler runs that
 * would want it. */
static struct fb_lock lock;
static _Atomic bool active;

/* These the thread has caused itself: it cannot go on. */
static bool at_once(int sig, const siginfo_t *info)
{
    switch (sig) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
        return info->si_code > 0;
    case SIGABRT: /* abort() resets the action if it comes back from this */
        return info->si_code <= 0 && info->si_pid == sys_getpid();
    default:
        return false;
    }
}

static uint64_t bit(int sig)
{
    return 1ull << (sig - 1);
}

/* All but those that at_once is about, which end the process if they come by a fault and are
 * blocked, and libc's own two. */
static uint64_t all_signals(void)
{
    return ~(bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGSYS) |
             bit(SIGABRT) | bit(32) | bit(33));
}

/* To this thread once more, with the siginfo; where the kernel has no room for that, without, as it
 * does itself. Not while the signal can come. */
static void send_again(int sig, siginfo_t *info)
{
    long pid = sys_getpid(), tid = sys_gettid();
    siginfo_t bare = {.si_signo = sig, .si_code = SI_USER};

    bare.si_pid = (pid_t)pid;
    if (SYS6(SYS_rt_tgsigqueueinfo, pid, tid, sig, info, 0, 0) < 0)
        SYS6(SYS_rt_tgsigqueueinfo, pid, tid, sig, &bare, 0, 0);
}

/*
 * Real-time signals of one number have an order, and what is sent again comes last. So it is kept
 * here and a mark sent instead; until the mark comes, each signal of that number that is delivered
 * takes the siginfo that is kept, and leaves its own here. One number at a time; all is delivered
 * at the section's end, unless the application's mask or SA_NODEFER have it otherwise, and then a
 * second one is just sent again.
 */
static _Thread_local struct {
    int sig;
    siginfo_t info;
} kept;

static bool is_mark(const siginfo_t *info)
{
    return info->si_code == SI_QUEUE && info->si_ptr == &kept;
}

static void send_mark(int sig, siginfo_t *info)
{
    siginfo_t mark = {.si_signo = sig, .si_code = SI_QUEUE};

    mark.si_pid = sys_getpid();
    mark.si_ptr = &kept;
    if (kept.sig || SYS6(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_gettid(), sig, &mark, 0, 0) < 0) {
        send_again(sig, info);
        return;
    }
    kept.sig = sig;
    kept.info = *info;
}

static void take_kept(siginfo_t *info)
{
    siginfo_t next = kept.info;

    if (is_mark(info))
        kept.sig = 0;
    else
        kept.info = *info;
    *info = next;
}

/* Several may be put off at one place, each interrupting the beginning of the one before: the
 * thread's own mask is what all the contexts that they interrupted have in common. The same where a
 * signal that all_signals() leaves open comes when another one has been put off. */
static void put_off(int sig, siginfo_t *info, ucontext_t *uc)
{
    const uint64_t nothing_comes = ~(bit(32) | bit(33));
    uint64_t mask;

    memcpy(&mask, &uc->uc_sigmask, sizeof(mask));
    /* First, or with SA_NODEFER it would come at once. */
    SYS6(SYS_rt_sigprocmask, SIG_SETMASK, &nothing_comes, NULL, sizeof(nothing_comes), 0, 0);
    rsk_sig.mask = (rsk_sig.pending & RSK_HANDLER) ? rsk_sig.mask & mask : mask;
    __atomic_fetch_or(&rsk_sig.pending, RSK_HANDLER, __ATOMIC_RELAXED);
    if (sig >= REAL_TIME)
        send_mark(sig, info);
    else
        send_again(sig, info);
    mask |= all_signals() | bit(sig);
    memcpy(&uc->uc_sigmask, &mask, sizeof(mask));
}

/* SA_RESETHAND: the kernel would have done it before the handler began. False: another thread came
 * first with the same signal; it comes again when this one returns, and finds SIG_DFL. */
static bool reset(int sig, siginfo_t *info, int which)
{
    struct sigaction now, none;
    bool mine = false;

    rsk_section_enter();
    fb_lock(&lock);
    if (pl_real.sigaction(sig, NULL, &now) == 0 && pl_signal_which(&now) == which) {
        mine = true;
        none = now;
        none.sa_flags = atomic_load(&handlers[sig][which].flags);
        none.sa_handler = SIG_DFL;
        pl_real.sigaction(sig, &none, NULL);
    } else if (now.sa_handler != SIG_DFL) {
        mine = true; /* somebody has set another handler: this one was under way before */
    }
    fb_unlock(&lock);
    rsk_section_leave();
    if (!mine)
        send_again(sig, info);
    return mine;
}

static void before(int sig, siginfo_t *info, void *ctx, int which)
{
    struct handler *h = &handlers[sig][which];
    const volatile uint32_t *stop = rsk_sig.stop;
    const void *outer = rsk_sig.handler;
    uint32_t depth = rsk_sig.depth;
    ucontext_t *uc = ctx;
    unsigned int flags = (unsigned int)atomic_load_explicit(&h->flags, memory_order_acquire);
    struct rsk_over over;
    struct pl_over cancel;

    if (depth && !at_once(sig, info)) {
        put_off(sig, info, uc);
        return;
    }
    pl_cancel_handler_begins(&cancel, uc);
    if (kept.sig == sig)
        take_kept(info);
    if ((flags & SA_RESETHAND) && !reset(sig, info, which)) {
        pl_cancel_handler_ends(&cancel);
        return;
    }
    rsk_sig.seen = rsk_sig.seen + 1;
    if (!(flags & SA_RESTART))
        rsk_sig.cut = rsk_sig.cut + 1;
    *pl_signal_pc(uc) = rsk_sleep_rewind(*pl_signal_pc(uc));
    /* A handler that was not put off in a section and jumps out of it leaves locks behind; that the
     * next ones be put off for ever would be worse. */
    rsk_sig.depth = 0;
    rsk_sig.stop = NULL;
    if (!rsk_handler_begins(&over, __builtin_frame_address(0)))
        rsk_sig.handler = __builtin_frame_address(0);
    atomic_load_explicit(&h->fn, memory_order_acquire)(sig, info, ctx);
    rsk_handler_ends(&over);
    rsk_sig.handler = outer;
    rsk_sig.stop = stop;
    rsk_sig.depth = depth;
    pl_cancel_handler_ends(&cancel);
}

static void before_0(int sig, siginfo_t *info, void *ctx)
{
    before(sig, info, ctx, 0);
}

static void before_1(int sig, siginfo_t *info, void *ctx)
{
    before(sig, info, ctx, 1);
}

int pl_signal_which(const struct sigaction *a)
{
    return a->sa_sigaction == before_0 ? 0 : a->sa_sigaction == before_1 ? 1 : -1;
}

/* What the application shall see of the kernel's action. */
static void own_view(int sig, struct sigaction *a)
{
    int which = pl_signal_which(a), flags;

    if (which < 0)
        return;
    flags = atomic_load(&handlers[sig][which].flags);
    a->sa_sigaction = atomic_load(&handlers[sig][which].fn);
    a->sa_flags = (a->sa_flags & ~SA_SIGINFO) | (flags & (int)(SA_SIGINFO | SA_RESETHAND));
}

static bool real_handler(const struct sigaction *a)
{
    return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN && pl_signal_which(a) < 0;
}

/* lock held. The kernel gets one of ours for a; old, which may be NULL, gets the kernel's. */
static int set_ours(int sig, const struct sigaction *a, struct sigaction *old)
{
    struct sigaction now, ours = *a;
    int which;

    if (pl_real.sigaction(sig, NULL, &now) < 0)
        return -1;
    which = pl_signal_which(&now) == 0 ? 1 : 0;
    atomic_store(&handlers[sig][which].flags, a->sa_flags);
    atomic_store(&handlers[sig][which].fn, a->sa_sigaction);
    ours.sa_sigaction = which ? before_1 : before_0;
    ours.sa_flags = (a->sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND;
    return pl_real.sigaction(sig, &ours, old);
}

/* A handler that is set without us becomes ours. A thread that is just setting one, having seen
 * that we were not active, may come in between: then the latest is what it set. */
static void adopt(int sig)
{
    struct sigaction now, before_us;

    rsk_section_enter();
    fb_lock(&lock);
    if (pl_real.sigaction(sig, NULL, &now) == 0 && real_handler(&now)) {
        while (set_ours(sig, &now, &before_us) == 0 && real_handler(&before_us) &&
               before_us.sa_sigaction != now.sa_sigaction)
            now = before_us;
    }
    fb_unlock(&lock);
    rsk_section_leave();
}

void pl_signals_on(void)
{
    uint64_t mask;

    /* Threads that come at once all do it: none of them goes on before it is done. */
    if (atomic_load(&rsk_sections_on) || atomic_load(&pl_passive) || !pl_is_owner())
        return;
    /* A handler that jumped out of this would leave the lock behind. */
    mask = sys_block_signals();
    atomic_store(&active, true);
    for (int sig = 1; sig < SIGNALS; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && sig != 32 && sig != 33)
            adopt(sig);
    /* From here on a thread may be in a section: every handler can be put off. */
    atomic_store(&rsk_sections_on, true);
    /* Another thread has retired the library meanwhile, which says so first. */
    if (atomic_load(&pl_passive))
        atomic_store(&rsk_sections_on, false);
    sys_restore_signals(mask);
}

bool pl_signals_active(void)
{
    return atomic_load_explicit(&active, memory_order_acquire);
}

static int set_locked(int sig, const struct sigaction *act, struct sigaction *old)
{
    struct sigaction was;
    int r;

    rsk_section_enter();
    fb_lock(&lock);
    r = act && real_handler(act) ? set_ours(sig, act, &was) : pl_real.sigaction(sig, act, &was);
    if (r == 0)
        own_view(sig, &was);
    fb_unlock(&lock);
    rsk_section_leave();
    if (r == 0 && old)
        *old = was;
    return r;
}

PL_EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
    bool handler, retired;
    int r;

    pl_ready();
    if (sig <= 0 || sig >= SIGNALS)
        return pl_real.sigaction(sig, act, old);
    handler = act && real_handler(act);
    retired = atomic_load_explicit(&pl_passive, memory_order_relaxed);
    if (pl_signals_active() && !retired && pl_is_owner())
        return set_locked(sig, act, old);
    r = pl_real.sigaction(sig, act, old);
    if (r == 0 && pl_signals_active()) {
        if (old)
            own_view(sig, old);
        if (handler && !retired && pl_is_owner())
            adopt(sig);
    }
    return r;
}

PL_ALIAS(__sigaction, sigaction);

static void in_child(void)
{
    lock = (struct fb_lock){0};
    kept.sig = 0; /* the mark is the parent's */
    rsk_section_after_fork_child();
}

static void put_held(void *f)
{
    pl_put(f);
}

__attribute__((constructor)) static void at_load(void)
{
    rsk_section_init(put_held);
    rsk_at_fork_child(in_child);
}
