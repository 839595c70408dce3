/*
 * call_floor.c - the least that an intercepted read() or write() can cost, in steps; a library to
 * preload, with FLOOR defined:
 *
 *   0   passes the call on
 *   1   looks the number up in a table, looks at the stream's gate, and counts bytes and calls
 *   2   holds a reference to the file and counts the call in flight, so that neither a close nor a
 *       switch comes in between
 *   3   notes both for the thread, so that a signal handler may jump out of the kernel's call
 *
 * LINES: so many times 64 bytes of instructions that do nothing are executed before that.
 *
 * No more than that: no settings, no tap, no proof, no signals that are put off, no fork.
 * bench/cost.py has call_turns measure each beside the library. What they take is cache lines that
 * the kernel's call has pushed out of the first level.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifndef FLOOR
#define FLOOR 3
#endif
#ifndef LINES
#define LINES 0
#endif
#define TEXT_OF(n) #n
#define TEXT(n)    TEXT_OF(n)
/* On any other processor nothing. */
#if LINES && defined(__x86_64__)
#define EXECUTE_LINES \
    __asm__ volatile(".rept 8 * " TEXT(LINES) "\n.byte 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n.endr")
#else
#define EXECUTE_LINES (void)0
#endif

enum { NUMBERS = 64 };

struct stream {
    _Atomic uint8_t gate;
    _Atomic uint32_t in;
    _Atomic uint64_t calls, past;
} __attribute__((aligned(64)));

struct file {
    _Atomic uint32_t refs;
    struct stream *stream;
};

/* As in a file that others read. */
struct counters {
    _Atomic uint64_t rx;
} __attribute__((aligned(64)));

static ssize_t (*next_read)(int, void *, size_t);
static ssize_t (*next_write)(int, const void *, size_t);
static struct stream streams[NUMBERS];
static struct file files[NUMBERS];
static struct counters counters[NUMBERS];
static struct file *_Atomic table[NUMBERS];

static __attribute__((tls_model("initial-exec"))) _Thread_local struct {
    volatile uint32_t depth;
    char rest[60];
    const void *frame;
    struct file *held;
    struct stream *stream;
    void (*undo)(struct stream *);
    uint32_t id;
} window __attribute__((aligned(64)));

static void undo(struct stream *s)
{
    atomic_fetch_sub(&s->in, 1);
}

__attribute__((constructor)) static void begin(void)
{
    *(void **)&next_read = dlsym(RTLD_NEXT, "read");
    *(void **)&next_write = dlsym(RTLD_NEXT, "write");
    for (int i = 3; i < NUMBERS; i++) {
        files[i] = (struct file){1, &streams[i]};
        table[i] = &files[i];
    }
}

static inline void add(_Atomic uint64_t *to, uint64_t n)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* What both functions are, around the next one. */
#define CALL(next)                                                                \
    struct file *f = FLOOR && (unsigned)fd < NUMBERS                              \
                         ? atomic_load_explicit(&table[fd], memory_order_acquire) \
                         : NULL;                                                  \
    struct stream *s;                                                             \
    ssize_t got;                                                                  \
                                                                                  \
    EXECUTE_LINES;                                                                \
    if (!f)                                                                       \
        return next;                                                              \
    s = f->stream;                                                                \
    if (FLOOR >= 2) {                                                             \
        uint32_t refs = atomic_load_explicit(&f->refs, memory_order_relaxed);     \
                                                                                  \
        if (!refs || !atomic_compare_exchange_strong(&f->refs, &refs, refs + 1))  \
            return next;                                                          \
        atomic_fetch_add(&s->in, 1);                                              \
    }                                                                             \
    if (atomic_load(&s->gate))                                                    \
        return -1;                                                                \
    if (FLOOR >= 3) {                                                             \
        window.frame = __builtin_frame_address(0);                                \
        window.held = f;                                                          \
        window.stream = s;                                                        \
        window.undo = undo;                                                       \
        window.id++;                                                              \
        atomic_signal_fence(memory_order_seq_cst);                                \
        window.depth = 0;                                                         \
    }                                                                             \
    got = next;                                                                   \
    if (FLOOR >= 3)                                                               \
        window.depth = 1;                                                         \
    if (got > 0) {                                                                \
        add(&counters[fd].rx, (uint64_t)got);                                     \
        add(&s->past, (uint64_t)got);                                             \
        add(&s->calls, 1);                                                        \
    }                                                                             \
    if (FLOOR >= 2) {                                                             \
        atomic_fetch_sub(&s->in, 1);                                              \
        atomic_fetch_sub(&f->refs, 1);                                            \
    }                                                                             \
    return got

__attribute__((visibility("default"), aligned(64))) ssize_t read(int fd, void *buf, size_t n)
{
    CALL(next_read(fd, buf, n));
}

__attribute__((visibility("default"), aligned(64))) ssize_t write(int fd, const void *buf, size_t n)
{
    CALL(next_write(fd, buf, n));
}
