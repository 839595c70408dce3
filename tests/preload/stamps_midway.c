/*
 * stamps_midway.c - SO_TIMESTAMPING with numbers of bytes, on a connection that has moved some
 * already: they count from there, and tell of nothing but what the program sends.
 */
#include "pair.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <poll.h>

static void notice(int fd)
{
    char control[512];
    struct msghdr m = {.msg_control = control, .msg_controllen = sizeof(control)};
    struct pollfd p = {.fd = fd};

    while (poll(&p, 1, -1) < 0 || !(p.revents & POLLERR))
        ;
    must(recvmsg(fd, &m, MSG_ERRQUEUE) == 0, "recvmsg");
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        struct sock_extended_err e;

        if (c->cmsg_level != SOL_IP || c->cmsg_type != IP_RECVERR)
            continue;
        memcpy(&e, CMSG_DATA(c), sizeof(e));
        printf("up to byte %u\n", e.ee_data);
    }
}

int main(void)
{
    const int what = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE |
                     SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY;
    char bytes[64] = {0};
    int p[2];

    alarm(60);
    tcp_pair(p);
    on_rail(p);
    if (setsockopt(p[0], SOL_SOCKET, SO_TIMESTAMPING, &what, sizeof(what)) < 0) {
        printf("not to be had\n");
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        must(send(p[0], bytes, 10, 0) == 10, "send");
        notice(p[0]);
        must(recv(p[1], bytes, 10, MSG_WAITALL) == 10, "recv");
    }
    must(recvmsg(p[0], &(struct msghdr){0}, MSG_ERRQUEUE) < 0 && errno == EAGAIN, "one more");
    return 0;
}
