/*
 * pl_poll_serve.c - poll for a set with streams on rails: exact readiness from the engine, the
 * kernel for the rest; then spin, then sleep: on the words of the rails, if there is nothing else in the set, and
 * one of ours that the streams' watchers change; or in the kernel's ppoll on the kernel's part of the set
 * and an eventfd of this thread that they write.
 *
 * Any application thread. The wait lives in a block (pl_wait.h), because watchers point to it and a
 * signal handler may longjmp away. Locks: none of its own. The engine calls wake() with a
 * stream's watcher list locked; wake() only sets a word and wakes who sleeps there, or writes an eventfd. No fb_* function is
 * called from there.
 */
#include "preload/pl_poll.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "config/env.h"
#include "preload/pl_epoll.h"
#include "rsock/shard.h"
#include "rsock/sys.h"

/* Nobody tells us when an anchor's error goes away: look again after this. */
#define MUTED_NS 10000000u
/* The engine's two answers differ: do not spin on that. */
#define UNSURE_NS 1000000u

struct entry {
    struct fb_watcher watcher; /* first: wake() gets it */
    struct poll_wait *wait;
    struct pl_file *file; /* reference; NULL: the kernel's alone */
    bool hot;             /* not plain at the last look */
    bool watched;
    bool hinted; /* the kernel has reported something that must be verified */
    bool muted;  /* and it was nothing: a level that would wake us at once, leave it out */
    bool joined; /* an epoll instance that knows of us */
    _Atomic unsigned armed; /* and its shards */
    struct fb_words words;
};

/* What `woken` is: how the thread is to be woken, or that it has been. */
enum { BY_FD, BY_WORD, WOKEN };

struct poll_wait {
    struct pl_block block; /* first */
    _Atomic uint32_t woken;
    int efd; /* or -errno */
    nfds_t n;
    bool leans; /* on the common shard */
    unsigned unsure;
    struct pollfd *kernel;      /* n + 1; the last is efd */
    struct fb_sleeper *sleeper; /* of the last sleep, and which that was */
    uintptr_t sleep;
    struct pl_words words;
    struct entry entry[];
};

static void wake(struct fb_watcher *watcher, unsigned events)
{
    struct entry *e = (struct entry *)watcher;
    struct poll_wait *w = e->wait;
    /* Pairs with the store in armed(): the sleeper sets it before it arms. */
    uint32_t was = atomic_exchange(&w->woken, WOKEN);
    uint64_t one = 1;

    (void)events;
    if (was == BY_WORD)
        sys_futex(&w->woken, FUTEX_WAKE_PRIVATE, 1, NULL);
    else if (was == BY_FD && w->efd >= 0)
        sys_write(w->efd, &one, sizeof one);
}

static void release(struct entry *e)
{
    struct pl_file *f = e->file;

    if (!f)
        return;
    if (e->watched)
        fb_unwatch(f->stream, &e->watcher);
    fb_words_put(&e->words);
    if (e->joined)
        pl_epoll_part(pl_epoll_of(f), &e->armed);
    e->watched = e->joined = e->hot = false;
    e->file = NULL;
    pl_put(f);
}

/* The progress thread shall drain the common shard as long as we sleep on what its news are told by; once. */
static void lean(struct poll_wait *w)
{
    if (w->leans)
        return;
    w->leans = true;
    rsk_shard_lean(rsk_shard_common());
}

static void stand(struct poll_wait *w)
{
    if (w->leans)
        rsk_shard_disarm(rsk_shard_common());
    w->leans = false;
}

static void undo(struct pl_block *b)
{
    struct poll_wait *w = (struct poll_wait *)b;

    fb_sleeper_left(w->sleeper, w->sleep); /* it points to this block */
    stand(w);
    for (nfds_t i = 0; i < w->n; i++)
        release(&w->entry[i]);
    w->n = 0;
}

static void put_wait(struct poll_wait **w)
{
    if (*w)
        pl_block_put(&(*w)->block);
}

static struct poll_wait *get_wait(const struct pollfd *fds, nfds_t n, const void *frame)
{
    size_t entries = sizeof(struct poll_wait) + n * sizeof(struct entry);
    size_t size = entries + (n + 1) * sizeof(struct pollfd);
    struct poll_wait *w = (struct poll_wait *)pl_block_get(size, frame, NULL);

    if (!w)
        return NULL;
    atomic_store_explicit(&w->woken, BY_FD, memory_order_relaxed);
    w->efd = pl_thread_fd();
    w->unsure = 0;
    w->leans = false;
    w->sleeper = NULL;
    w->kernel = (struct pollfd *)((char *)w + entries);
    w->n = 0;
    w->block.undo = undo;
    for (nfds_t i = 0; i < n; i++) {
        struct entry *e = &w->entry[i];

        memset(e, 0, sizeof *e);
        e->watcher.wake = wake;
        e->wait = w;
        w->n = i + 1;
        if (fds[i].fd < 0)
            continue;
        e->file = pl_get(fds[i].fd);
        if (e->file && e->file->kind == PL_LISTENER)
            release(e);
    }
    return w;
}

static short asked(const struct pollfd *p)
{
    return (short)(p->events | POLLERR | POLLHUP);
}

/* What we know ourselves about one descriptor; sets what the kernel shall be asked. */
static short own_events(struct entry *e, const struct pollfd *p, struct pollfd *k)
{
    struct pl_file *f = e->file;
    short r;

    *k = (struct pollfd){.fd = p->fd, .events = p->events};
    if (f && atomic_load_explicit(&f->closing, memory_order_relaxed)) {
        release(e); /* closed under us: the kernel says what that is */
        f = NULL;
    }
    if (!f)
        return 0;
    if (f->kind == PL_EPOLL) {
        e->hot = pl_epoll_special(pl_epoll_of(f));
        if (!e->hot)
            return 0;
        k->fd = -1;
        r = pl_epoll_readable(pl_epoll_of(f)) ? (short)(p->events & (POLLIN | POLLRDNORM)) : 0;
        return r;
    }
    e->hot = !fb_plain(f->stream);
    if (!e->hot)
        return 0;
    k->fd = -1;
    r = fb_poll(f->stream, f->fd, asked(p));
    /* Said by the kernel, denied by the engine. */
    e->muted |= e->hinted && !r;
    e->hinted = false;
    return r;
}

/* One look at everything. Count or -errno; revents are final when it is not 0. brief: who finds nothing spins, and looks
 * again; *skipped: the kernel was not asked. */
static int look(struct poll_wait *w, struct pollfd *fds, const sigset_t *mask, bool waits,
                bool brief, bool *skipped)
{
    static const struct timespec zero;
    int count = 0, said = 0;
    bool others = mask != NULL;

    *skipped = false;

    for (nfds_t i = 0; i < w->n; i++) {
        fds[i].revents = own_events(&w->entry[i], &fds[i], &w->kernel[i]);
        if (fds[i].revents)
            count++;
        others |= w->kernel[i].fd >= 0;
    }
    if (!others)
        return count;
    if (!mask && waits && (count || brief) && pl_poll_asked_lately(w->kernel, w->n)) {
        *skipped = true;
        return count;
    }
    /* With the caller's mask only if we have nothing: ppoll runs handlers when it finds nothing. */
    if (mask && !count)
        said = RSK_OPENED(sys_ppoll(w->kernel, w->n, &zero, mask));
    else
        said = pl_poll_ask(w->kernel, w->n);
    if (said < 0)
        return count ? count : said;
    for (nfds_t i = 0; i < w->n && said > 0; i++) {
        struct entry *e = &w->entry[i];

        if (!w->kernel[i].revents)
            continue;
        said--;
        fds[i].revents = w->kernel[i].revents;
        if (e->file && e->file->kind == PL_STREAM && !fb_plain(e->file->stream))
            fds[i].revents = fb_poll(e->file->stream, e->file->fd, asked(&fds[i]));
        if (fds[i].revents)
            count++;
    }
    return count;
}

/* Spins as long as it may pay. 0: it did not; 1: look again; or -errno. */
static int spin(struct poll_wait *w, const struct pollfd *fds, uint64_t until)
{
    struct rsk_shard *common = rsk_shard_common();
    uint64_t now = sys_now(), kernel_at = pl_spin_kernel_at(now, now);
    bool others = false;

    for (nfds_t i = 0; i < w->n; i++)
        others |= w->kernel[i].fd >= 0;
    while (now < until) {
        if (common)
            rsk_shard_drain(common);
        for (nfds_t i = 0; i < w->n; i++) {
            struct entry *e = &w->entry[i];

            if (e->hot && e->file->kind == PL_STREAM &&
                fb_peek_ready(e->file->stream, fds[i].events))
                return 1;
        }
        if (atomic_load_explicit(&w->woken, memory_order_relaxed) == WOKEN || rsk_sig.pending)
            return 1;
        if (others && now >= kernel_at) {
            int n = pl_poll_ask(w->kernel, w->n);

            if (n != 0)
                return n < 0 ? n : 1;
            kernel_at = pl_spin_kernel_at(now, sys_now());
        }
        sys_pause_cpu();
        now = sys_now();
    }
    return 0;
}

/* Is there nothing in the set but streams on rails, with words for all that is asked? */
static bool by_words(const struct poll_wait *w, const struct pollfd *fds)
{
    unsigned words = 0, more;

    for (nfds_t i = 0; i < w->n; i++) {
        const struct entry *e = &w->entry[i];

        if (fds[i].fd < 0)
            continue;
        if (!e->hot || e->muted || e->file->kind != PL_STREAM)
            return false;
        more = fb_has_words(e->file->stream, asked(&fds[i]));
        words += more;
        if (!more || words >= FUTEX_WAITV_MAX)
            return false;
    }
    return words > 0;
}

/* Asks for the wakes of a stream on a rail. *words: by its words, or that is not possible any more. */
static bool arm_hot(struct poll_wait *w, struct entry *e, short events, bool *words)
{
    short now;

    if (!*words) {
        pl_epoll_waited_elsewhere(e->file->stream);
        lean(w);
        return fb_arm(e->file->stream, e->file->fd, events) != 0;
    }
    now = fb_arm_words(e->file->stream, e->file->fd, events, &e->words);
    *words = now || (e->words.rail && pl_words_add(&w->words, &e->words));
    return now != 0;
}

/* Asks for wakes. True: something holds already, or changed. */
static bool arm(struct poll_wait *w, const struct pollfd *fds, bool *words)
{
    bool holds = false;

    for (nfds_t i = 0; i < w->n; i++) {
        struct entry *e = &w->entry[i];

        if (!e->file)
            continue;
        if (e->file->kind == PL_EPOLL) {
            if (!e->joined)
                pl_epoll_join(pl_epoll_of(e->file));
            e->joined = true;
            holds |= pl_epoll_arm(pl_epoll_of(e->file), &e->armed) ||
                     e->hot != pl_epoll_special(pl_epoll_of(e->file));
            continue;
        }
        /* Plain ones too: the engine tells when they board. */
        if (!e->watched)
            fb_watch(e->file->stream, &e->watcher);
        e->watched = true;
        if (e->hot)
            holds |= arm_hot(w, e, asked(&fds[i]), words);
        holds |= e->hot == fb_plain(e->file->stream);
    }
    return holds;
}

static void put_words(struct poll_wait *w)
{
    for (nfds_t i = 0; i < w->n; i++)
        fb_words_put(&w->entry[i].words);
}

/* Asks for wakes in one way or the other, all of them. True: as arm. */
static bool armed(struct poll_wait *w, const struct pollfd *fds, bool *words)
{
    for (;;) {
        bool tried = *words, holds;

        atomic_store(&w->woken, tried ? BY_WORD : BY_FD); /* before arming: see wake() */
        if (tried)
            pl_words_begin(&w->words, &w->woken, BY_WORD);
        holds = arm(w, fds, words);
        if (*words == tried)
            return holds;
        put_words(w);
    }
}

/* The kernel's part of the set for a sleep. Returns how long it may last at most. */
static uint64_t kernel_set(struct poll_wait *w, const struct pollfd *fds)
{
    uint64_t longest = w->efd < 0 || w->unsure > 3 ? UNSURE_NS : PL_FOREVER;

    for (nfds_t i = 0; i < w->n; i++) {
        struct entry *e = &w->entry[i];
        struct pollfd *k = &w->kernel[i];

        *k = (struct pollfd){.fd = fds[i].fd, .events = fds[i].events};
        if (!e->hot || e->file->kind != PL_STREAM)
            continue;
        k->events = fb_kernel_events(e->file->stream, fds[i].events);
        if (e->muted) {
            k->fd = -1;
            if (longest > MUTED_NS)
                longest = MUTED_NS;
        }
    }
    w->kernel[w->n] = (struct pollfd){.fd = w->efd, .events = POLLIN};
    return longest;
}

static bool still_plain(const struct poll_wait *w)
{
    for (nfds_t i = 0; i < w->n; i++) {
        const struct entry *e = &w->entry[i];

        if (e->file && e->file->kind == PL_STREAM && !e->hot && !fb_plain(e->file->stream))
            return false;
    }
    return true;
}

/* A cancellation point: see sleep.c. */
__attribute__((noinline)) static int cancellable(struct poll_wait *w, struct timespec *limit,
                                                 const sigset_t *mask, uint32_t signals)
{
    int n, old;

    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    n = (int)RSK_SLEEP(&rsk_sig.seen, signals, SYS_ppoll, w->kernel, w->n + (w->efd >= 0), limit,
                       mask, 8, 0);
    pthread_setcanceltype(old, NULL);
    return n;
}

/* Count or -errno; -EINTR at once if a handler has run since the call began. */
static int sleep_in_kernel(struct poll_wait *w, struct timespec *limit, const sigset_t *mask,
                           uint32_t signals)
{
    PL_SLEEP s = {fb_sleeper_poll(w->kernel, w->n), {0}};

    w->sleeper = s.sleeper;
    w->sleep = fb_sleeper_sleep(s.sleeper);
    if (!still_plain(w))
        return 0;
    pl_sleep_open(&s, __builtin_frame_address(0));
    return cancellable(w, limit, mask, signals);
}

/* Sleeps until something may have happened. 0 or -errno. */
static int rest(struct poll_wait *w, const struct pollfd *fds, uint64_t deadline,
                const sigset_t *mask, uint32_t signals)
{
    bool words = !mask && w->unsure < 3 && pl_words_usable() && by_words(w, fds);
    struct timespec ts;
    uint64_t longest, box;
    int n;

    w->unsure = armed(w, fds, &words) ? w->unsure + 1 : 0;
    if (words) {
        n = w->unsure ? 0 : pl_words_sleep(&w->words, deadline, signals);
        put_words(w);
        return n;
    }
    if (w->unsure > 0 && w->unsure <= 3)
        return 0;
    longest = kernel_set(w, fds);
    if (longest != PL_FOREVER) {
        uint64_t limit = sys_now() + longest;

        deadline = deadline < limit ? deadline : limit;
    }
    n = sleep_in_kernel(w, pl_remaining(deadline, &ts), mask, signals);
    if (n < 0)
        return n;
    if (w->efd >= 0 && w->kernel[w->n].revents)
        sys_read(w->efd, &box, sizeof box);
    for (nfds_t i = 0; i < w->n; i++) {
        struct entry *e = &w->entry[i];

        /* A limited sleep is over, or somebody woke us: the muted ones get another chance. */
        e->muted &= n != 0 && atomic_load_explicit(&w->woken, memory_order_relaxed) != WOKEN;
        e->hinted = e->hot && n > 0 && w->kernel[i].fd >= 0 && w->kernel[i].revents;
    }
    return 0;
}

static bool any_hot(const struct poll_wait *w)
{
    for (nfds_t i = 0; i < w->n; i++)
        if (w->entry[i].hot && w->entry[i].file->kind == PL_STREAM)
            return true;
    return false;
}

/* Its own frame must lie below its caller's: pl_select.c has a block too. A cancellation point in any case. */
__attribute__((noinline)) int pl_poll_serve(struct pollfd *fds, nfds_t n, uint64_t deadline,
                                            const sigset_t *mask, uint32_t signals)
{
    pthread_testcancel();
    struct poll_wait *w __attribute__((cleanup(put_wait))) =
        get_wait(fds, n, __builtin_frame_address(0));
    uint64_t began = 0;
    int saved = errno, count;
    bool waits = !pl_expired(deadline), brief = waits;

    if (!w)
        return -ENOMEM;
    for (;;) {
        uint64_t now, until;
        bool skipped = false;

        /* The sleep has ended with events, and a handler that forked came with them. */
        count = pl_block_lost(&w->block) ? -EINTR : look(w, fds, mask, waits, brief, &skipped);
        brief = false;
        if (count != 0)
            break;
        now = sys_now();
        if (now >= deadline) {
            if (!skipped)
                break;
            continue;
        }
        /* A handler ran and nothing is ready: the kernel's poll would have said EINTR. */
        rsk_section_pause();
        count = rsk_sig.seen != signals ? -EINTR : 0;
        if (!began && !count) {
            began = now;
            until = now + (any_hot(w) ? pl_spin_budget() : 0);
            count = spin(w, fds, until < deadline ? until : deadline);
            if (count > 0)
                continue;
        }
        if (!count)
            count = rest(w, fds, deadline, mask, signals);
        if (!pl_block_lost(&w->block))
            stand(w);
        if (count < 0)
            break;
    }
    if (count > 0)
        pl_spin_ready((unsigned)count);
    if (began && count > 0)
        pl_spin_result(began);
    errno = saved;
    return count;
}
