/*
 * pl.h - what the intercepting functions share: the real functions, the
 * descriptor table, and how results become errno.
 */
#ifndef PL_PL_H
#define PL_PL_H

#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/fb_process.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* pl_real.read etc.: the next definition of each symbol of calls.def, found lazily because calls
 * may come before our constructor. pl_ready() is called at the entry of every wrapper. */
#include "preload/real.h"

enum pl_kind { PL_STREAM = 1, PL_EPOLL = 2, PL_LISTENER = 3 };

/* pl_file.closing. PL_CLOSING is replaced by one of the other two before a close goes on. They are
 * for who sleeps in poll on the number, whom the kernel does not wake for a close. */
enum {
    PL_CLOSING = 0x40,
    /* a stream is being closed; pl_held_bits: what held before, for which he was woken */
    PL_GONE = 0x80,
    PL_KERNELS = 0xc0, /* only the kernel can say what the number stands for now */
};

/* POLL*, below PL_CLOSING. */
static inline uint8_t pl_held_bits(short events)
{
    return (uint8_t)((events & (POLLIN | POLLPRI | POLLOUT | POLLERR | POLLHUP)) |
                     (events & POLLRDHUP ? 0x20 : 0));
}
_Static_assert((POLLIN | POLLPRI | POLLOUT | POLLERR | POLLHUP) < 0x20, "");

/* What a descriptor number stands for; type-stable, counted. Dups of one description share the
 * stream (or epoll instance) but each number has a file of its own. */
struct pl_file {
    _Atomic uint32_t refs;
    union {
        int fd;
        _Atomic uint32_t next; /* pl_table.c's, while the file is free */
    };
    /* PL_STREAM: who has no reference to the file may find it here, and that of an earlier or
     * later life of the file: pl_short.h. PL_EPOLL: pl_epoll_of(). Of these and of PL_LISTENER the
     * lowest bit is set. */
    struct fb_stream *_Atomic stream;
    struct pl_member *_Atomic members; /* epoll registrations of this number; pl_epoll.c's */
    uint8_t kind;
    /* PL_CLOSING: one thread is closing the number; a second close is EBADF */
    _Atomic uint8_t closing;
    uint16_t epoch; /* pl_table.c's, as is index */
    uint32_t index;
};
_Static_assert(sizeof(struct pl_file) <= 32, "every tracked connection has one");

static inline struct pl_epoll *pl_epoll_of(const struct pl_file *f)
{
    return (struct pl_epoll *)((char *)atomic_load_explicit(&f->stream, memory_order_relaxed) - 1);
}
static inline bool pl_is_stream(const struct fb_stream *s)
{
    return !((uintptr_t)s & 1);
}

/* The file behind fd with a reference, or NULL: not ours, straight to libc. Lock-free,
 * async-signal- safe. */
struct pl_file *pl_get(int fd);
void pl_put(struct pl_file *);
/* The last reference is gone. */
void pl_last(struct pl_file *);
/* Makes fd stand for a new file; whatever the slot held before is dropped as if closed behind our
 * back. Takes over the caller's reference to object, given back with fb_put or pl_epoll_free once
 * the number is closed and nobody looks at the file any more. NULL: the number cannot be kept (no
 * memory, or beyond 16 million) and the object still belongs to the caller. The result is the
 * table's reference: look, but not after a close. */
struct pl_file *pl_install(int fd, enum pl_kind kind, void *object);
/* The same for a listener, unless the number stands for something. */
void pl_install_listener(int fd);
/* The number is going away (close, dup2 over it): takes it out of the table and returns it with the
 * table's reference, or NULL. Readers see EBADF or plain libc from now on. */
struct pl_file *pl_take(int fd);
/* Everything is forgotten: forked child. What was there goes to pl_heir_keep, if there
 * is a heritage. */
void pl_table_reset(struct fb_heritage *);
/* Calls fn for every live file. */
void pl_each(void (*fn)(struct pl_file *, void *), void *arg);

/* Turns a count or -errno into the libc convention. errno is not touched on success. */
static inline ssize_t pl_ret(ssize_t n)
{
    if (__builtin_expect(n >= 0, 1))
        return n;
    __extension__ extern int *__errno_location(void);
    *__errno_location() = (int)-n;
    return -1;
}

/* False when nothing is ours any more (pl_passive), and in a vfork child, which runs in its
 * parent's memory and must not touch any of this. One system call: only for rare calls (close,
 * dup2, exec, exit). */
bool pl_is_owner(void);
/* The same without a system call, unless something may run in this memory that only its pid tells
 * from us. It does not see a child with CLONE_VM that was made by an instruction of the program's
 * own, past libc: for what does no harm there (a stream that has had no rail is forgotten, or noted
 * under a number that is not its). */
bool pl_is_owner_here(void);
/* This thread is about to make a process, or thread, with these flags of clone(2). */
void pl_cloning(uint64_t flags);

/* ---- pl_epoll.c, for the wrappers of descriptors ---- */

/* A number that was none of ours has been registered in an epoll instance, and has not become a
 * stream since. */
bool pl_epoll_marked(int fd);
/* The number is that of a socket that has just been made: nothing of it can be registered. */
void pl_epoll_unmark(int fd);
/* A number of any kind that is registered in epoll instances is closed, or replaced: members leave.
 * Before fb_close and the kernel's close. stays: the number and its socket do, of which there is
 * another connection next. */
void pl_epoll_forget_members(struct pl_file *, bool stays);
static inline void pl_epoll_forget_fd(struct pl_file *f, bool stays)
{
    if (atomic_load_explicit(&f->members, memory_order_relaxed))
        pl_epoll_forget_members(f, stays);
}
/* A number has become a tracked stream by connect: it may have been registered before. After
 * pl_install, whose exchange comes before its look at who has been. */
void pl_epoll_stream_tracked(struct pl_file *);
/* Somebody works on the instance: one more pl_epoll_free will come. */
void pl_epoll_get(struct pl_epoll *);
/* The last one frees it. */
void pl_epoll_free(struct pl_epoll *);
/* Another number (dup) stands for the instance: one more pl_epoll_no_number will come. */
void pl_epoll_number(struct pl_epoll *);
/* A number that stood for it is gone. */
void pl_epoll_no_number(struct pl_epoll *);
/* epoll_create(1) gave fd. */
void pl_epoll_created(int fd);
/* Another process will hold the instance (the number survives an exec or spawn): the kernel
 * alone serves it from now on. Its streams leave first, by fb_leave_all or fb_pin. Other
 * kinds are ignored. */
void pl_epoll_cross(struct pl_file *);
/* The same for all instances: before fork, after fb_leave_all. */
void pl_epoll_cross_all(void);
/* An instance goes over a socket: its streams leave, which is waited for as by fb_pin, and
 * it is crossed. */
void pl_epoll_give(struct pl_file *);
/* Progress thread: a forked child wants the instance that is known by this number. True: it has
 * been crossed, and all its streams are the kernel's. */
bool pl_epoll_asked(uint64_t id);

/* In a forked child, after pl_table_reset: instances, and what waits had, belong to the parent. */
void pl_epoll_after_fork_child(void);

#endif
