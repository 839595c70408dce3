/*
 * no_number_to_share.c - a connection that is served in epoll_wait is waited for in poll, for the
 * first time while the process has all the descriptors that it may have, and then when it has not:
 * it is told of what comes while it sleeps there.
 */
#include "../asleep.h"
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>

enum { MOST = 1024, LIMIT_S = 60 };

static _Atomic int waiting;
static int p[2], ep, never[2];

/* The other end: a byte when the main thread sleeps. */
static void *answers(void *unused)
{
    char c;

    (void)unused;
    while (recv(p[1], &c, 1, 0) == 1) {
        until_it_sleeps(&waiting);
        must(write(p[1], &c, 1) == 1, "answer");
    }
    return NULL;
}

static void waits(const char *when)
{
    struct pollfd in[] = {{p[0], POLLIN, 0}, {never[0], POLLIN, 0}};
    char c = 'a';

    must(write(p[0], &c, 1) == 1, "question");
    waiting = gettid();
    printf("%s: %d\n", when, poll(in, 2, -1));
    must(recv(p[0], &c, 1, 0) == 1, "recv");
    waiting = 0;
}

int main(void)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct rlimit limit = {MOST, MOST};
    struct sockaddr_in at;
    int l = listener(&at), made[MOST], n = 0;
    pthread_t t;

    alarm(LIMIT_S);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    must(pipe(never) == 0, "pipe");
    ep = epoll_create1(0);
    pair_at(l, &at, p);
    must(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0, "epoll_ctl");
    warm(p);
    on_rail(p);
    must(pthread_create(&t, NULL, answers, NULL) == 0, "pthread_create");
    while ((made[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    waits("without descriptors");
    while (n > 0)
        close(made[--n]);
    waits("with them");
    shutdown(p[0], SHUT_WR);
    pthread_join(t, NULL);
    return 0;
}
