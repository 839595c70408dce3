/*
 * own.c - notes of the library's descriptors (a bitmap by number) and shared mappings (a
 * list). Written by any thread, read without locks by a forked child, which is a copy of
 * some moment: each change is ordered so that every moment is safe to walk.
 */
#include "rsock/own.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "rsock/sys.h"

#define ENTER_NS    1000000000u /* for a fork whose handlers wait for this thread */
#define FORK_NS     100000000u
#define TAKE_NS     100000000u
#define ENDED       (1ull << 32)
#define TAKEN_MOST  (200000u << 7) /* 26 ms */
#define TAKEN_LEAST 200000u
#define LOOK_NS     10000u

enum { CHUNK_WORDS = 64, CHUNK_FDS = CHUNK_WORDS * 64, CHUNKS = 1024 };

struct chunk {
    _Atomic uint64_t word[CHUNK_WORDS];
    /* of those: what a forked child keeps, from all its ancestors */
    _Atomic uint64_t kept[CHUNK_WORDS];
};

static struct chunk *_Atomic chunks[CHUNKS];
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rsk_own_map *_Atomic maps;

/*
 * Three counts: threads between enter and leave (inside), threads that fork, and calls that take a
 * number. Each side counts itself, then looks at the other side's count (all sequentially
 * consistent), so at least one of the two sees the other. It is the thread that enters which takes
 * its count back and waits: so no two wait for each other, and calls and forks, however many follow
 * one another, have waited enough once the threads that are inside have left. A handler does not
 * wait for the steps, or the call, of its own thread that it has interrupted.
 *
 * A series of calls is not one call that sleeps: whenever a call ends, the time after which an
 * entering thread gives up begins anew (up to TAKEN_MOST in all). Nobody waits for ever, and
 * whoever has waited in vain notes it (asleep, vain), so that others need not wait as well: a call
 * may sleep (a FIFO's open, a slow file system), and a step may wait for ld.so's lock, which the
 * thread that makes the call may hold.
 */
struct rsk_own_inside rsk_own_inside;
static struct {
    /* The low 32 bits: calls that take a number now. In units of ENDED: calls that have ended. */
    alignas(64) _Atomic uint64_t taking;
    _Atomic unsigned forking;
    _Atomic unsigned asleep;      /* how many calls of taking have been waited for in vain */
    _Atomic unsigned patience_ns; /* for taking: less after each time in vain, and more again */
    _Atomic unsigned generation, vain; /* counts enters; what it was at the last wait in vain */
} all = {.patience_ns = TAKEN_MOST, .generation = 1};
static _Thread_local unsigned depth, taking, forking;

static void a_moment(void)
{
    SYS6(SYS_ppoll, NULL, 0, (&(struct timespec){0, 50000}), NULL, 0, 0);
}

/* One round of waiting for what mostly takes some microseconds. False: ns have passed
 * since the first. */
static bool wait_on(uint64_t *until, unsigned ns)
{
    uint64_t now = sys_now();

    if (!*until)
        *until = now + ns;
    else if (now > *until)
        return false;
    if (now + ns < *until + 10000)
        sys_pause_cpu();
    else
        a_moment();
    return true;
}

static void patience(bool more)
{
    unsigned is = atomic_load_explicit(&all.patience_ns, memory_order_relaxed);

    if (more ? is < TAKEN_MOST : is > TAKEN_LEAST)
        atomic_store_explicit(&all.patience_ns, more ? is * 2 : is / 2, memory_order_relaxed);
}

/* Notes that `taken` calls have been waited for in vain, but for those that have ended since
 * `calls` was read. The threads that ended these may not have seen the note, and then later calls
 * would pass for them, and not be waited for. */
static void sleeps(unsigned taken, uint64_t calls)
{
    unsigned ended;

    atomic_store(&all.asleep, taken);
    ended = (unsigned)(atomic_load(&all.taking) / ENDED - calls / ENDED);
    if (ended)
        atomic_compare_exchange_strong(&all.asleep, &taken, ended < taken ? taken - ended : 0);
}

bool rsk_own_in_step(void)
{
    return depth != 0;
}

/* numbers: the steps take a number, so calls that take one are waited for. Else only forks are. */
static void enter(bool numbers)
{
    uint64_t fork_until = 0, until = 0, last = 0, ended = 0;
    unsigned taken, limit = atomic_load_explicit(&all.patience_ns, memory_order_relaxed);

    if (depth++)
        return;
    atomic_fetch_add(&all.generation, 1); /* before it is inside: who sees it there waits for it */
    for (;;) {
        uint64_t calls;

        atomic_fetch_add(&rsk_own_inside.n, 1);
        calls = numbers ? atomic_load(&all.taking) : taking;
        taken = (uint32_t)calls - taking;
        if (atomic_load(&all.forking) == forking && taken <= atomic_load(&all.asleep))
            break;
        atomic_fetch_sub(&rsk_own_inside.n, 1);
        if (calls / ENDED != ended && sys_now() + limit < last)
            until = 0;
        ended = calls / ENDED;
        if (atomic_load(&all.forking) > forking) {
            if (wait_on(&fork_until, ENTER_NS))
                continue;
        } else if (wait_on(&until, limit)) {
            if (!last)
                last = until - limit + TAKEN_MOST;
            continue;
        } else {
            sleeps(taken, calls);
            patience(false);
            limit = 0;
        }
        atomic_fetch_add(&rsk_own_inside.n, 1);
        break;
    }
    if (until && limit)
        patience(true);
}

void rsk_own_enter(void)
{
    enter(true);
}

void rsk_own_leave(void)
{
    if (!--depth)
        atomic_fetch_sub(&rsk_own_inside.n, 1);
}

void rsk_own_take(void)
{
    uint64_t until = 0;

    atomic_fetch_add(&all.taking, 1);
    if (taking++)
        return; /* what enters since the first waits for that, or has given it up */
    while (atomic_load(&rsk_own_inside.n) > (depth > 0)) {
        unsigned now = atomic_load(&all.generation);

        if (atomic_load(&all.vain) == now)
            break;
        if (!wait_on(&until, TAKE_NS)) {
            atomic_store(&all.vain, now);
            break;
        }
    }
}

void rsk_own_taken(void)
{
    unsigned left, was;

    taking--;
    left = (uint32_t)(atomic_fetch_add(&all.taking, ENDED - 1) - 1);
    was = atomic_load(&all.asleep); /* see sleeps() */
    if (__builtin_expect(was > left, 0))
        atomic_compare_exchange_strong(&all.asleep, &was, left);
}

void rsk_own_look_slowly(void)
{
    uint64_t until = sys_now() + LOOK_NS;

    while (atomic_load(&rsk_own_inside.n) > (depth > 0) && sys_now() < until)
        sys_pause_cpu();
}

void rsk_own_fork_begin(void)
{
    uint64_t until = 0;

    forking++;
    atomic_fetch_add(&all.forking, 1);
    while (atomic_load(&rsk_own_inside.n) > (depth > 0)) {
        if (!wait_on(&until, FORK_NS))
            return;
    }
}

void rsk_own_fork_end(void)
{
    forking--;
    atomic_fetch_sub(&all.forking, 1);
}

void rsk_own_forked(void)
{
    atomic_store(&rsk_own_inside.n, depth > 0);
    forking = 0;
    atomic_store(&all.forking, 0);
    atomic_store(&all.taking, taking);
    atomic_store(&all.asleep, 0);
}

static struct chunk *chunk_of(int fd)
{
    size_t i = (size_t)fd / CHUNK_FDS;
    struct chunk *c, *mine;

    if (i >= CHUNKS)
        return NULL;
    c = atomic_load_explicit(&chunks[i], memory_order_acquire);
    if (c)
        return c;
    mine = calloc(1, sizeof *mine);
    if (!mine)
        return NULL;
    if (atomic_compare_exchange_strong(&chunks[i], &c, mine))
        return mine;
    free(mine);
    return c;
}

static int note(int fd)
{
    struct chunk *c = chunk_of(fd);

    if (!c)
        return -ENOMEM;
    atomic_fetch_or(&c->word[fd % CHUNK_FDS / 64], 1ull << (fd % 64));
    return fd;
}

static void forget(int fd)
{
    struct chunk *c = fd / CHUNK_FDS < CHUNKS ? atomic_load(&chunks[fd / CHUNK_FDS]) : NULL;

    if (!c)
        return;
    atomic_fetch_and(&c->kept[fd % CHUNK_FDS / 64], ~(1ull << (fd % 64)));
    atomic_fetch_and(&c->word[fd % CHUNK_FDS / 64], ~(1ull << (fd % 64)));
}

int rsk_own_keep(int fd)
{
    int r = note(fd);

    if (r >= 0)
        atomic_fetch_or(&chunk_of(fd)->kept[fd % CHUNK_FDS / 64], 1ull << (fd % 64));
    return r < 0 ? r : 0;
}

static bool is_kept(int fd)
{
    return atomic_load(&chunk_of(fd)->kept[fd % CHUNK_FDS / 64]) >> (fd % 64) & 1;
}

int rsk_own_opened(int fd)
{
    int noted;

    fd = sys_hide_fd(fd);
    noted = fd < 0 ? fd : note(fd);
    if (noted < 0 && fd >= 0)
        sys_close(fd);
    rsk_own_leave();
    return noted;
}

bool rsk_own_has(int fd)
{
    struct chunk *c = fd >= 0 && fd / CHUNK_FDS < CHUNKS
                          ? atomic_load_explicit(&chunks[fd / CHUNK_FDS], memory_order_acquire)
                          : NULL;

    return c &&
           (atomic_load_explicit(&c->word[fd % CHUNK_FDS / 64], memory_order_relaxed) >> (fd % 64) &
            1);
}

unsigned rsk_own_most(void)
{
    struct rlimit most = {RLIM_INFINITY, 0};

    SYS6(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &most, 0, 0);
    return most.rlim_cur > 512 && most.rlim_cur / 2 < UINT_MAX ? (unsigned)(most.rlim_cur - 512) / 2
                                                               : UINT_MAX;
}

bool rsk_own_crowded(void)
{
    unsigned n = 0;

    for (int i = 0; i < CHUNKS; i++) {
        struct chunk *c = atomic_load_explicit(&chunks[i], memory_order_acquire);

        for (int w = 0; c && w < CHUNK_WORDS; w++)
            n += (unsigned)__builtin_popcountll(
                atomic_load_explicit(&c->word[w], memory_order_relaxed));
    }
    return n > rsk_own_most();
}

int rsk_own_next(int fd)
{
    for (int i = fd / CHUNK_FDS; i < CHUNKS; i++) {
        struct chunk *c = atomic_load_explicit(&chunks[i], memory_order_acquire);
        int first = i == fd / CHUNK_FDS ? fd % CHUNK_FDS : 0;

        for (int w = first / 64; c && w < CHUNK_WORDS; w++) {
            uint64_t bits = atomic_load_explicit(&c->word[w], memory_order_relaxed);

            if (w == first / 64)
                bits &= ~0ull << (first % 64);
            if (bits)
                return i * CHUNK_FDS + w * 64 + __builtin_ctzll(bits);
        }
    }
    return -1;
}

/* The process may have no number more: one of those that are to be closed anyway makes room. Where
 * its limit is below ours the number cannot be hidden, and is not. */
#define NUMBERS "/proc/thread-self/fd" /* self has none once the main thread has ended */
static int open_numbers(unsigned first)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    struct rlimit most = {0, 0};
    int dir = sys_open(NUMBERS, flags, 0);

    if (dir != -EMFILE)
        return dir;
    SYS6(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &most, 0, 0);
    for (unsigned fd = first; dir == -EMFILE && fd < most.rlim_cur && fd <= INT_MAX; fd++)
        if (!rsk_own_has((int)fd) && sys_close((int)fd) == 0)
            dir = sys_open(NUMBERS, flags, 0);
    return dir;
}

int rsk_own_close_others(unsigned first)
{
    _Alignas(struct dirent64) char buf[1024] = {0};
    int dir = open_numbers(first);
    long n;

    if (dir < 0)
        return dir;
    /* The folder goes on behind the last number that it has told of. */
    while ((n = SYS6(SYS_getdents64, dir, buf, sizeof(buf), 0, 0, 0)) > 0) {
        for (long at = 0; at < n; at += ((struct dirent64 *)(buf + at))->d_reclen) {
            const char *name = ((struct dirent64 *)(buf + at))->d_name;
            unsigned fd = 0;

            if (*name < '0' || *name > '9')
                continue;
            for (; *name; name++)
                fd = fd * 10 + (unsigned)(*name - '0');
            if (fd >= first && (int)fd != dir && !rsk_own_has((int)fd))
                sys_close((int)fd);
        }
    }
    sys_close(dir);
    return (int)n;
}

void rsk_own_close(int fd)
{
    if (fd < 0)
        return;
    /* Forgotten before it is closed: the other way round a fork in between would make the
     * child close a descriptor of the application's that has got the number meanwhile. */
    enter(false);
    forget(fd);
    sys_close(fd);
    rsk_own_leave();
}

void rsk_own_map(struct rsk_own_map *m, void *addr, size_t len)
{
    struct rsk_own_map *head;

    m->addr = addr;
    m->len = len;
    atomic_store(&m->left_out, false);
    m->prev = NULL;
    pthread_mutex_lock(&map_lock);
    head = atomic_load_explicit(&maps, memory_order_relaxed);
    atomic_store_explicit(&m->next, head, memory_order_relaxed);
    if (head)
        head->prev = m;
    atomic_store_explicit(&maps, m, memory_order_release);
    pthread_mutex_unlock(&map_lock);
}

void rsk_own_unmap(struct rsk_own_map *m)
{
    struct rsk_own_map *next;

    if (!m->addr)
        return;
    pthread_mutex_lock(&map_lock);
    next = atomic_load_explicit(&m->next, memory_order_relaxed);
    /* Unlinked before it is unmapped, for the same reason as in rsk_own_close. */
    atomic_store_explicit(m->prev ? &m->prev->next : &maps, next, memory_order_release);
    if (next)
        next->prev = m->prev;
    pthread_mutex_unlock(&map_lock);
    munmap(m->addr, m->len);
    m->addr = NULL;
}

static _Thread_local bool files_shared;

void rsk_own_files_are_shared(bool shared)
{
    files_shared = shared;
}

void rsk_own_after_fork_child(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    struct rsk_own_map *m = atomic_exchange(&maps, NULL);

    map_lock = fresh; /* its holder, if any, does not exist here */
    rsk_own_forked();
    while (m) {
        struct rsk_own_map *next = atomic_load_explicit(&m->next, memory_order_relaxed);

        if (!atomic_load(&m->left_out))
            SYS6(SYS_munmap, m->addr, m->len, 0, 0, 0, 0);
        m->addr = NULL;
        m = next;
    }
    for (int i = 0; i < CHUNKS; i++) {
        struct chunk *c = atomic_load_explicit(&chunks[i], memory_order_acquire);

        for (int w = 0; c && w < CHUNK_WORDS; w++) {
            uint64_t bits = atomic_exchange(&c->word[w], 0);

            for (; bits; bits &= bits - 1) {
                int fd = i * CHUNK_FDS + w * 64 + __builtin_ctzll(bits);

                if (is_kept(fd))
                    note(fd);
                else if (!files_shared)
                    sys_close(fd);
            }
        }
    }
    files_shared = false;
}
