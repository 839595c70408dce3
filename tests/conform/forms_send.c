/*
 * forms_send.c - see forms_send.h. The vectored forms give their bytes in three pieces, one of them
 * empty; sendfile and splice from a file or pipe of their own.
 */
#include "tests/conform/forms_send.h"

#include <sys/mman.h>
#include <sys/sendfile.h>

static int split(struct iovec v[3], const void *buf, size_t n)
{
    size_t first = n > 3 ? 3 : n;
    char *p = (char *)(uintptr_t)buf;

    v[0] = (struct iovec){p, first};
    v[1] = (struct iovec){NULL, 0};
    v[2] = (struct iovec){p + first, n - first};
    return 3;
}

static ssize_t by_send(int fd, const void *buf, size_t n)
{
    return send(fd, buf, n, 0);
}

static ssize_t by_sendto_with(int fd, const void *buf, size_t n, int flags)
{
    return sendto(fd, buf, n, flags, NULL, 0);
}

static ssize_t by_sendto(int fd, const void *buf, size_t n)
{
    return by_sendto_with(fd, buf, n, 0);
}

static ssize_t by_sendmsg_with(int fd, const void *buf, size_t n, int flags)
{
    struct iovec v[3];
    struct msghdr m;

    memset(&m, 0, sizeof(m));
    m.msg_iov = v;
    m.msg_iovlen = (size_t)split(v, buf, n);
    return sendmsg(fd, &m, flags);
}

static ssize_t by_sendmsg(int fd, const void *buf, size_t n)
{
    return by_sendmsg_with(fd, buf, n, 0);
}

/* Two messages, of which the second has the last byte. */
static ssize_t by_sendmmsg_with(int fd, const void *buf, size_t n, int flags)
{
    struct iovec v[3], last;
    struct mmsghdr m[2];
    size_t head = n > 1 ? n - 1 : n;
    int did;

    memset(m, 0, sizeof(m));
    m[0].msg_hdr.msg_iov = v;
    m[0].msg_hdr.msg_iovlen = (size_t)split(v, buf, head);
    last = (struct iovec){(char *)(uintptr_t)buf + head, n - head};
    m[1].msg_hdr.msg_iov = &last;
    m[1].msg_hdr.msg_iovlen = 1;
    did = sendmmsg(fd, m, n > 1 ? 2 : 1, flags);
    if (did < 0)
        return -1;
    return (ssize_t)m[0].msg_len + (did > 1 ? (ssize_t)m[1].msg_len : 0);
}

static ssize_t by_sendmmsg(int fd, const void *buf, size_t n)
{
    return by_sendmmsg_with(fd, buf, n, 0);
}

static ssize_t by_writev(int fd, const void *buf, size_t n)
{
    struct iovec v[3];

    return writev(fd, v, split(v, buf, n));
}

static ssize_t by_pwritev2(int fd, const void *buf, size_t n)
{
    struct iovec v[3];

    return pwritev2(fd, v, split(v, buf, n), -1, 0);
}

static ssize_t by_sendfile(int fd, const void *buf, size_t n)
{
    int file = memfd_create("sendfile", MFD_CLOEXEC), saved;
    off_t at = 0;
    ssize_t did;

    must(file >= 0 && write(file, buf, n) == (ssize_t)n, "memfd");
    errno = CLEAN;
    did = sendfile(fd, file, &at, n);
    saved = errno;
    if (did > 0 && at != did)
        say("sendfile moved its offset by %ld, not %zd", (long)at, did);
    close(file);
    errno = saved;
    return did;
}

static ssize_t by_splice(int fd, const void *buf, size_t n)
{
    int p[2], saved;
    ssize_t did;

    must(pipe(p) == 0, "pipe");
    if (n > 65536)
        n = 65536;
    must(write(p[1], buf, n) == (ssize_t)n, "pipe");
    errno = CLEAN;
    did = splice(p[0], NULL, fd, NULL, n, 0);
    saved = errno;
    close(p[0]);
    close(p[1]);
    errno = saved;
    return did;
}

const struct sform sforms[SFORMS] = {
    {"send", by_send, send},
    {"sendto", by_sendto, by_sendto_with},
    {"sendmsg", by_sendmsg, by_sendmsg_with},
    {"sendmmsg", by_sendmmsg, by_sendmmsg_with},
    {"write", write, NULL},
    {"writev", by_writev, NULL},
    {"pwritev2", by_pwritev2, NULL},
    {"sendfile", by_sendfile, NULL},
    {"splice", by_splice, NULL},
};

ssize_t send_by(const struct sform *f, int fd, const char *text)
{
    ssize_t did;

    errno = CLEAN;
    did = f->put(fd, text, strlen(text));
    show(f->name, did, errno);
    return did;
}
