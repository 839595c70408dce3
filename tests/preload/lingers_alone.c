/*
 * lingers_alone.c - SO_LINGER of a connection that some program may have got, and none has: what
 * else the process has goes on while what is left of that one goes.
 */
#include "pair.h"

#include <pthread.h>

static int q[2];

static int unsent(int fd)
{
    int n = 0;

    must(ioctl(fd, SIOCOUTQ, &n) == 0, "SIOCOUTQ");
    return n;
}

static void *waits(void *unused)
{
    char byte;

    (void)unused;
    printf("the end is %zd\n", recv(q[0], &byte, 1, 0));
    return NULL;
}

int main(void)
{
    struct linger l = {1, mode_rail() ? 100 : 1}; /* TCP's close waits for it */
    static char bytes[65536];
    int p[2];
    pthread_t t;

    tcp_pair(p);
    on_rail(p);
    tcp_pair(q);
    on_rail(q);
    must(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &l, sizeof(l)) == 0, "SO_LINGER");
    must(system(":") == 0, "system");
    while (send(p[0], bytes, sizeof(bytes), MSG_DONTWAIT) > 0 || (unsent(p[0]) == 0 && mode_rail()))
        ;
    must(pthread_create(&t, NULL, waits, NULL) == 0, "thread");
    close(p[0]);
    alarm(50);
    close(q[1]);
    must(pthread_join(t, NULL) == 0, "join");
    return 0;
}
