/*
 * forks_in_handler.c - a server that waits in select or poll, and forks in a handler that comes
 * there; the child never returns from it (PostgreSQL before 16 begins its background workers in
 * this way). Its connections board as any other's.
 */
#include "say.h"

#include <poll.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/wait.h>

static void child(void)
{
    int p[2];

    tcp_pair(p);
    on_rail(p);
    talk(p, "in the child    ");
    fflush(stdout);
    _exit(0);
}

static void handler(int sig)
{
    pid_t pid;
    int status;

    (void)sig;
    fflush(stdout);
    pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0)
        child();
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    printf("status %d\n", status);
}

int main(void)
{
    struct sigaction a = {.sa_handler = handler};
    struct timespec soon = {5, 0};
    struct sockaddr_in at;
    sigset_t blocked, before;
    struct pollfd one = {.events = POLLIN};
    fd_set set;
    int p[2];

    tcp_pair(p);
    on_rail(p);
    one.fd = listener(&at);
    must(sigaction(SIGUSR1, &a, NULL) == 0, "sigaction");
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    raise(SIGUSR1);
    FD_ZERO(&set);
    FD_SET(one.fd, &set);
    SHOW(pselect(one.fd + 1, &set, NULL, NULL, &soon, &before));
    raise(SIGUSR1);
    SHOW(ppoll(&one, 1, &soon, &before));
    raise(SIGUSR1);
    one.fd = p[0];
    SHOW(ppoll(&one, 1, &soon, &before));
    return 0;
}
