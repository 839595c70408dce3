/* bytes.c - rows: receiving, sending, readiness. */
#define _GNU_SOURCE
#include "rows.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static char buf[64];

#define TAKEN(call)                                  \
    do {                                             \
        memset(buf, 0, sizeof(buf));                 \
        SHOW(call);                                  \
        printf("  [%.*s]\n", (int)sizeof(buf), buf); \
    } while (0)

#define PARTS                   \
    {                           \
        {buf, 2}, {buf + 2, 0}, \
        {                       \
            buf + 2, 20         \
        }                       \
    }

/* Flags that the kernel's TCP does not look at, for this direction. */
#define RX_ONLY (MSG_WAITALL | MSG_PEEK | MSG_TRUNC | MSG_CTRUNC)
#define TX_ONLY (MSG_EOR | MSG_CONFIRM | MSG_DONTROUTE)

/* ---- in ---- */

ROW(read, )
{
    deliver(c, s, "read");
    TAKEN(SYM(read)(s, buf, 20));
}
ROW(__read, )
{
    deliver(c, s, "__read");
    TAKEN(SYM(__read)(s, buf, 20));
}
ROW(__read_chk, )
{
    deliver(c, s, "__read_chk");
    TAKEN(SYM(__read_chk)(s, buf, 20, sizeof(buf)));
}
ROW(recv, )
{
    deliver(c, s, "recv");
    TAKEN(SYM(recv)(s, buf, 20, MSG_MORE | MSG_CTRUNC | TX_ONLY));
}
ROW(__recv_chk, )
{
    deliver(c, s, "__recv_chk");
    TAKEN(SYM(__recv_chk)(s, buf, 20, sizeof(buf), 0));
}

ROW(readv, )
{
    struct iovec v[3] = PARTS;

    deliver(c, s, "readv");
    TAKEN(SYM(readv)(s, v, 3));
}

ROW(preadv2, )
{
    struct iovec v[3] = PARTS;

    deliver(c, s, "preadv2");
    TAKEN(SYM(preadv2)(s, v, 3, -1, 0));
}

ROW(preadv64v2, )
{
    struct iovec v[3] = PARTS;

    deliver(c, s, "preadv64v2");
    TAKEN(SYM(preadv64v2)(s, v, 3, -1, 0));
}

ROW(recvfrom, )
{
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);

    deliver(c, s, "recvfrom");
    TAKEN(SYM(recvfrom)(s, buf, 20, 0, (struct sockaddr *)&from, &len));
    printf("  address %u\n", len);
}

ROW(__recvfrom_chk, )
{
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);

    deliver(c, s, "__recvfrom_chk");
    TAKEN(SYM(__recvfrom_chk)(s, buf, 20, sizeof(buf), 0, (struct sockaddr *)&from, &len));
    printf("  address %u\n", len);
}

ROW(recvmsg, )
{
    struct iovec v[3] = PARTS;
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};

    deliver(c, s, "recvmsg");
    TAKEN(SYM(recvmsg)(s, &m, 0));
}

ROW(recvmmsg, )
{
    struct iovec v[3] = PARTS;
    struct mmsghdr m = {.msg_hdr = {.msg_iov = v, .msg_iovlen = 3}};

    deliver(c, s, "recvmmsg");
    TAKEN(SYM(recvmmsg)(s, &m, 1, 0, NULL));
    printf("  length %u\n", m.msg_len);
}

/* ---- out ---- */

static struct iovec two[2] = {{"one ", 4}, {"two", 3}};

ROW(write, )
{
    SHOW(SYM(write)(c, "write", 5));
    rows_hear(s, 5);
}
ROW(__write, )
{
    SHOW(SYM(__write)(c, "__write", 7));
    rows_hear(s, 7);
}
ROW(send, )
{
    SHOW(SYM(send)(c, "send", 4, MSG_NOSIGNAL));
    rows_hear(s, 4);
}
ROW(__send, )
{
    SHOW(SYM(__send)(c, "__send", 6, 0));
    rows_hear(s, 6);
}
ROW(sendto, )
{
    SHOW(SYM(sendto)(c, "sendto", 6, RX_ONLY, NULL, 0));
    rows_hear(s, 6);
    SHOW(SYM(sendto)(c, "sendto", 6, TX_ONLY, NULL, 0));
    rows_hear(s, 6);
}
ROW(writev, )
{
    SHOW(SYM(writev)(c, two, 2));
    rows_hear(s, 7);
}
ROW(pwritev2, )
{
    SHOW(SYM(pwritev2)(c, two, 2, -1, 0));
    rows_hear(s, 7);
}
ROW(pwritev64v2, )
{
    SHOW(SYM(pwritev64v2)(c, two, 2, -1, 0));
    rows_hear(s, 7);
}

ROW(sendmsg, )
{
    struct msghdr m = {.msg_iov = two, .msg_iovlen = 2};

    SHOW(SYM(sendmsg)(c, &m, 0));
    rows_hear(s, 7);
}

ROW(sendmmsg, )
{
    struct msghdr m = {.msg_iov = two, .msg_iovlen = 2};
    struct mmsghdr mm[2] = {{.msg_hdr = m}, {.msg_hdr = m}};

    SHOW(SYM(sendmmsg)(c, mm, 2, 0));
    printf("  lengths %u %u\n", mm[0].msg_len, mm[1].msg_len);
    rows_hear(s, 14);
}

static int file(void)
{
    int fd = memfd_create("file", MFD_CLOEXEC);

    must(fd >= 0 && write(fd, "0123456789", 10) == 10, "file");
    return fd;
}

ROW(sendfile, )
{
    off_t off = 2;
    int fd = file();

    SHOW(SYM(sendfile)(c, fd, &off, 5));
    printf("  offset %ld\n", (long)off);
    rows_hear(s, 5);
    close(fd);
}

ROW(sendfile64, )
{
    off64_t off = 3;
    int fd = file();

    SHOW(SYM(sendfile64)(c, fd, &off, 5));
    rows_hear(s, 5);
    close(fd);
}

ROW(splice, )
{
    int p[2];

    must(pipe(p) == 0 && write(p[1], "spliced", 7) == 7, "pipe");
    SHOW(SYM(splice)(p[0], NULL, c, NULL, 7, 0));
    rows_hear(s, 7);
    deliver(c, s, "back");
    SHOW(SYM(splice)(s, NULL, p[1], NULL, 4, 0));
    TAKEN(read(p[0], buf, 20));
    close(p[0]);
    close(p[1]);
}

/* ---- readiness ---- */

#define POLLED(name, more)                                                                         \
    do {                                                                                           \
        struct pollfd p[2] = {{.fd = c, .events = POLLIN | POLLOUT}, {.fd = s, .events = POLLIN}}; \
        SHOW(SYM(name) more);                                                                      \
        printf("  %#x %#x\n", (unsigned)p[0].revents, (unsigned)p[1].revents);                     \
        deliver(c, s, #name);                                                                      \
        SHOW(SYM(name) more);                                                                      \
        printf("  %#x %#x\n", (unsigned)p[0].revents, (unsigned)p[1].revents);                     \
        rows_hear(s, strlen(#name));                                                               \
    } while (0)

int __poll(struct pollfd *fds, nfds_t n, int timeout);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
                size_t room);

static const struct timespec at_once = {0, 1000};

ROW(poll, )
{
    POLLED(poll, (p, 2, 1));
}
ROW(__poll, )
{
    POLLED(__poll, (p, 2, 1));
}
ROW(__poll_chk, )
{
    POLLED(__poll_chk, (p, 2, 1, sizeof(p)));
}
ROW(ppoll, )
{
    POLLED(ppoll, (p, 2, &at_once, NULL));
}
ROW(__ppoll_chk, )
{
    POLLED(__ppoll_chk, (p, 2, &at_once, NULL, sizeof(p)));
}

int __select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *timeout);

#define SELECTED(name, last)                                                                 \
    do {                                                                                     \
        fd_set r, w;                                                                         \
        for (int i_ = 0; i_ < 2; i_++) {                                                     \
            struct timeval tv = {0, 1000};                                                   \
            (void)tv;                                                                        \
            FD_ZERO(&r);                                                                     \
            FD_ZERO(&w);                                                                     \
            FD_SET(s, &r);                                                                   \
            FD_SET(c, &r);                                                                   \
            FD_SET(c, &w);                                                                   \
            SHOW(SYM(name) last);                                                            \
            printf("  %d %d %d\n", !!FD_ISSET(s, &r), !!FD_ISSET(c, &r), !!FD_ISSET(c, &w)); \
            if (i_ == 0)                                                                     \
                deliver(c, s, #name);                                                        \
        }                                                                                    \
        rows_hear(s, strlen(#name));                                                         \
    } while (0)

ROW(select, )
{
    SELECTED(select, (100, &r, &w, NULL, &tv));
}
ROW(__select, )
{
    SELECTED(__select, (100, &r, &w, NULL, &tv));
}
ROW(pselect, )
{
    SELECTED(pselect, (100, &r, &w, NULL, &at_once, NULL));
}

/* An instance made by `create`, with s in it. */
#define EPOLLED(create, name, more)                                          \
    do {                                                                     \
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 77}, got[2]; \
        int e = create;                                                      \
        SHOW(SYM(epoll_ctl)(e, EPOLL_CTL_ADD, s, &ev));                      \
        SHOW(SYM(name) more);                                                \
        deliver(c, s, #name);                                                \
        SHOW(SYM(name) more);                                                \
        printf("  %#x %d\n", got[0].events, (int)got[0].data.u64);           \
        rows_hear(s, strlen(#name));                                         \
        close(e);                                                            \
    } while (0)

ROW(epoll_create, )
{
    EPOLLED(SYM(epoll_create)(5), epoll_wait, (e, got, 2, 1));
}
ROW(epoll_create1, )
{
    EPOLLED(SYM(epoll_create1)(EPOLL_CLOEXEC), epoll_wait, (e, got, 2, 1));
}
ROW(epoll_ctl, )
{
    EPOLLED(epoll_create1(EPOLL_CLOEXEC), epoll_wait, (e, got, 2, 1));
}
ROW(epoll_wait, )
{
    EPOLLED(epoll_create1(EPOLL_CLOEXEC), epoll_wait, (e, got, 2, 1));
}
ROW(epoll_pwait, )
{
    EPOLLED(epoll_create1(EPOLL_CLOEXEC), epoll_pwait, (e, got, 2, 1, NULL));
}
ROW(epoll_pwait2, )
{
    EPOLLED(epoll_create1(EPOLL_CLOEXEC), epoll_pwait2, (e, got, 2, &at_once, NULL));
}
