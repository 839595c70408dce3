/*
 * pl_cancel.c - threads that may be cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS).
 * iperf3 3.16 to 3.20 has them, and they send and receive, which POSIX does not allow, and which
 * does no harm where all of a call is the kernel's. In ours such a thread may hold a lock, or have
 * a count raised. So libc's cancellation signal gets a handler of ours once a program asks for
 * that: a thread that is where it must not end is made a deferred one, and an asynchronous one
 * again at its section's end (rsk_cancel_later), where it then ends at once. For deferred
 * cancellation one thing is done: a handler that comes over a sleep does not run as asynchronously
 * cancellable as the sleep is.
 *
 * pthread_setcanceltype: any thread. The handler, and pl_cancel_handler_*: in any thread's
 * handlers, after which nothing but the thread's own state has changed.
 */
#include "preload/pl_cancel.h"

#include "ipoib_fallback/lock.h"
#include "preload/pl_own.h"
#include "preload/pl_signal.h"
#include "rsock/loop.h"
#include "rsock/section.h"
#include "rsock/sys.h"

#include <gnu/libc-version.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>

enum { SIGCANCEL = 32 }; /* glibc's own, which its sigaction refuses */
enum { HANDLERS_STACK = 256 * 1024 };

/* The kernel's, on both architectures. */
struct kernel_action {
    void (*fn)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

/* Where an object's code is. */
struct range {
    uintptr_t begin, end;
};

static struct fb_lock lock;
static _Atomic bool taken;
static void (*libcs)(int, siginfo_t *, void *);
static struct range libc, own;
#if defined(__x86_64__)
static uintptr_t restorer; /* what a handler returns to, in libc */
#else
static struct range vdso; /* where that is */
#endif
static pthread_key_t at_end;
static bool at_end_made;
static _Thread_local struct {
    int id; /* the kernel's */
    bool made;
} again;
static _Thread_local struct pl_overs over;

static bool within(const struct range *r, uintptr_t pc)
{
    return pc >= r->begin && pc < r->end;
}

/* Of the signal stack that was set when the context was interrupted. */
static bool on_signal_stack(const ucontext_t *uc, uintptr_t at)
{
    return at - (uintptr_t)uc->uc_stack.ss_sp < uc->uc_stack.ss_size;
}

/* The handler that came over a context has returned, and has not yet called the kernel to go back
 * where it came from: that context, which is still on the stack. Else NULL. */
static ucontext_t *returns_to(ucontext_t *uc)
{
#if defined(__x86_64__)
    enum { RESTORER = 9 /* bytes */ };

    return restorer && *pl_signal_pc(uc) - restorer < RESTORER ? (ucontext_t *)pl_signal_sp(uc)
                                                               : NULL;
#else
    /* In the vDSO, of which unwinders know these two instructions as well: mov x8,
     * #SYS_rt_sigreturn; svc #0. */
    enum { MOV = 0xd2801168, SVC = 0xd4000001 };
    const uint32_t *at = (const uint32_t *)*pl_signal_pc(uc);

    if (!within(&vdso, (uintptr_t)at)) /* a jump may have led to where nothing is */
        return NULL;
    if (*at == SVC ? uc->uc_mcontext.regs[8] != SYS_rt_sigreturn : *at != MOV || at[1] != SVC)
        return NULL;
    return (ucontext_t *)(pl_signal_sp(uc) + sizeof(siginfo_t)); /* the frame's first half */
#endif
}

/* Is the thread, with this stack pointer, in a handler that came over a place where it must not
 * end? there: it is on the signal stack. A handler that has jumped out does not count: its frame
 * lies below the stack pointer then, or something else has been written over it. */
static bool stays_at(uintptr_t sp, bool there)
{
    uintptr_t begin = (uintptr_t)over.stays;

    if (!begin || (over.stays_on_signal_stack && !there))
        return false;
    if (there && !over.stays_on_signal_stack)
        return true; /* in another handler, which came over that one */
    return sp < begin && begin - sp < HANDLERS_STACK && over.stays->self == over.stays;
}

static bool stays(const ucontext_t *uc)
{
    uintptr_t sp = pl_signal_sp(uc);

    return stays_at(sp, on_signal_stack(uc, sp));
}

/* At a section's end. */
static bool not_yet(void)
{
    return over.stays && stays_at((uintptr_t)__builtin_frame_address(0), rsk_on_signal_stack());
}

/* The kernel has not begun with the system call at this place, will begin with it anew, or has
 * said an error: it has given and taken nothing that is still to be counted. pc is in libc's
 * code or ours. */
static bool in_call_of_nothing(const ucontext_t *uc, uintptr_t pc)
{
#if defined(__x86_64__)
    enum { SYSCALL_0 = 0x0f, SYSCALL_1 = 0x05 };
    const uint8_t *at = (const uint8_t *)pc;
    unsigned long said = (unsigned long)uc->uc_mcontext.gregs[REG_RAX];
    bool next = at[0] == SYSCALL_0 && at[1] == SYSCALL_1;
    bool last = at[-2] == SYSCALL_0 && at[-1] == SYSCALL_1;
#else
    enum { SVC = 0xd4000001 };
    const uint32_t *at = (const uint32_t *)pc;
    unsigned long said = uc->uc_mcontext.regs[0];
    bool next = at[0] == SVC, last = at[-1] == SVC;
#endif
    return next || (last && said > -4096ul);
}

/* Would it do harm to end the thread here? Yes in a section. Yes in a function of ours, though not
 * in one that it has called: the unwinder would not find the clean-up that gives back what is
 * raised, or would jump to it with a frame that is only half there. With a window open such a
 * function may be further up the stack: then only libc's function and sleeps are safe, and there
 * only where in_call_of_nothing(), as what the kernel has just given is not counted yet. In a
 * handler it depends on what that has interrupted, and on windows opened since; one that a handler
 * has jumped out of does not count, as no frame is left there that the unwinder could miss. */
static bool must_not_end(ucontext_t *uc)
{
    ucontext_t *next = returns_to(uc);
    uintptr_t pc = *pl_signal_pc(uc);
    uint32_t n = rsk_sig.windows;
    bool in_libc = within(&libc, pc);

    /* Not yet where the handler has come from. */
    if (next)
        return must_not_end(next);
    if (rsk_sig.depth || stays(uc))
        return true;
    if (!rsk_sig.sleeps && within(&own, pc))
        return true;
    if (!rsk_sig.sleeps && !(n && rsk_sig.window[n - 1].id > over.windows))
        return false;
    /* Where there are no timers nobody would look again. */
    if (atomic_load_explicit(&pl_passive, memory_order_relaxed))
        return !rsk_sig.sleeps && !in_libc;
    return !((in_libc || (rsk_sig.sleeps && within(&own, pc))) && in_call_of_nothing(uc, pc));
}

/* Outside of a section there is no section's end at which the thread would be asynchronous
 * again. So the cancellation signal is sent once more, by a timer, when the thread has
 * gone on a little. */
static void look_again(void)
{
    struct sigevent how = {
        .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGCANCEL, .sigev_value.sival_ptr = &again};
    struct itimerspec soon = {.it_value.tv_nsec = 50000};

    how._sigev_un._tid = sys_gettid();
    if (atomic_load_explicit(&pl_passive, memory_order_relaxed) ||
        SYS6(SYS_timer_create, CLOCK_MONOTONIC, &how, &again.id, 0, 0, 0) < 0)
        return;
    again.made = true;
    SYS6(SYS_timer_settime, again.id, 0, &soon, NULL, 0, 0);
}

static void no_more(void)
{
    if (again.made)
        SYS6(SYS_timer_delete, again.id, 0, 0, 0, 0, 0);
    again.made = false;
}

/* While the handler runs, a thread that the program wants deferred is deferred, also if the handler
 * came over a sleep for which it was made asynchronous, by us or by libc: the handler's calls enter
 * sections. If the handler jumps out the thread stays deferred. */
void pl_cancel_handler_begins(struct pl_over *o, ucontext_t *uc)
{
    bool stay;

    o->was = over;
    o->sleeps = rsk_sig.sleeps;
    o->no_point = rsk_sig.no_point;
    o->asynchronous = rsk_sig.asynchronous;
    if (!o->asynchronous) {
        pl_real.pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &o->type);
    } else if (atomic_load(&taken) && !stays(uc)) {
        stay = must_not_end(uc);
        o->was.stays = NULL; /* if there is one, it has jumped out */
        o->self = o;
        over.stays_on_signal_stack = on_signal_stack(uc, (uintptr_t)o);
        over.stays = stay ? o : NULL;
    }
    over.windows = rsk_sig.ids;
    atomic_signal_fence(memory_order_seq_cst);
    rsk_sig.sleeps = rsk_sig.no_point = false;
}

void pl_cancel_handler_ends(const struct pl_over *o)
{
    rsk_sig.sleeps = o->sleeps;
    rsk_sig.no_point = o->no_point;
    atomic_signal_fence(memory_order_seq_cst);
    over = o->was;
    /* Left pending by not_yet() at the end of a section in the handler. Where the thread goes back
     * to there may be no section whose end would see to it. */
    if ((rsk_sig.pending & RSK_CANCEL) && !rsk_sig.depth && !again.made)
        look_again();
    if (o->asynchronous || o->type == PTHREAD_CANCEL_DEFERRED)
        return;
    /* Who sleeps will set the type back himself: what the handler has made of it is lost, as it
     * is without us. */
    rsk_sig.asynchronous = false;
    pl_real.pthread_setcanceltype(o->type, NULL);
}

static void thread_ends(void *unused)
{
    (void)unused;
    rsk_sig.asynchronous = false; /* the signal, should it still come, does nothing from here on */
    atomic_signal_fence(memory_order_seq_cst);
    no_more();
}

static void cancelled(int sig, siginfo_t *info, void *ctx)
{
    bool is_again = info->si_code == SI_TIMER && info->si_ptr == &again;

    if (rsk_sig.asynchronous && must_not_end(ctx)) {
        rsk_cancel_later();
        no_more();
        if (!rsk_sig.depth)
            look_again();
    } else if (is_again && rsk_sig.asynchronous) {
        no_more();
        rsk_cancel_now();
    }
    /* Notes that the thread was cancelled, and ends it if it is asynchronous. */
    if (!is_again)
        libcs(sig, info, ctx);
}

struct object {
    const void *of;
    struct range *code;
};

static int find(struct dl_phdr_info *info, size_t size, void *object)
{
    const struct object *o = object;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        struct range r = {info->dlpi_addr + p->p_vaddr, info->dlpi_addr + p->p_vaddr + p->p_memsz};

        if (p->p_type == PT_LOAD && (p->p_flags & PF_X) && within(&r, (uintptr_t)o->of)) {
            *o->code = r;
            return 1;
        }
    }
    return 0;
}

struct stand_in {
    _Atomic uint32_t there, done;
};

static void wait_for(_Atomic uint32_t *word)
{
    while (!atomic_load(word))
        sys_futex(word, FUTEX_WAIT_PRIVATE, 0, NULL);
}

static void tell(_Atomic uint32_t *word)
{
    atomic_store(word, 1);
    sys_futex(word, FUTEX_WAKE_PRIVATE, 1, NULL);
}

static void *stand_in(void *p)
{
    struct stand_in *s = p;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    tell(&s->there);
    wait_for(&s->done);
    return NULL;
}

/* libc sets its handler with the first pthread_cancel. So a thread is cancelled that nothing will
 * come of. libc's own two signals stay open, here and in that thread: who is in set*id has the lock
 * that pthread_create wants, and waits until each thread has answered. */
static void make_libc_set_its(void)
{
    struct stand_in s = {0};
    sigset_t all, before;
    pthread_t t;
    RSK_UNCANCELLED; /* pthread_join is a cancellation point */

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&t, NULL, stand_in, &s) == 0) {
        wait_for(&s.there);
        pthread_cancel(t);
        tell(&s.done);
        pthread_join(t, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool get_action(struct kernel_action *a)
{
    return SYS6(SYS_rt_sigaction, SIGCANCEL, NULL, a, sizeof(a->mask), 0, 0) == 0;
}

/* lock held. Where there is no memory for a thread the next one that asks tries again. */
static void take(void)
{
    struct kernel_action a = {0};

    /* What is there before may be what the program was started with: make has its children
     * ignore that signal. */
    make_libc_set_its();
    if (!get_action(&a) || (uintptr_t)a.fn <= (uintptr_t)SIG_IGN)
        return;
    dl_iterate_phdr(find, &(struct object){(void *)(uintptr_t)gnu_get_libc_version, &libc});
    dl_iterate_phdr(find, &(struct object){(void *)(uintptr_t)cancelled, &own});
    at_end_made = pthread_key_create(&at_end, thread_ends) == 0;
#if defined(__x86_64__)
    restorer = (uintptr_t)a.restorer;
#else
    dl_iterate_phdr(find, &(struct object){(void *)getauxval(AT_SYSINFO_EHDR), &vdso});
#endif
    libcs = a.fn;
    a.fn = cancelled;
    if (SYS6(SYS_rt_sigaction, SIGCANCEL, &a, NULL, sizeof(a.mask), 0, 0) == 0)
        atomic_store(&taken, true);
}

PL_EXPORT int pthread_setcanceltype(int type, int *old)
{
    int r;

    pl_ready();
    /* For a sleep of ours, or at a section's end. */
    if (rsk_sig.sleeps || !pl_is_owner())
        return pl_real.pthread_setcanceltype(type, old);
    if (type == PTHREAD_CANCEL_ASYNCHRONOUS && !atomic_load(&taken) &&
        !atomic_load_explicit(&pl_passive, memory_order_relaxed)) {
        rsk_section_enter();
        fb_lock(&lock);
        if (!atomic_load(&taken))
            take();
        fb_unlock(&lock);
        rsk_section_leave();
    }
    if (type == PTHREAD_CANCEL_ASYNCHRONOUS) {
        if (atomic_load(&taken) && at_end_made)
            pthread_setspecific(at_end, &again);
        rsk_sig.asynchronous = true;
    }
    r = pl_real.pthread_setcanceltype(type, old);
    if (r == 0 && type == PTHREAD_CANCEL_DEFERRED)
        rsk_sig.asynchronous = false;
    return r;
}

static void in_child(void)
{
    lock = (struct fb_lock){0};
    again.made = false; /* timers are not inherited: that number may be another's */
}

__attribute__((constructor)) static void at_load(void)
{
    rsk_cancel_asks(not_yet);
    rsk_at_fork_child(in_child);
}
