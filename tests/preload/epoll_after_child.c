/*
 * epoll_after_child.c - an epoll instance that a child has used stays the kernel's, and its
 * connections on TCP. The next instances of the parent are none of the child's, however many there
 * have been: a connection in one of them boards as any other.
 */
#include "say.h"

#include <sys/epoll.h>

enum { INSTANCES = 40 };

static struct sockaddr_in at;
static int l;

static void peer(void)
{
    echo_words(accept(l, NULL, NULL));
    _exit(0);
}

/* An instance that a child asks something, and that its parent closes before or after that. */
static void used_by_a_child(bool late)
{
    int ep = epoll_create1(0), way[2];
    struct epoll_event in = {.events = EPOLLIN};
    char byte = 0;
    pid_t pid;
    int status;

    must(ep >= 0 && pipe(way) == 0, "epoll_create1, pipe");
    pid = fork();
    if (pid == 0)
        _exit(read(way[0], &byte, 1) != 1 || epoll_ctl(ep, EPOLL_CTL_ADD, way[0], &in) != 0);
    if (late)
        close(ep);
    must(write(way[1], &byte, 1) == 1, "write");
    must(waitpid(pid, &status, 0) == pid && status == 0, "child");
    if (!late)
        close(ep);
    close(way[0]);
    close(way[1]);
}

static void it_boards(void)
{
    struct epoll_event in = {.events = EPOLLIN};
    int ep, fd;
    pid_t pid = fork();

    if (pid == 0)
        peer();
    ep = epoll_create1(EPOLL_CLOEXEC);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &in));
    words_by_rail(fd);
    ended(pid);
    close(fd);
    close(ep);
}

int main(void)
{
    alarm(120);
    l = listener(&at);
    it_boards();
    used_by_a_child(false);
    it_boards();
    for (int i = 0; i < INSTANCES; i++)
        used_by_a_child(false);
    it_boards();
    for (int i = 0; i < INSTANCES; i++)
        used_by_a_child(true);
    it_boards();
    return 0;
}
