/*
 * no_thread.c - a server that changes its user in the middle of a connection, and may have no
 * thread more from there on. It is woken by what its client sends and by its end all the same,
 * whatever it sleeps in; also after the limit has been lifted, and behind a filter, before which
 * its connection leaves. And one that may have none at first.
 */
#include "warm.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>

enum { USER = 54321, LIMIT_MS = 30000 };
enum how { POLL, POLL_TWO, SELECT, LEVEL, EDGE, NESTED, RECV, FILTER, FIRST, HOWS };

static const char *const names[HOWS] = {"poll",  "poll of two",    "select",
                                        "epoll", "epoll, edges",   "epoll in epoll",
                                        "recv",  "poll, filtered", "at first"};

static int other[2], ep, outer;

static void watches(enum how how, int fd)
{
    struct epoll_event ev = {.events = how == EDGE ? EPOLLIN | EPOLLRDHUP | EPOLLET : EPOLLIN};

    must(pipe(other) == 0, "pipe");
    ep = epoll_create1(0);
    outer = epoll_create1(0);
    must(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll_ctl");
    ev.events = EPOLLIN;
    must(epoll_ctl(outer, EPOLL_CTL_ADD, ep, &ev) == 0, "epoll_ctl");
}

/* Until there is something to be read. */
static int waits(enum how how, int fd)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = other[0], .events = POLLIN}};
    struct timeval tv = {LIMIT_MS / 1000, 0};
    struct epoll_event ev;
    fd_set set;

    switch (how) {
    case POLL:
    case FILTER:
    case POLL_TWO:
        return poll(p, how == POLL_TWO ? 2 : 1, LIMIT_MS);
    case SELECT:
        FD_ZERO(&set);
        FD_SET(fd, &set);
        FD_SET(other[0], &set);
        return select((fd > other[0] ? fd : other[0]) + 1, &set, NULL, NULL, &tv);
    case LEVEL:
    case EDGE:
        return epoll_wait(ep, &ev, 1, LIMIT_MS);
    case NESTED:
        return epoll_wait(outer, &ev, 1, LIMIT_MS);
    default:
        return 1;
    }
}

static void limit_threads(rlim_t soft)
{
    struct rlimit r = {soft, 1000};

    must(setrlimit(RLIMIT_NPROC, &r) == 0, "setrlimit");
}

/* For who is root a limit holds as another user without capabilities. */
static void change_user(void)
{
    must(getuid() ? setuid(getuid()) == 0 : setresuid(USER, USER, 0) == 0, "set user");
}

static void filter(void)
{
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog prog = {1, all};

    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
             prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0,
         "seccomp");
}

static bool answers(enum how how, int fd)
{
    char b[256];
    int woken = waits(how, fd);
    ssize_t n;

    if (woken != 1)
        printf("%s: woken by %d\n", names[how], woken);
    n = recv(fd, b, sizeof b, MSG_WAITALL);
    if (n <= 0)
        printf("%s: the end is %zd\n", names[how], n);
    return n > 0 && write(fd, b, (size_t)n) == n;
}

static void serve(enum how how, int l)
{
    int fd, lifted = 0;

    if (how == FIRST) { /* before: the rail's partner must own the socket */
        limit_threads(1);
        change_user();
    }
    fd = accept(l, NULL, NULL);
    watches(how, fd);
    if (how == FIRST) {
        for (int i = 0; i < 200; i++)
            echo(fd, 0);
        limit_threads(1000);
    }
    warms(names[how], fd);
    if (how != FIRST) {
        limit_threads(1);
        change_user();
    }
    while (answers(how, fd))
        if (++lifted == 3 && how == FILTER)
            filter();
        else if (lifted == 3)
            limit_threads(1000);
    close(fd);
    exit(0);
}

int main(void)
{
    struct sockaddr_in at;

    setvbuf(stdout, NULL, _IONBF, 0);
    for (enum how how = 0; how < HOWS; how++) {
        int l = listener(&at), fd, status;
        char end;
        pid_t pid = fork();

        if (pid == 0)
            serve(how, l);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "connect");
        asks(fd, 0, pid);
        asks(fd, 6, pid);
        shutdown(fd, SHUT_WR);
        printf("%s: %zd after all\n", names[how], read(fd, &end, 1));
        close(fd);
        close(l);
        must(waitpid(pid, &status, 0) == pid, "waitpid");
        printf("%s: status %d\n", names[how], status);
    }
    return 0;
}
