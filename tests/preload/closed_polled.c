/*
 * closed_polled.c - a number that another thread closes while one sleeps in poll or select on it,
 * with a time-out that is long: the peer goes on, and that ends the sleep.
 */
#include "rounds.h"

#include <poll.h>
#include <sys/select.h>

static int fd;
static short events;
static struct victim sleeper;

static void *polls(void *unused)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n;

    sleeper.tid = gettid();
    n = poll(&p, 1, 100000);
    sleeper.returned = 1;
    printf("poll %d, revents %#x\n", n, (unsigned)p.revents);
    return unused;
}

static void *selects(void *unused)
{
    struct timeval limit = {100, 0};
    fd_set set;
    int n;

    FD_ZERO(&set);
    FD_SET(fd, &set);
    sleeper.tid = gettid();
    n = select(fd + 1, events == POLLIN ? &set : NULL, events == POLLOUT ? &set : NULL, NULL,
               &limit);
    sleeper.returned = 1;
    printf("select %d, %sset\n", n, FD_ISSET(fd, &set) ? "" : "not ");
    return unused;
}

/* Not for a lock, nor a moment's pause: for descriptors, or for the words of rails. */
static bool in_a_wait(int tid)
{
    char text[512];
    unsigned long of[3];

    if (!proc_says(tid, "syscall", text, sizeof(text)))
        return state_of(tid) == 'S'; /* a kernel that does not tell */
    if (sscanf(text, "%lu %lx %lx", &of[0], &of[1], &of[2]) != 3)
        return false; /* "running" */
    switch (of[0]) {
#ifdef SYS_poll
    case SYS_poll:
    case SYS_select:
#endif
    case SYS_pselect6:
    case SYS_futex_waitv:
        return true;
    case SYS_ppoll:
        return of[2] > 0;
    default:
        return false;
    }
}

static void until_in_a_wait(const struct victim *v)
{
    while (!v->tid || (!v->returned && !in_a_wait(v->tid)))
        sched_yield();
}

/* Until no more goes in, also when the stream has left its rail for that. */
static void fill(int to)
{
    struct pollfd p = {.fd = to, .events = POLLOUT};
    char bytes[16384] = "";

    do
        while (send(to, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
            ;
    while (poll(&p, 1, 300) == 1);
}

static void closes(void *(*sleeps)(void *), short for_what)
{
    char bytes[16384] = "";
    pthread_t t;
    ssize_t n;
    int p[2];

    tcp_pair(p);
    fd = p[0];
    events = for_what;
    if (events == POLLOUT)
        fill(fd);
    sleeper.tid = 0;
    sleeper.returned = 0;
    pthread_create(&t, NULL, sleeps, NULL);
    until_in_a_wait(&sleeper);
    close(fd);
    if (events == POLLIN)
        send(p[1], bytes, 1, MSG_NOSIGNAL);
    else
        while ((n = recv(p[1], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0 ||
               (n < 0 && errno == EAGAIN))
            ;
    pthread_join(t, NULL);
    close(p[1]);
}

int main(void)
{
    alarm(60);
    for (int i = 0; i < 2; i++) {
        closes(polls, i ? POLLIN : POLLOUT);
        closes(selects, i ? POLLIN : POLLOUT);
    }
    return 0;
}
