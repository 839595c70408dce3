/*
 * section.c - a thread's sections, its windows, and the sleep that no handler can slip past
 * (section.h). Called by the intercepting functions on application threads.
 */
#include "rsock/section.h"

#include "rsock/sys.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

_Thread_local struct rsk_sig rsk_sig __attribute__((aligned(64)));
RSK_HOT _Atomic bool rsk_sections_on;
static void (*held_put)(void *);
static bool (*cancel_not_yet)(void);
static pthread_key_t at_end;
static bool at_end_made;

/* A frame that is farther away than this is on another stack, and says nothing. */
enum { FAR = 256 * 1024 };

/* The library's own: see preload/pl_cancel.c. */
static void set_type(int type)
{
    bool sleeps = rsk_sig.sleeps;

    rsk_sig.sleeps = true;
    atomic_signal_fence(memory_order_seq_cst);
    pthread_setcanceltype(type, NULL);
    atomic_signal_fence(memory_order_seq_cst);
    rsk_sig.sleeps = sleeps;
}

void rsk_section_flush(void)
{
    uint64_t mask = rsk_sig.mask;
    uint32_t what;
    int saved = errno;

    /* In one instruction: the cancelling handler may come at any. */
    what = __atomic_exchange_n(&rsk_sig.pending, 0, __ATOMIC_RELAXED);
    atomic_signal_fence(memory_order_seq_cst);
    /* They are pending in the kernel, which delivers them before this returns. */
    if (what & RSK_HANDLER)
        SYS6(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask), 0, 0);
    errno = saved;
    if (!(what & RSK_CANCEL))
        return;
    if (cancel_not_yet && cancel_not_yet())
        __atomic_fetch_or(&rsk_sig.pending, RSK_CANCEL, __ATOMIC_RELAXED);
    else
        rsk_cancel_now();
}

void rsk_cancel_asks(bool (*not_yet)(void))
{
    cancel_not_yet = not_yet;
}

void rsk_cancel_now(void)
{
    set_type(PTHREAD_CANCEL_ASYNCHRONOUS);
}

void rsk_cancel_later(void)
{
    set_type(PTHREAD_CANCEL_DEFERRED);
    __atomic_fetch_or(&rsk_sig.pending, RSK_CANCEL, __ATOMIC_RELAXED);
}

bool rsk_on_signal_stack(void)
{
    stack_t ss = {0};

    return SYS6(SYS_sigaltstack, NULL, &ss, 0, 0, 0, 0) == 0 && (ss.ss_flags & SS_ONSTACK);
}

/* What the last record says is lowered. The record goes first: undo may find it otherwise. */
static void lower_last(void)
{
    struct rsk_window w = rsk_sig.window[rsk_sig.windows - 1];

    rsk_sig.window[rsk_sig.windows - 1].over = false;
    rsk_sig.window[rsk_sig.windows - 1].in_libc = false;
    rsk_sig.windows = rsk_sig.windows - 1;
    atomic_signal_fence(memory_order_seq_cst);
    if (w.undo)
        w.undo(w.a, w.b);
    if (w.held && w.held != RSK_GONE)
        held_put(w.held);
}

/* The handler has jumped out: calls made since have written over its frame, where w->by points. For
 * calls from frames below the handler's this is the only sign of it. */
static bool has_jumped(const struct rsk_window *w)
{
    return w->over && (w->by->self != w->by || w->by->id != w->id);
}

/* Stacks grow down: a handler's calls come from below the window that it interrupted. On an
 * alternate signal stack the comparison would mean nothing. */
void rsk_windows_reclaim(const void *frame)
{
    while (rsk_sig.windows) {
        const struct rsk_window *w = &rsk_sig.window[rsk_sig.windows - 1];
        uintptr_t of = (uintptr_t)w->frame, at = (uintptr_t)frame;

        if ((at < of ? of - at : at - of) > FAR || rsk_on_signal_stack())
            return;
        if (at < of && !has_jumped(w))
            return;
        lower_last();
    }
    /* A handler has jumped out of a sleep, and not through pl_cancel_handler_begins: it was set by
     * a system call. */
    if (rsk_sig.sleeps && !rsk_sig.windows) {
        set_type(rsk_sig.asynchronous ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED);
        rsk_sig.sleeps = false;
    }
}

enum { HANDLERS_STACK = 256 * 1024 };

bool rsk_in_handler(void)
{
    uintptr_t at = (uintptr_t)__builtin_frame_address(0), begin = (uintptr_t)rsk_sig.handler;

    if (begin && at < begin && begin - at < HANDLERS_STACK)
        return true;
    rsk_sig.handler = NULL;
    return false;
}

bool rsk_handler_begins(struct rsk_over *o, const void *frame)
{
    uint32_t n = rsk_sig.windows;
    struct rsk_window *w = &rsk_sig.window[n ? n - 1 : 0];
    uintptr_t of = (uintptr_t)w->frame;

    o->id = 0;
    if (!atomic_load_explicit(&rsk_sections_on, memory_order_relaxed) || !n || w->over)
        return false;
    if ((uintptr_t)frame >= of || of - (uintptr_t)frame > FAR || rsk_on_signal_stack()) {
        w->in_libc = true; /* if it jumps out, nothing tells that this window is over */
        return false;
    }
    o->id = w->id;
    o->was = w->frame;
    o->self = o;
    w->by = o;
    w->over = true;
    atomic_signal_fence(memory_order_seq_cst);
    w->frame = frame;
    return !w->in_libc;
}

void rsk_handler_ends(const struct rsk_over *o)
{
    uint32_t at = rsk_sig.windows;

    if (!o->id)
        return;
    while (at > 0 && rsk_sig.window[at - 1].id != o->id)
        at--;
    if (!at)
        return;
    rsk_section_enter();
    /* Above it: of calls of the handler's that another one has jumped out of. */
    while (rsk_sig.windows > at)
        lower_last();
    rsk_sig.window[at - 1].frame = o->was;
    atomic_signal_fence(memory_order_seq_cst);
    rsk_sig.window[at - 1].over = false;
    rsk_section_leave();
}

/* Whatever it has left open, nobody comes back to it. */
static void thread_ends(void *arg)
{
    (void)arg;
    rsk_sig.keyed = false;
    rsk_section_enter();
    while (rsk_sig.windows)
        lower_last();
    rsk_section_leave();
}

void rsk_section_init(void (*put)(void *))
{
    held_put = put;
    /* Made early it is one of the first 32, whose values need no memory. */
    at_end_made = pthread_key_create(&at_end, thread_ends) == 0;
}

void rsk_section_key(void)
{
    if (at_end_made)
        rsk_sig.keyed = pthread_setspecific(at_end, &rsk_sig) == 0;
}

void rsk_window_open(struct rsk_pass *p, const void *frame, void (*undo)(void *, void *), void *a,
                     void *b)
{
    uint32_t n = rsk_sig.windows;

    p->depth = rsk_sig.depth;
    p->held = rsk_sig.held;
    p->id = 0;
    p->open = true;
    rsk_sig.held = NULL;
    rsk_sig.quiet = 0;
    if (__builtin_expect(!rsk_sig.keyed, 0))
        rsk_section_key();
    if (n < RSK_WINDOWS) {
        p->id = ++rsk_sig.ids;
        rsk_sig.window[n] = (struct rsk_window){
            .frame = frame, .id = p->id, .held = p->held, .undo = undo, .a = a, .b = b};
        atomic_signal_fence(memory_order_seq_cst);
        rsk_sig.windows = n + 1;
    }
    atomic_signal_fence(memory_order_seq_cst);
    rsk_sig.depth = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(rsk_sig.pending, 0))
        rsk_section_flush();
}

bool rsk_window_close(struct rsk_pass *p)
{
    uint32_t at;

    rsk_sig.depth = p->depth;
    atomic_signal_fence(memory_order_seq_cst);
    p->open = false;
    rsk_sig.held = p->held;
    if (!p->id)
        return true;
    for (at = rsk_sig.windows; at > 0 && rsk_sig.window[at - 1].id != p->id; at--)
        ;
    if (at == 0) {
        rsk_sig.held = RSK_GONE;
        return false;
    }
    /* Those above ours: a handler's handler has jumped back into the handler. */
    while (rsk_sig.windows > at)
        lower_last();
    rsk_sig.window[at - 1].over = false;
    rsk_sig.window[at - 1].in_libc = false;
    rsk_sig.windows = at - 1;
    return true;
}

void rsk_section_after_fork_child(void)
{
    for (unsigned i = 0; i < RSK_WINDOWS; i++)
        rsk_sig.window[i].over = rsk_sig.window[i].in_libc = false;
    rsk_sig.windows = 0;
    rsk_sig.forked = rsk_sig.ids;
}

/* ---- the sleep ---- */

extern const char rsk_sleep_look[] __attribute__((visibility("hidden")));
extern const char rsk_sleep_call[] __attribute__((visibility("hidden")));

uintptr_t rsk_sleep_rewind(uintptr_t pc)
{
    return pc >= (uintptr_t)rsk_sleep_look && pc <= (uintptr_t)rsk_sleep_call
               ? (uintptr_t)rsk_sleep_look
               : pc;
}

/* Between look and call only registers change that the look itself sets, so it can be run again;
 * the kernel restores all the others when it restarts the call. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl rsk_sleep6\n"
        ".hidden rsk_sleep6, rsk_sleep_look, rsk_sleep_call\n"
        ".globl rsk_sleep_look, rsk_sleep_call\n"
        ".type rsk_sleep6, @function\n"
        ".p2align 4\n"
        "rsk_sleep6:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    movq %rdi, %rax\n"
        "    movq %rsi, %rdi\n"
        "    movq %rdx, %rsi\n"
        "    movq %rcx, %rdx\n"
        "    movq %r8, %r10\n"
        "    movq %r9, %r8\n"
        "    movq 8(%rsp), %r9\n"
        "rsk_sleep_look:\n"
        "    movq 16(%rsp), %rcx\n"
        "    movl (%rcx), %ecx\n"
        "    cmpl 24(%rsp), %ecx\n"
        "    jne 1f\n"
        "rsk_sleep_call:\n"
        "    syscall\n"
        "    ret\n"
        "1:  movq $-4, %rax\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size rsk_sleep6, . - rsk_sleep6\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl rsk_sleep6\n"
        ".hidden rsk_sleep6, rsk_sleep_look, rsk_sleep_call\n"
        ".globl rsk_sleep_look, rsk_sleep_call\n"
        ".type rsk_sleep6, %function\n"
        ".p2align 4\n"
        "rsk_sleep6:\n"
        "    .cfi_startproc\n"
        "    mov x8, x0\n"
        "    mov x0, x1\n"
        "    mov x1, x2\n"
        "    mov x2, x3\n"
        "    mov x3, x4\n"
        "    mov x4, x5\n"
        "    mov x5, x6\n"
        "rsk_sleep_look:\n"
        "    ldr w9, [x7]\n"
        "    ldr w10, [sp]\n"
        "    cmp w9, w10\n"
        "    b.ne 1f\n"
        "rsk_sleep_call:\n"
        "    svc #0\n"
        "    ret\n"
        "1:  mov x0, #-4\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size rsk_sleep6, . - rsk_sleep6\n");
#endif
_Static_assert(EINTR == 4, "the 4 in rsk_sleep6");
