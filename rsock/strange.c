/*
 * strange.c - see strange.h.
 */
#include "rsock/strange.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "rsock/own.h"
#include "rsock/sys.h"

/* Of a socket that a stranger has made he may have asked for more than descriptors: his
 * number, a label. */
union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(sizeof(int) * STRANGE_FDS) + 1024];
};

enum { DEEP = 8 /* the kernel lets sockets lie in each other to half of that */ };

enum { PIDFD = 4 /* SCM_PIDFD, newer than the headers */ };

int strange_option(int fd, int name)
{
    socklen_t size = sizeof(int);
    int value = -1;

    return sys_getsockopt(fd, SOL_SOCKET, name, &value, &size) ? -1 : value;
}

/* Nobody who closes it waits. */
static void disarm(int fd)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    const struct linger off = {0, 0};
    int family = strange_option(fd, SO_DOMAIN);

    if (family < 0 || family == AF_UNIX)
        return;
    sys_setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
    sys_connect(fd, &none, sizeof none); /* he may have set it again */
}

/* any: it was a message, if the socket has SO_PASSCRED. */
static ssize_t take(int sock, void *to, size_t n, int fds[STRANGE_FDS], unsigned *count, int *flags,
                    bool *any)
{
    struct iovec v = {.iov_base = to, .iov_len = n};
    union control control;
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;

    memset(&control, 0, sizeof control);
    *count = 0;
    rsk_own_enter();
    got = sys_recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        m.msg_controllen = 0;
    *any = m.msg_controllen > 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        size_t all = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        int fd;

        if (c->cmsg_level != SOL_SOCKET || (c->cmsg_type != SCM_RIGHTS && c->cmsg_type != PIDFD))
            continue;
        for (size_t i = 0; i < all; i++) {
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (c->cmsg_type == PIDFD) { /* which he has asked for, of a socket of his own */
                sys_close(fd);
                continue;
            }
            disarm(fd); /* also if it cannot be noted, and is closed as it is */
            fd = rsk_own_fd(fd);
            if (fd < 0)
                m.msg_flags |= MSG_CTRUNC;
            else
                fds[(*count)++] = fd;
        }
    }
    rsk_own_leave();
    *flags = m.msg_flags;
    return got;
}

ssize_t strange_recv(int sock, void *to, size_t n, int fds[STRANGE_FDS], unsigned *count,
                     int *flags)
{
    bool any;

    return take(sock, to, n, fds, count, flags, &any);
}

static void close_deep(int fd, int deep);

/* Nothing more comes, and what has come goes. */
static void empty(int sock, int deep)
{
    const int on = 1;
    bool stream = strange_option(sock, SO_TYPE) == SOCK_STREAM;
    int fds[STRANGE_FDS], flags, fd;
    char bytes[1024];
    ssize_t got;
    unsigned n;
    bool any;

    sys_shutdown(sock, SHUT_RD);
    while (strange_option(sock, SO_ACCEPTCONN) == 1 &&
           (fd = rsk_own_fd(sys_accept4(sock, NULL, NULL, SOCK_CLOEXEC))) >= 0)
        close_deep(fd, deep + 1);
    do { /* each time, as he may have set them back */
        /* A message may be empty, as the end is; of a stream's end, too, the kernel says
         * whose it was. */
        sys_setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
        /* Else a byte that was sent as urgent is dropped on the way to the next, with what
         * came with it. */
        sys_setsockopt(sock, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
        got = take(sock, bytes, sizeof bytes, fds, &n, &flags, &any);
        for (unsigned i = 0; i < n; i++)
            close_deep(fds[i], deep + 1);
    } while (got > 0 || (any && !stream) ||
             got == -ECONNRESET); /* which is told once, before what is there */
}

static void close_deep(int fd, int deep)
{
    if (strange_option(fd, SO_DOMAIN) == AF_UNIX && deep < DEEP)
        empty(fd, deep);
    else
        disarm(fd);
    rsk_own_close(fd);
}

void strange_close(int fd)
{
    if (fd >= 0)
        close_deep(fd, 0);
}
