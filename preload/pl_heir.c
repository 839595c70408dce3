/*
 * pl_heir.c - the numbers that a forked child has from its parent. The parent's table is kept
 * as it was at the fork, and looked at only for numbers that the child's own table does not have.
 * The first use of such a number makes the stream the child's own (fb_adopt), with the parent's
 * help if it is on a rail there; most children only close them.
 *
 * Each fork adds a level; a grandchild finds what its parent had not used in the level below.
 * Application threads of a forked child.
 */
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

_Atomic bool pl_heirs;
static struct fb_lock lock; /* one adoption at a time: who comes second finds it done */

void pl_heir_keep(struct fb_heritage *heritage, _Atomic(slot *) *root, uint32_t chunks)
{
    size_t size = sizeof(struct level) + chunks * sizeof(slot *);
    struct level *l;
    long p = chunks ? SYS6(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                    : 0;

    lock = (struct fb_lock){0}; /* its holder, if any, does not exist here */
    if (p <= 0)
        return;
    l = (struct level *)p;
    l->heritage = heritage;
    l->chunks = chunks;
    for (uint32_t i = 0; i < chunks; i++)
        l->root[i] = atomic_load(&root[i]);
    l->next = levels;
    levels = l;
    atomic_store(&pl_heirs, true);
}

static slot *in_level(const struct level *l, int fd)
{
    uint32_t n = (uint32_t)fd;

    return n / CHUNK < l->chunks && l->root[n / CHUNK] ? &l->root[n / CHUNK][n % CHUNK] : NULL;
}

/* lock held. The newest level that knows the number; it is forgotten in all of them. */
static struct pl_file *take(int fd, struct fb_heritage **heritage)
{
    struct pl_file *found = NULL;

    for (struct level *l = levels; l; l = l->next) {
        slot *at = in_level(l, fd);
        struct pl_file *f = at ? atomic_exchange(at, NULL) : NULL;

        if (f && !found) {
            found = f;
            *heritage = l->heritage;
        }
    }
    return found;
}

static bool known(int fd)
{
    for (struct level *l = levels; l; l = l->next) {
        slot *at = in_level(l, fd);

        if (at && atomic_load(at))
            return true;
    }
    return false;
}

static void adopt(int fd)
{
    struct fb_heritage *heritage = NULL;
    struct pl_file *f = take(fd, &heritage);
    struct fb_stream *s;

    if (f && f->kind == PL_EPOLL)
        fb_ask_epoll(heritage, (uintptr_t)f->epoll);
    if (!f || f->kind != PL_STREAM)
        return;
    s = fb_adopt(heritage, f->stream, fd);
    if (s && !pl_install(fd, PL_STREAM, s))
        fb_put(s);
}

struct pl_file *pl_heir_get(int fd)
{
    /* A vfork child of ours runs on our memory, and execs or ends soon. */
    if (fd < 0 || !known(fd) || !pl_is_owner())
        return NULL;
    fb_lock(&lock);
    if (known(fd))
        adopt(fd);
    fb_unlock(&lock);
    return pl_get(fd); /* not known any more: it looks no further than the child's own table */
}

void pl_heir_drop(int fd)
{
    struct fb_heritage *unused;

    if (atomic_load_explicit(&pl_heirs, memory_order_relaxed) && fd >= 0 && known(fd) &&
        pl_is_owner())
        take(fd, &unused);
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

void pl_heir_exec(void)
{
    for (struct level *l = levels; l; l = l->next)
        for (uint32_t n = 0; n < l->chunks * CHUNK; n++) {
            slot *at = in_level(l, (int)n);
            struct pl_file *f = at ? atomic_load(at) : NULL;

            if (!at)
                n |= CHUNK - 1;
            if (!f || sys_fcntl((int)n, F_GETFD, 0) != 0)
                continue;
            if (f->kind == PL_STREAM)
                fb_disown(l->heritage, f->stream);
            else if (f->kind == PL_EPOLL)
                fb_ask_epoll(l->heritage, (uintptr_t)f->epoll);
        }
}
