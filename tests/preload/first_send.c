/*
 * first_send.c - the first send after the peer has closed and ended is taken, and what comes after
 * it is not: the stream was on its way back from a rail when that was.
 */
#include "pair.h"

#include <sys/wait.h>

/* More than a ring has, and it is not read before its sender has left. */
enum { BYTES = 700000 };

static void server(int l)
{
    static char bytes[BYTES];
    int fd = accept(l, NULL, NULL);

    must(fd >= 0, "accept");
    echo_words(fd);
    must(send(fd, bytes, sizeof(bytes), 0) == sizeof(bytes), "send");
    close(fd);
    _exit(0);
}

static void once(void)
{
    static char bytes[BYTES];
    struct sockaddr_in at;
    int l = listener(&at), fd;
    pid_t child = fork();

    must(child >= 0, "fork");
    if (child == 0)
        server(l);
    close(l);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    words_by_rail(fd);
    must(waitpid(child, NULL, 0) == child, "waitpid");
    must(recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "recv");
    SHOW(send(fd, bytes, 100, 0));
    SHOW(recv(fd, bytes, 100, 0));
    SHOW(send(fd, bytes, 100, MSG_NOSIGNAL));
    SHOW(recv(fd, bytes, 100, 0));
    close(fd);
}

int main(void)
{
    alarm(60);
    for (int i = 0; i < 4; i++)
        once();
    return 0;
}
