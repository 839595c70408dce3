/*
 * sleepers.c - which threads sleep in the kernel's poll or select on which plain
 * sockets: one published record per thread, read only when a stream is about to
 * board. A record is odd while its thread sleeps.
 */
#include "ipoib_fallback/stream.h"

#include "rsock/fence.h"
#include "rsock/sys.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/uio.h>

enum { FEW = 4, WORD_BITS = 8 * sizeof(unsigned long), FEW_BITS = 4 * WORD_BITS };

struct fb_sleeper {
    struct fb_lock lock; /* against the memory of pfd and sets going away while it is scanned */
    _Atomic uint32_t used, seq;
    const struct pollfd *pfd;
    nfds_t n;
    const fd_set *reads, *writes;
    int nfds;
    uint64_t at; /* when it began */
    /* Copies of small sets. */
    struct pollfd few[FEW];
    unsigned long words[2][FEW_BITS / WORD_BITS];
};

/* How many numbers have been given to connections. */
static _Atomic uint64_t given;

#define PER_BLOCK 64
struct block {
    struct block *next;
    struct fb_sleeper s[PER_BLOCK];
};

static struct block *_Atomic blocks; /* only ever added to */
static __thread struct fb_sleeper *mine;
/* A signal handler may poll while this thread is in here with its record's lock. */
static __thread volatile bool busy;
static pthread_key_t key;
static bool key_made;

static void thread_ended(void *arg)
{
    struct fb_sleeper *s = arg;

    mine = NULL; /* later destructors may poll as well */
    atomic_store(&s->used, 0);
}

/* While there are keys, and with a value that needs no memory: the first 32 need none. */
__attribute__((constructor)) static void at_load(void)
{
    key_made = pthread_key_create(&key, thread_ended) == 0;
}

static struct fb_sleeper *claim(void)
{
    struct block *b;

    for (;;) {
        for (b = atomic_load(&blocks); b; b = b->next)
            for (int i = 0; i < PER_BLOCK; i++) {
                uint32_t free = 0;

                if (atomic_compare_exchange_strong(&b->s[i].used, &free, 1))
                    return &b->s[i];
            }
        b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b == MAP_FAILED)
            return NULL;
        b->next = atomic_load(&blocks);
        while (!atomic_compare_exchange_weak(&blocks, &b->next, b))
            ;
    }
}

static struct fb_sleeper *publish(const struct pollfd *pfd, nfds_t n, const void *r, const void *w,
                                  int nfds)
{
    struct fb_sleeper *s = mine;

    if (busy)
        return NULL;
    if (!s) {
        s = claim();
        if (!s)
            return NULL;
        if (key_made && pthread_setspecific(key, s) == 0)
            mine = s;
    }
    /* A signal handler that polls while this thread sleeps in an outer poll: the outer
     * record stays. */
    if (atomic_load_explicit(&s->seq, memory_order_relaxed) & 1)
        return NULL;
    busy = true;
    fb_lock(&s->lock);
    s->pfd = pfd;
    s->n = n;
    s->reads = r;
    s->writes = w;
    s->nfds = nfds;
    if (n <= FEW && n > 0) {
        memcpy(s->few, pfd, n * sizeof(*pfd));
        s->pfd = s->few;
    }
    if (nfds > 0 && nfds <= FEW_BITS) {
        size_t bytes = (size_t)(nfds + WORD_BITS - 1) / WORD_BITS * sizeof(unsigned long);

        s->reads = r ? memcpy(s->words[0], r, bytes) : NULL;
        s->writes = w ? memcpy(s->words[1], w, bytes) : NULL;
    }
    s->at = atomic_load_explicit(&given, memory_order_relaxed);
    atomic_fetch_add(&s->seq, 1);
    fb_unlock(&s->lock);
    /* The caller tests for rails by an acquire load, which some processors do before a
     * read-modify-write of above is seen (LDAPR): it would find the gate down, and
     * sleepers_collect, after rx_guard's store to that gate, nobody asleep. Nobody would wake this
     * thread then. Pairs with the sequentially consistent store and load there. */
    rsk_fence_after_rmw();
    busy = false;
    return s;
}

struct fb_sleeper *fb_sleeper_poll(const struct pollfd *pfd, nfds_t n)
{
    return publish(pfd, n, NULL, NULL, 0);
}

struct fb_sleeper *fb_sleeper_select(int nfds, const void *readfds, const void *writefds)
{
    return publish(NULL, 0, readfds, writefds, nfds);
}

void fb_sleeper_end(struct fb_sleeper *s)
{
    if (!s)
        return;
    busy = true;
    fb_lock(&s->lock);
    atomic_fetch_add(&s->seq, 1);
    fb_unlock(&s->lock);
    /* Nothing would be told of this thread's end. */
    if (__builtin_expect(s != mine, 0))
        atomic_store(&s->used, 0);
    busy = false;
}

uintptr_t fb_sleeper_sleep(struct fb_sleeper *s)
{
    return s ? atomic_load_explicit(&s->seq, memory_order_relaxed) : 0;
}

void fb_sleeper_left(struct fb_sleeper *s, uintptr_t sleep)
{
    if (s && atomic_load_explicit(&s->seq, memory_order_relaxed) == sleep)
        fb_sleeper_end(s);
}

void sleepers_forget(void)
{
    atomic_store(&blocks, NULL);
    mine = NULL;
    busy = false;
}

static bool ours(struct fb_conn *c, int fd)
{
    return fd >= 0 &&
           (fd == c->fd || fd == conn_alt(c, 0) || fd == conn_alt(c, 1) || fd == conn_alt(c, 2));
}

uint64_t fb_sleeps_now(void)
{
    return atomic_fetch_add(&given, 1) + 1;
}

void fb_sleeps_since(struct fb_stream *s, uint64_t since)
{
    conn_began_at(conn_of(s), since);
}

/* On another connection, then, that had one of its numbers: the kernel's poll goes on with that,
 * closed or not. */
static bool before(const struct fb_sleeper *s, const struct fb_conn *c)
{
    return conn_began_after(c, s->at);
}

/* Copies from a sleeper's set, which may lie in memory that the application has given back: after a
 * handler has jumped out of the call, the record says that it sleeps until the thread's next call.
 * False: the memory is not there any more. */
static bool copy_of(const struct fb_sleeper *s, void *to, const void *from, size_t n)
{
    if ((uintptr_t)from - (uintptr_t)s >= sizeof(*s))
        return fb_copy(to, from, n, true);
    memcpy(to, from, n); /* it has been copied */
    return true;
}

/* The application's set may be wider than an fd_set: as many bits as it has said. */
static bool has(const struct fb_sleeper *s, const fd_set *set, int fd)
{
    unsigned long word = 0;

    return set &&
           copy_of(s, &word, (const unsigned long *)(const void *)set + fd / WORD_BITS,
                   sizeof(word)) &&
           word >> (fd % WORD_BITS) & 1;
}

/* 0: does not sleep on it; 1: POLLIN will wake it; -1: it sleeps on it without POLLIN */
static int sleeps_on(struct fb_sleeper *s, struct fb_conn *c)
{
    enum { SOME = 64 };
    struct pollfd some[SOME] = {{0}};
    int r = 0;

    for (nfds_t at = 0; at < s->n; at += SOME) {
        nfds_t n = s->n - at < SOME ? s->n - at : SOME;

        if (!copy_of(s, some, s->pfd + at, n * sizeof(*some)))
            break;
        for (nfds_t i = 0; i < n; i++)
            if (ours(c, some[i].fd))
                r = some[i].events & (POLLIN | POLLRDNORM) ? 1 : -1;
    }
    for (int fd = 0; fd < s->nfds; fd++) {
        if (!ours(c, fd))
            continue;
        if (has(s, s->reads, fd))
            r = 1;
        else if (has(s, s->writes, fd) && r == 0)
            r = -1;
    }
    return r;
}

bool sleepers_collect(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;

    rx->must_see_n = 0;
    for (struct block *b = atomic_load(&blocks); b; b = b->next)
        for (int i = 0; i < PER_BLOCK; i++) {
            struct fb_sleeper *s = &b->s[i];
            int r = 0;

            if (!atomic_load(&s->used) || !(atomic_load(&s->seq) & 1))
                continue;
            fb_lock(&s->lock);
            if ((atomic_load(&s->seq) & 1) && !before(s, c))
                r = sleeps_on(s, c);
            if (r > 0 && rx->must_see_n < FB_MUST_SEE) {
                rx->must_see[rx->must_see_n].sleeper = s;
                rx->must_see[rx->must_see_n++].seq = atomic_load(&s->seq);
            } else if (r != 0) {
                r = -1;
            }
            fb_unlock(&s->lock);
            if (r < 0)
                return false;
        }
    return true;
}

bool sleepers_gone(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;

    while (rx->must_see_n > 0) {
        int i = rx->must_see_n - 1;

        if (atomic_load(&rx->must_see[i].sleeper->seq) == rx->must_see[i].seq)
            return false;
        rx->must_see_n--;
    }
    return true;
}
