/*
 * only_numbers.c - a forked child that does to its parent's numbers what concerns numbers alone, as
 * programs do before they execute another: the parent keeps its connections where they are, and the
 * epoll instance that waits for them.
 */
#include "say.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>

enum { PAIRS = 4, NUMBERS = 64 };

static int p[PAIRS][2], instance;

static void child(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 3; fd < NUMBERS; fd++) {
        int flags = fcntl(fd, F_GETFD), how = fcntl(fd, F_GETFL);

        if (flags < 0)
            continue;
        must(fcntl(fd, F_SETFD, flags | FD_CLOEXEC) == 0 && how >= 0, "F_SETFD");
        must(ioctl(fd, FIONCLEX) == 0 && fcntl(fd, F_GETFD) == 0, "FIONCLEX");
        must(ioctl(fd, FIOCLEX) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC, "FIOCLEX");
        must(syscall(SYS_fcntl, fd, F_GETFD) == FD_CLOEXEC, "SYS_fcntl");
        must(dup2(fd, fd) == fd, "dup2 of itself");
    }
    must(dup2(NUMBERS, p[0][0]) == -1 && errno == EBADF, "dup2 of nothing");
    must(dup2(null, p[0][0]) == p[0][0] && dup3(null, p[0][1], O_CLOEXEC) == p[0][1], "dup2");
    must(write(p[0][0], "to nobody", 9) == 9, "write");
    must(syscall(SYS_dup3, null, p[1][0], 0) == p[1][0], "SYS_dup3");
    must(syscall(SYS_close, p[1][1]) == 0 && is_closed(p[1][1]), "SYS_close");
    must(dup2(null, instance) == instance, "dup2 over the instance");
    close(p[2][0]);
    _exit(0);
}

/* By the same way as before, which only a connection on a rail has. */
static void still_there(int i, const char *who)
{
    struct epoll_event ev;
    char bytes[64];

    for (int j = 0; j < 2; j++) {
        unsigned long long before = tcp_sent(p[i][j]);

        must(write(p[i][j], "still there", 11) == 11, "write");
        if (j == 0)
            must(epoll_wait(instance, &ev, 1, 10000) == 1 && ev.data.fd == p[i][1], "epoll_wait");
        must(recv(p[i][!j], bytes, 11, MSG_WAITALL) == 11, "recv");
        if (mode_rail() && tcp_sent(p[i][j]) != before)
            printf("%s: direction %d of %d is not on its rail\n", who, j, i);
    }
}

int main(void)
{
    pid_t pid;

    instance = epoll_create1(0);
    for (int i = 0; i < PAIRS; i++) {
        struct epoll_event ev = {.events = EPOLLIN};

        tcp_pair(p[i]);
        ev.data.fd = p[i][1];
        must(epoll_ctl(instance, EPOLL_CTL_ADD, p[i][1], &ev) == 0, "epoll_ctl");
        on_rail(p[i]);
    }
    fflush(stdout);
    for (int i = 0; i < PAIRS; i++)
        still_there(i, "before");
    pid = fork();
    if (pid == 0)
        child();
    ended(pid);
    for (int i = 0; i < PAIRS; i++)
        still_there(i, "after");
    return 0;
}
