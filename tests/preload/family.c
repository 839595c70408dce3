/*
 * family.c - a server's child forks a helper before it has used the connection, and the server
 * closes its copy: child and helper have it, and both write to it.
 */
#include "say.h"

enum { SIZE = 64, ROUNDS = 20000 };

static void whole(int fd, char *text)
{
    must(recv(fd, text, SIZE, MSG_WAITALL) == SIZE, "recv");
}

static void say(int fd, const char *words)
{
    char text[SIZE] = {0};

    snprintf(text, sizeof(text), "%s", words);
    must(write(fd, text, SIZE) == SIZE, "write");
}

static void client(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char text[SIZE];

    must(connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    for (int i = 0; i < ROUNDS; i++) {
        say(fd, "again");
        whole(fd, text);
    }
    say(fd, "the helper");
    whole(fd, text);
    puts(text);
    fflush(stdout);
    say(fd, "over");
    _exit(0);
}

/* Echoes, until the helper is to speak. */
static void child(int fd, int helper)
{
    char text[SIZE];

    for (;;) {
        whole(fd, text);
        if (strcmp(text, "over") == 0)
            _exit(0);
        if (strcmp(text, "the helper") == 0)
            must(write(helper, "", 1) == 1, "pipe");
        else
            say(fd, text);
    }
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at), fd, pipes[2];
    pid_t pids[2];
    char byte;

    pids[0] = fork();
    if (pids[0] == 0)
        client(&at);
    fd = accept(l, NULL, NULL);
    must(fd >= 0 && pipe(pipes) == 0, "accept");
    pids[1] = fork();
    if (pids[1] == 0) {
        if (fork() == 0) {
            if (read(pipes[0], &byte, 1) == 1)
                say(fd, "from the helper");
            _exit(0);
        }
        close(pipes[0]);
        child(fd, pipes[1]);
    }
    close(fd);
    close(pipes[1]);
    ended(pids[0]);
    ended(pids[1]);
    return 0;
}
