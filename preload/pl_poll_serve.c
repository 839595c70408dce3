/*
 * pl_poll_serve.c - poll for a set with streams on rails: exact readiness from the engine, the
 * kernel for the rest; then spin, then sleep: on the words of the rails and one that the streams'
 * watchers change, if there is nothing else; or in the kernel's ppoll, and on an eventfd of theirs.
 *
 * Any application thread. The wait lives in a block (pl_wait.h), because watchers point to it and a
 * signal handler may longjmp away. Locks: none of its own. The engine calls wake() with a stream's
 * watcher list locked; wake() only sets a word and wakes who sleeps there, or writes an eventfd.
 */
#include "preload/pl_poll_wait.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "config/env.h"
#include "preload/pl_epoll.h"
#include "rsock/shard.h"
#include "rsock/sys.h"
#include "rsock/waitv.h"

/* Nobody tells us when an anchor's error goes away: look again after this. */
#define MUTED_NS 10000000u
/* The engine's two answers differ: do not spin on that. */
#define UNSURE_NS 1000000u

static void wake(struct fb_watcher *watcher, unsigned events)
{
    struct pl_entry *e = (struct pl_entry *)watcher;
    struct pl_poll_wait *w = e->wait;
    /* Pairs with the store in pl_poll_arm(): the sleeper sets it before it arms. */
    uint32_t was = atomic_exchange(&w->woken, PL_WOKEN);
    uint64_t one = 1;

    (void)events;
    if (was == PL_WAKE_WORD)
        sys_futex(&w->woken, FUTEX_WAKE_PRIVATE, 1, NULL);
    else if (was == PL_WAKE_FD && w->efd >= 0)
        sys_write(w->efd, &one, sizeof one);
}

static void release(struct pl_entry *e)
{
    struct pl_file *f = e->file;

    if (!f)
        return;
    if (e->watched)
        fb_unwatch(f->stream, &e->watcher, NULL);
    fb_words_put(&e->words);
    if (e->joined)
        pl_epoll_part(pl_epoll_of(f), &e->armed);
    e->watched = e->joined = e->hot = false;
    e->file = NULL;
    pl_put(f);
}

static void undo(struct pl_block *b)
{
    struct pl_poll_wait *w = (struct pl_poll_wait *)b;

    fb_sleeper_left(w->sleeper, w->sleep); /* it points to this block */
    pl_poll_stand(w);
    for (nfds_t i = 0; i < w->n; i++)
        release(&w->entry[i]);
    w->n = 0;
}

static void put_wait(struct pl_poll_wait **w)
{
    if (*w)
        pl_block_put(&(*w)->block);
}

static void get_file(struct pl_entry *e, int fd)
{
    e->file = pl_get(fd);
    if (e->file && e->file->kind == PL_LISTENER)
        release(e);
}

static struct pl_poll_wait *get_wait(const struct pollfd *fds, nfds_t n, const void *frame)
{
    size_t entries = sizeof(struct pl_poll_wait) + n * sizeof(struct pl_entry);
    size_t size = entries + (n + 1) * sizeof(struct pollfd);
    struct pl_poll_wait *w = (struct pl_poll_wait *)pl_block_get(size, frame, NULL);

    if (!w)
        return NULL;
    atomic_store_explicit(&w->woken, PL_WAKE_FD, memory_order_relaxed);
    w->efd = pl_thread_fd();
    w->unsure = 0;
    w->leans = w->crowded = w->gone = w->ended = false;
    w->sleeper = NULL;
    w->kernel = (struct pollfd *)((char *)w + entries);
    w->n = 0;
    w->block.undo = undo;
    for (nfds_t i = 0; i < n; i++) {
        struct pl_entry *e = &w->entry[i];

        memset(e, 0, sizeof *e);
        e->watcher.wake = wake;
        e->wait = w;
        w->n = i + 1;
        if (fds[i].fd >= 0)
            get_file(e, fds[i].fd);
    }
    return w;
}

/* The entry's number is being closed, or has been. As with the kernel that alone ends no poll; but
 * if the thread was woken for what came before the close, and looks only now, the call returns. */
static void closed(struct pl_entry *e, const struct pollfd *p, uint8_t closing)
{
    struct pl_poll_wait *w = e->wait;

    release(e);
    if (closing == PL_KERNELS)
        return;
    w->gone = e->gone = true;
    e->ended = !w->waited || (closing & pl_held_bits(pl_poll_asked(p)));
    w->ended |= e->ended;
}

/* The closing thread sees our reference, or we see its mark: pairs with as_it_is() in pl_fd.c. Also
 * asked when events were found: they may be those of its end. */
static bool is_gone(struct pl_entry *e, const struct pollfd *p)
{
    uint8_t closing = e->file ? atomic_load(&e->file->closing) : 0;

    if (closing >= PL_GONE)
        closed(e, p, closing);
    return closing >= PL_GONE;
}

/* What we know ourselves about one descriptor; sets what the kernel shall be asked. */
static short own_events(struct pl_entry *e, const struct pollfd *p, struct pollfd *k)
{
    struct pl_file *f = is_gone(e, p) ? NULL : e->file;
    short r;

    *k = (struct pollfd){.fd = e->gone ? -1 : p->fd, .events = p->events};
    e->alone = false;
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
    /* It may go on a rail at any moment, and is as good as plain up to then. */
    e->alone = e->hot && !e->hinted && fb_kernels_alone(f->stream);
    if (!e->hot || e->alone)
        return 0;
    k->fd = -1;
    r = fb_poll(f->stream, f->fd, pl_poll_asked(p));
    if (r && is_gone(e, p) && e->gone)
        return 0;
    /* Said by the kernel, denied by the engine. */
    e->muted |= e->hinted && !r;
    e->hinted = false;
    return r;
}

/* What the kernel has said, and the engine of that, if the stream is not plain. */
static short kernels_events(struct pl_entry *e, const struct pollfd *p, short said)
{
    if (said && is_gone(e, p) && e->gone)
        return 0;
    if (said && e->file && e->file->kind == PL_STREAM && !fb_plain(e->file->stream))
        return fb_poll(e->file->stream, e->file->fd, pl_poll_asked(p));
    return said;
}

static short gone_events(struct pl_entry *e, const struct pollfd *p)
{
    static const struct timespec zero;
    struct pollfd k;
    short r;

    e->gone = false;
    get_file(e, p->fd);
    r = own_events(e, p, &k);
    if (e->gone)
        return POLLNVAL;
    if (k.fd >= 0 && sys_ppoll(&k, 1, &zero, NULL) > 0)
        r = kernels_events(e, p, k.revents);
    return !r && e->ended ? POLLNVAL : r; /* the kernel's close is yet to come */
}

/* The call ends: closed numbers are looked at as what they stand for now. How many have news. */
static int tell_gone(struct pl_poll_wait *w, struct pollfd *fds)
{
    uint64_t limit = sys_now() + PL_CLOSING_NS;
    int count = 0;

    for (nfds_t i = 0; i < w->n; i++)
        if (w->entry[i].gone) {
            pl_poll_until_closed(fds[i].fd, limit);
            fds[i].revents = gone_events(&w->entry[i], &fds[i]);
            count += fds[i].revents != 0;
        }
    return count;
}

/* Has everything that the call waits for been closed? The kernel would look again when something
 * comes from a peer, of which we are not told any more. So it is looked at now, and the call does
 * not sleep until its time-out (apache would, at its end). How many report; 0: the wait goes on. */
static int nothing_left(struct pl_poll_wait *w, struct pollfd *fds)
{
    int count;

    if (!w->gone)
        return 0;
    for (nfds_t i = 0; i < w->n; i++)
        if (fds[i].fd >= 0 && !w->entry[i].gone)
            return 0;
    count = tell_gone(w, fds); /* none: numbers that stand for something else by now */
    w->gone = false;           /* told */
    return count;
}

/* One look at everything. Count or -errno; revents are final when it is not 0. brief: who finds
 * nothing spins, and looks again; *skipped: the kernel was not asked. */
static int look(struct pl_poll_wait *w, struct pollfd *fds, const sigset_t *mask, bool waits,
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
    for (nfds_t i = 0; i < w->n; i++)
        if (w->entry[i].alone && !w->kernel[i].revents)
            fb_said(w->entry[i].file->stream, fds[i].events, 0);
    for (nfds_t i = 0; i < w->n && said > 0; i++) {
        struct pl_entry *e = &w->entry[i];

        if (!w->kernel[i].revents)
            continue;
        said--;
        fds[i].revents = kernels_events(e, &fds[i], w->kernel[i].revents);
        if (fds[i].revents)
            count++;
    }
    return count;
}

/* Spins as long as it may pay. 0: it did not; 1: look again; or -errno. */
static int spin(struct pl_poll_wait *w, const struct pollfd *fds, uint64_t until)
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
            struct pl_entry *e = &w->entry[i];

            if (e->hot && e->file->kind == PL_STREAM &&
                fb_peek_ready(e->file->stream, fds[i].events))
                return 1;
        }
        if (atomic_load_explicit(&w->woken, memory_order_relaxed) == PL_WOKEN || rsk_sig.pending)
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

/* How long a sleep may last that no eventfd can end. Where 512 descriptors are all, no rail is. */
static uint64_t alone(const struct pl_poll_wait *w)
{
    for (nfds_t i = 0; i < w->n; i++)
        if (w->entry[i].hot)
            return UNSURE_NS;
    return pl_most_descriptors() <= 512 ? PL_FOREVER : UNSURE_NS;
}

/* The kernel's part of the set for a sleep. Returns how long it may last at most. */
static uint64_t kernel_set(struct pl_poll_wait *w, const struct pollfd *fds)
{
    uint64_t longest = w->efd < 0 || w->crowded ? alone(w) : PL_FOREVER, most = fb_sleep_most();

    if (w->unsure > 3)
        longest = UNSURE_NS;

    w->place = w->n;
    for (nfds_t i = 0; i < w->n; i++) {
        struct pl_entry *e = &w->entry[i];
        struct pollfd *k = &w->kernel[i];

        *k = (struct pollfd){.fd = e->gone ? -1 : fds[i].fd, .events = fds[i].events};
        if (e->hot && longest > most)
            longest = most;
        if (e->hot && e->file->kind == PL_STREAM) {
            k->events = fb_kernel_events(e->file->stream, fds[i].events);
            if (e->muted) {
                k->fd = -1;
                if (longest > MUTED_NS)
                    longest = MUTED_NS;
            }
        }
        if (k->fd < 0)
            w->place = i;
    }
    w->kernel[w->place] = (struct pollfd){.fd = w->crowded ? -1 : w->efd, .events = POLLIN};
    return longest;
}

static bool still_plain(const struct pl_poll_wait *w)
{
    for (nfds_t i = 0; i < w->n; i++) {
        const struct pl_entry *e = &w->entry[i];

        if (e->file && e->file->kind == PL_STREAM && !e->hot && !fb_plain(e->file->stream))
            return false;
    }
    return true;
}

/* A cancellation point: see sleep.c. */
__attribute__((noinline)) static int cancellable(struct pl_poll_wait *w, struct timespec *limit,
                                                 const sigset_t *mask, uint32_t signals)
{
    struct rsk_cancel cancel;
    int n;

    cancel = rsk_cancel_open();
    n = (int)RSK_SLEEP(&rsk_sig.seen, signals, SYS_ppoll, w->kernel,
                       w->n + (w->place == w->n && w->efd >= 0 && !w->crowded), limit, mask, 8, 0);
    rsk_cancel_close(cancel);
    return n;
}

/* Count or -errno; -EINTR at once if a handler has run since the call began. */
static int sleep_in_kernel(struct pl_poll_wait *w, struct timespec *limit, const sigset_t *mask,
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
static int rest(struct pl_poll_wait *w, const struct pollfd *fds, uint64_t deadline,
                const sigset_t *mask, uint32_t signals)
{
    bool words = !mask && w->unsure < 3 && rsk_waitv_usable() && pl_poll_by_words(w, fds);
    struct timespec ts;
    uint64_t longest, box;
    int n;

    w->unsure = pl_poll_arm(w, fds, &words) ? w->unsure + 1 : 0;
    if (words) {
        n = w->unsure ? 0 : pl_words_sleep(&w->words, deadline, signals);
        pl_poll_put_words(w);
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
    if (n == -EINVAL && w->place == w->n && w->efd >= 0 && !w->crowded) {
        w->crowded = true; /* as many as RLIMIT_NOFILE: ours is one too many */
        return 0;
    }
    if (n < 0)
        return n;
    if (w->efd >= 0 && w->kernel[w->place].revents)
        sys_read(w->efd, &box, sizeof box);
    w->kernel[w->place].fd = -1;
    for (nfds_t i = 0; i < w->n; i++) {
        struct pl_entry *e = &w->entry[i];

        /* A limited sleep is over, or somebody woke us: the muted ones get another chance. */
        e->muted &= n != 0 && atomic_load_explicit(&w->woken, memory_order_relaxed) != PL_WOKEN;
        e->hinted = e->hot && n > 0 && w->kernel[i].fd >= 0 && w->kernel[i].revents;
    }
    return 0;
}

static unsigned hot_streams(const struct pl_poll_wait *w)
{
    unsigned n = 0;

    for (nfds_t i = 0; i < w->n; i++)
        n += w->entry[i].hot && w->entry[i].file->kind == PL_STREAM;
    return n;
}

/* Not inlined: below its caller's frame, whose block may be listed (pl_select.c). Cancellable. */
__attribute__((noinline)) int pl_poll_serve(struct pollfd *fds, nfds_t n, uint64_t deadline,
                                            const sigset_t *mask, uint32_t signals, bool *waited)
{
    pthread_testcancel();
    struct pl_poll_wait *w __attribute__((cleanup(put_wait))) =
        get_wait(fds, n, __builtin_frame_address(0));
    uint64_t began = 0;
    int saved = errno, count;
    bool waits = !pl_expired(deadline), brief = waits;

    if (!w)
        return -ENOMEM;
    w->waited = *waited;
    for (;;) {
        uint64_t now, until;
        bool skipped = false;

        fb_alone();
        /* The sleep has ended with events, and a handler that forked came with them. */
        count = pl_block_lost(&w->block) ? -EINTR : look(w, fds, mask, waits, brief, &skipped);
        brief = false;
        if (count != 0 || w->ended)
            break;
        w->waited |= !skipped;
        count = nothing_left(w, fds);
        if (count > 0)
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
            until = now + pl_spin_budget(hot_streams(w));
            count = spin(w, fds, until < deadline ? until : deadline);
            if (count > 0)
                continue;
        }
        if (!count)
            count = rest(w, fds, deadline, mask, signals);
        if (!pl_block_lost(&w->block))
            pl_poll_stand(w);
        if (count < 0)
            break;
    }
    *waited = w->waited;
    if (w->gone && (count >= 0 || count == -EINTR) && !pl_block_lost(&w->block)) {
        int gone = tell_gone(w, fds);

        count = gone ? gone + (count > 0 ? count : 0) : count;
    }
    if (count > 0)
        pl_spin_ready((unsigned)count);
    if (began && count > 0)
        pl_spin_result(began, 0);
    errno = saved;
    return count;
}
