/*
 * loop_epoll.c - the progress thread's waiting with epoll: where io_uring is refused.
 */
#include <errno.h>

#include "rsock/loop_backend.h"
#include "rsock/own.h"
#include "rsock/sys.h"

enum { BATCH = 64 };

static int ep = -1;

static int epoll_open(void)
{
    int fd = rsk_own_fd(sys_epoll_create1(EPOLL_CLOEXEC));

    if (fd < 0)
        return fd;
    ep = fd;
    return 0;
}

static int epoll_add(struct rsk_watch *w)
{
    struct epoll_event ev = {.events = w->events, .data.ptr = w};

    return sys_epoll_ctl(ep, EPOLL_CTL_ADD, w->fd, &ev);
}

static void epoll_del(struct rsk_watch *w)
{
    struct epoll_event ev = {0};

    sys_epoll_ctl(ep, EPOLL_CTL_DEL, w->fd, &ev);
}

static void epoll_pause(uint64_t ns)
{
    struct epoll_event ev[BATCH] = {0};
    int ms = -1, n;

    /* Rounded up: a timer must not be found not yet due again and again. */
    if (ns != LOOP_FOREVER)
        ms = ns > 3600u * 1000000000ull ? 3600 * 1000 : (int)((ns + 999999) / 1000000);
    n = sys_epoll_wait(ep, ev, BATCH, ms);
    if (n < 0 &&
        n != -EINTR) /* somebody has closed it by a raw system call, say: do not spin on it */
        loop_backoff(n);
    for (int i = 0; i < n; i++)
        loop_event(ev[i].data.ptr, ev[i].events);
}

static void epoll_close(void)
{
    rsk_own_close(ep);
    ep = -1;
}

const struct loop_backend loop_epoll = {
    .name = "epoll",
    .open = epoll_open,
    .add = epoll_add,
    .del = epoll_del,
    .wait = epoll_pause,
    .close = epoll_close,
};
