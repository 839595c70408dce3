/*
 * loop_watch.c - the descriptors that the progress thread watches: anchors in an epoll instance,
 * the others in the backend. After a pause there is a new backend, which is given them all again;
 * the epoll instance has kept the anchors. Progress thread, or whoever has ended it.
 */
#include <errno.h>
#include <stdlib.h>

#include "config/log.h"
#include "rsock/loop.h"
#include "rsock/loop_backend.h"
#include "rsock/sys.h"

const struct loop_backend *loop_backend;
int loop_anchor_ep = -1;
int loop_watch_error;

static struct rsk_watch *dead;    /* unwatched, but perhaps still in a batch or in the kernel */
static struct rsk_watch *watches; /* those that the backend has */
static bool some_again;           /* or could not take */

enum { AGAIN_NS = 20000000 };

struct rsk_watch *rsk_watch_fd(int fd, uint32_t events, bool anchor,
                               void (*fn)(void *arg, uint32_t events), void *arg)
{
    struct rsk_watch *w = calloc(1, sizeof *w);
    struct epoll_event ev = {.events = events};
    int err;

    loop_watch_error = -ENOMEM;
    if (!w)
        return NULL;
    w->fd = fd;
    w->events = events;
    w->anchor = anchor;
    w->fn = fn;
    w->arg = arg;
    ev.data.ptr = w;
    err = anchor ? sys_epoll_ctl(loop_anchor_ep, EPOLL_CTL_ADD, fd, &ev) : loop_backend->add(w);
    if (err < 0) {
        log_debug("cannot watch descriptor %d: error %d", fd, -err);
        loop_watch_error = err;
        free(w);
        return NULL;
    }
    if (!anchor) {
        w->next = watches;
        w->prev = &watches;
        if (watches)
            watches->prev = &w->next;
        watches = w;
    }
    return w;
}

void rsk_unwatch(struct rsk_watch *w)
{
    struct epoll_event ev = {0};

    if (!w || w->dead)
        return;
    if (!w->anchor) {
        loop_backend->del(w);
        *w->prev = w->next;
        if (w->next)
            w->next->prev = w->prev;
    } else if (!atomic_load(&w->dropped))
        sys_epoll_ctl(loop_anchor_ep, EPOLL_CTL_DEL, w->fd, &ev);
    /* Events of it may lie in a batch that is being gone through. */
    w->dead = true;
    w->next_dead = dead;
    dead = w;
}

void rsk_watch_drop(struct rsk_watch *w)
{
    struct epoll_event ev = {0};

    if (w && !atomic_exchange(&w->dropped, true))
        sys_epoll_ctl(loop_anchor_ep, EPOLL_CTL_DEL, w->fd, &ev);
}

void loop_watch_bury(void)
{
    struct rsk_watch **at = &dead, *w;

    while ((w = *at)) {
        if (w->pending) {
            at = &w->next_dead;
            continue;
        }
        *at = w->next_dead;
        free(w);
    }
}

void loop_watch_later(struct rsk_watch *w)
{
    w->again = some_again = true;
}

int loop_watch_again(struct rsk_watch *wake, struct rsk_watch *anchors)
{
    for (struct rsk_watch *w = watches; w; w = w->next) {
        int err = loop_backend->add(w);

        if (err < 0 && (w == wake || w == anchors))
            return err;
        w->again = false;
        if (err < 0) {
            log_info("descriptor %d is not watched for now: error %d", w->fd, -err);
            loop_watch_later(w);
        }
    }
    return 0;
}

uint64_t loop_watch_retry(void)
{
    if (!some_again)
        return LOOP_FOREVER;
    some_again = false;
    for (struct rsk_watch *w = watches; w; w = w->next)
        if (w->again) {
            w->again = false;
            if (loop_backend->add(w) < 0)
                loop_watch_later(w);
        }
    return some_again ? AGAIN_NS : LOOP_FOREVER;
}

/* Some at a time: what is called may watch and unwatch. One that is passed over then has its turn
 * the next time. */
void loop_watch_look(void)
{
    enum { TOGETHER = 32 };
    static const struct timespec zero;
    struct rsk_watch *had[TOGETHER];
    struct pollfd p[TOGETHER];
    unsigned done = 0, n;

    do {
        unsigned skip = done;

        n = 0;
        for (struct rsk_watch *w = watches; w && n < TOGETHER; w = w->next) {
            if (skip) {
                skip--;
                continue;
            }
            had[n] = w;
            p[n++] = (struct pollfd){.fd = w->fd, .events = (short)w->events};
        }
        if (n && sys_ppoll(p, n, &zero, NULL) > 0)
            for (unsigned i = 0; i < n; i++)
                if (p[i].revents)
                    loop_event(had[i], (uint16_t)p[i].revents);
        done += n;
    } while (n == TOGETHER);
}

void loop_backoff(int err)
{
    const struct timespec ms = {0, 1000000};

    log_debug("%s wait: error %d", loop_backend->name, -err);
    sys_ppoll(NULL, 0, &ms, NULL);
}

static int none_add(struct rsk_watch *w)
{
    (void)w;
    return 0;
}

static void none_del(struct rsk_watch *w)
{
    (void)w;
}

const struct loop_backend loop_none = {.name = "none", .add = none_add, .del = none_del};

void loop_watch_rest(void)
{
    for (struct rsk_watch *w = watches; w; w = w->next)
        w->pending = false;
    for (struct rsk_watch *w = dead; w; w = w->next_dead)
        w->pending = false;
}

void loop_watch_forget(void)
{
    watches = dead = NULL;
    some_again = false;
}
