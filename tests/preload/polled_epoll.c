/*
 * polled_epoll.c - an epoll instance that is polled itself: to ask takes nothing away of what it
 * would report, a one-shot whose news has gone meanwhile, or edges of a descriptor that may not be
 * modified (EPOLLEXCLUSIVE).
 */
#include "pair.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int ep;

static int readable(void)
{
    struct pollfd p = {.fd = ep, .events = POLLIN};

    return poll(&p, 1, 0);
}

static void add(int fd, uint32_t events, uint64_t data)
{
    struct epoll_event e = {.events = events, .data.u64 = data};

    must(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
}

int main(void)
{
    struct epoll_event e;
    int p[2], pipes[2], counter = eventfd(0, EFD_NONBLOCK);
    char c;

    ep = epoll_create1(0);
    tcp_pair(p);
    add(p[0], EPOLLIN, 1);
    on_rail(p);
    must(pipe(pipes) == 0, "pipe");
    add(pipes[0], EPOLLIN | EPOLLONESHOT, 2);
    for (int i = 0; i < 3; i++) {
        must(write(pipes[1], "x", 1) == 1, "write");
        SHOW(readable());
        must(read(pipes[0], &c, 1) == 1, "read");
        SHOW(readable());
        SHOW(epoll_wait(ep, &e, 1, 0));
    }
    must(write(pipes[1], "y", 1) == 1, "write");
    SHOW(epoll_wait(ep, &e, 1, 10000));
    SHOW(epoll_wait(ep, &e, 1, 0));
    add(counter, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 3);
    for (int i = 0; i < 3; i++) {
        must(eventfd_write(counter, 1) == 0, "eventfd_write");
        SHOW(readable());
        SHOW(epoll_wait(ep, &e, 1, 0));
        SHOW(e.data.u64);
        SHOW(epoll_wait(ep, &e, 1, 0));
    }
    return 0;
}
