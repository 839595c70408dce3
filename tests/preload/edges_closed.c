/*
 * edges_closed.c - edge-triggered connections that are closed with bytes unread, while other
 * threads sleep in epoll_wait: nobody is told of one again, whose memory a server has freed by
 * then. They have wanted a rail and stay on TCP.
 */
#include "pair.h"

#include <pthread.h>
#include <sys/epoll.h>

enum { ROUNDS = 100, LIMIT_MS = 20000 };

static int ep;
static _Atomic unsigned told, freed, of_freed;
static _Atomic bool over;

static void *waits(void *unused)
{
    struct epoll_event ev;

    (void)unused;
    while (!over) {
        if (epoll_wait(ep, &ev, 1, 100) != 1)
            continue;
        if (ev.data.u32 <= freed)
            of_freed++;
        else
            told = ev.data.u32;
    }
    return NULL;
}

static void one(int l, struct sockaddr_in *at, unsigned round)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u32 = round};
    time_t begin = time(NULL);
    int p[2], few = 2, usual = 1;
    char bytes[100] = {0};

    pair_at(l, at, p);
    for (int i = 0; i < 24; i++)
        pass(p, i % 2);
    must(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0, "epoll_ctl");
    must(setsockopt(p[0], SOL_SOCKET, SO_RCVLOWAT, &few, sizeof(few)) == 0, "SO_RCVLOWAT");
    must(setsockopt(p[0], SOL_SOCKET, SO_RCVLOWAT, &usual, sizeof(usual)) == 0, "SO_RCVLOWAT");
    must(write(p[1], bytes, sizeof(bytes)) == sizeof(bytes), "write");
    while (told != round)
        must(others_run(begin), "it is told of");
    must(recv(p[0], bytes, 10, 0) == 10, "recv");
    freed = round;
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at);
    pthread_t t[2];

    ep = epoll_create1(0);
    for (int i = 0; i < 2; i++)
        must(pthread_create(&t[i], NULL, waits, NULL) == 0, "pthread_create");
    for (unsigned round = 1; round <= ROUNDS; round++)
        one(l, &at, round);
    over = true;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    printf("told of what was closed: %u\n", of_freed);
    return 0;
}
