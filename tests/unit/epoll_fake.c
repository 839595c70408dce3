/*
 * epoll_fake.c - the engine as far as poll, select and epoll need it (epoll_fake.h).
 */
#include "tests/unit/epoll_fake.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "config/env.h"
#include "preload/pl_own.h"
#include "preload/pl_signal.h"
#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/sys.h"

struct cfg cfg = {.stream = CFG_STREAM_DEFAULTS};
const struct cfg_stream cfg_stream_defaults = CFG_STREAM_DEFAULTS;

uint32_t fb_spin_most(void)
{
    return cfg.stream.spin_ns;
}

bool fb_spin_slow(void)
{
    return fake_slow_wire;
}
_Atomic bool fake_slow_wire, fb_one_processor;
_Atomic int fake_sleepers;

#define IN_BITS  (POLLIN | POLLRDNORM)
#define OUT_BITS (POLLOUT | POLLWRNORM)

/* ---- streams */

void fb_get(struct fb_stream *s)
{
    atomic_fetch_add(&s->refs, 1);
}

void fb_put(struct fb_stream *s)
{
    atomic_fetch_sub(&s->refs, 1);
}

void fb_pin(struct fb_stream *s, int reason, bool wait)
{
    struct fake *f = (struct fake *)s;

    (void)wait;
    atomic_store(&f->pinned, reason);
    if (!fb_plain(s))
        fake_leave(f);
}

bool fb_may_change(const struct fb_stream *s)
{
    return ((const struct fake *)s)->counts;
}

bool fb_may_linger(const struct fb_stream *s)
{
    return !fb_plain(s) || ((const struct fake *)s)->lingers;
}

bool fb_shared(struct fb_stream *s)
{
    return ((struct fake *)s)->shared;
}

bool fb_may_be_found(struct fb_stream *s)
{
    return ((struct fake *)s)->found;
}

/* Where its rail is stays where it is. */
static void prefer(struct fb_stream *s, struct rsk_shard *h)
{
    if (fb_plain(s))
        atomic_store(&((struct fake *)s)->shard, h);
}

bool fb_news_elsewhere(struct fb_stream *s, const struct rsk_shard *h)
{
    struct fake *f = (struct fake *)s;
    void (*anew)(struct fake *) = atomic_exchange(&f->anew, NULL);

    if (anew)
        anew(f);
    return !fb_plain(s) && atomic_load(&f->shard) != h;
}

void fb_watch(struct fb_stream *s, struct fb_watcher *w, struct rsk_shard *h)
{
    struct fake *f = (struct fake *)s;

    pthread_mutex_lock(&f->lock);
    w->next = f->watchers;
    w->prev = &f->watchers;
    if (w->next)
        w->next->prev = &w->next;
    f->watchers = w;
    if (h)
        prefer(s, h);
    pthread_mutex_unlock(&f->lock);
}

void fb_unwatch(struct fb_stream *s, struct fb_watcher *w, struct rsk_shard *h)
{
    struct fake *f = (struct fake *)s;

    pthread_mutex_lock(&f->lock);
    *w->prev = w->next;
    if (w->next)
        w->next->prev = w->prev;
    if (h && atomic_load(&f->shard) == h)
        prefer(s, NULL);
    pthread_mutex_unlock(&f->lock);
}

uint64_t fb_sleep_most(void)
{
    return UINT64_MAX;
}

void fb_alone(void)
{
}

short fb_kernel_events(struct fb_stream *s, short events)
{
    if (((struct fake *)s)->alone)
        return events;
    if (atomic_load(&s->rx_gate))
        events &= (short)~IN_BITS;
    if (atomic_load(&s->tx_gate))
        events &= (short)~OUT_BITS;
    return events;
}

static short rail_ready(struct fake *f, short events)
{
    short r = 0;

    if (f->alone)
        return 0;
    if (atomic_load(&f->s.rx_gate) && atomic_load(&f->bytes) > 0)
        r |= events & IN_BITS;
    if (atomic_load(&f->s.tx_gate) && !atomic_load(&f->full))
        r |= events & OUT_BITS;
    return r;
}

short fb_ready(struct fb_stream *s, int fd, short events)
{
    static const struct timespec zero;
    struct fake *f = (struct fake *)s;
    struct pollfd p = {.fd = fd, .events = fb_kernel_events(s, events)};
    short r;

    atomic_fetch_add(&f->readies, 1);
    r = rail_ready(f, events);
    if (!f->deaf && sys_ppoll(&p, 1, &zero, NULL) > 0)
        r |= p.revents;
    if (atomic_load(&f->hup))
        r |= (short)((events & (POLLRDHUP | IN_BITS)) | POLLHUP);
    return r;
}

bool fb_kernels_alone(struct fb_stream *s)
{
    return ((struct fake *)s)->alone;
}

void fb_said(struct fb_stream *s, short asked, short got)
{
    (void)asked;
    if (!got)
        atomic_fetch_add(&((struct fake *)s)->nothings, 1);
}

short fb_poll(struct fb_stream *s, int fd, short events)
{
    return fb_ready(s, fd, events);
}

short fb_peek_ready(struct fb_stream *s, short events)
{
    return rail_ready((struct fake *)s, events);
}

void (*fake_glances)(struct fake *);

enum fb_sight fb_sight(struct fb_stream *s, short events)
{
    struct fake *f = (struct fake *)s;

    atomic_fetch_add(&f->glanced, 1);
    if (!atomic_load(&f->s.rx_gate) || f->unsure || f->alone || !(events & IN_BITS) ||
        (events & OUT_BITS) || atomic_load(&f->hup))
        return FB_CLOSER;
    if (rail_ready(f, events & IN_BITS))
        return FB_SOME;
    if (fake_glances)
        fake_glances(f);
    return FB_NONE;
}

enum fb_sight fb_sight_arm(struct fb_stream *s, int fd, short events, struct fb_tally *tally)
{
    enum fb_sight see = fb_sight(s, events);

    if (see != FB_CLOSER) {
        see = fb_arm(s, fd, events) & IN_BITS ? FB_SOME : FB_NONE;
        if (tally)
            *tally = fb_tally(s, fd);
    }
    return see;
}

short fb_arm(struct fb_stream *s, int fd, short events)
{
    struct fake *f = (struct fake *)s;

    (void)fd;
    atomic_fetch_add(&f->arms, 1);
    atomic_fetch_or(&f->armed, (uint32_t)events & (IN_BITS | OUT_BITS));
    return f->unsure ? POLLIN : rail_ready(f, events);
}

unsigned fb_has_words(struct fb_stream *s, short events)
{
    struct fake *f = (struct fake *)s;

    return f->has_words && (events & IN_BITS) && !atomic_load(&f->hup);
}

short fb_arm_words(struct fb_stream *s, int fd, short events, struct fb_words *w)
{
    struct fake *f = (struct fake *)s;

    w->rail = NULL;
    if (!fb_has_words(s, events) || f->words_gone)
        return fb_arm(s, fd, events);
    w->n = 1;
    w->word[0] = &f->word;
    w->value[0] = atomic_load(&f->word);
    atomic_store(&f->by_words, 1);
    if (fb_plain(s) || f->unsure || rail_ready(f, events) || atomic_load(&f->hup))
        return fb_arm(s, fd, events);
    w->rail = (struct rsk_rail *)f;
    atomic_fetch_add(&f->word_refs, 1);
    return 0;
}

void fb_words_put(struct fb_words *w)
{
    if (w->rail)
        atomic_fetch_sub(&((struct fake *)w->rail)->word_refs, 1);
    w->rail = NULL;
}

/* This thread's sleep; odd while it is one. */
static _Thread_local uintptr_t sleep_now;

struct fb_sleeper *fb_sleeper_poll(const struct pollfd *pfd, nfds_t n)
{
    (void)pfd;
    (void)n;
    sleep_now++;
    atomic_fetch_add(&fake_sleepers, 1);
    return (struct fb_sleeper *)&fake_sleepers;
}

struct fb_sleeper *fb_sleeper_select(int nfds, const void *readfds, const void *writefds)
{
    (void)nfds;
    (void)readfds;
    (void)writefds;
    return fb_sleeper_poll(NULL, 0);
}

void fb_sleeper_end(struct fb_sleeper *sleeper)
{
    (void)sleeper;
    sleep_now++;
    atomic_fetch_sub(&fake_sleepers, 1);
}

uintptr_t fb_sleeper_sleep(struct fb_sleeper *sleeper)
{
    (void)sleeper;
    return sleep_now;
}

void fb_sleeper_left(struct fb_sleeper *sleeper, uintptr_t sleep)
{
    if (sleeper && sleep == sleep_now)
        fb_sleeper_end(sleeper);
}

void pl_child(void)
{
}

/* Tests set handlers that count themselves, and switch the sections on where they want them. */
void pl_signals_on(void)
{
}

bool pl_is_owner(void)
{
    return true;
}

bool pl_is_owner_here(void)
{
    return true;
}

/* ---- what a test does with them */

static struct fake *newest;

struct fake *fake_untracked(void)
{
    struct fake *f = calloc(1, sizeof *f);
    int pair[2];

    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
    f->older = newest;
    newest = f;
    f->fd = pair[0];
    f->peer = pair[1];
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->count_lock, NULL);
    atomic_store(&f->s.refs, 1);
    atomic_store(&f->s.fds, 1);
    return f;
}

void fake_track(struct fake *f)
{
    pl_epoll_stream_tracked(pl_install(f->fd, PL_STREAM, &f->s));
}

struct fake *fake_new(void)
{
    struct fake *f = fake_untracked();

    fake_track(f);
    return f;
}

void fake_board(struct fake *f)
{
    atomic_store(&f->s.rx_gate, 1);
    atomic_store(&f->s.tx_gate, 1);
    fake_wake(f, FB_EV_STATE);
}

void fake_leave(struct fake *f)
{
    atomic_store(&f->s.rx_gate, 0);
    atomic_store(&f->s.tx_gate, 0);
    fake_wake(f, RSK_RX | RSK_TX | FB_EV_STATE);
}

void fake_switch(struct fake *f)
{
    if (fb_plain(&f->s))
        fake_board(f);
    else
        fake_leave(f);
}

static void tell(struct fake *f, uint32_t bits)
{
    if (atomic_fetch_and(&f->armed, ~bits) & bits)
        fake_news(f);
}

void fake_arrive(struct fake *f, int n)
{
    atomic_fetch_add(&f->bytes, n);
    if (atomic_exchange(&f->by_words, 0)) {
        atomic_fetch_add(&f->word, 1);
        sys_futex(&f->word, FUTEX_WAKE, INT_MAX, NULL);
    }
    tell(f, IN_BITS);
}

bool fake_send(struct fake *f)
{
    if (fb_plain(&f->s))
        return write(f->peer, "x", 1) == 1;
    fake_arrive(f, 1);
    return true;
}

void fake_arrive_unheard(struct fake *f, int n)
{
    atomic_fetch_add(&f->bytes, n);
}

int fake_read(struct fake *f, int n)
{
    int have, take;

    pthread_mutex_lock(&f->count_lock);
    have = atomic_load(&f->bytes);
    take = have < n ? have : n;
    atomic_fetch_sub(&f->bytes, take);
    f->taken += (uint64_t)take;
    pthread_mutex_unlock(&f->count_lock);
    return take;
}

int fake_take(struct fake *f, int n)
{
    char buf[64];
    ssize_t r;

    pthread_mutex_lock(&f->count_lock);
    r = read(f->fd, buf, n < 64 ? (size_t)n : 64);
    if (r > 0)
        f->taken += (uint64_t)r;
    pthread_mutex_unlock(&f->count_lock);
    return (int)r;
}

struct fb_tally fb_tally(struct fb_stream *s, int fd)
{
    struct fake *f = (struct fake *)s;
    struct fb_tally tally = {0};
    int n = 0;

    if (!f->counts)
        return tally;
    pthread_mutex_lock(&f->count_lock);
    sys_ioctl(fd, FIONREAD, &n);
    tally.in = 1 + f->taken + (uint64_t)(atomic_load(&f->bytes) + n);
    tally.in += (uint64_t)atomic_load(&f->hup) << 60;
    tally.out = 1 + f->no_room;
    pthread_mutex_unlock(&f->count_lock);
    return tally;
}

void fake_room(struct fake *f, bool room)
{
    atomic_store(&f->full, !room);
    pthread_mutex_lock(&f->count_lock);
    f->no_room++;
    pthread_mutex_unlock(&f->count_lock);
    if (room)
        tell(f, OUT_BITS);
}

bool fake_watched(struct fake *f)
{
    bool any;

    pthread_mutex_lock(&f->lock);
    any = f->watchers != NULL;
    pthread_mutex_unlock(&f->lock);
    return any;
}

void fake_hangup(struct fake *f)
{
    atomic_store(&f->hup, 1);
    fake_wake(f, RSK_FAIL);
}

void fake_close(struct fake *f)
{
    struct pl_file *file = pl_get(f->fd), *taken;

    if (file) {
        pl_epoll_forget_fd(file, false);
        taken = pl_take(f->fd);
        if (taken)
            pl_put(taken);
        pl_put(file);
    }
    sys_close(f->fd);
    sys_close(f->peer);
    /* f itself stays: streams are type-stable. */
}

void fake_ms(int ms)
{
    struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

    SYS6(SYS_nanosleep, &ts, NULL, 0, 0, 0, 0);
}
