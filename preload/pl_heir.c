/*
 * pl_heir.c - the numbers that a forked child has from its parent. The parent's table is kept
 * as it was at the fork, and looked at only for numbers that the child's own table does not have.
 * The first use of such a number makes the stream the child's own (fb_adopt), with the parent's
 * help if it is on a rail there; most children only close them.
 *
 * Each fork adds a level; a grandchild finds what its parent had not used in the level below.
 * Application threads of a forked child.
 */
#include "preload/pl_epoll.h"
#include "preload/pl_own.h"

#include "ipoib_fallback/lock.h"
#include "rsock/sys.h"

#include <sys/mman.h>

enum { CHUNK = 1024 };

typedef _Atomic(struct pl_file *) slot;

static struct level {
    struct level *next; /* older */
    struct fb_heritage *heritage;
    uint32_t chunks;
    slot *root[];
} * levels;

RSK_HOT _Atomic bool pl_heirs;
/* One adoption at a time: who comes second finds it done. The parent's answer is awaited
 * under it, so a signal handler must not wait for its own thread: it adopts as well, and the
 * later one stands. */
static struct fb_lock lock;
static _Atomic int adopter; /* thread id of its holder */

void pl_heir_after_fork_child(void)
{
    lock = (struct fb_lock){0}; /* its holder, if any, does not exist here */
    atomic_store(&adopter, 0);
}

/* A listening socket is nobody's but the kernel's. */
static bool is_asked_for(struct pl_file *f)
{
    return f->kind == PL_STREAM || f->kind == PL_EPOLL;
}

static bool was_inherited(struct pl_file *f)
{
    return f->kind == PL_STREAM && fb_inherited(f->stream);
}

static bool in_chunk(const slot *chunk, bool (*such)(struct pl_file *))
{
    for (uint32_t n = 0; chunk && n < CHUNK; n++) {
        struct pl_file *f = atomic_load_explicit(&chunk[n], memory_order_relaxed);

        if (f && such(f))
            return true;
    }
    return false;
}

static bool has(const struct level *l, bool (*such)(struct pl_file *))
{
    for (uint32_t i = 0; i < l->chunks; i++)
        if (in_chunk(l->root[i], such))
            return true;
    return false;
}

/* An ancestor's table was not kept: which of its streams it had inherited is not known. */
static bool unknown;

static void not_kept(_Atomic(slot *) *root, uint32_t chunks)
{
    for (uint32_t i = 0; levels && i < chunks; i++)
        unknown |= in_chunk(atomic_load(&root[i]), is_asked_for);
}

/* In a fresh child. Levels of which no such number is left go, with all that is kept for them: who
 * renews himself by forking has many ancestors. But if a stream of another level was itself
 * inherited, all stay: by the link its first owner sees that somebody may have it. Frames below us
 * may be looking through them, so the level's own page stays. */
static void drop_empty(void)
{
    bool all = false;

    if (unknown)
        return;
    for (struct level **at = &levels->next, *l; (l = *at) != NULL;) {
        if (has(l, is_asked_for)) {
            at = &l->next;
            continue;
        }
        for (struct level *other = levels; !all && other; other = other->next)
            if (has(other, was_inherited))
                return;
        all = true;
        *at = l->next;
        fb_heritage_end(l->heritage);
    }
}

void pl_heir_keep(struct fb_heritage *heritage, _Atomic(slot *) *root, uint32_t chunks)
{
    size_t size = sizeof(struct level) + chunks * sizeof(slot *);
    struct level *l;
    long p = heritage && chunks ? SYS6(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                : 0;

    if (p <= 0) {
        not_kept(root, chunks);
        return;
    }
    l = (struct level *)p;
    l->heritage = heritage;
    l->chunks = chunks;
    for (uint32_t i = 0; i < chunks; i++)
        l->root[i] = atomic_load(&root[i]);
    l->next = levels;
    levels = l;
    drop_empty();
    atomic_store(&pl_heirs, true);
}

static slot *in_level(const struct level *l, int fd)
{
    uint32_t n = (uint32_t)fd;

    return n / CHUNK < l->chunks && l->root[n / CHUNK] ? &l->root[n / CHUNK][n % CHUNK] : NULL;
}

/* The newest level's file of that number, and whose it was. */
static struct pl_file *find(int fd, struct fb_heritage **heritage)
{
    for (struct level *l = levels; l; l = l->next) {
        slot *at = in_level(l, fd);
        struct pl_file *f = at ? atomic_load(at) : NULL;

        if (f) {
            *heritage = l->heritage;
            return f;
        }
    }
    return NULL;
}

static void forget(int fd)
{
    for (struct level *l = levels; l; l = l->next) {
        slot *at = in_level(l, fd);

        if (at)
            atomic_store(at, NULL);
    }
}

/* The number stays known until it has its place in the child's own table, or is plain libc's:
 * another thread must not take it for that while the parent still has the stream on a rail. */
static void adopt(int fd)
{
    struct fb_heritage *heritage = NULL;
    struct pl_file *f = find(fd, &heritage);
    struct fb_stream *s = NULL;

    if (f && f->kind == PL_EPOLL)
        fb_ask_epoll(heritage, pl_epoll_of(f)->id);
    if (f && f->kind == PL_STREAM)
        s = fb_adopt(heritage, f->stream, fd);
    if (s && !pl_install(fd, PL_STREAM, s))
        fb_put(s);
    forget(fd);
}

struct pl_file *pl_heir_get(int fd)
{
    struct fb_heritage *unused;
    int self;

    /* A vfork child of ours runs on our memory, and execs or ends soon. */
    if (fd < 0 || !find(fd, &unused) || !pl_is_owner())
        return NULL;
    self = sys_gettid();
    if (atomic_load(&adopter) == self) {
        adopt(fd);
    } else {
        fb_lock(&lock);
        atomic_store(&adopter, self);
        if (find(fd, &unused))
            adopt(fd);
        atomic_store(&adopter, 0);
        fb_unlock(&lock);
    }
    return pl_get(fd); /* not known any more: it looks no further than the child's own table */
}

void pl_heir_drop_here(int fd)
{
    struct fb_heritage *unused;

    if (fd >= 0 && find(fd, &unused) && pl_is_owner())
        forget(fd);
}

void pl_heir_lend(int fd)
{
    struct fb_heritage *heritage;
    struct pl_file *f = fd >= 0 ? find(fd, &heritage) : NULL;
    struct fb_asks asks = {.n = 0};

    if (f && f->kind == PL_STREAM)
        fb_disown(&asks, heritage, f->stream);
    fb_disowned(&asks);
}

void pl_heir_drop_range(unsigned int first, unsigned int last)
{
    for (struct level *l = levels; l; l = l->next)
        for (uint32_t n = first; n < l->chunks * CHUNK && n <= last; n++) {
            slot *at = in_level(l, (int)n);

            if (at)
                atomic_store(at, NULL);
            else
                n |= CHUNK - 1;
        }
}

void pl_heir_exec(bool all)
{
    struct fb_asks asks = {.n = 0};

    for (struct level *l = levels; l; l = l->next)
        for (uint32_t n = 0; n < l->chunks * CHUNK; n++) {
            slot *at = in_level(l, (int)n);
            struct pl_file *f = at ? atomic_load(at) : NULL;
            long flags;

            if (!at)
                n |= CHUNK - 1;
            if (!f)
                continue;
            flags = sys_fcntl((int)n, F_GETFD, 0);
            if (flags < 0 || (flags & FD_CLOEXEC && !all))
                continue;
            if (f->kind == PL_STREAM)
                fb_disown(&asks, l->heritage, f->stream);
            else if (f->kind == PL_EPOLL)
                fb_ask_epoll(l->heritage, pl_epoll_of(f)->id);
        }
    fb_disowned(&asks);
}
