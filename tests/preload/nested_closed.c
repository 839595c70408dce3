/*
 * nested_closed.c - numbers in epoll instances that are closed, and then something else's: a nested
 * instance's and a one-shot's, with another number of theirs left or not.
 */
#include "pair.h"

#include <sys/epoll.h>

enum { A_MOMENT = 50 }; /* ms, in which nothing is to come */

static void show(const char *when, int ep)
{
    struct epoll_event e[8];
    int n = epoll_wait(ep, e, 8, A_MOMENT);
    unsigned long sum = 0, events = 0;

    for (int i = 0; i < n; i++) {
        sum += e[i].data.u64;
        events |= e[i].events;
    }
    printf("%s: %d, data %lu, events %lx\n", when, n, sum, events);
}

static void ctl(int op, int ep, int fd, unsigned events, unsigned long data)
{
    struct epoll_event e = {.events = events, .data.u64 = data};

    SHOW(epoll_ctl(ep, op, fd, &e));
}

static void drain(int fd)
{
    char bytes[64];

    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
}

static void nested(bool twice, unsigned how)
{
    int p[2], q[2], other = -1, in = epoll_create1(0), out = epoll_create1(0);
    struct epoll_event e;

    printf("-- nested, %s, %x\n", twice ? "with another number" : "alone", how);
    tcp_pair(p);
    tcp_pair(q);
    ctl(EPOLL_CTL_ADD, in, p[1], EPOLLIN, 5);
    ctl(EPOLL_CTL_ADD, out, in, EPOLLIN | how, 7);
    show("nothing", out);
    deliver(p[0], p[1], "a");
    show("a byte", out);
    show("in it", in);
    if (twice)
        other = dup(in);
    close(in);
    if (twice && how & EPOLLET) /* that it goes back to the kernel may be an edge */
        (void)epoll_wait(out, &e, 1, A_MOMENT);
    else
        show("closed", out);
    drain(p[1]);
    show("read", out);
    deliver(p[0], p[1], "b");
    show("another byte", out);
    ctl(EPOLL_CTL_DEL, out, in, 0, 0);
    if (twice)
        show("by the other number", other);
    must(dup2(q[1], in) == in, "dup2");
    ctl(EPOLL_CTL_ADD, out, in, EPOLLIN, 100);
    deliver(q[0], q[1], "c");
    show("the number's next", out);
    drain(q[1]);
    drain(p[1]);
    show("all read", out);
    ctl(EPOLL_CTL_DEL, out, in, 0, 0);
    deliver(p[0], p[1], "d");
    show("of before", out);
    if (twice)
        close(other);
    show("the last one closed", out);
    close(in);
    close(out);
    for (int i = 0; i < 2; i++) {
        close(p[i]);
        close(q[i]);
    }
}

static void one_shot(bool twice, bool fired, unsigned how)
{
    int p[2], q[2], other = -1, ep = epoll_create1(0), n;

    printf("-- one-shot, %s, %s, %x\n", twice ? "with another number" : "alone",
           fired ? "fired" : "armed", how);
    tcp_pair(p);
    tcp_pair(q);
    n = p[1];
    ctl(EPOLL_CTL_ADD, ep, n, EPOLLIN | EPOLLONESHOT | how, 5);
    if (fired) {
        deliver(p[0], n, "a");
        show("fires", ep);
    }
    if (twice)
        other = dup(n);
    close(n);
    must(dup2(q[1], n) == n, "dup2");
    ctl(EPOLL_CTL_MOD, ep, n, EPOLLIN, 9);
    ctl(EPOLL_CTL_ADD, ep, n, EPOLLIN | EPOLLONESHOT | how, 11);
    deliver(q[0], n, "b");
    show("the next", ep);
    show("once", ep);
    ctl(EPOLL_CTL_MOD, ep, n, EPOLLIN | EPOLLONESHOT | how, 12);
    show("again", ep);
    if (twice) {
        deliver(p[0], other, "c");
        show("of before", ep);
        close(other);
    }
    ctl(EPOLL_CTL_DEL, ep, n, 0, 0);
    close(ep);
    close(p[0]);
    close(q[0]);
    close(q[1]);
    close(n);
}

int main(void)
{
    alarm(200);
    for (int i = 0; i < 2; i++) {
        nested(i, 0);
        nested(i, EPOLLET);
        nested(i, EPOLLONESHOT);
        for (int fired = 0; fired < 2; fired++) {
            one_shot(i, fired, 0);
            one_shot(i, fired, EPOLLET);
        }
    }
    return 0;
}
