/*
 * no_bytes.c - sends of no bytes: writev's are no call on the socket, and all others fail on one
 * that is shut, also where what was sent before is still on its way.
 */
#include "pair.h"

#include <signal.h>
#include <sys/uio.h>

static void none(int fd)
{
    struct iovec v[3] = {{NULL, 0}, {(void *)"", 0}, {NULL, 0}};

    SHOW(writev(fd, v, 3));
    SHOW(writev(fd, v, 1));
    SHOW(writev(fd, NULL, 0));
    SHOW(pwritev2(fd, v, 2, -1, 0));
    SHOW(write(fd, "", 0));
    SHOW(send(fd, "", 0, MSG_NOSIGNAL));
    SHOW(send(fd, "", 0, MSG_DONTWAIT));
}

static void fill(int fd)
{
    static char bytes[100000];

    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
    must(errno == EAGAIN, "fill");
}

int main(void)
{
    int p[2];

    signal(SIGPIPE, SIG_IGN);
    for (int full = 0; full < 2; full++) {
        tcp_pair(p);
        on_rail(p);
        printf("-- %s\n", full ? "full" : "with room");
        none(p[0]);
        if (full)
            fill(p[0]);
        must(shutdown(p[0], SHUT_WR) == 0, "shutdown");
        none(p[0]);
        SHOW(pwritev2(p[0], &(struct iovec){(void *)"", 0}, 1, -1, RWF_NOWAIT));
        close(p[0]);
        close(p[1]);
    }
    return 0;
}
