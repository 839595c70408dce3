/*
 * pl_own.h - what the files of this folder share beyond pl.h: a reference that ends
 * with its scope, the bookkeeping around new and closing descriptors, and what comes
 * before a fork, spawn or exec.
 */
#ifndef PL_OWN_H
#define PL_OWN_H

#include "preload/pl.h"
#include "rsock/own.h"
#include "rsock/section.h"

#include <limits.h>

static inline void pl_held_end(struct pl_file **f)
{
    if (!*f)
        return;
    if (__builtin_expect(rsk_sig.held != RSK_GONE, 1))
        pl_put(*f);
    rsk_sig.held = NULL;
    rsk_section_leave();
}

/* A reference that is given back at the end of the scope, also when the thread is cancelled in a
 * call (forced unwinding runs cleanups). From pl_hold or pl_get_stream: as long as it is not NULL
 * the thread is in a section, and a call that may block needs a window (rsock/section.h). */
#define PL_HELD __attribute__((cleanup(pl_held_end))) struct pl_file *

/* 0 in a forked child that nobody told of the fork: pl_get then calls pl_child. */
extern _Atomic uint32_t *pl_alive;
/* pl_heir.c: a forked child has something of its parent's. */
extern _Atomic bool pl_heirs;

/* pl_table.c's, for the usual look-up to be inlined. */
enum {
    PL_CHUNK = 1024, /* slots, 8 KiB */
    PL_ROOT = 16384, /* chunks: 16 million numbers */
};
typedef _Atomic(struct pl_file *) pl_slot;
extern _Atomic(pl_slot *) pl_root[PL_ROOT];

/* NULL: nothing of ours is near that number. */
static inline __attribute__((always_inline)) pl_slot *pl_slot_at(int fd)
{
    unsigned n = (unsigned)fd;
    pl_slot *at = NULL;

    if (__builtin_expect(n < (unsigned)PL_ROOT * PL_CHUNK, 1))
        at = atomic_load_explicit(&pl_root[n / PL_CHUNK], memory_order_acquire);
    return at ? &at[n % PL_CHUNK] : NULL;
}

/* pl_get where nothing is unusual, and the NULL of a number that neither this process has tracked
 * nor its parent. See hold() in pl_table.c for the order of the steps. */
static inline __attribute__((always_inline)) struct pl_file *pl_look_up(int fd)
{
    pl_slot *at = pl_slot_at(fd);
    struct pl_file *f = at ? atomic_load_explicit(at, memory_order_acquire) : NULL;
    uint32_t refs;

    if (!f)
        return __builtin_expect(atomic_load_explicit(&pl_heirs, memory_order_relaxed), 0)
                   ? pl_get(fd)
                   : NULL;
    refs = atomic_load_explicit(&f->refs, memory_order_relaxed);
    if (__builtin_expect(!refs || !atomic_load_explicit(pl_alive, memory_order_relaxed), 0) ||
        __builtin_expect(!atomic_compare_exchange_strong(&f->refs, &refs, refs + 1), 0))
        return pl_get(fd);
    if (__builtin_expect(atomic_load_explicit(at, memory_order_acquire) == f, 1))
        return f;
    pl_put(f);
    return pl_get(fd);
}

/* Nothing has ever been in the table, and there is nothing of a parent's: what the program gives is
 * the kernel's alone to read. */
bool pl_tracks_nothing(void);
/* One more than the highest number below n that the table has, or 0. What a fork has handed on and
 * nobody has looked at yet (pl_heirs) is not in it. */
int pl_highest(int n);

/* What this process has tracked under the number, without a reference: to be compared with
 * what has one. */
static inline const struct pl_file *pl_at(int fd)
{
    pl_slot *at = pl_slot_at(fd);

    return at ? atomic_load_explicit(at, memory_order_acquire) : NULL;
}

/* As pl_get, and enters a section if there is a file. The section begins first: a handler that does
 * not return shall not take a reference with it. frame: of the intercepting function. */
static inline __attribute__((always_inline)) struct pl_file *pl_hold_from(int fd, const void *frame)
{
    struct pl_file *f;

    rsk_call_enter(frame);
    f = pl_look_up(fd);
    if (f) {
        rsk_sig.held = f;
    } else {
        rsk_sig.quiet = 0;
        rsk_section_leave();
        rsk_own_look();
    }
    return f;
}

static inline __attribute__((always_inline)) struct pl_file *pl_hold(int fd)
{
    return pl_hold_from(fd, __builtin_frame_address(0));
}

/* The same for a call that concerns the number, and not what it stands for: what a forked child has
 * from its parent stays the parent's, and is NULL here. */
struct pl_file *pl_hold_number(int fd);

/* What is held, if it is a stream. */
static inline __attribute__((always_inline)) struct pl_file *pl_stream_of(struct pl_file *f)
{
    if (f && __builtin_expect(f->kind != PL_STREAM, 0)) {
        pl_held_end(&f);
        return NULL;
    }
    return f;
}

/* As pl_hold, streams only. */
static inline __attribute__((always_inline)) struct pl_file *pl_get_stream(int fd)
{
    return pl_stream_of(pl_hold(fd));
}

/* A section without a file. */
struct pl_section {
    bool in;
};
static inline void pl_section_end(struct pl_section *s)
{
    if (s->in)
        rsk_section_leave();
}
/* Ends it before its scope does. */
#define PL_SECTION_OVER            \
    do {                           \
        pl_section_end(&section_); \
        section_.in = false;       \
    } while (0)
#define PL_SECTION                                                                        \
    __attribute__((cleanup(pl_section_end), unused)) struct pl_section section_ = {true}; \
    rsk_call_enter(__builtin_frame_address(0))

/* In such a section: the value of the kernel's call, which may wait. In a window, for handlers that
 * come there; but where they are the application's own they might jump out of that unseen. */
#define PL_KERNELS_WAIT(call)                                                    \
    ({                                                                           \
        bool on_ = atomic_load_explicit(&rsk_sections_on, memory_order_relaxed); \
                                                                                 \
        if (!on_)                                                                \
            PL_SECTION_OVER;                                                     \
        on_ ? RSK_OPENED(call) : (call);                                         \
    })

/* ---- pl_number.c ---- */

/* For how many numbers the kernel's table has room: none that is open is as high. 0: /proc does not
 * say. Some 30 us. */
int pl_numbers(void);
struct pl_numbered {
    struct rsk_pass pass;
    bool on; /* not in a process that is libc's alone */
};
void pl_numbered_begin(struct pl_numbered *, const void *frame);
void pl_numbered_end(struct pl_numbered *);
/* The value of a call of libc's that takes a descriptor number, gives one back or asks for one: it
 * does not meet the number that a new descriptor of ours has for a moment (rsock/own.h). A window:
 * handlers run, and need not return. */
#define PL_NUMBERED(call)                                                \
    ({                                                                   \
        __attribute__((cleanup(pl_numbered_end))) struct pl_numbered n_; \
        pl_numbered_begin(&n_, __builtin_frame_address(0));              \
        (call);                                                          \
    })

/* ---- pl_heir.c: a forked child's view of what was its parent's ---- */

/* The table is emptied: what it held is kept for look-ups. */
void pl_heir_keep(struct fb_heritage *, _Atomic(_Atomic(struct pl_file *) *) *root,
                  uint32_t chunks);
/* fd is about to be used, and nothing of ours has that number: if it was the parent's, it is asked
 * for, and becomes this process's own. With a reference, or NULL: plain libc's. May block. */
struct pl_file *pl_heir_get(int fd);
/* The number is closed, or the kernel gave it to something new. */
void pl_heir_drop_here(int fd);
static inline void pl_heir_drop(int fd)
{
    if (__builtin_expect(atomic_load_explicit(&pl_heirs, memory_order_relaxed), 0))
        pl_heir_drop_here(fd);
}
void pl_heir_drop_range(unsigned int first, unsigned int last);
/* Before exec: what the new program will hold. all: also what it will not, as nobody can be
 * asked from now on. */
void pl_heir_exec(bool all);
/* The same for one number. */
void pl_heir_lend(int fd);
/* In a forked child: nobody is adopting. */
void pl_heir_after_fork_child(void);

/* ---- pl_iov.c ---- */

enum { PL_RW_MAX = 0x7ffff000 }; /* the kernel's MAX_RW_COUNT */
/* Makes an iovec fit for a rail as the kernel's import_iovec does: at most PL_RW_MAX bytes, by
 * taking fewer elements, or a part of the first in *one. 0, or -errno: -EFAULT for NULL buffers,
 * -EINVAL for lengths, `too_many` for more than IOV_MAX elements. *total is what is left. */
int pl_iov_fit_any(const struct iovec **v, int *cnt, struct iovec *one, int too_many,
                   size_t *total);
/* The same, with what most calls have, one buffer, found fit at once. */
static inline int pl_iov_fit(const struct iovec **v, int *cnt, struct iovec *one, int too_many,
                             size_t *total)
{
    if (*cnt != 1 || !*v || !(*v)->iov_base || (*v)->iov_len > PL_RW_MAX)
        return pl_iov_fit_any(v, cnt, one, too_many, total);
    *total = (*v)->iov_len;
    return 0;
}

/* Does the kernel take RWF_NOWAIT of a socket? */
bool pl_iov_nowait(void);

/* The one buffer of recv, send and their kin, of whose length the kernel takes what it can. read
 * and write are an error then: PL_TOO_LONG. */
static inline struct iovec pl_iov_one(const void *p, size_t n)
{
    return (struct iovec){(void *)p, n < PL_RW_MAX ? n : PL_RW_MAX};
}
#define PL_TOO_LONG(n) ((ssize_t)(n) < 0)

/* A msghdr's number of elements, as it fits in there. */
static inline int pl_iov_count(size_t n)
{
    return n > INT_MAX ? INT_MAX : (int)n;
}

/* ---- pl_recv.c ---- */

/* fb_recvv for a call that a signal may have interrupted before; count or -errno. */
ssize_t pl_receive(struct pl_file *, const struct iovec *v, int cnt, int flags);
/* The same where one of the buffers is NULL. */
ssize_t pl_recv_to_null(struct pl_file *, const struct iovec *v, int cnt, int flags);
/* The same with MSG_TRUNC, which is not among the flags any more. */
ssize_t pl_pass_over(struct pl_file *, const struct iovec *v, int cnt, int flags);
/* Receives that see something else than the stream's next bytes. True: the
 * call is the kernel's, and where it concerns the stream it has left and stays on TCP. The error
 * queue does not touch the stream. */
bool pl_kernels_own(struct pl_file *, int flags);
/* recvmmsg's first message. As recvmsg, with errno; the kernel is asked for an error before it, as
 * it does itself. */
ssize_t pl_recv_first(struct pl_file *, int fd, struct mmsghdr *, int flags);
/* What TCP tells beside the n bytes of a message, into it: no address (and no length of it where
 * none was asked for), and of control data only TCP_INQ's. n < 0: nothing. Returns n. */
ssize_t pl_msg_told(struct pl_file *, struct msghdr *, int flags, ssize_t n);

/* ---- pl_send.c ---- */

/* fb_pin_tx. SIGPIPE is raised, unless the flags say MSG_NOSIGNAL. */
int pl_pin_tx(struct pl_file *, int reason, int flags);
/* SIGPIPE to this thread, as the kernel sends it. */
void pl_sigpipe(void);

/* ---- pl_rights.c ---- */

/* Streams whose descriptors the message takes to another process (SCM_RIGHTS) leave and stay on
 * TCP. Its one descriptor's stream, with a reference: fb_not_given if it cannot be sent over
 * via; or NULL. */
struct fb_stream *pl_passes(int via, const struct msghdr *);
/* The same where it is not told whether it could be sent. */
void pl_passes_untold(int via, const struct msghdr *);
void pl_passes_in(int via, const struct mmsghdr *, unsigned int cnt);
/* This message has been received from via, which is no stream, with these flags: a connection that
 * came with it may be tracked. */
void pl_arrives(int via, const struct msghdr *, int flags);
static inline void pl_arrived_with(int via, const struct msghdr *msg, int flags)
{
    if (__builtin_expect(msg->msg_controllen >= sizeof(struct cmsghdr), 0))
        pl_arrives(via, msg, flags);
}

/* ---- pl_fd.c ---- */

/* The kernel gave the number fd to something new: what we still had for it was closed where we
 * could not see it. */
void pl_drop_stale(int fd);
/* fd is about to be closed. 0, or -EBADF when another thread is closing it at this moment. */
int pl_closing(int fd);
/* In a vfork child, which is about to run another program that will hold fd, whose file is f or
 * NULL: the stream leaves and is pinned. The parent's thread sleeps in vfork, and this one may do
 * all that it might. */
void pl_lend_to_spawned(struct pl_file *f, int fd);
/* True if the process has no thread but this one and, perhaps, our progress thread. */
bool pl_alone(void);
/* False: without a /proc pl_alone is never true. */
bool pl_sees_threads(void);
/* Another process may have this one's table of descriptors as its own. */
bool pl_shares_table(void);
/* newfd is another number for what f stands for. */
void pl_dup_file(struct pl_file *f, int newfd);
/* After a dup of fd, which was f's, or nobody's if f is NULL. */
void pl_dupped(struct pl_file *f, int fd, int newfd);
/* The kernel has disconnected the stream: all its numbers become plain libc's, and may be
 * connected anew. */
void pl_disconnected(struct fb_stream *);

/* ---- pl_sock.c ---- */

/* fd is a connected or connecting TCP socket: track it. The result, which may be NULL, belongs to
 * the table: look only before the number can be closed. */
struct fb_stream *pl_track(int fd, enum fb_role role, int nonblock);
/* SO_PROTOCOL says TCP. */
bool pl_is_tcp(int fd);
/* Two open numbers for one socket? */
bool pl_same_socket(int one, int two);

/* ---- pl_made.c ---- */

/* socket() gave the number for TCP; begun: pl_made_begin() before that. */
uint32_t pl_made_begin(void);
void pl_made_note(int fd, uint32_t begun);
/* Has there been any? */
bool pl_made_ever(void);
/* Is it that still, perhaps with a dup? False: not known. */
bool pl_made(int fd);
/* For fb_sleeps_since: when the number was made, if it stands for its socket alone; else 0. */
uint64_t pl_made_since(int fd);
/* It, or these, may be something else from now on: before the kernel's close. */
void pl_made_forget(int fd);
void pl_made_forget_range(unsigned int first, unsigned int last);
/* newfd is a dup of it, if it is one of them. */
void pl_made_dup(int fd, int newfd);
/* Another number, FILE or process may use the socket as well: it is not known any more. */
void pl_made_away(int fd);
/* It has been added to an epoll instance, and is marked as that. */
void pl_made_registered(int fd);
/* As pl_made_away, because fdopen has made a FILE of this number, which pl_made_has_file tells. */
void pl_made_file(int fd);
bool pl_made_has_file(int fd);
/* Around a fork, in the parent, and in its child; before a program is executed, here
 * or in a child. */
void pl_made_forking(void);
void pl_made_forked(void);
void pl_made_child(void);
void pl_made_inherited(void);
/* fd came from elsewhere, and may be a dup of one of them. */
void pl_made_got(int fd);
/* The number is connected, and tracked since before this is asked. False: others may
 * use the socket. */
bool pl_made_alone(int fd);

/* ---- pl_process.c ---- */

/* The constructor's part. */
void pl_process_init(void);
/* In a forked child: the tables are its own from now on. Idempotent. */
void pl_child(void);
struct pl_fork {
    struct fb_fork link;
    struct pl_fork *outer; /* that a signal handler, or a hook, has interrupted to fork */
    bool files, asks;      /* asks: the child can ask for what it inherits */
};

/* Around a call that copies the process; the end in the parent, or if there is no child. files: the
 * child shares the descriptor table. In the child, pl_child. */
void pl_fork_begin(struct pl_fork *, bool files);
void pl_fork_end(struct pl_fork *);
/* Instead of both, where the child does not come back to us: all is plain before. */
void pl_leave_for_child(bool files);
/* The process ends: everything that has been sent is the kernel's, within a limit. */
void pl_ending(void);
/* A stream that somebody without this memory will use: it is the kernel's when this
 * returns, or reset. */
void pl_give_away(struct pl_file *, int reason);
/* The same for several in one time: fb_pin_time. */
void pl_give_away_by(struct pl_file *, int reason, uint64_t until);
/* What a new program will hold (no FD_CLOEXEC) leaves and stays on TCP. */
void pl_before_spawn(void);
/* The same in place of this program: the rest leaves as well, because its rails end
 * with the program. */
void pl_before_exec(void);

/* ---- pl_ctl.c ---- */

/* A time-out of less than none was set on a socket that is no stream: what is accepted may have it,
 * and nobody can ask. */
extern _Atomic bool pl_past_given;

/* ---- pl_ring.c ---- */

/* The program has made an io_uring, with these flags of its setup: what there is leaves. */
void pl_ring_made(unsigned flags);
extern _Atomic unsigned pl_rings;

/* ---- pl_hold.c, pl_passive.c ---- */

struct pl_hold {
    enum fb_hold_what what;
    int saved; /* errno of before */
    bool on;
};

/* Around libc's call: what is in its way is over, and nothing new begins. errno is as before, and
 * as the call has left it. */
void pl_hold_begin(struct pl_hold *, int reason, enum fb_hold_what);
void pl_hold_end(struct pl_hold *);
/* Before a filter is installed; ended by pl_hold_end. */
void pl_filter_begin(struct pl_hold *, bool strict, const void *filter);
/* Inside a hold that is not ended: nothing is tracked any more, every wrapper is
 * libc's function. */
void pl_plain_for_good(int reason);
extern _Atomic bool pl_passive;

/* ---- pl_thread.c ---- */

/* The caller is about to end by the system call exit, which ends a thread. Does not return if the
 * process has no other one of the application's. */
int pl_thread_ends(int status);

/* ---- pl_init.c ---- */

/* True when connections can be tracked: settings read. Does that at the first
 * call, which may come before our constructor. */
bool pl_started(void);

#endif
