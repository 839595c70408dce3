/*
 * section.h - where an application's signal handler may run. A thread is *in a section* from the
 * entry of an intercepted call until it returns or sleeps: it may hold locks, and what it has
 * raised (references, counts) is on its stack alone. A handler that comes meanwhile is put off to
 * the end of the section (preload/pl_signal.c; preload/README.md has the table). For the time of a
 * sleep, or of a plain kernel call, the section is opened (a *window*): no lock is held, what is
 * raised stands in a record of the thread's, and handlers run at once. They may call anything, and
 * need not return: the thread's next call from a frame that is not deeper, or its end, finds the
 * record and lowers what it says.
 *
 * Everything here is the calling thread's own. Handlers of the same thread are the only other
 * party, and outside a window they only set `pending`: hence volatile, and no atomics.
 */
#ifndef RSK_SECTION_H
#define RSK_SECTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RSK_WINDOWS = 8 }; /* handlers in handlers that sleep; deeper ones have no record */

struct rsk_window {
    const void *frame; /* of the function that opened it, or of the handler that came over it */
    uint64_t id;
    void *held;
    void (*undo)(void *a, void *b);
    void *a, *b;
    const struct rsk_over *by; /* over: the handler's own record of that, in its frame */
    bool over;                 /* there is such a handler; false in a record that is not in use */
    bool in_libc; /* libc may be allocating memory where a handler comes; false as well */
};

enum rsk_pending {
    RSK_HANDLER = 1, /* one was put off; all signals are blocked until it has run */
    RSK_CANCEL = 2   /* the thread is deferred, and the program wants it asynchronous */
};

struct rsk_sig {
    union {
        struct {
            volatile uint32_t depth;   /* of sections */
            volatile uint32_t windows; /* open ones, or left by longjmp */
        };
        volatile uint64_t busy; /* both: not 0 if there is any */
    };
    volatile uint32_t pending; /* of enum rsk_pending, for the section's end */
    bool keyed;                /* what happens at the thread's end is arranged */
    bool was_cut; /* the call that goes on by other means was interrupted before: see pl_recv.c */
    /* the program wants this thread cancelled at any instruction: see pl_cancel.c */
    volatile bool asynchronous;
    volatile bool sleeps;   /* between rsk_cancel_open and rsk_cancel_close */
    volatile uint32_t seen; /* handlers run so far */
    volatile uint32_t cut;  /* those without SA_RESTART */
    uint64_t ids;           /* windows opened so far */
    void *volatile held;    /* the file that the innermost section has a reference to */
    /* See rsk_sleep6: for a kernel call that is made further down. NULL: it just waits. */
    const volatile uint32_t *volatile stop;
    /* rsk_quiet's: ids + 1 when poll asked the kernel; 0: it has not, or there was
     * something since. */
    volatile uint64_t quiet;
    uint64_t mask; /* pending: the application's signal mask */
    struct rsk_window window[RSK_WINDOWS];
    volatile uint32_t stop_was;
    /* The call is no cancellation point, nor are its sleeps. Not while a handler runs. */
    volatile bool no_point;
    /* the frame below which a handler runs that rsk_in_handler tells of; NULL: none */
    const void *handler;
    /* ids when a handler, or whoever, forked and this is the child; 0: that has not been */
    uint64_t forked;
};
/* Whole cache lines: the first, and the record of the first window in the second, are all that a
 * plain call touches. */
extern _Thread_local struct rsk_sig rsk_sig __attribute__((aligned(64)));
_Static_assert(offsetof(struct rsk_sig, window) == 64, "the first cache line");

/* Handlers go through preload/pl_signal.c, so that they can be put off. False as long as there is
 * no stream and no epoll instance of ours: then a handler may be the application's own, and may
 * longjmp out of a section, whose depth nobody would lower. */
extern _Atomic bool rsk_sections_on;
/* At load. held_put gives back what rsk_sig.held was. */
void rsk_section_init(void (*held_put)(void *));
/* rsk_sig.held of a section whose window was taken for dead while it was not (see
 * rsk_window_close). */
#define RSK_GONE ((void *)-1)

/* The handlers that were put off run now. errno is kept. */
void rsk_section_flush(void);

static inline void rsk_section_enter(void)
{
    rsk_sig.depth = rsk_sig.depth + atomic_load_explicit(&rsk_sections_on, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* A section that was entered before they were switched on has no depth. */
static inline void rsk_section_leave(void)
{
    uint32_t d = rsk_sig.depth;

    atomic_signal_fence(memory_order_seq_cst);
    if (!d)
        return;
    rsk_sig.depth = d - 1;
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(d == 1 && rsk_sig.pending, 0))
        rsk_section_flush();
}

/* Is the thread on an alternate signal stack? Then the places of its frames say nothing. */
bool rsk_on_signal_stack(void);

/* The thread came here from frame: windows of frames that are not above it are dead.
 * In a section. */
void rsk_windows_reclaim(const void *frame);

/* A call begins, from this frame: that of the intercepting function. */
static inline __attribute__((always_inline)) void rsk_call_enter(const void *frame)
{
    rsk_section_enter();
    if (__builtin_expect(rsk_sig.windows != 0, 0))
        rsk_windows_reclaim(frame);
}

struct rsk_pass {
    uint64_t id;
    uint32_t depth;
    bool open;
    void *held;
};

/* Arranges what happens at the thread's end (keyed), if it can: no memory is needed. Any context in
 * which a window may be opened, which does it too. */
void rsk_section_key(void);

/* Opens the section; handlers that were put off run at once. undo(a, b), which may be NULL, lowers
 * what the caller has raised, if a handler does not come back. */
void rsk_window_open(struct rsk_pass *, const void *frame, void (*undo)(void *, void *), void *a,
                     void *b);
/* Of a window that has just been opened: around more of libc than a system call. */
static inline void rsk_window_in_libc(const struct rsk_pass *p)
{
    uint32_t n = rsk_sig.windows;

    if (n && rsk_sig.window[n - 1].id == p->id)
        rsk_sig.window[n - 1].in_libc = true;
}

/* The section goes on. False: the window was taken for dead, and undo has run. That takes a
 * handler that left by switching to another stack (swapcontext), where the thread then made calls,
 * and came back. */
bool rsk_window_close(struct rsk_pass *);

/*
 * The same as far as it is usual, for calls in which what is around the kernel's is all that the
 * library costs: no section, no window, and the thread's end is arranged. Inlined, and few bytes:
 * after the kernel's call each 64 bytes of code took 1.7 ns (tests/bench/LOG.md).
 *
 *     if (rsk_sig.busy == 0 && rsk_sig.keyed) {
 *         rsk_section_enter();             and what is raised, and not in between given back
 *         rsk_short_open(&id, ...);        handlers that were put off run
 *         the call
 *         if (rsk_short_over(id)) {        back in the section; nobody has put a window above it,
 *                                          or taken it away
 *             rsk_short_close();           the window is over, and what is raised is given back
 *             rsk_short_leave();           the section is over
 *         } else {
 *             rsk_window_close, with what rsk_short_pass(id, ...) gives, and the section goes on
 *         }
 *     }
 */
static inline __attribute__((always_inline)) void rsk_short_open(uint64_t *id, const void *frame,
                                                                 void *held,
                                                                 void (*undo)(void *, void *),
                                                                 void *a)
{
    struct rsk_window *w = &rsk_sig.window[0];

    *id = ++rsk_sig.ids;
    w->frame = frame;
    w->id = *id;
    w->held = held;
    w->undo = undo;
    w->a = a;
    atomic_signal_fence(memory_order_seq_cst);
    rsk_sig.windows = 1;
    atomic_signal_fence(memory_order_seq_cst);
    rsk_sig.depth = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(rsk_sig.pending, 0))
        rsk_section_flush();
}

/* Sections may have been switched on or off since. */
static inline __attribute__((always_inline)) bool rsk_short_over(uint64_t id)
{
    rsk_sig.depth = atomic_load_explicit(&rsk_sections_on, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return rsk_sig.windows == 1 && rsk_sig.window[0].id == id;
}

static inline void rsk_short_close(void)
{
    rsk_sig.windows = 0;
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void rsk_short_leave(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    rsk_sig.depth = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(rsk_sig.pending, 0))
        rsk_section_flush();
}

/* Such a window, whose section held `held`, for the two functions above. */
static inline struct rsk_pass rsk_short_pass(uint64_t id, void *held)
{
    return (struct rsk_pass){id, atomic_load_explicit(&rsk_sections_on, memory_order_relaxed), true,
                             held};
}

/* A handler runs over the thread's innermost window; `frame` is the frame that called it. While it
 * runs, the thread's calls come from below `frame`. So a call from above it says that the handler
 * has jumped out, also where that call is deeper than the window. Of nested handlers only the
 * outermost is noted: the inner ones may jump into it. */
struct rsk_over {
    uint64_t id; /* of the window, 0: none */
    const void *was;
    const struct rsk_over
        *self; /* or something else has been written over it, as the handler has jumped out */
};
/* True: what the handler came over is a system call, and no more of libc than that. */
bool rsk_handler_begins(struct rsk_over *, const void *frame);
/* It has returned. */
void rsk_handler_ends(const struct rsk_over *);

/* Is this thread in a handler of the application's, which may have interrupted anything? Not in one
 * that came over a system call of ours: what it does, it does where that call was made.
 * One that has jumped out is taken for one that still runs until a call is made from
 * further out than it was. */
bool rsk_in_handler(void);

/* Was it a parent's? A handler has forked in the window, and returned in the child, to which
 * nothing belongs that the call was about. rsk_window_close has been false then. */
static inline bool rsk_pass_forked(const struct rsk_pass *p)
{
    return p->id && p->id <= rsk_sig.forked;
}

/* poll has asked the kernel for its part of a set and had nothing, and the thread has opened no
 * window since, nor made a call for a descriptor that is not ours. */
static inline bool rsk_quiet(void)
{
    return rsk_sig.quiet == rsk_sig.ids + 1;
}

/* As a cleanup, for windows with nothing to undo. */
static inline void rsk_window_end(struct rsk_pass *p)
{
    if (p->open)
        (void)rsk_window_close(p);
}

/* The value of a call that may block, made in a window; nothing is raised but what is held. */
#define RSK_OPENED(call)                                                       \
    ({                                                                         \
        struct rsk_pass pass_ __attribute__((cleanup(rsk_window_end))) = {0};  \
        rsk_window_open(&pass_, __builtin_frame_address(0), NULL, NULL, NULL); \
        (call);                                                                \
    })

/* Lets handlers that were put off run, within a section in which nothing but the held file is
 * raised, or what a block of the thread's has noted. */
static inline __attribute__((always_inline)) void rsk_section_pause(void)
{
    if (__builtin_expect(rsk_sig.pending, 0)) {
        struct rsk_pass p __attribute__((cleanup(rsk_window_end))) = {0};

        rsk_window_open(&p, __builtin_frame_address(0), NULL, NULL, NULL);
    }
}

/*
 * A system call that sleeps, unless *word is not `was` any more: -EINTR then. No handler can come
 * between the look and the sleep, because one that interrupts this function before the kernel has
 * begun, or where the kernel restarts the call, goes back to the look (rsk_sleep_rewind). word is
 * one of rsk_sig's.
 */
long rsk_sleep6(long nr, long a, long b, long c, long d, long e, long f,
                const volatile uint32_t *word, uint32_t was);
#define RSK_SLEEP(word, was, nr, a, b, c, d, e, f)                                             \
    rsk_sleep6((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f), (word), \
               (was))

/*
 * Around a sleep by a raw system call in a window, which is a cancellation point then: glibc's
 * cancellation signal restarts such a call, so the thread is asynchronously cancellable in it.
 * Both, and the sleep, are calls in a function that has nothing to give back, and that is not
 * inlined, so that the unwinder finds the caller's clean-ups. close gets what open gave.
 */
struct rsk_cancel {
    int type;
    bool sleeps; /* a bare handler that came over another sleep */
    bool no_point, asynchronous;
};
static inline struct rsk_cancel rsk_cancel_open(void)
{
    struct rsk_cancel was = {.sleeps = rsk_sig.sleeps,
                             .no_point = rsk_sig.no_point && !rsk_sig.asynchronous,
                             .asynchronous = rsk_sig.asynchronous};

    if (__builtin_expect(was.no_point, 0))
        return was;
    /* First: from then on an asynchronous thread that is cancelled ends in the system call. */
    rsk_sig.sleeps = true;
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(!was.asynchronous, 1))
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &was.type);
    return was;
}
static inline void rsk_cancel_close(struct rsk_cancel was)
{
    if (__builtin_expect(was.no_point, 0))
        return;
    /* An asynchronous one that was cancelled behind the call is a deferred one now, and stays it
     * until what was given is counted. */
    if (__builtin_expect(!was.asynchronous, 1))
        pthread_setcanceltype(was.type, NULL);
    atomic_signal_fence(memory_order_seq_cst);
    rsk_sig.sleeps = was.sleeps;
}

/* An asynchronous thread was cancelled in a section, or may be: it is a deferred one to the
 * section's end. */
void rsk_cancel_later(void);
/* It is asynchronous again, and ends here if it was cancelled. */
void rsk_cancel_now(void);
/* At load: whether a section's end is to wait for another one's, or for another rsk_cancel_now. */
void rsk_cancel_asks(bool (*not_yet)(void));

/* To the end of the scope the thread cannot be cancelled: around what calls libc's functions, or
 * other libraries', where a thread that unwinds would leave a lock, or memory that another
 * thread writes to. */
static inline int rsk_cancel_off(void)
{
    int was;

    /* Or it would end where it can be cancelled again. */
    if (__builtin_expect(rsk_sig.asynchronous && rsk_sig.depth, 0))
        rsk_cancel_later();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
    return was;
}
static inline void rsk_cancel_back(const int *was)
{
    pthread_setcancelstate(*was, NULL);
}
#define RSK_UNCANCELLED \
    __attribute__((cleanup(rsk_cancel_back), unused)) int cancel_ = rsk_cancel_off()

/* For the handler: the interrupted thread's next instruction, or where it shall go on instead. */
uintptr_t rsk_sleep_rewind(uintptr_t pc);

/* In a forked child: the thread's windows were about what is the parent's. */
void rsk_section_after_fork_child(void);

#endif
