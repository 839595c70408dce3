/*
 * one_in_hand.c - two threads ask one epoll instance again and again, without waiting, about a
 * connection that is readable all the time: each is told so each time, though the other may be
 * looking at it just then.
 */
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

enum { ROUNDS = 20000 };

static int ep;
static atomic_int none, polled_none;

static void *asks(void *unused)
{
    struct epoll_event e;
    struct pollfd p = {.fd = ep, .events = POLLIN};

    for (int i = 0; i < ROUNDS; i++) {
        none += epoll_wait(ep, &e, 1, 0) != 1;
        if (i % 64 == 0)
            polled_none += poll(&p, 1, 0) != 1;
    }
    return unused;
}

int main(void)
{
    struct epoll_event e = {.events = EPOLLIN};
    pthread_t t[2];
    int p[2];

    ep = epoll_create1(0);
    tcp_pair(p);
    must(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &e) == 0, "epoll_ctl");
    on_rail(p);
    must(write(p[0], "x", 1) == 1, "write");
    SHOW(epoll_wait(ep, &e, 1, 10000));
    for (int i = 0; i < 2; i++)
        must(pthread_create(&t[i], NULL, asks, NULL) == 0, "pthread_create");
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    printf("not told: %d, by poll: %d\n", none, polled_none);
    return 0;
}
