/*
 * many_users.c - a server whose clients are of many users (where it may make such) serves each
 * in epoll_wait, and then waits for each in poll, beside a pipe: it is told of what comes while
 * it sleeps there.
 */
#include "pair.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum { USERS = 12, FIRST_USER = 50000, ROUNDS = 2, LIMIT_S = 100 };

/* Begins when it is told to. */
static void client(const struct sockaddr_in *at, int turn, pid_t server)
{
    char c;
    int fd;

    must(read(turn, &c, 1) == 1, "turn");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    words_by_rail(fd);
    fflush(stdout);
    while (recv(fd, &c, 1, 0) == 1) {
        until_process_sleeps(server);
        must(write(fd, &c, 1) == 1, "answer");
    }
    _exit(0);
}

/* Sends back each word, up to one that begins with '!'. */
static void serve_one(int ep)
{
    struct epoll_event ev;
    char text[64];

    do {
        must(epoll_wait(ep, &ev, 1, -1) == 1, "epoll_wait");
        must(recv(ev.data.fd, text, sizeof(text), MSG_WAITALL) == sizeof(text) &&
                 write(ev.data.fd, text, sizeof(text)) == sizeof(text),
             "echo");
    } while (text[0] != '!');
}

int main(void)
{
    int fd[USERS], turn[USERS][2], never[2], ep;
    struct sockaddr_in at;
    int l = listener(&at);
    pid_t server = getpid();

    alarm(LIMIT_S);
    must(pipe(never) == 0, "pipe");
    for (int i = 0; i < USERS; i++) {
        must(pipe(turn[i]) == 0, "pipe");
        if (fork() == 0) {
            must(geteuid() || setresuid(FIRST_USER + i, FIRST_USER + i, FIRST_USER + i) == 0,
                 "user");
            client(&at, turn[i][0], server);
        }
    }
    ep = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < USERS; i++) {
        struct epoll_event ev = {.events = EPOLLIN};

        must(write(turn[i][1], "t", 1) == 1, "turn");
        fd[i] = ev.data.fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);
        must(epoll_ctl(ep, EPOLL_CTL_ADD, fd[i], &ev) == 0, "epoll_ctl");
        serve_one(ep);
    }
    for (int i = 0; i < ROUNDS * USERS; i++) {
        struct pollfd p[] = {{fd[i % USERS], POLLIN, 0}, {never[0], POLLIN, 0}};
        char c = 'a';

        must(write(p[0].fd, &c, 1) == 1, "question");
        must(poll(p, 2, -1) == 1 && recv(p[0].fd, &c, 1, 0) == 1, "answer");
    }
    for (int i = 0; i < USERS; i++)
        close(fd[i]);
    while (wait(NULL) > 0)
        ;
    puts("served");
    return 0;
}
