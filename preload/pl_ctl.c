/*
 * pl_ctl.c - fcntl, ioctl and socket options. The kernel's call is made on the anchor
 * first; then the stream hears of what concerns it. What only the kernel can do
 * (signals on readiness) makes the stream leave before the call.
 *
 * Called by the application on any thread.
 */
#include "preload/pl_own.h"

#include "config/reason.h"
#include "rsock/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>

/* ---- fcntl ---- */

/* Another thread may have set others since; before there is a rail they are read again. */
static long now_set(struct pl_file *f, long arg)
{
    int flags = fb_may_change(f->stream) ? sys_fcntl(f->fd, F_GETFL, 0) : -1;

    return flags < 0 ? arg : flags;
}

static int stream_fcntl(struct pl_file *f, int cmd, long arg)
{
    int ret;

    switch (cmd) {
    case F_SETFL:
        if (arg & O_ASYNC)
            fb_pin(f->stream, RSN_OPTION, true);
        ret = pl_real.fcntl(f->fd, cmd, arg);
        if (ret == 0)
            fb_set_nonblock(f->stream, now_set(f, arg) & O_NONBLOCK);
        return ret;
    case F_SETSIG:
    case F_SETOWN:
    case F_SETOWN_EX:
    case F_NOTIFY:
        fb_pin(f->stream, RSN_OPTION, true);
        break;
    default:
        break;
    }
    return pl_real.fcntl(f->fd, cmd, arg);
}

static int dup_fcntl(struct pl_file *f, int fd, int cmd, long arg)
{
    int newfd = PL_NUMBERED(pl_real.fcntl(fd, cmd, arg));

    if (newfd < 0)
        return newfd;
    pl_drop_stale(newfd);
    pl_dupped(f, fd, newfd);
    return newfd;
}

/* Answered by the kernel alone, whoever has the stream. */
static bool of_number(int cmd)
{
    return cmd == F_GETFD || cmd == F_SETFD || cmd == F_GETFL;
}

PL_EXPORT int fcntl(int fd, int cmd, ...)
{
    va_list ap;
    long arg;

    /* Whatever the command takes, or nothing: libc reads it the same way. */
    va_start(ap, cmd);
    arg = va_arg(ap, long);
    va_end(ap);
    pl_ready();
    PL_HELD f = of_number(cmd) ? pl_hold_number(fd) : pl_hold(fd);

    /* A duplicate may lose its FD_CLOEXEC under a number that is not known. */
    if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC || (cmd == F_SETFD && !(arg & FD_CLOEXEC)))
        pl_lend_to_spawned(f, fd);
    if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
        return dup_fcntl(f, fd, cmd, arg);
    if (f && f->kind == PL_STREAM)
        return stream_fcntl(f, cmd, arg);
    /* So programs ask whether a number is open. */
    if (!f && (cmd == F_GETFD || cmd == F_GETFL))
        return PL_NUMBERED(pl_real.fcntl(fd, cmd, arg));
    return pl_real.fcntl(fd, cmd, arg);
}

PL_ALIAS(fcntl64, fcntl);
PL_ALIAS(__fcntl, fcntl);

/* ---- ioctl ---- */

/* FIONREAD and SIOCOUTQ. Frames must not be counted: no guard while the kernel counts. */
static int queued(struct pl_file *f, unsigned long request, int *arg)
{
    struct fb_stream *s = f->stream;
    int n;

    atomic_fetch_add(&s->rx_odd, 1);
    if (fb_plain(s) || !arg) {
        n = pl_real.ioctl(f->fd, request, arg);
        atomic_fetch_sub(&s->rx_odd, 1);
        return n;
    }
    atomic_fetch_sub(&s->rx_odd, 1);
    n = request == FIONREAD ? fb_inq(s, f->fd) : fb_outq(s, f->fd);
    if (n < 0)
        return (int)pl_ret(n);
    *arg = n;
    return 0;
}

static int stream_ioctl(struct pl_file *f, unsigned long request, void *arg)
{
    int ret;

    switch (request) {
    case FIONREAD:
    case SIOCOUTQ:
        return queued(f, request, arg);
    case FIONBIO:
        ret = pl_real.ioctl(f->fd, request, arg);
        if (ret == 0)
            fb_set_nonblock(f->stream, *(int *)arg != 0);
        return ret;
    case FIOASYNC:
    case FIOSETOWN:
    case SIOCSPGRP:
        fb_pin(f->stream, RSN_OPTION, true);
        break;
    case SIOCATMARK:
        fb_pin_rx(f->stream, RSN_OOB);
        break;
    case SIOCOUTQNSD:
        fb_pin(f->stream, RSN_CALL, true);
        break;
    default:
        break;
    }
    return pl_real.ioctl(f->fd, request, arg);
}

/* Other names of F_SETFD. */
static int close_on_exec(int fd, unsigned long request)
{
    PL_HELD f = pl_hold_number(fd);

    if (request == FIONCLEX)
        pl_lend_to_spawned(f, fd);
    return pl_real.ioctl(fd, request, NULL);
}

PL_EXPORT int ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    void *arg;

    va_start(ap, request);
    arg = va_arg(ap, void *);
    va_end(ap);
    pl_ready();
    if (request == FIOCLEX || request == FIONCLEX)
        return close_on_exec(fd, request);
    PL_HELD f = pl_get_stream(fd);

    return f ? stream_ioctl(f, request, arg) : pl_real.ioctl(fd, request, arg);
}

PL_EXPORT int sockatmark(int fd)
{
    pl_ready();
    PL_HELD f = pl_get_stream(fd);

    if (f)
        fb_pin_rx(f->stream, RSN_OOB);
    return pl_real.sockatmark(fd);
}

/* ---- options ---- */

/* TCP_ZEROCOPY_RECEIVE, as it is longer than libc's, and than older kernels'. */
struct zerocopy {
    uint64_t address;
    uint32_t length, skip, inq;
    int32_t err;
    uint64_t copy_address;
    int32_t copied;
    uint32_t flags;
};
enum { ZEROCOPY_LEAST = offsetof(struct zerocopy, skip) };

/* It is a receive: it maps and copies bytes that nobody would count. As long as a switch lies
 * behind them, or they are in a ring, there is nothing to be mapped, and so many for a usual
 * receive. False: the kernel is to be asked. */
static bool not_by_mapping(struct pl_file *f, void *value, const socklen_t *len)
{
    struct zerocopy z = {0};
    socklen_t size;
    int unread;
    size_t n;

    fb_pin_rx(f->stream, RSN_CALL);
    if (fb_plain_rx(f->stream) || !fb_copy(&size, len, sizeof size, true) ||
        size < ZEROCOPY_LEAST || size > INT_MAX)
        return false;
    unread = fb_inq(f->stream, f->fd);
    if (unread < 0 || (unread == 0 && fb_poll(f->stream, f->fd, POLLRDHUP)))
        return false; /* at its end, and no frame is left */
    n = size < sizeof z ? size : sizeof z;
    if (!fb_copy(&z, value, n, true))
        return false;
    z.length = 0;
    z.skip = z.inq = (uint32_t)unread;
    z.err = z.copied = 0;
    return fb_copy(value, &z, n, false);
}

/* The anchor holds the options, so its answers are right on a rail, too; TCP_INFO tells of the
 * anchor alone. */
PL_EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    int ret;

    pl_ready();
    if (level == IPPROTO_TCP && (name == TCP_ZEROCOPY_RECEIVE || name == TCP_CORK)) {
        PL_HELD f = pl_get_stream(fd);

        if (f && name == TCP_CORK)
            fb_cork_set(f->stream);
        else if (f && not_by_mapping(f, value, len))
            return 0;
    }
    ret = pl_real.getsockopt(fd, level, name, value, len);
    if (ret == 0 && level == SOL_SOCKET && name == SO_PEEK_OFF && *len == sizeof(int)) {
        PL_HELD f = pl_get_stream(fd);
        int from = f ? fb_peeks_from(f->stream) : -1;

        if (from >= 0)
            *(int *)value = from;
    }
    if (ret == 0 && level == SOL_SOCKET && name == SO_ERROR && *len == sizeof(int)) {
        PL_HELD f = pl_get_stream(fd);

        if (f && *(int *)value == 0)
            *(int *)value = -fb_so_error(f->stream);
        else if (f) {
            fb_told(f->stream, fd);
            fb_connect_said(f->stream, *(int *)value);
        }
    }
    return ret;
}

/* Servers cork and uncork around each answer. */
static bool corked(struct pl_file *f, int level, int name, const void *value, socklen_t len)
{
    return level == IPPROTO_TCP && name == TCP_CORK && value && len >= sizeof(int) &&
           len <= INT_MAX && fb_cork(f->stream, value);
}

/* To wait for less than no time is taken, ends calls at once, and is shown as no limit. */
static bool is_past(int level, int name, const void *value, socklen_t len)
{
    int64_t seconds = 0;

    if (level != SOL_SOCKET || !value || len < sizeof(seconds))
        return false;
    switch (name) {
    case SO_RCVTIMEO_OLD:
    case SO_RCVTIMEO_NEW:
    case SO_SNDTIMEO_OLD:
    case SO_SNDTIMEO_NEW:
        memcpy(&seconds, value, sizeof(seconds));
    }
    return seconds < 0;
}

_Atomic bool pl_past_given;

/* Both ends of such a connection have keys, so it is enough that the one that connects stays
 * with the kernel. */
static bool is_signed(int level, int name)
{
    return level == IPPROTO_TCP &&
           (name == TCP_MD5SIG || name == TCP_MD5SIG_EXT || name == 38 /* TCP_AO_ADD_KEY */);
}

/* Options after which a stream could not leave its rail, so it leaves before: in TCP_REPAIR nothing
 * can be sent or received, and a filter may drop whatever comes, also what hands the stream over.
 * And stamps of what is sent count the bytes from the moment that they are asked for, and tell of
 * each piece, ours among them. */
static bool closes_the_way(int level, int name)
{
    return (level == IPPROTO_TCP && name == TCP_REPAIR) ||
           (level == SOL_SOCKET && (name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF ||
                                    name == SO_TIMESTAMPING_OLD || name == SO_TIMESTAMPING_NEW));
}

/* The first look from there on must not meet a frame. The kernel says whether it
 * takes the value. */
static int set_peek_off(struct pl_file *f, const void *value, socklen_t len)
{
    int from = 0, none = -1, ret;

    if (len < sizeof from || len > INT_MAX || !fb_copy(&from, value, sizeof from, true))
        return pl_real.setsockopt(f->fd, SOL_SOCKET, SO_PEEK_OFF, value, len);
    if (from >= 0)
        fb_pin(f->stream, RSN_OPTION, true);
    if (!fb_plain_rx(f->stream)) {
        ret = pl_real.setsockopt(f->fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof none);
        if (ret < 0 || fb_peek_from(f->stream, from))
            return ret;
    }
    return pl_real.setsockopt(f->fd, SOL_SOCKET, SO_PEEK_OFF, value, len);
}

PL_EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    int ret;

    pl_ready();
    PL_HELD f = pl_get_stream(fd);
    if (f && corked(f, level, name, value, len))
        return 0;
    if (f && closes_the_way(level, name))
        fb_pin(f->stream, RSN_OPTION, true);
    ret = f && level == SOL_SOCKET && name == SO_PEEK_OFF
              ? set_peek_off(f, value, len)
              : pl_real.setsockopt(fd, level, name, value, len);
    if (ret == 0 && f) {
        int number = 0;

        /* Whoever has answered it: the kernel has read an int there, a BPF program need not. */
        if (value && len >= sizeof number &&
            ((level == SOL_SOCKET && name == SO_RCVLOWAT) ||
             (level == IPPROTO_TCP && name == TCP_NODELAY)))
            memcpy(&number, value, sizeof number);
        if (is_past(level, name, value, len))
            number = -1;
        fb_sockopt(f->stream, level, name, number);
    } else if (ret == 0 && (is_past(level, name, value, len) || is_signed(level, name))) {
        pl_made_away(fd); /* what it becomes stays with the kernel, which alone knows */
        if (!is_signed(level, name) && pl_is_tcp(fd))
            atomic_store(&pl_past_given, true);
    }
    return ret;
}
