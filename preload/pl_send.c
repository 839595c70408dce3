/*
 * pl_send.c - write, send and their family; see pl_recv.c for the pattern. SIGPIPE on
 * a rail is raised here for the calling thread, as the kernel does.
 *
 * Called by the application on any thread, also in signal handlers.
 */
#include "preload/pl_short.h"
#include "preload/pl_wait.h"

#include "config/reason.h"
#include "ipoib_fallback/iov.h"
#include "rsock/sys.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

struct in_kernel {
    struct fb_stream *s;
    struct rsk_pass pass;
};

static void lower(void *stream, void *unused)
{
    (void)unused;
    fb_tx_leave(stream, -EINTR, NULL, 0);
}

static void cancelled(struct in_kernel *k)
{
    if (k->s && rsk_window_close(&k->pass))
        lower(k->s, NULL);
}

static inline __attribute__((always_inline)) bool enter(struct in_kernel *k, struct fb_stream *s)
{
    if (!fb_tx_enter(s))
        return false;
    k->s = s;
    rsk_window_open(&k->pass, __builtin_frame_address(0), lower, s, NULL);
    return true;
}

static inline ssize_t leave(struct in_kernel *k, ssize_t n, const struct iovec *v, int cnt)
{
    struct fb_stream *s = k->s;

    if (n < 0)
        n = -errno;
    k->s = NULL;
    if (__builtin_expect(!rsk_window_close(&k->pass), 0)) {
        if (rsk_pass_forked(&k->pass))
            return n;
        atomic_fetch_add(&s->tx_in, 1); /* see pl_recv.c */
    }
    fb_tx_leave(s, n, v, cnt);
    return n;
}

/* rail's too_many for writev: too many elements are -EINVAL, and a call with no bytes does not
 * touch the socket, also where that is at its end. */
enum { BY_WRITEV = 0 };

void pl_sigpipe(void)
{
    const long pid = sys_getpid(), tid = sys_gettid();
    siginfo_t info = {.si_signo = SIGPIPE, .si_code = SI_USER};

    info.si_pid = (pid_t)pid;
    if (!pl_filtered())
        info.si_uid = (uid_t)SYS6(SYS_getuid, 0, 0, 0, 0, 0, 0);
    if (pl_filtered() || SYS6(SYS_rt_tgsigqueueinfo, pid, tid, SIGPIPE, &info, 0, 0) < 0)
        SYS6(SYS_tgkill, pid, tid, SIGPIPE, 0, 0, 0);
}

static void told(ssize_t n, int flags)
{
    if (n == -EPIPE && !(flags & MSG_NOSIGNAL))
        pl_sigpipe();
}

int pl_pin_tx(struct pl_file *f, int reason, int flags)
{
    int r = fb_pin_tx(f->stream, f->fd, reason, flags);

    told(r, flags);
    return r;
}

/* on: of a call that has sent something. */
static inline ssize_t rail_from(struct pl_file *f, const struct iovec *v, int cnt, int flags,
                                int too_many, bool on)
{
    struct iovec one;
    size_t total;
    ssize_t n;

    pthread_testcancel();
    n = pl_iov_fit(&v, &cnt, &one, too_many < 0 ? too_many : -EINVAL, &total);
    if (n || (total == 0 && too_many == BY_WRITEV))
        return n;
    n = on ? fb_send_on(f->stream, f->fd, v, cnt, flags)
           : fb_sendv(f->stream, f->fd, v, cnt, flags);
    if (n == -EINTR)
        pthread_testcancel();
    told(n, flags);
    return n;
}

static ssize_t rail(struct pl_file *f, const struct iovec *v, int cnt, int flags, int too_many)
{
    return rail_from(f, v, cnt, flags, too_many, false);
}

/* `from` and `first` as RECEIVE_FROM's. */
#define SEND_FROM(from, first, f, v, cnt, kernel, on_rail)                            \
    ({                                                                                \
        /* What they are read from may be gone after the call. */                     \
        const struct iovec *v_ = (v);                                                 \
        int cnt_ = (cnt);                                                             \
        ssize_t sent_;                                                                \
        __attribute__((cleanup(cancelled))) struct in_kernel k_ = short_was(from, f); \
        if (k_.s) {                                                                   \
            sent_ = leave(&k_, first, v_, cnt_);                                      \
        } else if (enter(&k_, (f)->stream)) {                                         \
            sent_ = (kernel);                                                         \
            sent_ = leave(&k_, sent_, v_, cnt_);                                      \
        } else {                                                                      \
            sent_ = (on_rail);                                                        \
        }                                                                             \
        pl_ret(sent_);                                                                \
    })
#define SEND(f, v, cnt, kernel, on_rail) SEND_FROM(NULL, 0, f, v, cnt, kernel, on_rail)

static inline struct in_kernel short_was(const struct pl_short *from, struct pl_file *f)
{
    struct in_kernel k = {.s = NULL};

    if (from && from->id) {
        k.s = f->stream;
        k.pass = rsk_short_pass(from->id, f);
    }
    return k;
}

PL_SHORT_CANCELLED

/* Those that most sends have. */
#define SHORT_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE)
/* MSG_CMSG_COMPAT, which the kernel refuses to sendmsg and sendmmsg alone. */
#define TX_COMPAT ((int)0x80000000u)

#define SEND_SHORT(fd, usual, one_buffer, kernel, on_rail, other) \
    PL_SHORT_CALL(fd, usual, one_buffer, false, lower, kernel, on_rail, other)

/* Sends that a rail cannot carry: the stream leaves and stays on TCP. 0, or -errno, with which
 * the call ends. */
static int pin_for(struct pl_file *f, int flags, bool control)
{
    if (__builtin_expect(!(flags & (MSG_OOB | MSG_ZEROCOPY | MSG_FASTOPEN)) && !control, 1))
        return 0;
    return pl_pin_tx(f, (flags & MSG_OOB) ? RSN_OOB : RSN_CALL, flags);
}

/* TCP fast open connects and sends in one call: seen, and left on TCP. */
static void track_fastopen(int fd, ssize_t n)
{
    int err = errno;

    if (n < 0 && err != EINPROGRESS)
        return;
    if (pl_is_tcp(fd) && pl_track(fd, FB_CONNECTED, -1)) {
        PL_HELD f = pl_get_stream(fd);

        if (f)
            fb_pin(f->stream, RSN_CALL, false);
    }
    errno = err;
}

__attribute__((noinline)) static ssize_t send_rail(struct pl_short *way, const struct iovec *v,
                                                   int cnt, int flags, int too_many)
{
    PL_HELD f = pl_short_held(way);

    return pl_ret(rail(f, v, cnt, flags, too_many));
}

/* From one buffer, in the section of the short way, which ends here. 0: not by that. */
static inline __attribute__((always_inline)) ssize_t send_quick(struct pl_short *way, int fd,
                                                                const void *buf, size_t n,
                                                                int flags)
{
    ssize_t got;

    pl_short_rail_begin(way);
    got = buf && n ? (ssize_t)fb_send_quick(way->s, fd, buf, n, flags) : 0;
    pl_short_rail_end(way);
    return got;
}

/* ---- write ---- */

__attribute__((noinline)) static ssize_t write_long(int fd, const void *buf, size_t n,
                                                    struct pl_short *way, ssize_t first)
{
    pl_ready();
    PL_HELD f = pl_short_stream(way, fd);
    struct iovec v = {(void *)buf, n};

    if (!f)
        return pl_real.write(fd, buf, n);
    return SEND_FROM(way, first, f, &v, 1, pl_real.write(fd, buf, n),
                     PL_TOO_LONG(n) ? -EFAULT : rail(f, &v, 1, 0, -EINVAL));
}

PL_EXPORT PL_SHORT ssize_t write(int fd, const void *buf, size_t n)
{
    return SEND_SHORT(fd, true, true, pl_real.write(fd, buf, n), send_quick(&way, fd, buf, n, 0),
                      write_long(fd, buf, n, &way, got));
}

PL_ALIAS(__write, write);

__attribute__((noinline)) static ssize_t writev_long(int fd, const struct iovec *v, int cnt,
                                                     struct pl_short *way, ssize_t first)
{
    pl_ready();
    PL_HELD f = pl_short_stream(way, fd);

    if (!f)
        return pl_real.writev(fd, v, cnt);
    return SEND_FROM(way, first, f, v, cnt, pl_real.writev(fd, v, cnt),
                     rail(f, v, cnt, 0, BY_WRITEV));
}

PL_EXPORT PL_SHORT ssize_t writev(int fd, const struct iovec *v, int cnt)
{
    return SEND_SHORT(fd, true, false, pl_real.writev(fd, v, cnt),
                      send_rail(&way, v, cnt, 0, BY_WRITEV), writev_long(fd, v, cnt, &way, got));
}

/* See preadv2. */
PL_EXPORT ssize_t pwritev2(int fd, const struct iovec *v, int cnt, off_t off, int flags)
{
    int how, err;

    pl_ready();
    PL_HELD f = pl_get_stream(fd);

    how = flags & RWF_NOWAIT ? MSG_DONTWAIT : 0;
    if (!f || off != -1)
        return pl_real.pwritev2(fd, v, cnt, off, flags);
    err = flags ? pl_pin_tx(f, RSN_CALL, how) : 0;
    if (err)
        return pl_ret(err);
    return SEND(f, v, cnt, pl_real.pwritev2(fd, v, cnt, off, flags),
                rail(f, v, cnt, how, BY_WRITEV));
}

PL_EXPORT ssize_t pwritev64v2(int fd, const struct iovec *v, int cnt, off64_t off, int flags)
{
    return pwritev2(fd, v, cnt, off, flags);
}

/* ---- send ---- */

__attribute__((noinline)) static ssize_t send_long(int fd, const void *buf, size_t n, int flags,
                                                   struct pl_short *way, ssize_t first)
{
    pl_ready();
    PL_HELD f = pl_short_stream(way, fd);
    struct iovec v = pl_iov_one(buf, n);
    int err;

    if (!f)
        return pl_real.send(fd, buf, n, flags);
    err = pin_for(f, flags, false);
    if (err)
        return pl_ret(err);
    return SEND_FROM(way, first, f, &v, 1, pl_real.send(fd, buf, n, flags),
                     rail(f, &v, 1, flags & ~TX_COMPAT, -EMSGSIZE));
}

PL_EXPORT PL_SHORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    return SEND_SHORT(fd, !(flags & ~SHORT_FLAGS), true, pl_real.send(fd, buf, n, flags),
                      send_quick(&way, fd, buf, n, flags), send_long(fd, buf, n, flags, &way, got));
}

PL_ALIAS(__send, send);

/* A connected TCP socket ignores the address, once it could be read and has a possible length. */
static ssize_t rail_to(struct pl_file *f, const struct iovec *v, int flags, const void *addr,
                       socklen_t len)
{
    if (addr && len > sizeof(struct sockaddr_storage))
        return -EINVAL;
    return rail(f, v, 1, flags & ~TX_COMPAT, -EMSGSIZE);
}

__attribute__((noinline)) static ssize_t sendto_long(int fd, const void *buf, size_t n, int flags,
                                                     __CONST_SOCKADDR_ARG addr, socklen_t len,
                                                     struct pl_short *way, ssize_t first)
{
    pl_ready();
    PL_HELD f = pl_short_stream(way, fd);
    struct iovec v = pl_iov_one(buf, n);
    ssize_t sent;
    int err;

    if (!f) {
        sent = pl_real.sendto(fd, buf, n, flags, addr, len);
        if (__builtin_expect(flags & MSG_FASTOPEN, 0))
            track_fastopen(fd, sent);
        return sent;
    }
    err = pin_for(f, flags, false);
    if (err)
        return pl_ret(err);
    return SEND_FROM(way, first, f, &v, 1, pl_real.sendto(fd, buf, n, flags, addr, len),
                     rail_to(f, &v, flags, addr.__sockaddr__, len));
}

PL_EXPORT PL_SHORT ssize_t sendto(int fd, const void *buf, size_t n, int flags,
                                  __CONST_SOCKADDR_ARG addr, socklen_t len)
{
    return SEND_SHORT(fd, !(flags & ~SHORT_FLAGS) && len <= sizeof(struct sockaddr_storage), true,
                      pl_real.sendto(fd, buf, n, flags, addr, len),
                      send_quick(&way, fd, buf, n, flags),
                      sendto_long(fd, buf, n, flags, addr, len, &way, got));
}

static ssize_t rail_msg(struct pl_file *f, const struct msghdr *msg, int flags)
{
    if (msg->msg_name && msg->msg_namelen > INT_MAX)
        return -EINVAL;
    return rail(f, msg->msg_iov, pl_iov_count(msg->msg_iovlen), flags, -EMSGSIZE);
}

/* Of a stream. As sendmsg, with errno. */
static ssize_t send_message(struct pl_file *f, int fd, const struct msghdr *msg, int flags)
{
    int err = pin_for(f, flags, msg->msg_controllen != 0);

    if (err)
        return pl_ret(err);
    return SEND(f, msg->msg_iov, pl_iov_count(msg->msg_iovlen), pl_real.sendmsg(fd, msg, flags),
                rail_msg(f, msg, flags));
}

/* What a message takes with it. Of a thread that is cancelled in the call it is not known whether
 * it has been sent. */
struct passing {
    struct fb_stream *stream;
    bool failed;
};

static void passed(const struct passing *p)
{
    int saved = errno;

    if (!p->stream)
        return;
    if (p->failed)
        fb_not_given(p->stream);
    fb_put(p->stream);
    errno = saved;
}

PL_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    pl_ready();
    PL_HELD f = pl_get_stream(fd);
    __attribute__((cleanup(passed))) struct passing with = {NULL, false};
    ssize_t sent;

    if (f && !msg)
        return RSK_OPENED(pl_real.sendmsg(fd, msg, flags));
    if (f)
        return send_message(f, fd, msg, flags);
    with.stream = pl_passes(fd, msg);
    sent = pl_real.sendmsg(fd, msg, flags);
    with.failed = sent < 0;
    if (__builtin_expect(flags & MSG_FASTOPEN, 0))
        track_fastopen(fd, sent);
    return sent;
}

/* One behind sendmmsg's first, on any half: a handler ends its wait, where sendmsg itself
 * would begin again. */
static ssize_t send_next(struct pl_file *f, int fd, const struct msghdr *msg, int flags)
{
    if ((flags & ~SHORT_FLAGS) || msg->msg_controllen || msg->msg_name)
        return send_message(f, fd, msg, flags);
    return pl_ret(
        rail_from(f, msg->msg_iov, pl_iov_count(msg->msg_iovlen), flags, -EMSGSIZE, true));
}

/* What can be read of it: the kernel says what is wrong with the rest. */
static size_t size_of(const struct msghdr *msg)
{
    struct iovec some[8];
    size_t size = 0;

    for (size_t i = 0, n; i < msg->msg_iovlen; i += n) {
        n = msg->msg_iovlen - i;
        if (n > sizeof(some) / sizeof(*some))
            n = sizeof(some) / sizeof(*some);
        if (!fb_copy(some, msg->msg_iov + i, n * sizeof(*some), true))
            break;
        size += fb_iov_size(some, (int)n);
    }
    return size;
}

/* The kernel's loop: stops at an error, which counts only when nothing was sent, and at a message
 * that was sent in part. */
static int each_message(struct pl_file *f, struct mmsghdr *msgs, unsigned int cnt, int fd,
                        int flags)
{
    unsigned int i;
    size_t want;
    ssize_t n;
    int saved = errno;

    if (cnt > IOV_MAX)
        cnt = IOV_MAX;
    for (i = 0; i < cnt; i++) {
        /* Before: who has the answer may give the vector back. Of the last one it is not needed. */
        want = i + 1 < cnt ? size_of(&msgs[i].msg_hdr) : 0;
        n = (i == 0 ? send_message : send_next)(f, fd, &msgs[i].msg_hdr, flags);
        if (n < 0)
            break;
        msgs[i].msg_len = (unsigned int)n;
        if ((size_t)n < want) {
            i++;
            break;
        }
    }
    if (i == 0 && cnt)
        return -1;
    errno = saved;
    return (int)i;
}

PL_EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned int cnt, int flags)
{
    pl_ready();
    PL_HELD f = pl_get_stream(fd);
    if (f && msgs)
        return each_message(f, msgs, cnt, fd, flags);
    pl_passes_in(fd, msgs, cnt);
    return pl_real.sendmmsg(fd, msgs, cnt, flags);
}
