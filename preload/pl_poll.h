/*
 * pl_poll.h - poll for sets that the kernel alone cannot answer; poll and select call it.
 */
#ifndef PL_POLL_H
#define PL_POLL_H

#include "preload/pl_own.h"
#include "preload/pl_wait.h"

#include <linux/futex.h>

/* What a set of descriptors needs. */
enum pl_need {
    PL_KERNEL,  /* nothing of ours in it */
    PL_PUBLISH, /* plain streams: a thread that sleeps on them must be known (fb_sleeper_*) */
    PL_SERVE,   /* a stream on a rail, or an epoll instance: pl_poll_serve */
};

static inline enum pl_need pl_need_of(int fd)
{
    struct pl_file *f = pl_get(fd);
    enum pl_need need = PL_KERNEL;

    if (!f)
        return PL_KERNEL;
    if (f->kind == PL_STREAM)
        need = fb_plain(f->stream) ? PL_PUBLISH : PL_SERVE;
    else if (f->kind == PL_EPOLL)
        need = PL_SERVE;
    pl_put(f);
    return need;
}

/* A published sleeper, and the window of its sleep. */
struct pl_sleep {
    struct fb_sleeper *sleeper;
    struct rsk_pass pass;
};

void pl_sleep_open(struct pl_sleep *, const void *frame);
void pl_sleep_end(struct pl_sleep *);
#define PL_SLEEP __attribute__((cleanup(pl_sleep_end))) struct pl_sleep

/* ---- pl_poll_ask.c: the kernel's part of a set; elements with a negative fd are
 * none of it ---- */

/* ppoll without waiting. Count or -errno. */
int pl_poll_ask(struct pollfd *set, nfds_t size);
/* Did it find nothing less than 50 us ago for the same few, and has the thread made no call to the
 * kernel through us since? Then who would wait anyway need not ask. */
bool pl_poll_asked_lately(const struct pollfd *set, nfds_t size);
/* Waits until a number that another thread is closing is closed in the kernel: close() wakes
 * sleepers before that, and up to then the kernel tells of what the number was. Ends also if the
 * number stands for something else by now; but a TCP socket that is none of ours may be the old
 * one, and is waited for until `limit` (CLOCK_MONOTONIC). */
enum { PL_CLOSING_NS = 50000000 };
void pl_poll_until_closed(int fd, uint64_t limit);

/* ---- pl_poll.c ---- */

/* RLIMIT_NOFILE. */
unsigned long pl_most_descriptors(void);

/* ---- pl_select.c ---- */

/* How many bits of select's sets have to be read to find what is ours: no more than the
 * kernel would read. */
int pl_select_sees(int nfds);

/* ---- pl_poll_words.c ---- */

/* Words that a thread sleeps on, all at once, where rsk_waitv_usable(). */
struct pl_words {
    unsigned n;
    struct futex_waitv v[FUTEX_WAITV_MAX];
};

/* The first word is the thread's own: whoever else wants to wake it changes that from value,
 * and wakes it. */
void pl_words_begin(struct pl_words *, _Atomic uint32_t *own, uint32_t value);
/* False: there is no room for them. */
bool pl_words_add(struct pl_words *, const struct fb_words *);
/* Sleeps until one of them has changed, or the deadline. 0; -EINTR if a handler has run since
 * `signals`. A cancellation point, in a window. */
int pl_words_sleep(struct pl_words *, uint64_t deadline, uint32_t signals);

/* poll(2) on any set, sleeping at most until deadline, with mask while it sleeps (NULL: as it is).
 * signals: rsk_sig.seen when the application's call began. Count or -errno. Fills fds[].revents.
 * *waited: whether an earlier look of this call found nothing, set when one has; from then on
 * POLLNVAL means that the number was closed after the call began. A cancellation point. */
int pl_poll_serve(struct pollfd *fds, nfds_t n, uint64_t deadline, const sigset_t *mask,
                  uint32_t signals, bool *waited);

/* The kernel has answered for a set that was plain when it was asked: corrects fds[].revents of
 * streams that are not plain any more. Returns the count that is left. */
int pl_poll_verify(struct pollfd *fds, nfds_t n, int count);

#endif
