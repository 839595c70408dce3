/*
 * wild.c - pointers to nothing: the kernel says EFAULT. In a program without a connection all of
 * them are its own; of options and addresses they are on a rail, too.
 */
#include "pair.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/select.h>

static void *none;

static void without_a_connection(void)
{
    int s[2];

    SHOW(poll(none, 1, 0));
    SHOW(ppoll(none, 1, NULL, NULL));
    SHOW(select(10, none, NULL, NULL, NULL));
    SHOW(pselect(10, none, NULL, NULL, NULL, NULL));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0, "socketpair");
    SHOW(sendmsg(s[0], none, 0));
    SHOW(sendmmsg(s[0], none, 1, 0));
    SHOW(recvmsg(s[0], none, 0));
    close(s[0]);
    close(s[1]);
}

static void options(int fd)
{
    socklen_t len = 64;
    char zc[64] = {0};

    SHOW(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, none, sizeof(int)));
    SHOW(setsockopt(fd, IPPROTO_TCP, TCP_CORK, none, sizeof(int)));
    SHOW(connect(fd, none, 16));
    SHOW(getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, none, &len));
    SHOW(getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, zc, none));
}

int main(void)
{
    char text[16];
    int p[2], fd;

    alarm(100);
    none = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(none != MAP_FAILED, "mmap");
    without_a_connection();
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(fd, none, 16));
    close(fd);
    tcp_pair(p);
    on_rail(p);
    deliver(p[0], p[1], "bytes");
    options(p[1]);
    SHOW(recv(p[1], text, sizeof(text), 0));
    close(p[0]);
    SHOW(read(p[1], text, sizeof(text)));
    return 0;
}
