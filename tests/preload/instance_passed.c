/*
 * instance_passed.c - an epoll instance that a message takes to another process: that is told of
 * its connections what they were added with.
 */
#include "say.h"

#include <sys/epoll.h>
#include <sys/wait.h>

static void receives(int from)
{
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct epoll_event ev[4];
    int fd, n;

    must(recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m), "recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    n = epoll_wait(fd, ev, 4, -1);
    printf("%d: events %x, data %llu\n", n, n > 0 ? ev[0].events : 0,
           n > 0 ? (unsigned long long)ev[0].data.u64 : 0);
    fflush(stdout);
}

int main(void)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {(void *)"x", 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 77}, got;
    int by[2], p[2], instance, status;
    pid_t pid;

    alarm(120);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, by) == 0, "socketpair");
    pid = fork();
    if (pid == 0) {
        receives(by[1]);
        _exit(0);
    }
    tcp_pair(p);
    instance = epoll_create1(EPOLL_CLOEXEC);
    must(epoll_ctl(instance, EPOLL_CTL_ADD, p[1], &ev) == 0, "EPOLL_CTL_ADD");
    for (int i = 0; i < 200; i++) {
        must(write(p[0], "y", 1) == 1, "write");
        must(epoll_wait(instance, &got, 1, -1) == 1 && got.data.u64 == 77, "epoll_wait");
        must(read(p[1], &(char){0}, 1) == 1, "read");
    }
    CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(int));
    CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
    CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &instance, sizeof(instance));
    must(sendmsg(by[0], &m, 0) == 1, "sendmsg");
    must(write(p[0], "z", 1) == 1, "write");
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    printf("status %d\n", status);
    hear(p[1], "what came meanwhile");
    return 0;
}
