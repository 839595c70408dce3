/*
 * forked_in_a_wait.c - a handler that comes in a wait forks, and the child returns from it, into
 * the wait that its parent has begun. It is told EINTR there, as its parent is, and goes on.
 */
#include "rounds.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>

static pid_t child;

static void forks(int sig)
{
    (void)sig;
    child = fork();
}

static int p[2], before, after;

/* The second is the child's alone: what it has there its parent does not look for. */
static int side[2], trial[2];

static int in_poll(void)
{
    struct pollfd set[2] = {{p[0], POLLIN, 0}, {side[0], POLLIN, 0}};

    return poll(set, 2, 20000);
}

/* Nothing but a stream. */
static int in_poll_alone(void)
{
    return poll(&(struct pollfd){p[0], POLLIN, 0}, 1, 20000);
}

static int in_select(void)
{
    struct timeval limit = {.tv_sec = 20};
    fd_set set;

    FD_ZERO(&set);
    FD_SET(p[0], &set);
    FD_SET(side[0], &set);
    return select(1 + (p[0] > side[0] ? p[0] : side[0]), &set, NULL, NULL, &limit);
}

/* The stream has boarded for this one. */
static int in_epoll(void)
{
    struct epoll_event ev;

    return epoll_wait(before, &ev, 1, 20000);
}

/* It has not boarded for this one: its news come from elsewhere. */
static int in_second_epoll(void)
{
    struct epoll_event ev;

    return epoll_wait(after, &ev, 1, 20000);
}

static int in_recv(void)
{
    char b;

    return (int)recv(p[0], &b, 1, 0);
}

static void *sends_signal(void *arg)
{
    struct victim *v = arg;

    until_fast_asleep(v, 1);
    hit(v, SIGUSR1);
    return NULL;
}

static void wait_in(const char *name, int (*fn)(void))
{
    struct victim v = {.tid = (int)syscall(SYS_gettid)};
    int n, e, status = -1;
    char b = 0;
    pthread_t t;

    doing = name;
    child = -1;
    must(pthread_create(&t, NULL, sends_signal, &v) == 0, "pthread_create");
    n = fn();
    e = errno;
    if (child == 0) {
        bool good = n == -1 && e == EINTR && write(trial[1], "x", 1) == 1;

        /* What it has of its parent's it may use. */
        good = good && poll(&(struct pollfd){trial[0], POLLIN, 0}, 1, 20000) == 1;
        good = good && read(trial[0], &b, 1) == 1 && b == 'x';
        _exit(good ? 0 : 5);
    }
    v.returned = 1;
    pthread_join(t, NULL);
    must(child > 0 && waitpid(child, &status, 0) == child, "fork");
    printf("%s: %s in the parent, status %x of the child\n", name,
           n == -1 ? strerrorname_np(e) : "something", status);
}

int main(void)
{
    struct sigaction a = {.sa_handler = forks};
    struct epoll_event ev = {.events = EPOLLIN};
    struct sockaddr_in at;
    int l;

    start_deadline();
    sigaction(SIGUSR1, &a, NULL);
    must(pipe(side) == 0 && pipe(trial) == 0, "pipe");
    l = listener(&at);
    for (int i = 0; i < 6; i++) {
        static const char *const names[] = {"poll",  "poll of streams",  "select",
                                            "epoll", "the second epoll", "recv"};
        static int (*const ways[])(void) = {in_poll,  in_poll_alone,   in_select,
                                            in_epoll, in_second_epoll, in_recv};

        /* A child may use the stream: it is on TCP after that. So each has a new one. */
        pair_at(l, &at, p);
        before = epoll_create1(0);
        after = epoll_create1(0);
        must(epoll_ctl(before, EPOLL_CTL_ADD, p[0], &ev) == 0, "EPOLL_CTL_ADD");
        warm(p);
        must(epoll_ctl(after, EPOLL_CTL_ADD, p[0], &ev) == 0, "EPOLL_CTL_ADD");
        wait_in(names[i], ways[i]);
        close(before);
        close(after);
        close(p[0]);
        close(p[1]);
    }
    return 0;
}
