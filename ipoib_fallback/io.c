/*
 * io.c - the anchor's system calls, gathered in one table so that the simulation
 * can run the real halves over a simulated TCP. All non-blocking unless the flags
 * say otherwise; counts or -errno.
 */
#include "ipoib_fallback/stream.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <string.h>
#include <sys/ioctl.h>

#define PIECES 16

static ssize_t anchor_recv(int fd, const struct iovec *v, int cnt, uint64_t limit, int flags)
{
    struct iovec part[PIECES];
    struct msghdr m = {.msg_iov = part};
    uint64_t left = limit;
    int n = 0;

    for (; n < cnt && n < PIECES && left > 0; n++) {
        part[n] = v[n];
        if (part[n].iov_len > left)
            part[n].iov_len = (size_t)left;
        left -= part[n].iov_len;
    }
    m.msg_iovlen = (size_t)n;
    return sys_recvmsg(fd, &m, flags);
}

static ssize_t anchor_send(int fd, const struct iovec *v, int cnt, int flags)
{
    struct msghdr m = {.msg_iov = (struct iovec *)v, .msg_iovlen = (size_t)cnt};

    return sys_sendmsg(fd, &m, flags);
}

static short anchor_poll(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    struct timespec zero = {0, 0};

    return sys_ppoll(&p, 1, &zero, NULL) > 0 ? p.revents : 0;
}

static int anchor_inq(int fd)
{
    int n = 0;
    int r = sys_ioctl(fd, SIOCINQ, &n);

    return r < 0 ? r : n;
}

/* bytes_acked counts SYN and FIN, bytes_received counts FIN: hence bytes_sent less retransmissions
 * plus what was not sent yet, and only while ESTABLISHED (DESIGN 5). The unread bytes are asked for
 * between two snapshots that must agree, else the stream is in motion. */
static bool anchor_counters(int fd, uint64_t *sent, uint64_t *received)
{
    struct tcp_info a, b;
    socklen_t len = sizeof(a);
    int unread;

    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    if (sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &a, &len) < 0 || a.tcpi_state != 1)
        return false;
    unread = anchor_inq(fd);
    len = sizeof(b);
    if (unread < 0 || sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &b, &len) < 0 ||
        b.tcpi_state != 1 || a.tcpi_bytes_received != b.tcpi_bytes_received)
        return false;
    *sent = b.tcpi_bytes_sent - b.tcpi_bytes_retrans + b.tcpi_notsent_bytes;
    *received = b.tcpi_bytes_received - (unsigned long long)unread;
    return true;
}

static bool anchor_nodelay(int fd, bool on)
{
    int had = 1, want = on;
    socklen_t len = sizeof(had);

    sys_getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &had, &len);
    if (had != want)
        sys_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &want, sizeof(want));
    return had != 0;
}

static void anchor_shutdown(int fd)
{
    sys_shutdown(fd, SHUT_WR);
}

struct fb_io fb_io = {
    .recv = anchor_recv,
    .send = anchor_send,
    .poll = anchor_poll,
    .counters = anchor_counters,
    .inq = anchor_inq,
    .nodelay = anchor_nodelay,
    .shutdown = anchor_shutdown,
    .now = sys_now,
};
