/*
 * pl_sock.c - where connections begin: socket, connect, listen, accept; and shutdown.
 * A connected or accepted TCP socket becomes a stream; nothing waits for a rail (I7).
 *
 * Numbers 0, 1 and 2 are tracked like others, so that closing and dup are counted and
 * `railsock stat` shows them, but stay on TCP: stdio writes to them behind our back.
 *
 * Called by the application on any thread.
 */
#include "preload/pl_own.h"
#include "preload/pl_signal.h"

#include "config/reason.h"
#include "rsock/sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>

/* False also when nothing is tracked any more. */
bool pl_is_tcp(int fd)
{
    int protocol = 0;
    socklen_t len = sizeof(protocol);

    return !atomic_load_explicit(&pl_passive, memory_order_relaxed) &&
           sys_getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
           protocol == IPPROTO_TCP;
}

/* Of a stream made by connect(): what may have been done with its number before. A number that
 * accept has just given needs none of this. */
static void connected(struct pl_file *f)
{
    /* It may have been added to an epoll instance before it was connected. */
    pl_epoll_stream_tracked(f);
    if (!pl_made_alone(f->fd)) {
        fb_maybe_shared(f->stream);
        fb_pin(f->stream, RSN_SHARED, false);
    }
}

struct fb_stream *pl_track(int fd, enum fb_role role, int nonblock)
{
    struct fb_stream *s;
    struct pl_file *f;

    if (!pl_started() || !pl_is_owner_here())
        return NULL;
    pl_signals_on();
    PL_SECTION;
    s = fb_track(fd, role, nonblock);
    if (!s)
        return NULL;
    if (fd <= 2)
        fb_pin(s, RSN_STDIO_FD, false);
    if (role == FB_CONNECTED)
        fb_sleeps_since(s, pl_made_since(fd));
    f = pl_install(fd, PL_STREAM, s);
    if (f) {
        if (role == FB_CONNECTED)
            connected(f);
        return s;
    }
    fb_put(s);
    return NULL;
}

static bool for_tcp(int domain, int type, int protocol)
{
    return (domain == AF_INET || domain == AF_INET6) &&
           (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
           (protocol == 0 || protocol == IPPROTO_TCP);
}

PL_EXPORT int socket(int domain, int type, int protocol)
{
    uint32_t begun;
    int fd;

    pl_ready();
    begun = pl_made_begin();
    fd = PL_NUMBERED(pl_real.socket(domain, type, protocol));
    if (fd >= 0) {
        pl_drop_stale(fd);
        pl_epoll_unmark(fd);
        if (for_tcp(domain, type, protocol) && pl_is_owner_here())
            pl_made_note(fd, begun);
    }
    return fd;
}

/* ---- connect ---- */

static void unconnect(struct pl_file *f)
{
    struct fb_stream *s = f->stream;

    fb_get(s);
    pl_disconnected(s);
    fb_put(s);
}

PL_EXPORT int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
    const struct sockaddr *to = addr.__sockaddr__;
    sa_family_t family = AF_INET;
    int ret, err;

    pl_ready();
    PL_HELD f = pl_hold(fd);
    if (!to || len < sizeof(family))
        return RSK_OPENED(pl_real.connect(fd, addr, len));
    if (f && f->kind == PL_STREAM && fb_copy(&family, &to->sa_family, sizeof(family), true) &&
        family == AF_UNSPEC) {
        pthread_testcancel();
        ret = fb_disconnect(f->stream, fd, to, len);
        if (ret == 0)
            unconnect(f);
        return (int)pl_ret(ret);
    }
    ret = f ? RSK_OPENED(pl_real.connect(fd, addr, len)) : pl_real.connect(fd, addr, len);
    /* A number that is known already: the second connect() of a non-blocking socket, or an
     * error. */
    err = errno;
    if (f && f->kind == PL_STREAM)
        fb_connect_said(f->stream, ret == 0 ? 0 : err);
    /* The kernel has read the address if it connects. */
    if (f || (ret != 0 && err != EINPROGRESS) ||
        (to->sa_family != AF_INET && to->sa_family != AF_INET6))
        return ret;
    if (pl_made(fd) || pl_is_tcp(fd))
        pl_track(fd, FB_CONNECTED, -1);
    errno = err;
    return ret;
}

PL_ALIAS(__connect, connect);

/* ---- listen, accept ---- */

PL_EXPORT int listen(int fd, int backlog)
{
    int ret;

    pl_ready();
    PL_HELD f = pl_hold(fd);
    ret = pl_real.listen(fd, backlog);
    if (ret == 0)
        pl_made_forget(fd);
    if (ret == 0 && !f && pl_is_tcp(fd) && pl_is_owner())
        pl_install(fd, PL_LISTENER, NULL);
    return ret;
}

static bool is_listener(int fd)
{
    int listens = 0;
    socklen_t len = sizeof(listens);

    return sys_getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens;
}

/* Whether fd, which this socket has accepted, is TCP; asks the kernel at the first accept on a
 * socket that somebody else made a listener. By now the number may be another socket's: closed
 * under a thread that slept in accept. */
static bool accepts_tcp(int listener, int fd)
{
    PL_HELD f = pl_hold_number(listener);

    if (f && f->kind == PL_LISTENER)
        return true;
    if (!pl_is_tcp(fd))
        return false;
    if (!f && is_listener(listener) && pl_is_tcp(listener) && pl_is_owner())
        pl_install_listener(listener);
    return true;
}

/* Time-outs of less than none, which its listener may have had before: the kernel shows
 * them as none. */
static void stays_accepted(int fd)
{
    PL_HELD f = pl_get_stream(fd);

    if (f)
        fb_pin(f->stream, RSN_OPTION, false);
}

static int accepted(int listener, int fd, int nonblock)
{
    if (fd < 0)
        return fd;
    pl_drop_stale(fd);
    if (accepts_tcp(listener, fd))
        pl_track(fd, FB_ACCEPTED, nonblock);
    if (__builtin_expect(atomic_load_explicit(&pl_past_given, memory_order_relaxed), 0))
        stays_accepted(fd);
    return fd;
}

/* The kernel takes the number before it sleeps: so this is over by then, and does something only
 * while a step of ours is under way. */
static inline __attribute__((always_inline)) void await_number(void)
{
    if (__builtin_expect(atomic_load_explicit(&rsk_own_inside.n, memory_order_relaxed) != 0, 0))
        PL_NUMBERED((void)0);
}

PL_EXPORT int accept(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
    pl_ready();
    await_number();
    /* Linux's accepted sockets do not inherit O_NONBLOCK. */
    return accepted(fd, pl_real.accept(fd, addr, len), 0);
}

PL_EXPORT int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *len, int flags)
{
    pl_ready();
    await_number();
    return accepted(fd, pl_real.accept4(fd, addr, len, flags), (flags & SOCK_NONBLOCK) != 0);
}

/* ---- shutdown ---- */

PL_EXPORT int shutdown(int fd, int how)
{
    pl_ready();
    PL_HELD f = pl_get_stream(fd);

    /* An unknown `how` is the kernel's to refuse. */
    if (!f || how < SHUT_RD || how > SHUT_RDWR)
        return pl_real.shutdown(fd, how);
    rsk_sig.quiet = 0;
    return (int)pl_ret(fb_shutdown(f->stream, fd, how));
}
