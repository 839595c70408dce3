/*
 * edge_for_room.c - a writer that waits for edges: its stream boards, fills the ring and
 * leaves, all between two epoll_waits. The kernel, in whose socket there was room all the time,
 * is told to say so.
 */
#include "pair.h"

#include <poll.h>
#include <sys/epoll.h>

static void fill(int fd)
{
    static char bytes[8192];

    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) >= 0)
        ;
    must(errno == EAGAIN, "send");
}

static void drain(int fd)
{
    static char bytes[65536];
    time_t begin = time(NULL);

    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        must(others_run(begin), "it ends");
    must(errno == EAGAIN, "recv");
}

/* Only in this direction: what comes on a rail would tell of the other as well. */
static void boards_to_send(int p[2])
{
    unsigned long long before;
    time_t begin = time(NULL);
    bool tcp;

    do {
        before = tcp_sent(p[0]);
        pass(p, 0);
        tcp = tcp_sent(p[0]) != before;
    } while (mode_rail() && tcp && others_run(begin));
    if (mode_rail() && tcp)
        puts("it is not on a rail");
}

/* Until it has left, which it does if nobody reads (RAILSOCK_STALL), and TCP has room: the
 * ring has not. */
static void leaves(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    if (mode_rail())
        must(poll(&p, 1, 60000) == 1 && p.revents == POLLOUT, "poll");
}

static bool told(int ep, int fd, int ms)
{
    struct epoll_event ev = {0};
    time_t begin = time(NULL);

    while (epoll_wait(ep, &ev, 1, ms) == 1 && time(NULL) - begin < 20)
        if (ev.data.fd == fd && ev.events & EPOLLOUT)
            return true;
    return false;
}

static void one(int l, const struct sockaddr_in *at, uint32_t events)
{
    struct epoll_event ev = {.events = events};
    int p[2], ep = epoll_create1(0);
    bool full;

    pair_at(l, at, p);
    ev.data.fd = p[0];
    must(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0, "epoll_ctl");
    printf("at first: %d", told(ep, p[0], 5000));
    boards_to_send(p);
    fill(p[0]);
    leaves(p[0]);
    full = !told(ep, p[0], 100); /* TCP may have room for more than a ring */
    if (full) {
        drain(p[1]);
        full = !told(ep, p[0], 5000);
    }
    printf(", told of room: %d\n", !full);
    close(ep);
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at);

    one(l, &at, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    one(l, &at, EPOLLOUT | EPOLLET);
    return 0;
}
