/*
 * pl_epoll_pool.c - memory of members and instances, the interest list (a hash by descriptor), and
 * the members of a descriptor. Memory is type-stable: chunks are mapped and never given back, so a
 * cookie that is out of date points to a member, only not to the same one.
 *
 * Locks: pool and links (leaves) are taken here; the hash is under the instance's ctl and lock,
 * held by the caller.
 */
#include "preload/pl_epoll.h"

#include <string.h>
#include <sys/mman.h>

/* A cookie is 22 bits of index and 10 of generation; the last one is PL_COOKIE_WAKE. */
enum { INDEX_BITS = 22, CHUNK = 256, CHUNKS = (1 << INDEX_BITS) / CHUNK - 1 };
#define INDEX_MASK ((1u << INDEX_BITS) - 1)

static struct pl_member *_Atomic chunks[CHUNKS];
static struct fb_lock pool;
static struct pl_member *free_members; /* pool */
static struct pl_epoll *free_epolls;   /* pool; by registry.next */
static uint32_t nchunks;               /* pool */
static _Atomic uint64_t ids;           /* of instances so far */

static void *map(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* ---- lists */

void pl_link_add(struct pl_link *head, struct pl_link *l)
{
    l->prev = head->prev;
    l->next = head;
    head->prev->next = l;
    head->prev = l;
}

void pl_link_del(struct pl_link *l)
{
    if (!l->next)
        return;
    l->prev->next = l->next;
    l->next->prev = l->prev;
    l->next = l->prev = NULL;
}

/* ---- members */

static bool more_members(void)
{
    struct pl_member *chunk;

    if (nchunks == CHUNKS)
        return false;
    chunk = map(CHUNK * sizeof *chunk);
    if (!chunk)
        return false;
    for (uint32_t i = CHUNK; i-- > 0;) {
        chunk[i].cookie = nchunks * CHUNK + i;
        atomic_init(&chunk[i].live, PL_COOKIE_WAKE);
        chunk[i].hash_next = free_members;
        free_members = &chunk[i];
    }
    atomic_store_explicit(&chunks[nchunks++], chunk, memory_order_release);
    return true;
}

struct pl_member *pl_member_new(struct pl_epoll *ep, int fd)
{
    struct pl_member *m = NULL;

    fb_lock(&pool);
    if (free_members || more_members()) {
        m = free_members;
        free_members = m->hash_next;
    }
    fb_unlock(&pool);
    if (!m)
        return NULL;
    memset(m, 0, offsetof(struct pl_member, cookie));
    m->cookie += 1u << INDEX_BITS; /* the next generation; wraps */
    m->fd = fd;
    atomic_store_explicit(&m->ep, ep, memory_order_relaxed);
    m->watcher.wake = pl_member_wake;
    atomic_init(&m->refs, 1);
    atomic_init(&m->armed, 1);
    return m;
}

struct pl_member *pl_member_of(struct pl_epoll *ep, uint32_t cookie)
{
    uint32_t index = cookie & INDEX_MASK;
    struct pl_member *chunk, *m;

    if (index / CHUNK >= CHUNKS)
        return NULL;
    chunk = atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire);
    if (!chunk)
        return NULL;
    m = &chunk[index % CHUNK];
    /* What is ours stays so while the lock is held: live is only changed under it. */
    if (atomic_load_explicit(&m->live, memory_order_relaxed) != cookie ||
        atomic_load_explicit(&m->ep, memory_order_relaxed) != ep)
        return NULL;
    return m;
}

void pl_member_put(struct pl_member *m)
{
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (m->stream)
        fb_put(m->stream);
    if (m->file)
        pl_put(m->file);
    m->stream = NULL;
    m->file = NULL;
    fb_lock(&pool);
    m->hash_next = free_members;
    free_members = m;
    fb_unlock(&pool);
}

/* ---- the interest list */

static struct pl_member **slot(struct pl_epoll *ep, int fd)
{
    return &ep->bucket[(uint32_t)fd & (ep->buckets - 1)];
}

struct pl_member *pl_member_find(struct pl_epoll *ep, int fd)
{
    struct pl_member *m = *slot(ep, fd);

    while (m && m->fd != fd)
        m = m->hash_next;
    return m;
}

/* Twice as many buckets; without memory the chains just get longer. */
static void grow(struct pl_epoll *ep)
{
    uint32_t old = ep->buckets;
    struct pl_member **from = ep->bucket, **to = map(2 * old * sizeof(void *));

    if (!to)
        return;
    ep->bucket = to;
    ep->buckets = 2 * old;
    for (uint32_t i = 0; i < old; i++)
        for (struct pl_member *m = from[i], *next; m; m = next) {
            struct pl_member **s = slot(ep, m->fd);

            next = m->hash_next;
            m->hash_next = *s;
            *s = m;
        }
    if (from != ep->first_bucket)
        munmap(from, old * sizeof(void *));
}

/* Others only look at it. */
static void count(struct pl_epoll *ep, uint32_t more)
{
    atomic_store_explicit(&ep->nmembers,
                          atomic_load_explicit(&ep->nmembers, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

void pl_member_insert(struct pl_epoll *ep, struct pl_member *m)
{
    struct pl_member **s;

    if (ep->nmembers >= 2 * ep->buckets)
        grow(ep);
    s = slot(ep, m->fd);
    m->hash_next = *s;
    *s = m;
    count(ep, 1);
    atomic_store_explicit(&m->live, m->cookie, memory_order_relaxed);
}

void pl_member_remove(struct pl_epoll *ep, struct pl_member *m)
{
    struct pl_member **p = slot(ep, m->fd);

    while (*p && *p != m)
        p = &(*p)->hash_next;
    if (!*p)
        return;
    *p = m->hash_next;
    count(ep, UINT32_MAX);
    atomic_store_explicit(&m->live, PL_COOKIE_WAKE, memory_order_relaxed);
}

void pl_member_each(struct pl_epoll *ep, void (*fn)(struct pl_member *, void *), void *arg)
{
    for (uint32_t i = 0; i < ep->buckets; i++)
        for (struct pl_member *m = ep->bucket[i], *next; m; m = next) {
            next = m->hash_next;
            fn(m, arg);
        }
}

/* ---- the members of a descriptor */

static struct fb_lock links[64];

static struct fb_lock *links_of(const struct pl_file *f)
{
    return &links[(unsigned)f->fd % 64];
}

void pl_member_link(struct pl_file *f, struct pl_member *m)
{
    fb_lock(links_of(f));
    m->file_next = atomic_load_explicit(&f->members, memory_order_relaxed);
    atomic_store_explicit(&f->members, m, memory_order_relaxed);
    fb_unlock(links_of(f));
}

void pl_member_unlink(struct pl_file *f, struct pl_member *m)
{
    struct pl_member *before;

    fb_lock(links_of(f));
    before = atomic_load_explicit(&f->members, memory_order_relaxed);
    if (before == m) {
        atomic_store_explicit(&f->members, m->file_next, memory_order_relaxed);
    } else {
        while (before && before->file_next != m)
            before = before->file_next;
        if (before)
            before->file_next = m->file_next;
    }
    fb_unlock(links_of(f));
}

int pl_member_some(struct pl_file *f, struct pl_member **out, int max)
{
    int n = 0;

    if (!atomic_load_explicit(&f->members, memory_order_relaxed))
        return 0;
    fb_lock(links_of(f));
    for (struct pl_member *m = f->members; m && n < max; m = m->file_next) {
        /* An instance without references unlinks its members itself, perhaps on another thread just
         * now: nothing is left to be done for them. */
        if (!pl_epoll_tryget(m->ep))
            continue;
        pl_member_get(m);
        out[n++] = m;
    }
    fb_unlock(links_of(f));
    return n;
}

/* ---- instances */

struct pl_epoll *pl_epoll_alloc(void)
{
    struct pl_epoll *ep;

    fb_lock(&pool);
    ep = free_epolls;
    if (!ep) {
        enum { MANY = 16 };
        struct pl_epoll *chunk = map(MANY * sizeof *chunk);

        for (int i = 0; chunk && i < MANY; i++) {
            chunk[i].registry.next = (struct pl_link *)free_epolls;
            free_epolls = &chunk[i];
        }
        ep = free_epolls;
    }
    if (ep)
        free_epolls = (struct pl_epoll *)ep->registry.next;
    fb_unlock(&pool);
    if (!ep)
        return NULL;
    memset(ep, 0, sizeof *ep);
    ep->id = atomic_fetch_add_explicit(&ids, 1, memory_order_relaxed) + 1;
    ep->bucket = ep->first_bucket;
    ep->buckets = PL_BUCKETS;
    ep->ready.next = ep->ready.prev = &ep->ready;
    ep->hot_list.next = ep->hot_list.prev = &ep->hot_list;
    ep->parents.next = ep->parents.prev = &ep->parents;
    ep->dirty.next = ep->dirty.prev = &ep->dirty;
    return ep;
}

void pl_epoll_release(struct pl_epoll *ep)
{
    if (ep->bucket != ep->first_bucket)
        munmap(ep->bucket, ep->buckets * sizeof(void *));
    ep->bucket = NULL;
    fb_lock(&pool);
    ep->registry.next = (struct pl_link *)free_epolls;
    free_epolls = ep;
    fb_unlock(&pool);
}

/* What there was belongs to the parent; some of it may have been half changed. It is left where
 * it is, and the child begins with chunks of its own. */
void pl_pool_after_fork_child(void)
{
    pool = (struct fb_lock){0};
    memset(links, 0, sizeof links);
    free_members = NULL;
    free_epolls = NULL;
}
