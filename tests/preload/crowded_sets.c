/*
 * crowded_sets.c - poll with as many descriptors as the process may have, which is as many as the
 * kernel takes: with places that are free, and with none.
 */
#include "say.h"

#include "../asleep.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>

enum { MOST = 600 };

static int p[2];
static _Atomic int poller;
/* Not known to be poll: the compiler would look at the size of what is given. */
static int (*volatile asks)(struct pollfd *, nfds_t, int) = poll;

static void *later(void *byte)
{
    until_it_sleeps(&poller); /* or nearly: then it finds the byte there */
    must(write(p[1], byte, 1) == 1, "write");
    return NULL;
}

static void sleep_on(const char *what, struct pollfd *set, int timeout)
{
    pthread_t t;
    char byte = 'x';

    if (timeout < 0)
        must(pthread_create(&t, NULL, later, &byte) == 0, "thread");
    printf("%s: ", what);
    SHOW(poll(set, MOST, timeout));
    if (timeout < 0) {
        pthread_join(t, NULL);
        printf("%#x\n", (unsigned)set[MOST - 1].revents);
        hear(p[0], "it");
    }
}

/* Below 512 the library has no number with which it could be woken: there are no rails then, and it
 * sleeps all the same. */
static void with_few_numbers(void)
{
    struct rlimit limit = {400, 400};
    struct rusage before, after;
    struct pollfd set = {.events = POLLIN};
    pid_t pid = fork();

    if (pid == 0) {
        must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
        set.fd = epoll_create1(0);
        getrusage(RUSAGE_THREAD, &before);
        must(poll(&set, 1, 300) == 0, "poll");
        getrusage(RUSAGE_THREAD, &after);
        printf("%s\n",
               after.ru_nvcsw - before.ru_nvcsw < 30 ? "it sleeps" : "it wakes again and again");
        fflush(stdout);
        _exit(0);
    }
    ended(pid);
}

int main(void)
{
    struct rlimit limit = {MOST, MOST};
    struct pollfd set[MOST + 1];
    int quiet[2], epoll;

    poller = gettid();
    with_few_numbers();
    tcp_pair(p);
    must(pipe(quiet) == 0, "pipe");
    epoll = epoll_create1(0);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    for (int full = 0; full < 2; full++) {
        for (int i = 0; i < MOST; i++)
            set[i] = (struct pollfd){.fd = full ? quiet[0] : -1, .events = POLLIN};
        set[MOST - 2].fd = epoll;
        sleep_on(full ? "all are" : "most are none", set, 20);
        set[MOST - 1].fd = p[0];
        sleep_on("with a connection", set, 20);
        sleep_on("which gets a byte", set, -1);
    }
    SHOW(poll(set, MOST + 1, 0));
    SHOW(asks(set, 1000000,
              0)); /* as who takes a limit of before for granted: it is not looked at */
    return 0;
}
