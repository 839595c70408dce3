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

static struct rsk_watch *dead;    /* unwatched, but perhaps still in a batch or in the kernel */
static struct rsk_watch *watches; /* those that the backend has */

struct rsk_watch *rsk_watch_fd(int fd, uint32_t events, bool anchor,
                               void (*fn)(void *arg, uint32_t events), void *arg)
{
    struct rsk_watch *w = calloc(1, sizeof *w);
    struct epoll_event ev = {.events = events};
    int err;

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

void loop_watch_again(void)
{
    for (struct rsk_watch *w = watches; w; w = w->next) {
        int err = loop_backend->add(w);

        if (err < 0)
            log_warn("descriptor %d is not watched any more: error %d", w->fd, -err);
    }
}

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
}
