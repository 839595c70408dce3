/*
 * heirs_at_once.c - a server that forks for each of many connections, and closes its own number of
 * it, whose clients come at one time: a client may ask for a rail in the very moment in which the
 * parent has closed its number. Each gets to its child all the same.
 */
#include "warm.h"

#include <sys/wait.h>

enum { CLIENTS = 24 };

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at), answered = 0, served = 0, status;

    alarm(250);
    for (int i = 0; i < CLIENTS; i++) {
        pid_t pid = fork();

        must(pid >= 0, "fork");
        if (pid == 0) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);

            close(l);
            must(connect(fd, (void *)&at, sizeof at) == 0, "connect");
            asks(fd, 0, 0);
            close(fd);
            fflush(stdout);
            _exit(3);
        }
    }
    for (int i = 0; i < CLIENTS; i++) {
        int fd = accept(l, NULL, NULL);
        pid_t pid;

        must(fd >= 0, "accept");
        echo(fd, 0); /* the parent has used it, and it is about to board */
        pid = fork();
        must(pid >= 0, "fork");
        if (pid == 0) {
            close(l);
            warms("a child", fd);
            close(fd);
            fflush(stdout);
            _exit(4);
        }
        close(fd);
    }
    while (wait(&status) > 0) {
        answered += WIFEXITED(status) && WEXITSTATUS(status) == 3;
        served += WIFEXITED(status) && WEXITSTATUS(status) == 4;
    }
    printf("%d answered, %d served\n", answered, served);
    return 0;
}
