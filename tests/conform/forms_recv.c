/*
 * forms_recv.c - see forms_recv.h. The vectored forms get their bytes in three pieces,
 * one of them empty.
 */
#include "tests/conform/forms_recv.h"

static int split(struct iovec v[3], void *buf, size_t n)
{
    size_t first = n > 3 ? 3 : n;

    v[0] = (struct iovec){buf, first};
    v[1] = (struct iovec){NULL, 0};
    v[2] = (struct iovec){(char *)buf + first, n - first};
    return 3;
}

static ssize_t by_readv(int fd, void *buf, size_t n)
{
    struct iovec v[3];

    return readv(fd, v, split(v, buf, n));
}

static ssize_t by_preadv2(int fd, void *buf, size_t n)
{
    struct iovec v[3];

    return preadv2(fd, v, split(v, buf, n), -1, 0);
}

static ssize_t by_recv(int fd, void *buf, size_t n)
{
    return recv(fd, buf, n, 0);
}

static ssize_t by_recvfrom_with(int fd, void *buf, size_t n, int flags)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);

    return recvfrom(fd, buf, n, flags, (struct sockaddr *)&from, &len);
}

static ssize_t by_recvfrom(int fd, void *buf, size_t n)
{
    return by_recvfrom_with(fd, buf, n, 0);
}

static ssize_t by_recvmsg_with(int fd, void *buf, size_t n, int flags)
{
    struct iovec v[3];
    struct msghdr m;
    char control[64];

    memset(&m, 0, sizeof(m));
    m.msg_iov = v;
    m.msg_iovlen = (size_t)split(v, buf, n);
    m.msg_control = control;
    m.msg_controllen = sizeof(control);
    return recvmsg(fd, &m, flags);
}

static ssize_t by_recvmsg(int fd, void *buf, size_t n)
{
    return by_recvmsg_with(fd, buf, n, 0);
}

static ssize_t by_recvmmsg_with(int fd, void *buf, size_t n, int flags)
{
    struct iovec v[3];
    struct mmsghdr m;

    memset(&m, 0, sizeof(m));
    m.msg_hdr.msg_iov = v;
    m.msg_hdr.msg_iovlen = (size_t)split(v, buf, n);
    return recvmmsg(fd, &m, 1, flags, NULL) == 1 ? (ssize_t)m.msg_len : -1;
}

static ssize_t by_recvmmsg(int fd, void *buf, size_t n)
{
    return by_recvmmsg_with(fd, buf, n, 0);
}

/* More messages than there are bytes for, which is another way through the library. */
static ssize_t by_recvmmsg2(int fd, void *buf, size_t n)
{
    struct iovec v[3];
    struct mmsghdr m[2];

    memset(m, 0, sizeof(m));
    for (int i = 0; i < 2; i++) {
        m[i].msg_hdr.msg_iov = v;
        m[i].msg_hdr.msg_iovlen = (size_t)split(v, buf, n);
    }
    return recvmmsg(fd, m, 2, MSG_WAITFORONE, NULL) >= 1 ? (ssize_t)m[0].msg_len : -1;
}

/* Through a pipe, which is empty before and after. */
static ssize_t by_splice(int fd, void *buf, size_t n)
{
    ssize_t did;
    int p[2], err;

    if (pipe(p))
        return -1;
    did = splice(fd, NULL, p[1], NULL, n, 0);
    err = errno;
    if (did > 0)
        did = read(p[0], buf, n);
    close(p[0]);
    close(p[1]);
    errno = err;
    return did;
}

const struct rform rforms[RFORMS] = {
    {"read", read, false, NULL},
    {"readv", by_readv, false, NULL},
    {"preadv2", by_preadv2, false, NULL},
    {"recv", by_recv, true, recv},
    {"recvfrom", by_recvfrom, true, by_recvfrom_with},
    {"recvmsg", by_recvmsg, true, by_recvmsg_with},
    {"recvmmsg", by_recvmmsg, true, by_recvmmsg_with},
    {"recvmmsg2", by_recvmmsg2, false, NULL},
    {"splice", by_splice, false, NULL},
};

ssize_t take_by(const struct rform *f, int fd, size_t n)
{
    char buf[300] = "";
    ssize_t got;

    errno = CLEAN;
    got = f->get(fd, buf, n);
    show(f->name, got, errno);
    if (got > 0)
        say_bytes(" ", buf, got);
    return got;
}
