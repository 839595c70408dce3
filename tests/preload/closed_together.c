/*
 * closed_together.c - a thread closes epoll instances while another one closes the connections in
 * them: each is closed once, and what the next instances say is of their own.
 */
#include "pair.h"

#include <pthread.h>
#include <sys/epoll.h>

enum { ROUNDS = 300, PAIRS = 24, INSTANCES = 4 };

static int fds[PAIRS][2], instances[INSTANCES];
static pthread_barrier_t both;

static void *closes_instances(void *unused)
{
    (void)unused;
    for (int r = 0; r < ROUNDS; r++) {
        pthread_barrier_wait(&both);
        for (int i = 0; i < INSTANCES; i++)
            must(close(instances[i]) == 0, "close an instance");
        pthread_barrier_wait(&both);
    }
    return NULL;
}

static void add(int at, int fd, int n)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)n};

    must(epoll_ctl(at, EPOLL_CTL_ADD, fd, &ev) == 0, "EPOLL_CTL_ADD");
}

/* One that has come is told of, by the number that it was added with. */
static void tells(int n)
{
    struct epoll_event ev;

    must(write(fds[n][0], "x", 1) == 1, "write");
    for (int i = 0; i < INSTANCES; i++)
        must(epoll_wait(instances[i], &ev, 1, -1) == 1 && ev.data.u64 == (uint64_t)n &&
                 ev.events == EPOLLIN,
             "epoll_wait");
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at);
    pthread_t t;

    alarm(200);
    pthread_barrier_init(&both, NULL, 2);
    must(pthread_create(&t, NULL, closes_instances, NULL) == 0, "pthread_create");
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < INSTANCES; i++)
            instances[i] = epoll_create1(EPOLL_CLOEXEC);
        for (int n = 0; n < PAIRS; n++) {
            pair_at(l, &at, fds[n]);
            for (int i = 0; i < INSTANCES; i++)
                add(instances[i], fds[n][1], n);
        }
        tells(r % PAIRS);
        pthread_barrier_wait(&both);
        for (int n = 0; n < PAIRS; n++)
            must(close(fds[n][1]) == 0, "close a connection");
        pthread_barrier_wait(&both);
        for (int n = 0; n < PAIRS; n++)
            close(fds[n][0]);
    }
    pthread_join(t, NULL);
    puts("closed");
    return 0;
}
