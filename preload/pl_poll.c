/*
 * pl_poll.c - poll and ppoll. A set without tracked streams goes to libc as it is; a set of plain
 * streams too, after the sleeper is published, so that boarding knows which threads must see the
 * SWITCH frame (HARD-CASES 1). Only a set with a stream on a rail, or an epoll instance, is served
 * here: pl_poll_serve.c.
 *
 * Any application thread. No locks.
 */
#include "preload/pl_poll.h"

#include "rsock/sys.h"

#include <errno.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/select.h>

static void lower(void *sleeper, void *sleep)
{
    fb_sleeper_left(sleeper, (uintptr_t)sleep);
}

void pl_sleep_open(struct pl_sleep *s, const void *frame)
{
    rsk_window_open(&s->pass, frame, lower, s->sleeper, (void *)fb_sleeper_sleep(s->sleeper));
}

void pl_sleep_end(struct pl_sleep *s)
{
    if (!s->pass.open || rsk_window_close(&s->pass))
        fb_sleeper_end(s->sleeper);
}

static enum pl_need need_of_set(const struct pollfd *fds, nfds_t n)
{
    enum pl_need most = PL_KERNEL;

    for (nfds_t i = 0; i < n && most != PL_SERVE; i++) {
        enum pl_need need = fds[i].fd < 0 ? PL_KERNEL : pl_need_of(fds[i].fd);

        if (need > most)
            most = need;
    }
    return most;
}

int pl_poll_verify(struct pollfd *fds, nfds_t n, int count)
{
    int left = count;

    for (nfds_t i = 0; i < n && count > 0; i++) {
        struct pl_file *f;

        if (fds[i].fd < 0 || !fds[i].revents)
            continue;
        count--;
        f = pl_get(fds[i].fd);
        if (!f)
            continue;
        if (f->kind == PL_STREAM && !fb_plain(f->stream)) {
            short asked = (short)(fds[i].events | POLLERR | POLLHUP);

            fds[i].revents = fb_poll(f->stream, f->fd, asked);
            if (!fds[i].revents)
                left--;
        }
        pl_put(f);
    }
    return left;
}

/* The call as the application made it: poll has a time in milliseconds, ppoll a timespec. */
struct call {
    struct pollfd *fds;
    nfds_t n;
    bool is_ppoll;
    int ms;
    const struct timespec *ts;
    const sigset_t *mask;
};

static int real_call(const struct call *c)
{
    return c->is_ppoll ? pl_real.ppoll(c->fds, c->n, c->ts, c->mask)
                       : pl_real.poll(c->fds, c->n, c->ms);
}

static bool at_once(const struct call *c)
{
    return c->is_ppoll ? c->ts && !c->ts->tv_sec && !c->ts->tv_nsec : c->ms == 0;
}

/* Sets *served when the set has to be served after all: it changed before we slept. */
static int sleep_published(const struct call *c, bool *served)
{
    PL_SLEEP s = {fb_sleeper_poll(c->fds, c->n), {0}};

    /* Not published: in a handler over another such sleep. Who serves is told of what
     * boards by watchers. */
    if (!s.sleeper || need_of_set(c->fds, c->n) == PL_SERVE) {
        *served = true;
        return 0;
    }
    pl_sleep_open(&s, __builtin_frame_address(0));
    return real_call(c);
}

unsigned long pl_most_descriptors(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};

    SYS6(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit, 0, 0);
    return limit.rlim_cur;
}

/* Then it does not look at the set. */
static bool kernel_refuses(const struct call *c)
{
    return !c->fds || c->n > INT_MAX || (c->n > FD_SETSIZE && c->n > pl_most_descriptors()) ||
           (c->is_ppoll && c->ts && !pl_ts_valid(c->ts));
}

static int serve_or_sleep(const struct call *c);

static inline int do_poll(const struct call *c)
{
    return __builtin_expect(pl_tracks_nothing(), 0) ? real_call(c) : serve_or_sleep(c);
}

__attribute__((noinline)) static int serve_or_sleep(const struct call *c)
{
    PL_SECTION;
    enum pl_need need;
    uint64_t deadline;
    uint32_t signals = rsk_sig.seen;
    bool served = false, waited = false;
    int count = 0;

    /* A set that the kernel refuses, it shall refuse: never walk it. */
    if (kernel_refuses(c)) {
        PL_SECTION_OVER;
        return real_call(c);
    }
    need = need_of_set(c->fds, c->n);
    if (need == PL_KERNEL)
        return PL_KERNELS_WAIT(real_call(c));
    /* ppoll writes nothing back, but the time goes on from here. */
    deadline = c->is_ppoll ? pl_deadline_ts(c->ts) : pl_deadline_ms(c->ms);
    if (need == PL_PUBLISH) {
        if (at_once(c))
            count = RSK_OPENED(real_call(c));
        else
            count = sleep_published(c, &served);
        if (!served) {
            waited = true;
            if (count > 0)
                count = pl_poll_verify(c->fds, c->n, count);
            else if (count < 0 || need_of_set(c->fds, c->n) != PL_SERVE)
                return count;
            if (count > 0)
                return count;
        }
    }
    return (int)pl_ret(pl_poll_serve(c->fds, c->n, deadline, c->mask, signals, &waited));
}

PL_EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    pl_ready();
    return do_poll(&(struct call){.fds = fds, .n = n, .ms = timeout});
}
PL_ALIAS(__poll, poll);

PL_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
                    const sigset_t *mask)
{
    pl_ready();
    return do_poll(
        &(struct call){.fds = fds, .n = n, .is_ppoll = true, .ts = timeout, .mask = mask});
}

/* The fortified forms: a set larger than its array ends the program, and that is libc's to say. */
PL_EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
    pl_ready();
    if (room / sizeof *fds < n)
        return pl_real.__poll_chk(fds, n, timeout, room);
    return do_poll(&(struct call){.fds = fds, .n = n, .ms = timeout});
}

PL_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
                          const sigset_t *mask, size_t room)
{
    pl_ready();
    if (room / sizeof *fds < n)
        return pl_real.__ppoll_chk(fds, n, timeout, mask, room);
    return do_poll(
        &(struct call){.fds = fds, .n = n, .is_ppoll = true, .ts = timeout, .mask = mask});
}
