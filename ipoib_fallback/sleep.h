/*
 * sleep.h - the sleeps of a blocking receive or send: how they end for a signal, what is raised
 * meanwhile, and how that is lowered if the thread does not come back.
 */
#ifndef FB_SLEEP_H
#define FB_SLEEP_H

#include "ipoib_fallback/fb.h"
#include "rsock/section.h"

#include <time.h>

/* rsk_sig's counts of handlers that this thread has run: `seen` of all, when the half was last
 * looked at; `cut` of those without SA_RESTART, when the call began. */
struct fb_signals {
    uint32_t seen, cut;
    /* Before or in the last sleep. As in the kernel a call that has bytes ends then, whatever
     * SA_RESTART says. */
    bool ran;
    /* In the last sleep, and this is the child: it has nothing of this stream (rsk_pass_forked). */
    bool forked;
};

static inline struct fb_signals sleep_signals(void)
{
    return (struct fb_signals){rsk_sig.seen, rsk_sig.cut, false, false};
}

/* A sleep has ended with r (-errno or not), or did not begin. -EINTR: the call ends with it if it
 * finds nothing; 0: it goes on. limited: the socket has a time-out for this direction. */
int sleep_ended(struct fb_signals *, ssize_t r, uint64_t limited);

/* The sleeps themselves, in a window; each returns -EINTR at once if a handler has run since
 * `seen`. Cancellation points. */
ssize_t sleep_peek(int fd, uint32_t seen);
/* In poll, until `deadline` (monotonic ns; 0: for ever): -EAGAIN when it has passed, else
 * what poll says. */
int sleep_poll(int fd, short events, uint64_t deadline, uint32_t seen);
int sleep_futex(_Atomic uint32_t *word, uint32_t val, const struct timespec *limit, uint32_t seen);
/* On either of two, where rsk_waitv_usable(). */
int sleep_futexes(_Atomic uint32_t *word, uint32_t val, _Atomic uint32_t *own, uint32_t own_val,
                  const struct timespec *limit, uint32_t seen);

/* What is raised for the time of a sleep: a count, a reference to a rail. */
struct fb_raised {
    _Atomic uint32_t *count;
    struct rsk_rail *rail;
    struct rsk_pass pass;
};
void sleep_open(struct fb_raised *, const void *frame);
/* As a cleanup: closes the window, if it was opened, and lowers; once. */
void sleep_raised_end(struct fb_raised *);
/* The same, and notes whether a handler has forked. */
void sleep_close(struct fb_raised *, struct fb_signals *);

/* The kernel's own call for a plain half; rx_in or tx_in is raised. Count or -errno. */
ssize_t sleep_recv(struct fb_stream *, int fd, const struct iovec *v, int cnt, int flags,
                   struct fb_signals *);
ssize_t sleep_send(struct fb_stream *, int fd, const struct iovec *v, int cnt, int flags,
                   struct fb_signals *);

#endif
