/*
 * outq.c - SIOCOUTQ is what the peer's kernel does not have: nothing once it is there, read or not;
 * something where more was sent than anybody takes.
 */
#include "pair.h"

static int queued(int fd)
{
    int n = -1;

    must(ioctl(fd, SIOCOUTQ, &n) == 0, "SIOCOUTQ");
    return n;
}

static void until_empty(int fd)
{
    time_t begin = time(NULL);

    while (queued(fd) > 0 && others_run(begin))
        ;
    printf("%d in the queue\n", queued(fd));
}

int main(void)
{
    static char much[1 << 20];
    ssize_t n, sent = 0;
    int p[2];

    alarm(120);
    tcp_pair(p);
    SHOW(write(p[0], "0123456789", 10));
    until_empty(p[0]);
    while ((n = send(p[0], much, sizeof(much), MSG_DONTWAIT)) > 0)
        sent += n;
    printf("full: %s, something is in the queue: %d\n", strerrorname_np(errno), queued(p[0]) > 0);
    for (sent += 10; sent > 0; sent -= n)
        must((n = read(p[1], much, sizeof(much))) > 0, "read");
    until_empty(p[0]);
    return 0;
}
