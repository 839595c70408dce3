/*
 * epoll_fake_shard.c - the shards and the progress thread as far as poll, select and epoll need
 * them (epoll_fake.h).
 */
#include "tests/unit/epoll_fake.h"

#include <stdlib.h>

#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/sys.h"

void (*fake_drained)(int n);
_Atomic int fake_drains_due;
_Atomic bool fake_watch_fails;

/* ---- shards: a list of streams with news, and eventfds, of which the last tells of it */

struct rsk_shard {
    pthread_mutex_t lock, drain;
    struct fake *first; /* lock */
    _Atomic int armed, ready, refs;
    int fd[FAKE_SHARD_FDS], fds;
    rsk_shard_fd_fn *fd_added;
    void *arg;
};

struct rsk_shard *rsk_shard_new(rsk_shard_fd_fn *fd_added, void *arg)
{
    struct rsk_shard *h = calloc(1, sizeof *h);

    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->drain, NULL);
    atomic_store(&h->refs, 1);
    h->fd_added = fd_added;
    h->arg = arg;
    fake_shard_gets(h, sys_hide_fd(sys_eventfd(0, O_NONBLOCK | O_CLOEXEC)));
    return h;
}

void fake_shard_gets(struct rsk_shard *h, int fd)
{
    if (h->fd_added)
        h->fd_added(h->arg, fd);
    h->fd[h->fds++] = fd;
}

bool rsk_shard_each(struct rsk_shard *h, bool (*fn)(void *arg, int fd))
{
    bool all = true;

    for (int i = 0; h->fd_added && i < h->fds; i++)
        all &= fn(h->arg, h->fd[i]);
    return all;
}

void rsk_shard_fds(struct rsk_shard *h, void (*fn)(void *fd))
{
    for (int i = 0; i < h->fds; i++)
        fn((void *)(intptr_t)h->fd[i]);
}

struct rsk_shard *rsk_shard_get(struct rsk_shard *h)
{
    atomic_fetch_add(&h->refs, 1);
    return h;
}

void rsk_shard_put(struct rsk_shard *h)
{
    if (atomic_fetch_sub(&h->refs, 1) != 1)
        return;
    while (h->fds > 0)
        sys_close(h->fd[--h->fds]);
    free(h);
}

void rsk_shard_orphan(struct rsk_shard *h)
{
    h->fd_added = NULL;
}

void rsk_shard_on_lonely(struct rsk_shard *h, void (*fn)(void *), void *arg)
{
    (void)h, (void)fn, (void)arg; /* no progress thread, so nothing is shared */
}

/* No stream's news come by it. */
struct rsk_shard *rsk_shard_common(void)
{
    static struct rsk_shard common = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                      .drain = PTHREAD_MUTEX_INITIALIZER};

    return &common;
}

void fake_wake(struct fake *f, unsigned events)
{
    pthread_mutex_lock(&f->lock);
    for (struct fb_watcher *w = f->watchers, *next; w; w = next) {
        next = w->next;
        w->wake(w, events);
    }
    pthread_mutex_unlock(&f->lock);
}

static struct fake *pop(struct rsk_shard *h)
{
    struct fake *f;

    pthread_mutex_lock(&h->lock);
    f = h->first;
    if (f)
        h->first = atomic_load(&f->dirty_next);
    pthread_mutex_unlock(&h->lock);
    return f;
}

static int drain_locked(struct rsk_shard *h)
{
    struct fake *f;
    int n = 0;

    while ((f = pop(h)) != NULL) {
        atomic_store(&f->dirty, 0);
        fake_wake(f, RSK_RX | RSK_TX);
        n++;
    }
    if (fake_drained)
        fake_drained(n);
    pthread_mutex_unlock(&h->drain);
    return n;
}

int rsk_shard_drain(struct rsk_shard *h)
{
    return pthread_mutex_trylock(&h->drain) == 0 ? drain_locked(h) : -1;
}

int rsk_shard_drain_all(struct rsk_shard *h)
{
    atomic_fetch_add(&fake_drains_due, 1);
    pthread_mutex_lock(&h->drain);
    atomic_fetch_sub(&fake_drains_due, 1);
    return drain_locked(h);
}

bool rsk_shard_arm(struct rsk_shard *h)
{
    bool news;

    atomic_fetch_add(&h->armed, 1);
    atomic_store(&h->ready, 1);
    pthread_mutex_lock(&h->lock);
    news = h->first != NULL;
    pthread_mutex_unlock(&h->lock);
    return news;
}

void rsk_shard_lean(struct rsk_shard *h)
{
    if (rsk_shard_arm(h))
        (void)rsk_shard_drain_all(h);
}

bool rsk_shard_is_lonely(const struct rsk_shard *h)
{
    return atomic_load(&h->refs) == 1;
}

void rsk_shard_disarm(struct rsk_shard *h)
{
    if (atomic_fetch_sub(&h->armed, 1) == 1)
        atomic_store(&h->ready, atomic_load(&h->armed) > 0);
}

void fake_news(struct fake *f)
{
    struct rsk_shard *h = atomic_load(&f->shard);
    uint64_t one = 1;

    if (!h || f->by_thread) {
        fake_wake(f, RSK_RX | RSK_TX);
        return;
    }
    if (atomic_exchange(&f->dirty, 1))
        return;
    pthread_mutex_lock(&h->lock);
    atomic_store(&f->dirty_next, h->first);
    h->first = f;
    pthread_mutex_unlock(&h->lock);
    if (atomic_exchange(&h->ready, 0))
        sys_write(h->fd[h->fds - 1], &one, sizeof one);
}

/* ---- the progress thread: does everything at once, but one thing at a time */

static pthread_mutex_t turn = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

bool rsk_loop_running(void)
{
    return true;
}

int rsk_loop_post(void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&turn);
    fn(arg);
    pthread_mutex_unlock(&turn);
    return 0;
}

int rsk_loop_post_job(struct rsk_job *job)
{
    return rsk_loop_post(job->fn, job->arg);
}

/* Timers wait for fake_time_passes. */
struct rsk_timer {
    struct rsk_timer *next;
    void (*fn)(void *arg);
    void *arg;
};

static struct rsk_timer *timers;

struct rsk_timer *rsk_timer_add(uint64_t ns, void (*fn)(void *arg), void *arg)
{
    struct rsk_timer *t = malloc(sizeof *t);

    (void)ns;
    *t = (struct rsk_timer){timers, fn, arg};
    timers = t;
    return t;
}

void rsk_timer_cancel(struct rsk_timer *t)
{
    struct rsk_timer **at = &timers;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    free(t);
}

int fake_time_passes(void)
{
    struct rsk_timer *t, *due;
    int n = 0;

    pthread_mutex_lock(&turn);
    due = timers;
    timers = NULL;
    for (; (t = due); n++) {
        due = t->next;
        t->fn(t->arg);
        free(t);
    }
    pthread_mutex_unlock(&turn);
    return n;
}

/* A thread for each, for good: tests share few shards. */
struct rsk_watch {
    struct rsk_watch *older;
    int fd;
    void (*fn)(void *arg, uint32_t events);
    void *arg;
};

static struct rsk_watch *watches;

static void *watcher(void *arg)
{
    struct rsk_watch *w = arg;
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    uint64_t box;

    for (;;) {
        sys_ppoll(&p, 1, NULL, NULL);
        sys_read(w->fd, &box, sizeof box); /* as an edge */
        pthread_mutex_lock(&turn);
        w->fn(w->arg, EPOLLIN);
        pthread_mutex_unlock(&turn);
    }
    return NULL;
}

void rsk_unwatch(struct rsk_watch *w)
{
    (void)w; /* nobody is lonely here: see rsk_shard_on_lonely */
}

struct rsk_watch *rsk_watch_fd(int fd, uint32_t events, bool anchor,
                               void (*fn)(void *arg, uint32_t events), void *arg)
{
    struct rsk_watch *w = malloc(sizeof *w);
    pthread_t t;

    (void)events;
    (void)anchor;
    if (atomic_exchange(&fake_watch_fails, false)) {
        free(w);
        return NULL;
    }
    *w = (struct rsk_watch){watches, sys_fcntl(fd, F_DUPFD_CLOEXEC, 512), fn, arg};
    watches = w;
    pthread_create(&t, NULL, watcher, w);
    pthread_detach(t);
    return w;
}

uint64_t fb_pin_time(void)
{
    return 0;
}

void fb_pin_by(struct fb_stream *s, int reason, uint64_t until)
{
    (void)until;
    fb_pin(s, reason, true);
}

/* The fakes' pairs stand for connections. */
bool pl_is_tcp(int fd)
{
    int type;
    socklen_t len = sizeof(type);

    return sys_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

void spin_long(void)
{
}

bool fb_filtered(void)
{
    return sys_filtered();
}

uint64_t fb_sleeps_now(void)
{
    return 1;
}
