/*
 * disconnects.c - connect(AF_UNSPEC) is a reset, for which nobody waits: not for a peer that is stopped either, which finds what had
 * come, and then the reset. The sockets connect anew.
 */
#include "say.h"

#include <signal.h>

enum { MANY = 20 };

static int fds[MANY], l;
static struct sockaddr_in at;

static void echo(int fd)
{
    char text[64];

    do
        must(recv(fd, text, sizeof(text), MSG_WAITALL) == sizeof(text) &&
                 write(fd, text, sizeof(text)) == sizeof(text),
             "echo");
    while (text[0] != '!');
}

static void peer(void)
{
    int accepted[MANY], resets = 0;
    char byte;

    for (int i = 0; i < MANY; i++) {
        accepted[i] = accept(l, NULL, NULL);
        echo(accepted[i]);
    }
    for (int i = 0; i < MANY; i++)
        resets += read(accepted[i], &byte, 1) == -1 && errno == ECONNRESET;
    printf("%d resets\n", resets);
    fflush(stdout);
    for (int i = 0; i < MANY; i++)
        echo(accept(l, NULL, NULL));
    _exit(0);
}

static void word(int fd, char first)
{
    char text[64] = {first};

    must(write(fd, text, sizeof(text)) == sizeof(text) &&
             recv(fd, text, sizeof(text), MSG_WAITALL) == sizeof(text) && text[0] == first,
         "word");
}

static void connected(int fd)
{
    time_t begin = time(NULL);
    bool tcp = true;

    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    for (int i = 0; i < 20 || (mode_rail() && tcp && others_run(begin)); i++) {
        unsigned long long to = tcp_sent(fd), from = tcp_received(fd);

        word(fd, '.');
        tcp = tcp_sent(fd) != to || tcp_received(fd) != from;
    }
    word(fd, '!');
    if (mode_rail() && tcp)
        puts("it is not on a rail");
}

int main(void)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    int status;
    pid_t pid;

    alarm(80);
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
