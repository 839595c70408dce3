/*
 * writable.c - when bytes can be sent, by poll, select and epoll: with so much room that a small
 * write is taken whole, which servers with blocking sockets rely on; and who waits for room, is
 * told of it, whatever small steps the receiver takes.
 */
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum way { POLL, SELECT, LEVEL, EDGE, WAYS };
enum { MESSAGE = 2048, STEP = 600, MESSAGES = 400, LIMIT_MS = 20000 };
static const char *const names[WAYS] = {"poll", "select", "epoll", "edges"};

static char bytes[MESSAGE];

static bool told(enum way way, int fd, int ep, int limit_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    struct epoll_event ev;
    struct timeval limit = {limit_ms / 1000, 0};
    fd_set set;

    switch (way) {
    case POLL:
        return poll(&p, 1, limit_ms) == 1;
    case SELECT:
        FD_ZERO(&set);
        FD_SET(fd, &set);
        return select(fd + 1, NULL, &set, NULL, &limit) == 1;
    default:
        return epoll_wait(ep, &ev, 1, limit_ms) == 1 && ev.events & EPOLLOUT;
    }
}

/* From p[0], as the way says that it can; p[1] takes a step when it does not. An edge says so once,
 * until a send has found no room. */
static void all_messages(enum way way, int p[2], int ep)
{
    unsigned sent = 0, short_ones = 0;
    time_t begin = time(NULL);
    char step[STEP];
    bool can = false;

    while (sent < MESSAGES) {
        ssize_t n = 0;

        can = (way == EDGE && can) || told(way, p[0], ep, 0);
        if (can) {
            n = send(p[0], bytes, MESSAGE, MSG_DONTWAIT);
            must(n > 0 || errno == EAGAIN, "send");
            can = n == MESSAGE;
            short_ones += n != MESSAGE && way != EDGE;
            sent += n > 0;
            continue;
        }
        n = recv(p[1], step, sizeof(step), MSG_DONTWAIT);
        if (n > 0)
            begin = time(NULL);
        else if (!others_run(begin)) /* all has been read */
            break;
    }
    printf("%s: %s, %u were not taken whole\n", names[way],
           sent == MESSAGES ? "all" : "not told of room", short_ones);
    while (recv(p[1], step, sizeof(step), MSG_DONTWAIT) > 0)
        ;
}

static _Atomic bool over;

static void *reads_on(void *arg)
{
    char step[STEP];

    while (!over)
        if (recv(*(int *)arg, step, sizeof(step), MSG_DONTWAIT) < 0)
            sched_yield();
    return NULL;
}

/* The same by a writer that sleeps until it is told. */
static void sleeping(enum way way, int p[2], int ep)
{
    unsigned sent = 0;
    bool can = true;
    pthread_t t;

    over = false;
    must(pthread_create(&t, NULL, reads_on, &p[1]) == 0, "pthread_create");
    while (sent < 10 * MESSAGES && (can || told(way, p[0], ep, LIMIT_MS))) {
        ssize_t n = send(p[0], bytes, MESSAGE, MSG_DONTWAIT);

        must(n > 0 || errno == EAGAIN, "send");
        can = n == MESSAGE;
        sent += n > 0;
    }
    printf("%s, sleeping: %s\n", names[way], sent == 10 * MESSAGES ? "all" : "not told of room");
    over = true;
    pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (!getenv("RAILSOCK_STALL")) { /* else TCP's room ends it */
        setenv("RAILSOCK_STALL", "0", 1);
        execv("/proc/self/exe", argv);
    }
    for (int i = 0; i < WAYS; i++) {
        struct epoll_event ev = {.events = EPOLLOUT | (i == EDGE ? (unsigned)EPOLLET : 0)};
        int small = 65536, ep = epoll_create1(0), p[2];

        tcp_pair(p);
        /* So that TCP fills up as well. */
        setsockopt(p[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
        on_rail(p);
        must(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0, "epoll_ctl");
        all_messages((enum way)i, p, ep);
        sleeping((enum way)i, p, ep);
        close(p[0]);
        close(p[1]);
        close(ep);
    }
    return 0;
}
