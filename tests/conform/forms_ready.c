/*
 * forms_ready.c - see forms_ready.h.
 */
#include "tests/conform/forms_ready.h"

#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

static int by_poll(int fd, int events, int ms)
{
    struct pollfd q = {fd, (short)events, 0};
    int n = poll(&q, 1, ms);

    return n < 0 ? n : q.revents;
}

static int by_ppoll(int fd, int events, int ms)
{
    struct pollfd q = {fd, (short)events, 0};
    struct timespec t = {ms / 1000, ms % 1000 * 1000000l};
    sigset_t none;
    int n;

    sigemptyset(&none);
    n = ppoll(&q, 1, ms < 0 ? NULL : &t, &none);
    return n < 0 ? n : q.revents;
}

static void sets_of(fd_set s[3], int fd, int events)
{
    for (int i = 0; i < 3; i++)
        FD_ZERO(&s[i]);
    if (events & POLLIN)
        FD_SET(fd, &s[0]);
    if (events & POLLOUT)
        FD_SET(fd, &s[1]);
    if (events & POLLPRI)
        FD_SET(fd, &s[2]);
}

static int events_of(const fd_set s[3], int fd, int n)
{
    int got = (FD_ISSET(fd, &s[0]) ? POLLIN : 0) | (FD_ISSET(fd, &s[1]) ? POLLOUT : 0) |
              (FD_ISSET(fd, &s[2]) ? POLLPRI : 0);

    if (n >= 0 && n != __builtin_popcount((unsigned)got))
        say("%d are ready, it says", n);
    return n < 0 ? n : got;
}

static int by_select(int fd, int events, int ms)
{
    struct timeval t = {ms / 1000, ms % 1000 * 1000};
    fd_set s[3];
    int n;

    if (fd < 0 || fd >= FD_SETSIZE)
        return -1;
    sets_of(s, fd, events);
    n = select(fd + 1, &s[0], &s[1], &s[2], ms < 0 ? NULL : &t);
    return events_of(s, fd, n);
}

static int by_pselect(int fd, int events, int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000l};
    fd_set s[3];
    int n;

    if (fd < 0 || fd >= FD_SETSIZE)
        return -1;
    sets_of(s, fd, events);
    n = pselect(fd + 1, &s[0], &s[1], &s[2], ms < 0 ? NULL : &t, NULL);
    return events_of(s, fd, n);
}

/* EPOLL* and POLL* are the same numbers. */
static int by_epoll_with(int fd, int events, int ms, unsigned more)
{
    struct epoll_event e = {(unsigned)events | more, {.u64 = 0x123456789abcdefull}}, got = {0};
    int ep = epoll_create1(0), n, saved;

    n = epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    if (n == 0)
        n = epoll_wait(ep, &got, 1, ms);
    saved = errno;
    if (n > 0 && got.data.u64 != e.data.u64)
        say("with other data");
    close(ep);
    errno = saved;
    return n < 0 ? n : n == 0 ? 0 : (int)got.events;
}

static int by_level(int fd, int events, int ms)
{
    return by_epoll_with(fd, events, ms, 0);
}

static int by_edge(int fd, int events, int ms)
{
    return by_epoll_with(fd, events, ms, EPOLLET);
}

static int by_oneshot(int fd, int events, int ms)
{
    return by_epoll_with(fd, events, ms, EPOLLONESHOT);
}

/* epoll in poll: how poll answers for an instance is tested with it. */
static int by_nested(int fd, int events, int ms)
{
    struct epoll_event e = {(unsigned)events, {.u64 = 7}}, got;
    struct pollfd q = {.events = POLLIN};
    int n, saved;

    q.fd = epoll_create1(0);
    n = epoll_ctl(q.fd, EPOLL_CTL_ADD, fd, &e);
    if (n == 0)
        n = poll(&q, 1, ms);
    if (n > 0 && q.revents != POLLIN)
        say_events("poll says of the instance", q.revents);
    if (n > 0) {
        n = epoll_wait(q.fd, &got, 1, 0);
        if (n == 0)
            say("poll says that the instance is readable, but it is not");
    }
    saved = errno;
    close(q.fd);
    errno = saved;
    return n < 0 ? n : n == 0 ? 0 : (int)got.events;
}

const struct qform qforms[QFORMS] = {
    {"poll", by_poll},          {"ppoll", by_ppoll},          {"select", by_select},
    {"pselect", by_pselect},    {"epoll", by_level},          {"epoll_edge", by_edge},
    {"epoll_once", by_oneshot}, {"epoll_in_poll", by_nested},
};

int ready_by(const struct qform *f, int fd, int events)
{
    int got;

    errno = CLEAN;
    got = f->ask(fd, events, 0);
    if (got < 0)
        show(f->name, got, errno);
    else
        say_events(f->name, got);
    return got;
}
