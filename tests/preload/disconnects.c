/*
 * disconnects.c - connect(AF_UNSPEC) is a reset, for which nobody waits: not for a peer that is
 * stopped either, which finds what had come, and then the reset. The sockets connect anew.
 */
#include "say.h"

#include <signal.h>

enum { MANY = 20 };

static int fds[MANY], l;
static struct sockaddr_in at;

static void peer(void)
{
    int accepted[MANY], resets = 0;
    char byte;

    for (int i = 0; i < MANY; i++) {
        accepted[i] = accept(l, NULL, NULL);
        echo_words(accepted[i]);
    }
    for (int i = 0; i < MANY; i++)
        resets += read(accepted[i], &byte, 1) == -1 && errno == ECONNRESET;
    printf("%d resets\n", resets);
    fflush(stdout);
    for (int i = 0; i < MANY; i++)
        echo_words(accept(l, NULL, NULL));
    _exit(0);
}

static void connected(int fd)
{
    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    words_by_rail(fd);
}

int main(void)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    int status;
    pid_t pid;

    alarm(120);
    l = listener(&at);
    pid = fork();
    if (pid == 0)
        peer();
    for (int i = 0; i < MANY; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        connected(fds[i]);
    }
    must(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid, "stop");
    for (int i = 0; i < MANY; i++)
        must(connect(fds[i], &none, sizeof(none)) == 0, "disconnect");
    must(kill(pid, SIGCONT) == 0, "SIGCONT");
    for (int i = 0; i < MANY; i++) {
        must(connect(fds[i], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
        word(fds[i], '!');
    }
    ended(pid);
    return 0;
}
