/*
 * pl_table.c - which descriptors are ours: a two-level table from number to pl_file.
 * A look-up takes no lock, allocates nothing and is async-signal-safe; for a number that
 * is not ours it is two loads.
 *
 * Memory comes from mmap in chunks of slots and slabs of files and is never given back: a
 * look-up may hold a pointer to a file that has just been freed. It tries for a reference,
 * which a free file refuses, and then looks again whether the slot still holds the same
 * file. Free files are a stack of indices with a counter in the head against ABA.
 *
 * Called by every wrapper, on any thread.
 */
#include "preload/pl_own.h"

#include "rsock/sys.h"

#include <sys/mman.h>

enum {
    SLAB = 256, /* files, 8 KiB */
    SLABS = 65536,
};

_Atomic(pl_slot *) pl_root[PL_ROOT];
static _Atomic uint32_t chunks; /* one more than the highest chunk in use */
static _Atomic(struct pl_file *) slabs[SLABS];
static _Atomic uint32_t nslabs;
/* Low half: index + 1 of the first free file, 0 = none. High half: counts pops. */
static _Atomic uint64_t free_files;
/* Files of an older epoch were inherited through fork: their slabs are forgotten. */
static _Atomic uint32_t epoch;

RSK_HOT _Atomic bool pl_passive;

static _Atomic uint32_t always_alive = 1;
RSK_HOT _Atomic uint32_t *pl_alive = &always_alive;

static void *map(size_t size)
{
    long p = SYS6(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p < 0 && p > -4096 ? NULL : (void *)p;
}

/* ---- files ---- */

static struct pl_file *file_at(uint32_t index)
{
    return atomic_load(&slabs[index / SLAB]) + index % SLAB;
}

/* Puts the chain first..last, linked by next, on the free stack. */
static void push(struct pl_file *first, struct pl_file *last)
{
    uint64_t head = atomic_load(&free_files);

    do
        atomic_store_explicit(&last->next, (uint32_t)head, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&free_files, &head,
                                         (head & ~(uint64_t)UINT32_MAX) | (first->index + 1)));
}

static bool add_slab(void)
{
    struct pl_file *slab = map(SLAB * sizeof(*slab));
    uint32_t n, i;

    if (!slab)
        return false;
    n = atomic_fetch_add(&nslabs, 1);
    if (n >= SLABS) {
        atomic_fetch_sub(&nslabs, 1);
        SYS6(SYS_munmap, slab, SLAB * sizeof(*slab), 0, 0, 0, 0);
        return false;
    }
    /* Every other one first: each call writes to its file, two share a cache line, and may be
     * two threads'. */
    for (i = 0; i < SLAB; i++) {
        uint32_t next = i + 2 == SLAB ? 1 : i + 2;

        slab[i].index = n * SLAB + i;
        slab[i].epoch = (uint16_t)atomic_load(&epoch);
        atomic_init(&slab[i].next, n * SLAB + next + 1);
    }
    atomic_store(&slabs[n], slab);
    push(&slab[0], &slab[SLAB - 1]);
    return true;
}

static struct pl_file *file_new(void)
{
    uint64_t head = atomic_load(&free_files);
    struct pl_file *f;

    for (;;) {
        if ((uint32_t)head == 0) {
            if (!add_slab())
                return NULL;
            head = atomic_load(&free_files);
            continue;
        }
        f = file_at((uint32_t)head - 1);
        if (atomic_compare_exchange_weak(&free_files, &head,
                                         ((head >> 32) + 1) << 32 | atomic_load(&f->next)))
            return f;
    }
}

void pl_last(struct pl_file *f)
{
    if (f->kind == PL_STREAM)
        fb_put(f->stream);
    else if (f->kind == PL_EPOLL)
        pl_epoll_no_number(pl_epoll_of(f));
    push(f, f);
}

void pl_put(struct pl_file *f)
{
    /* A frame that a signal handler interrupted, and which then went on in a forked child. */
    if (__builtin_expect(f->epoch != (uint16_t)atomic_load_explicit(&epoch, memory_order_relaxed),
                         0))
        return;
    if (atomic_fetch_sub(&f->refs, 1) == 1)
        pl_last(f);
}

/* ---- slots ---- */

static pl_slot *slot_of(int fd, bool make)
{
    unsigned n = (unsigned)fd;
    pl_slot *chunk, *mine;
    uint32_t top;

    if (__builtin_expect(n >= (unsigned)PL_ROOT * PL_CHUNK, 0))
        return NULL;
    chunk = atomic_load_explicit(&pl_root[n / PL_CHUNK], memory_order_acquire);
    if (!chunk && make) {
        mine = map(PL_CHUNK * sizeof(pl_slot));
        if (!mine)
            return NULL;
        if (atomic_compare_exchange_strong(&pl_root[n / PL_CHUNK], &chunk, mine))
            chunk = mine;
        else
            SYS6(SYS_munmap, mine, PL_CHUNK * sizeof(pl_slot), 0, 0, 0, 0);
        top = atomic_load(&chunks);
        while (top < n / PL_CHUNK + 1 &&
               !atomic_compare_exchange_weak(&chunks, &top, n / PL_CHUNK + 1))
            ;
    }
    return chunk ? &chunk[n % PL_CHUNK] : NULL;
}

static struct pl_file *hold(pl_slot *at)
{
    struct pl_file *f;
    uint32_t refs;

    while ((f = atomic_load_explicit(at, memory_order_acquire))) {
        refs = atomic_load_explicit(&f->refs, memory_order_relaxed);
        while (refs && !atomic_compare_exchange_weak(&f->refs, &refs, refs + 1))
            ;
        if (!refs)
            continue; /* left the slot since we looked */
        if (atomic_load_explicit(at, memory_order_acquire) == f)
            return f;
        pl_put(f);
    }
    return NULL;
}

struct pl_file *pl_get(int fd)
{
    pl_slot *at = slot_of(fd, false);

    if (!at || !atomic_load_explicit(at, memory_order_relaxed))
        return __builtin_expect(atomic_load_explicit(&pl_heirs, memory_order_relaxed), 0)
                   ? pl_heir_get(fd)
                   : NULL;
    if (__builtin_expect(!atomic_load_explicit(pl_alive, memory_order_relaxed), 0)) {
        pl_child();
        return pl_get(fd);
    }
    return hold(at);
}

struct pl_file *pl_hold_number(int fd)
{
    /* Before the table is looked at: it may still be the parent's. */
    if (!atomic_load_explicit(pl_alive, memory_order_relaxed))
        pl_child();
    if (pl_at(fd) || !atomic_load_explicit(&pl_heirs, memory_order_relaxed))
        return pl_hold_from(fd, __builtin_frame_address(0));
    rsk_own_look();
    return NULL;
}

/* Its number has been closed where we did not see it, and is another file's: nothing of the
 * stream's goes there. */
static void lost(struct pl_file *f)
{
    pl_epoll_forget_fd(f, false);
    if (f->kind == PL_STREAM)
        fb_disconnected(f->stream, f->fd);
    pl_put(f);
}

/* A file that is in no slot, or NULL. */
static struct pl_file *made_for(int fd, enum pl_kind kind, void *object)
{
    struct pl_file *f = file_new();

    if (!f)
        return NULL;
    f->kind = (uint8_t)kind;
    /* This sets f->fd, which is the same word: another thread may still read it as `next`, in
     * file_new(), and finds by the counter in the head that this file is not free any more. */
    atomic_store_explicit(&f->next, (uint32_t)fd, memory_order_relaxed);
    atomic_store_explicit(&f->stream,
                          (struct fb_stream *)((char *)object + (kind == PL_STREAM ? 0 : 1)),
                          memory_order_release);
    atomic_store_explicit(&f->members, NULL, memory_order_relaxed);
    atomic_store_explicit(&f->closing, 0, memory_order_relaxed);
    /* Whoever still has the pointer from the file's earlier life may hold it from here on, and
     * finds that it is not in the slot that he looked at, or that it is and complete. */
    atomic_store_explicit(&f->refs, 1, memory_order_release);
    return f;
}

static pl_slot *slot_for(int fd)
{
    return atomic_load_explicit(&pl_passive, memory_order_relaxed) ? NULL : slot_of(fd, true);
}

struct pl_file *pl_install(int fd, enum pl_kind kind, void *object)
{
    pl_slot *at = slot_for(fd);
    struct pl_file *f = at ? made_for(fd, kind, object) : NULL, *old;

    if (!f)
        return NULL;
    old = atomic_exchange(at, f);
    pl_heir_drop(fd); /* after it: the number is known all the time */
    if (old)
        lost(old);
    return f;
}

void pl_install_listener(int fd)
{
    pl_slot *at = slot_for(fd);
    struct pl_file *f = at ? made_for(fd, PL_LISTENER, NULL) : NULL, *none = NULL;

    if (f && !atomic_compare_exchange_strong(at, &none, f))
        pl_put(f);
}

struct pl_file *pl_take(int fd)
{
    pl_slot *at = slot_of(fd, false);

    return at ? atomic_exchange(at, NULL) : NULL;
}

static __attribute__((noinline)) void drop(int fd)
{
    struct pl_file *f;
    PL_HELD held = pl_hold(fd);

    if (!held || !pl_is_owner())
        return;
    f = pl_take(fd);
    if (f)
        lost(f);
}

void pl_drop_stale(int fd)
{
    pl_slot *at = slot_of(fd, false);

    pl_heir_drop(fd);
    pl_made_forget(fd);
    if (__builtin_expect(at && atomic_load_explicit(at, memory_order_relaxed), 0))
        drop(fd);
}

void pl_each(void (*fn)(struct pl_file *, void *), void *arg)
{
    uint32_t top = atomic_load(&chunks);
    uint32_t c, i;
    pl_slot *chunk;

    PL_SECTION;
    for (c = 0; c < top; c++) {
        chunk = atomic_load_explicit(&pl_root[c], memory_order_acquire);
        for (i = 0; chunk && i < PL_CHUNK; i++) {
            struct pl_file *f = hold(&chunk[i]);

            if (!f)
                continue;
            fn(f, arg);
            pl_put(f);
        }
    }
}

bool pl_tracks_nothing(void)
{
    return !atomic_load_explicit(&chunks, memory_order_relaxed) &&
           !atomic_load_explicit(&pl_heirs, memory_order_relaxed);
}

int pl_highest(int n)
{
    uint32_t top = atomic_load(&chunks), c = n > 0 ? (uint32_t)(n - 1) / PL_CHUNK + 1 : 0;

    for (c = c < top ? c : top; c-- > 0;) {
        pl_slot *chunk = atomic_load_explicit(&pl_root[c], memory_order_acquire);

        for (int i = PL_CHUNK - 1; chunk && i >= 0; i--)
            if ((int)c * PL_CHUNK + i < n && atomic_load_explicit(&chunk[i], memory_order_relaxed))
                return (int)c * PL_CHUNK + i + 1;
    }
    return 0;
}

/* The memory of before stays mapped, untouched and shared with the parent: frames below us may
 * still hold files, and clearing would copy pages. */
void pl_table_reset(struct fb_heritage *heritage)
{
    uint32_t i;

    pl_heir_keep(heritage, pl_root, atomic_load(&chunks));
    atomic_fetch_add(&epoch, 1);
    for (i = 0; i < atomic_load(&chunks) && i < PL_ROOT; i++)
        atomic_store(&pl_root[i], NULL);
    for (i = 0; i < atomic_load(&nslabs) && i < SLABS; i++)
        atomic_store(&slabs[i], NULL);
    atomic_store(&chunks, 0);
    atomic_store(&nslabs, 0);
    atomic_store(&free_files, 0);
}
