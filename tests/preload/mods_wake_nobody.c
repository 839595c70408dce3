/*
 * mods_wake_nobody.c - EPOLL_CTL_MOD of connections on which there is nothing, while another thread
 * sleeps in epoll_wait: it goes on sleeping, and hears of what comes then.
 */
#include "pair.h"

#include "../asleep.h"

#include <pthread.h>
#include <sys/epoll.h>

enum { TIMES = 50 };

static _Atomic int sleeper;
static int ep;

static void *waits(void *unused)
{
    struct epoll_event got;

    (void)unused;
    sleeper = gettid();
    printf("%d event\n", epoll_wait(ep, &got, 1, -1));
    return NULL;
}

/* How often that thread has gone to sleep. */
static unsigned long sleeps(void)
{
    char path[64], line[128];
    unsigned long n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/status", sleeper);
    f = fopen(path, "r");
    must(f != NULL, path);
    while (fgets(line, sizeof(line), f))
        sscanf(line, "voluntary_ctxt_switches: %lu", &n);
    fclose(f);
    return n;
}

static void one(uint32_t flags)
{
    struct epoll_event ev = {.events = EPOLLIN | flags};
    unsigned long before;
    pthread_t t;
    int p[2];

    tcp_pair(p);
    on_rail(p);
    ep = epoll_create1(0);
    sleeper = 0;
    must(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0, "ADD");
    must(pthread_create(&t, NULL, waits, NULL) == 0, "thread");
    until_it_sleeps(&sleeper);
    before = sleeps();
    for (int i = 0; i < TIMES; i++) {
        must(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &ev) == 0, "MOD");
        until_it_sleeps(&sleeper); /* who is woken runs from that moment */
    }
    printf("%s\n", sleeps() - before < TIMES / 5 ? "slept" : "was woken again and again");
    must(send(p[1], "x", 1, 0) == 1 && pthread_join(t, NULL) == 0, "join");
    close(ep);
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    alarm(60);
    for (int i = 0; i < 5; i++) {
        one(0);
        one(EPOLLET);
        one(EPOLLONESHOT);
        one(EPOLLET | EPOLLONESHOT);
    }
    return 0;
}
