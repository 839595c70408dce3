/*
 * instance_before_fork.c - a child that has its parent's epoll instance by inheritance, and does
 * not use it: the parent's numbers in it are not the child's, whose own connection boards though it
 * has the same one.
 */
#include "pair.h"

#include <sys/epoll.h>
#include <sys/wait.h>

int main(void)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct sockaddr_in at;
    int l = listener(&at), ep = epoll_create1(0), fd, status;
    pid_t child;

    must(ep >= 0, "epoll_create1");
    child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
        words_by_rail(fd);
        printf("in the child it has the number %d\n", fd);
        fflush(stdout);
        _exit(0);
    }
    fd = accept(l, NULL, NULL);
    must(fd >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll_ctl");
    echo_words(fd);
    must(waitpid(child, &status, 0) == child, "waitpid");
    printf("in the parent %d; status %d, told of its end %d\n", fd, status,
           epoll_wait(ep, &ev, 1, 5000));
    return 0;
}
