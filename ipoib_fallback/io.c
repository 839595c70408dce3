/*
 * io.c - the anchor's system calls, gathered in one table so that the simulation
 * can run the real halves over a simulated TCP. All non-blocking unless the flags
 * say otherwise; counts or -errno.
 */
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/stream.h"
#include "rsock/own.h"
#include "rsock/section.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/socket.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* tcp_states.h, which is the kernel's own */
enum {
    TCPS_ESTABLISHED = 1,
    TCPS_FIN_WAIT1 = 4,
    TCPS_FIN_WAIT2 = 5,
    TCPS_CLOSE_WAIT = 8,
    TCPS_LAST_ACK = 9,
    TCPS_CLOSING = 11
};

/* Called for a blocking call of the application's, which a handler must be able to
 * end (sleep.c). */
static bool may_sleep(int flags)
{
    return rsk_sig.stop && !(flags & MSG_DONTWAIT);
}

static ssize_t anchor_recv(int fd, const struct iovec *v, int cnt, uint64_t limit, int flags)
{
    struct iovec part[FB_PIECES];
    struct msghdr m = {.msg_iov = (struct iovec *)v, .msg_iovlen = (size_t)cnt};
    uint64_t left = limit;
    int n = 0;

    if (limit != UINT64_MAX) {
        for (; n < cnt && n < FB_PIECES && left > 0; n++) {
            part[n] = v[n];
            if (part[n].iov_len > left)
                part[n].iov_len = (size_t)left;
            left -= part[n].iov_len;
        }
        m.msg_iov = part;
        m.msg_iovlen = (size_t)n;
    }
    return may_sleep(flags)
               ? RSK_SLEEP(rsk_sig.stop, rsk_sig.stop_was, SYS_recvmsg, fd, &m, flags, 0, 0, 0)
               : sys_recvmsg(fd, &m, flags);
}

static ssize_t anchor_send(int fd, const struct iovec *v, int cnt, int flags)
{
    struct msghdr m = {.msg_iov = (struct iovec *)v, .msg_iovlen = (size_t)cnt};

    return may_sleep(flags)
               ? RSK_SLEEP(rsk_sig.stop, rsk_sig.stop_was, SYS_sendmsg, fd, &m, flags, 0, 0, 0)
               : sys_sendmsg(fd, &m, flags);
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

static bool anchor_at_mark(int fd)
{
    int yes = 0;

    return sys_ioctl(fd, SIOCATMARK, &yes) == 0 && yes;
}

/* What is queued, asked between two snapshots that agree on *field, which is in *ti; a stream in
 * fast motion takes a few attempts. False: in none of these states, or too fast. */
static bool settled(int fd, struct tcp_info *ti, unsigned states, const __u64 *field,
                    unsigned long queue, int *queued)
{
    uint64_t before = UINT64_MAX;

    for (int i = 0; i < 8; i++) {
        socklen_t len = sizeof(*ti);

        if (sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, ti, &len) < 0 ||
            !(1u << ti->tcpi_state & states))
            return false;
        if (*field == before)
            return true;
        before = *field;
        if (sys_ioctl(fd, queue, queued) < 0)
            return false;
    }
    return false;
}

/* bytes_acked counts SYN and FIN, bytes_received counts FIN: hence bytes_sent less retransmissions
 * plus what was not sent yet, and only while ESTABLISHED (DESIGN 5). */
static bool anchor_counters(int fd, uint64_t *sent, uint64_t *received)
{
    struct tcp_info ti = {0};
    int unread = 0;

    if (!settled(fd, &ti, 1u << TCPS_ESTABLISHED, &ti.tcpi_bytes_received, SIOCINQ, &unread))
        return false;
    *sent = ti.tcpi_bytes_sent - ti.tcpi_bytes_retrans + ti.tcpi_notsent_bytes;
    *received = ti.tcpi_bytes_received - (unsigned int)unread;
    return true;
}

/* Less FIN, which is counted as soon as it has come. A connection that is over does not tell
 * whether it has. */
static bool received_now(int fd, uint64_t *n)
{
    const unsigned fin = 1u << TCPS_CLOSE_WAIT | 1u << TCPS_LAST_ACK | 1u << TCPS_CLOSING;
    const unsigned none = 1u << TCPS_ESTABLISHED | 1u << TCPS_FIN_WAIT1 | 1u << TCPS_FIN_WAIT2;
    struct tcp_info ti = {0};
    int unread = 0;

    if (!settled(fd, &ti, fin | none, &ti.tcpi_bytes_received, SIOCINQ, &unread))
        return false;
    *n = ti.tcpi_bytes_received - (unsigned int)unread - ((1u << ti.tcpi_state & fin) != 0);
    return true;
}

/* SIOCINQ ends at urgent data, unless that is received in line. */
static int64_t anchor_beyond(int fd, uint64_t received)
{
    int in_line = 1, on = 1;
    socklen_t len = sizeof(in_line);
    uint64_t n;

    if (!received_now(fd, &n) || n == received)
        return 0;
    if (sys_getsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &in_line, &len) == 0 && !in_line) {
        sys_setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
        if (!received_now(fd, &n))
            n = received;
        sys_setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof(in_line));
    }
    return (int64_t)(n - received);
}

static uint64_t anchor_received(int fd)
{
    struct tcp_info ti = {0};
    socklen_t len = sizeof(ti);

    return sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0 ? 0 : ti.tcpi_bytes_received;
}

/* bytes_sent also counts, each time anew, what did not get as far as the device because the link
 * was down. What was acknowledged, with the SYN of who connected, and the queue behind it are
 * exact, but they are two questions, and a stream that is being acknowledged all the time has no
 * good moment for them. */
static bool anchor_given(int fd, bool connected, uint64_t *sent)
{
    struct tcp_info ti = {0};
    int queued = 0;

    if (!settled(fd, &ti, 1u << TCPS_ESTABLISHED, &ti.tcpi_bytes_acked, SIOCOUTQ, &queued))
        return false;
    *sent = ti.tcpi_bytes_acked - connected + (unsigned int)queued;
    return true;
}

/* Set anew, the option pushes what is held back, also by TCP_CORK (tcp(7)); not when it is set
 * before, because the next bytes that are queued are held back again. */
static void anchor_push(int fd)
{
    int had = 1, on = 1;
    socklen_t len = sizeof(had);

    sys_getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &had, &len);
    sys_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (!had)
        sys_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &had, sizeof(had));
}

/* Of what is scheduled; the kernel goes back to its own ways by itself (tcp(7)). */
static void anchor_acknowledge(int fd)
{
    int on = 1;

    sys_setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
}

/* Half of what the kernel counts is for the segments themselves, a segment counts whole as long as
 * a byte of it is there, and a window that is nearly full is not opened. */
static uint64_t anchor_room(int fd)
{
    int n = 0;
    socklen_t len = sizeof(n);

    return sys_getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &n, &len) == 0 && n > 0 ? (uint64_t)n / 8 : 0;
}

/* How many bytes TCP would hold that nobody reads: as many as SO_SNDBUF says here, and as the
 * peer's window there, but at least what is usual for that (WINDOW), since it may be nearly
 * full now. 0 unless SO_SNDBUF was set (an accepted socket has it from its listener), because
 * the kernel's own choice grows with what is sent; and before Linux 5.14, which does not say
 * whether it was. */
static uint32_t anchor_bound(int fd)
{
    enum { WINDOW = 65536 };
    struct tcp_info ti = {0};
    unsigned locked = 0;
    uint64_t window;
    int n = 0;
    socklen_t len = sizeof(locked);

    if (sys_getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, &len) < 0 ||
        !(locked & SOCK_SNDBUF_LOCK))
        return 0;
    len = sizeof(n);
    if (sys_getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n, &len) < 0 || n <= 0)
        return 0;
    len = sizeof(ti);
    sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len);
    window = ti.tcpi_snd_wnd > WINDOW ? ti.tcpi_snd_wnd : WINDOW;
    return window + (unsigned)n < UINT32_MAX ? (uint32_t)window + (unsigned)n : UINT32_MAX;
}

static int anchor_shutdown(int fd, int how)
{
    return sys_shutdown(fd, how);
}

static bool anchor_aborts(int fd)
{
    struct linger l = {0, 0};
    socklen_t len = sizeof(l);

    return sys_getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0 && l.l_onoff && l.l_linger == 0;
}

static void anchor_abort(int fd)
{
    struct linger l = {1, 0};

    sys_setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
}

/* Names a file, and is good for nothing else: whatever reads or writes gets EBADF. It is no
 * directory, by which one could leave a root that is changed later, and of no file system that
 * somebody may want to take away. */
static int name_of_nothing(void)
{
    int file = rsk_own_fd(sys_memfd_create("railsock-closed", MFD_CLOEXEC)), fd = -1;
    char path[40];

    if (file >= 0) {
        snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", file);
        fd = rsk_own_fd(sys_open(path, O_PATH | O_CLOEXEC, 0));
        rsk_own_close(file);
    }
    return fd < 0 ? rsk_own_fd(sys_open("/dev/null", O_PATH | O_CLOEXEC, 0)) : fd;
}

/* One for all, from the first rail on: and where the process may have no number more, who closes
 * with something left to send gets this one's. */
static int nothing = -1;
static struct fb_lock nothing_lock;

void io_spare(void)
{
    fb_lock(&nothing_lock);
    if (nothing < 0)
        nothing = name_of_nothing();
    fb_unlock(&nothing_lock);
}

static void anchor_vacate(int fd)
{
    io_spare();
    fb_lock(&nothing_lock);
    if (nothing >= 0)
        SYS6(SYS_dup3, nothing, fd, O_CLOEXEC, 0, 0, 0);
    fb_unlock(&nothing_lock);
}

/* A child that kept its copy would hold the connection open. */
static int duplicate(int fd)
{
    return rsk_own_fd(sys_fcntl(fd, F_DUPFD_CLOEXEC, 512));
}

static int anchor_keep(int fd)
{
    int kept = duplicate(fd);

    if (kept >= 0)
        return kept;
    fb_lock(&nothing_lock);
    rsk_own_close(nothing);
    nothing = -1;
    kept = duplicate(fd);
    fb_unlock(&nothing_lock);
    return kept < 0 ? sys_fcntl(fd, F_DUPFD_CLOEXEC, 3) : kept;
}

void io_forget(void)
{
    nothing_lock = (struct fb_lock){0};
    nothing = -1;
}

/* The application has closed it, and nobody waits for what is left: least of all the
 * progress thread. */
static void no_waiting(int fd)
{
    struct linger l = {0, 0}, none = {0, 0};
    socklen_t len = sizeof(l);

    if (sys_getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0 && l.l_onoff && l.l_linger > 0)
        sys_setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

static bool anchor_lingers(int fd)
{
    struct linger l = {0, 0};
    socklen_t len = sizeof(l);
    int unsent = 0;

    return sys_getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0 && l.l_onoff &&
           l.l_linger > 0 && SYS6(SYS_ioctl, fd, SIOCOUTQ, &unsent, 0, 0, 0) == 0 && unsent > 0;
}

static void anchor_close(int fd, bool others)
{
    if (!others)
        no_waiting(fd);
    if (rsk_own_has(fd))
        rsk_own_close(fd);
    else
        sys_close(fd);
}

static bool anchor_waits(int fd)
{
    struct tcp_info ti;
    socklen_t len = sizeof(ti);

    memset(&ti, 0, sizeof(ti));
    if (sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0)
        return false;
    switch (ti.tcpi_state) {
    case TCPS_ESTABLISHED:
    case TCPS_FIN_WAIT1:
    case TCPS_CLOSE_WAIT:
    case TCPS_LAST_ACK:
    case TCPS_CLOSING:
        return true;
    default:
        return false;
    }
}

static void anchor_wait(int fd, short events, uint64_t ns)
{
    struct pollfd p = {.fd = fd, .events = events};
    struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    sys_ppoll(&p, fd < 0 ? 0 : 1, &ts, NULL);
}

struct fb_io fb_io = {
    .recv = anchor_recv,
    .send = anchor_send,
    .poll = anchor_poll,
    .counters = anchor_counters,
    .given = anchor_given,
    .beyond = anchor_beyond,
    .inq = anchor_inq,
    .at_mark = anchor_at_mark,
    .received = anchor_received,
    .room = anchor_room,
    .bound = anchor_bound,
    .push = anchor_push,
    .acknowledge = anchor_acknowledge,
    .shutdown = anchor_shutdown,
    .aborts = anchor_aborts,
    .abort = anchor_abort,
    .keep = anchor_keep,
    .vacate = anchor_vacate,
    .close = anchor_close,
    .lingers = anchor_lingers,
    .waits = anchor_waits,
    .wait = anchor_wait,
    .now = sys_now,
};
