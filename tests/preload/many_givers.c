/*
 * many_givers.c - a receiver to which one short-lived process after the other passes a
 * connection that it has accepted: what the receiver has looked at to learn of whom it is, it
 * has no longer than they last.
 */
#include "say.h"

#include <stddef.h>
#include <sys/un.h>

enum { GIVERS = 150, MOST = 100, EXCHANGES = 3 };

union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
};

static struct sockaddr_in at;
static int accepts;

/* A name that nobody else has, and is none in any folder. */
static struct sockaddr_un over = {.sun_family = AF_UNIX};
static const socklen_t over_len = offsetof(struct sockaddr_un, sun_path) + 32;

static int passes_over(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(over.sun_path + 1, 31, "many_givers.%d", getpid());
    must(bind(fd, (struct sockaddr *)&over, over_len) == 0 && listen(fd, 8) == 0, "unix");
    return fd;
}

/* It stays until the other has it. */
static void giver(void)
{
    int fd = accept(accepts, NULL, NULL), way = socket(AF_UNIX, SOCK_STREAM, 0);
    union control control = {0};
    char byte = 'x';
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};

    must(fd >= 0 && connect(way, (struct sockaddr *)&over, over_len) == 0, "to the receiver");
    control.head = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    must(sendmsg(way, &m, 0) == 1 && close(fd) == 0, "sendmsg");
    must(read(way, &byte, 1) == 1, "taken");
    exit(0);
}

static int take(int l)
{
    int way = accept(l, NULL, NULL), fd;
    union control control = {0};
    char byte;
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};

    must(recvmsg(way, &m, 0) == 1 && control.head.cmsg_type == SCM_RIGHTS, "recvmsg");
    memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    must(write(way, "", 1) == 1 && close(way) == 0, "taken");
    return fd;
}

/* The other end of the connections is its own. */
static void receiver(int l)
{
    time_t begin;

    for (int i = 0; i < GIVERS; i++) {
        int p[2] = {socket(AF_INET, SOCK_STREAM, 0), -1};

        must(connect(p[0], (struct sockaddr *)&at, sizeof at) == 0, "connect");
        p[1] = take(l);
        for (int j = 0; j < EXCHANGES; j++) {
            pass(p, 0);
            pass(p, 1);
        }
        close(p[1]);
        close(p[0]);
    }
    for (begin = time(NULL); mapped_lines("railsock") >= MOST && others_run(begin);)
        ;
    printf("few mappings: %s\n", mapped_lines("railsock") < MOST ? "yes" : "no");
    exit(0);
}

int main(void)
{
    int good = 0, status, l;
    pid_t pid;

    accepts = listener(&at);
    l = passes_over();
    pid = fork();
    if (pid == 0)
        receiver(l);
    for (int i = 0; i < GIVERS; i++) {
        pid_t gives = fork();

        if (gives == 0)
            giver();
        must(waitpid(gives, &status, 0) == gives, "waitpid");
        good += status == 0;
    }
    ended(pid);
    printf("givers that have ended well: %d\n", good);
    return 0;
}
