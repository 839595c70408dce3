/*
 * pl_short.h - the short way of the calls on bytes, for a half that is plain and a thread that is
 * in nothing else. It is one inlined piece of code around libc's function, with nothing in it that
 * is not needed then; whatever is unusual, before libc's function or after it, goes the long way,
 * as everything does for the rarer calls (pl_recv.c, pl_send.c).
 */
#ifndef PL_SHORT_H
#define PL_SHORT_H

#include "preload/pl_own.h"

#include <pthread.h>

/* A function that begins with it: its first bytes begin a cache line. */
#define PL_SHORT __attribute__((aligned(64)))

struct pl_short {
    struct pl_file *f;   /* referenced, in a section; NULL: nothing is raised; or PL_SHORT_RAIL */
    struct fb_stream *s; /* of PL_WAY_RAIL with one buffer: no reference */
    uint64_t id;         /* not 0: of the window of libc's call, and the half counts it */
    uint32_t cut;        /* rsk_sig's before it, or before on_rail */
    const void *frame;   /* for the long way: of the intercepting function */
    bool tried;          /* for the long way: on_rail was called, and has done nothing */
};

/* Instead of a file: the thread is in a section, in which it has referenced none. */
#define PL_SHORT_RAIL ((struct pl_file *)-1)

enum pl_way {
    PL_WAY_COUNTED, /* libc's function is to be called, and pl_short_leave */
    PL_WAY_LIBC,    /* libc's function, and nothing else */
    /* The half is not plain, and the thread is in a section. With one buffer s is the stream, read
     * without a reference (the file may have another stream by now), and nothing is raised; else
     * pl_short_held gives the file. */
    PL_WAY_RAIL,
    PL_WAY_LONG /* the long way; what is raised already is in k */
};

/* Nothing of ours has that number. As pl_hold. */
static inline enum pl_way pl_short_not_ours(void)
{
    if (!atomic_load_explicit(&pl_resolved, memory_order_acquire) ||
        atomic_load_explicit(&pl_heirs, memory_order_relaxed) ||
        atomic_load_explicit(&rsk_own_inside.n, memory_order_relaxed))
        return PL_WAY_LONG;
    rsk_sig.quiet = 0;
    return PL_WAY_LIBC;
}

/* usual, one_buffer: of the call's arguments. undo: as rsk_window_open's, of the stream. */
static inline __attribute__((always_inline)) enum pl_way pl_short_enter(
    struct pl_short *k, bool usual, bool one_buffer, int fd, bool rx, const void *frame,
    void (*undo)(void *, void *))
{
    unsigned n = (unsigned)fd;
    struct fb_stream *s;
    struct pl_file *f;
    pl_slot *at;
    uint32_t refs;

    k->f = NULL;
    k->id = 0;
    if (__builtin_expect(!usual || rsk_sig.busy || n >= (unsigned)PL_ROOT * PL_CHUNK, 0))
        return PL_WAY_LONG;
    at = atomic_load_explicit(&pl_root[n / PL_CHUNK], memory_order_acquire);
    if (__builtin_expect(!at, 0))
        return pl_short_not_ours();
    f = atomic_load_explicit(&at[n % PL_CHUNK], memory_order_acquire);
    if (__builtin_expect(!f, 0))
        return pl_short_not_ours();
    if (__builtin_expect(!rsk_sig.keyed, 0)) {
        rsk_section_key(); /* for the next call: a thread that never sleeps opens no window */
        return PL_WAY_LONG;
    }
    rsk_section_enter();
    if (one_buffer) {
        s = atomic_load_explicit(&f->stream, memory_order_acquire);
        if (__builtin_expect(pl_is_stream(s), 1) && __builtin_expect(fb_gate_is_up(s, rx), 0) &&
            atomic_load_explicit(pl_alive, memory_order_relaxed)) {
            k->s = s;
            return PL_WAY_RAIL;
        }
    }
    /* pl_look_up's steps. */
    refs = atomic_load_explicit(&f->refs, memory_order_relaxed);
    if (__builtin_expect(!refs || !atomic_load_explicit(pl_alive, memory_order_relaxed) ||
                             !atomic_compare_exchange_strong(&f->refs, &refs, refs + 1),
                         0)) {
        rsk_section_leave();
        return PL_WAY_LONG;
    }
    if (__builtin_expect(atomic_load_explicit(&at[n % PL_CHUNK], memory_order_acquire) != f, 0)) {
        pl_put(f);
        rsk_section_leave();
        return PL_WAY_LONG;
    }
    k->f = f;
    s = atomic_load_explicit(&f->stream, memory_order_relaxed);
    if (__builtin_expect(!pl_is_stream(s), 0)) {
        rsk_sig.held = f;
        return PL_WAY_LONG;
    }
    if (__builtin_expect(!(one_buffer ? fb_count_in(s, rx)
                           : rx       ? fb_rx_enter(s)
                                      : fb_tx_enter(s)),
                         0)) {
        rsk_sig.held = f;
        return one_buffer ||
                       __builtin_expect(atomic_load_explicit(&pl_passive, memory_order_relaxed), 0)
                   ? PL_WAY_LONG
                   : PL_WAY_RAIL;
    }
    k->cut = rsk_sig.cut;
    rsk_short_open(&k->id, frame, f, undo, s);
    return PL_WAY_COUNTED;
}

/* libc's function gave n. False: the long way, from where it has. */
static inline __attribute__((always_inline)) bool pl_short_leave(struct pl_short *k, ssize_t n,
                                                                 bool rx)
{
    struct pl_file *f = k->f;
    struct fb_stream *s = f->stream;
    uint64_t end;

    if (__builtin_expect(!rsk_short_over(k->id) || !fb_usual(s, n, rx, &end), 0))
        return false;
    rsk_short_close();
    fb_count(s, n, rx, end);
    if (__builtin_expect(atomic_fetch_sub(&f->refs, 1) == 1, 0))
        pl_last(f);
    rsk_short_leave();
    k->f = NULL;
    return true;
}

/* The rail's file, in a section. */
static inline struct pl_file *pl_short_held(struct pl_short *k)
{
    struct pl_file *f = k->f;

    k->f = NULL;
    return f;
}

/* Around the call of fb's that moves bytes of one buffer on a rail: the section of PL_WAY_RAIL
 * ends after it. */
static inline __attribute__((always_inline)) void pl_short_rail_begin(struct pl_short *k)
{
    k->f = PL_SHORT_RAIL;
    /* A call that may never enter the kernel is a cancellation point all the same. */
    pthread_testcancel();
}

static inline __attribute__((always_inline)) void pl_short_rail_end(struct pl_short *k)
{
    k->f = NULL;
    rsk_short_leave();
}

/* The long way's, in a section, or NULL. */
static inline struct pl_file *pl_short_stream(struct pl_short *k, int fd)
{
    struct pl_file *f = pl_short_held(k);

    return pl_stream_of(f ? f : pl_hold_from(fd, k->frame));
}

/* For PL_SHORT_CALL; of the file's are struct in_kernel, short_was and cancelled. */
#define PL_SHORT_CANCELLED                                                          \
    /* The thread was cancelled in libc's function, or before a call on a rail. */  \
    __attribute__((noinline)) static void short_cancelled(struct pl_short *k)       \
    {                                                                               \
        if (k->f == PL_SHORT_RAIL) {                                                \
            rsk_section_leave();                                                    \
            return;                                                                 \
        }                                                                           \
        PL_HELD f = k->f;                                                           \
        struct in_kernel in = short_was(k, f);                                      \
                                                                                    \
        cancelled(&in);                                                             \
    }                                                                               \
    static inline __attribute__((always_inline)) void short_end(struct pl_short *k) \
    {                                                                               \
        if (__builtin_expect(k->f != NULL, 0))                                      \
            short_cancelled(k);                                                     \
    }

/* The value of `kernel`, libc's function, by the short way; of `on_rail`, which with
 * one_buffer is 0 if it has done nothing; or of `other`, which finds in `way` and `got` how
 * far the short way was. */
#define PL_SHORT_CALL(fd, usual, one_buffer, rx, undo, kernel, on_rail, other)                 \
    ({                                                                                         \
        __attribute__((cleanup(short_end))) struct pl_short way;                               \
        enum pl_way is_ =                                                                      \
            pl_short_enter(&way, usual, one_buffer, fd, rx, __builtin_frame_address(0), undo); \
        ssize_t got = 0;                                                                       \
        if (__builtin_expect(is_ == PL_WAY_LIBC, 0)) {                                         \
            got = (kernel);                                                                    \
        } else if (__builtin_expect(is_ == PL_WAY_RAIL, 0)                                     \
                       ? (got = (on_rail), (one_buffer) && got == 0)                           \
                       : __builtin_expect(is_ == PL_WAY_LONG, 0) ||                            \
                             (got = (kernel), !pl_short_leave(&way, got, rx))) {               \
            way.frame = __builtin_frame_address(0);                                            \
            way.tried = is_ == PL_WAY_RAIL;                                                    \
            got = (other);                                                                     \
        }                                                                                      \
        got;                                                                                   \
    })

#endif
