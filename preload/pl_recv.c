/*
 * pl_recv.c - read, recv and their family. Each call becomes an iovec and flags. While
 * the stream's receiving half is plain, the application's own call goes to the kernel
 * between fb_rx_enter and fb_rx_leave; otherwise fb_recvv does it all.
 *
 * Called by the application on any thread, also in signal handlers. A cancelled thread
 * unwinds through here: references and counts are given back by cleanups.
 */
#include "preload/pl_short.h"
#include "preload/pl_wait.h"

#include "config/reason.h"
#include "rsock/sys.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>

/* A receive that is inside the kernel: what is counted, and the window of the call. */
struct in_kernel {
    struct fb_stream *s;
    int fd;
    bool odd; /* see enter() */
    uint32_t cut;
    struct rsk_pass pass;
};

/* The call will not return, and has taken no bytes. odd: not NULL if it was. */
static void lower(void *stream, void *odd)
{
    struct fb_stream *s = stream;

    if (odd)
        atomic_fetch_sub(&s->rx_odd, 1);
    (void)fb_rx_leave(s, -1, -EINTR, NULL, 0, 0);
}

/* The thread was cancelled inside the kernel call. */
static void cancelled(struct in_kernel *k)
{
    if (k->s && rsk_window_close(&k->pass))
        lower(k->s, k->odd ? k->s : NULL);
}

/* A thread asleep in recv(MSG_WAITALL) is not woken by the switch's frame (HARD-CASES 1): rx_odd,
 * raised before fb_rx_enter, keeps the guard away while it is there. Once there is a rail to board,
 * fb_recvv receives piece by piece, so that programs that always ask like this board as well. */
static inline __attribute__((always_inline)) bool enter(struct in_kernel *k, struct fb_stream *s,
                                                        int fd, int flags)
{
    k->odd = flags & MSG_WAITALL;
    k->cut = rsk_sig.cut;
    if (__builtin_expect(flags & MSG_TRUNC, 0))
        return false; /* pl_pass_over */
    if (k->odd && !(flags & MSG_PEEK) && fb_may_board(s)) {
        k->odd = false;
        return false;
    }
    if (k->odd)
        atomic_fetch_add(&s->rx_odd, 1);
    if (fb_rx_enter(s)) {
        k->s = s;
        k->fd = fd;
        rsk_window_open(&k->pass, __builtin_frame_address(0), lower, s, k->odd ? s : NULL);
        return true;
    }
    if (k->odd)
        atomic_fetch_sub(&s->rx_odd, 1);
    if (__builtin_expect(atomic_load_explicit(&pl_passive, memory_order_relaxed), 0) &&
        !(flags & (MSG_WAITALL | MSG_PEEK)) && fb_rx_enter_for_good(s)) {
        k->s = s;
        k->fd = fd;
        rsk_window_open(&k->pass, __builtin_frame_address(0), lower, s, NULL);
        return true;
    }
    return false;
}

static inline ssize_t leave(struct in_kernel *k, ssize_t n, const struct iovec *v, int cnt,
                            int flags)
{
    struct fb_stream *s = k->s;

    k->s = NULL;
    /* A window that was taken for dead was lowered: as if it had not been. */
    if (__builtin_expect(!rsk_window_close(&k->pass), 0)) {
        if (rsk_pass_forked(&k->pass))
            return n < 0 ? -errno : n;
        atomic_fetch_add(&s->rx_in, 1);
        if (k->odd)
            atomic_fetch_add(&s->rx_odd, 1);
    }
    n = fb_rx_leave(s, k->fd, n < 0 ? -errno : n, v, cnt, flags);
    if (k->odd)
        atomic_fetch_sub(&s->rx_odd, 1);
    /* What the kernel gave was a frame, and a handler came with it. */
    if (__builtin_expect(n == FB_RETRY, 0))
        rsk_sig.was_cut = rsk_sig.cut != k->cut;
    return n;
}

ssize_t pl_receive(struct pl_file *f, const struct iovec *v, int cnt, int flags)
{
    bool cut = rsk_sig.was_cut && !(flags & MSG_DONTWAIT) && !f->stream->nonblock;
    ssize_t n;

    rsk_sig.was_cut = false;
    n = fb_recvv(f->stream, f->fd, v, cnt, cut ? flags | MSG_DONTWAIT : flags);
    if (cut && n == -EAGAIN)
        n = -EINTR;
    /* What interrupted the sleep may have been a request to cancel. */
    if (n == -EINTR)
        pthread_testcancel();
    return n;
}

/* Flags of recv that change nothing for a stream, or that the wrapper itself looks after. */
#define RX_IGNORED                                                                         \
    (MSG_NOSIGNAL | MSG_CMSG_CLOEXEC | MSG_WAITFORONE | MSG_MORE | MSG_EOR | MSG_CONFIRM | \
     MSG_DONTROUTE | MSG_CTRUNC)

/* MSG_CMSG_COMPAT, which the kernel refuses to recvmsg and recvmmsg alone. */
#define RX_COMPAT ((int)0x80000000u)

static ssize_t rail(struct pl_file *f, const struct iovec *v, int cnt, int flags, int too_many)
{
    struct iovec one;
    size_t total;
    int err;

    /* A call that may never enter the kernel is a cancellation point all the same. */
    pthread_testcancel();
    err = pl_iov_fit(&v, &cnt, &one, too_many, &total);
    if (err && (err != -EFAULT || !v))
        return err;
    if (flags & MSG_TRUNC)
        return pl_pass_over(f, v, cnt, flags & ~(RX_IGNORED | MSG_TRUNC));
    return err ? pl_recv_to_null(f, v, cnt, flags & ~RX_IGNORED)
               : pl_receive(f, v, cnt, flags & ~RX_IGNORED);
}

/* As rail, for read and readv: they return 0 at once when there is no room, recv waits. */
static ssize_t rail_read(struct pl_file *f, const struct iovec *v, int cnt, int flags)
{
    struct iovec one;
    size_t total;
    int err;

    pthread_testcancel();
    err = pl_iov_fit(&v, &cnt, &one, -EINVAL, &total);
    if (err == -EFAULT && v)
        return pl_recv_to_null(f, v, cnt, flags);
    if (err || total == 0)
        return err;
    return pl_receive(f, v, cnt, flags);
}

/* Has a handler without SA_RESTART run since the short way had looked for bytes, and perhaps waited
 * for them? Then the call does not sleep any more. In the section of the long way, whose sleeps
 * count from here on. */
static inline bool was_cut(const struct pl_short *from)
{
    return from && from->tried && from->cut != rsk_sig.cut;
}

/* `kernel` is the call for a plain half, `on_rail` the one for any other. `from` is NULL, or the
 * short way that the call has come, in which `kernel` may have given `first`. */
#define RECEIVE_FROM(from, first, f, v, cnt, flags, kernel, on_rail)                  \
    ({                                                                                \
        ssize_t got_ = FB_RETRY;                                                      \
        __attribute__((cleanup(cancelled))) struct in_kernel k_ = short_was(from, f); \
        bool first_ = k_.s != NULL, cut_ = was_cut(from);                             \
        while (first_ || (!cut_ && enter(&k_, (f)->stream, (f)->fd, flags))) {        \
            got_ = first_ ? (first) : (kernel);                                       \
            first_ = false;                                                           \
            got_ = leave(&k_, got_, v, cnt, flags);                                   \
            if (__builtin_expect(got_ != FB_RETRY || !pl_passive, 1))                 \
                break;                                                                \
        }                                                                             \
        if (got_ == FB_RETRY) {                                                       \
            if (cut_)                                                                 \
                rsk_sig.was_cut = true;                                               \
            got_ = (on_rail);                                                         \
            rsk_sig.was_cut = false;                                                  \
        }                                                                             \
        pl_ret(got_);                                                                 \
    })
#define RECEIVE(f, v, cnt, flags, kernel, on_rail) \
    RECEIVE_FROM(NULL, 0, f, v, cnt, flags, kernel, on_rail)

static inline struct in_kernel short_was(const struct pl_short *from, struct pl_file *f)
{
    struct in_kernel k = {.s = NULL};

    if (from && from->id) {
        k.s = f->stream;
        k.fd = f->fd;
        k.cut = from->cut;
        k.pass = rsk_short_pass(from->id, f);
    }
    return k;
}

/* The short way's window was left by a handler. */
static void lower_short(void *stream, void *unused)
{
    (void)unused;
    lower(stream, NULL);
}

PL_SHORT_CANCELLED

/* Receives with others are rare, or see something else than the next bytes. */
#define SHORT_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)

#define RECEIVE_SHORT(fd, usual, one_buffer, kernel, on_rail, other) \
    PL_SHORT_CALL(fd, usual, one_buffer, true, lower_short, kernel, on_rail, other)

bool pl_kernels_own(struct pl_file *f, int flags)
{
    /* In a process that stays plain for good a filter may forbid what pl_pass_over would call. */
    const int own = MSG_OOB | MSG_ERRQUEUE |
                    (atomic_load_explicit(&pl_passive, memory_order_relaxed) ? MSG_TRUNC : 0);

    if (__builtin_expect(!(flags & own), 1))
        return false;
    if (flags & MSG_ERRQUEUE)
        return true;
    fb_pin_rx(f->stream, (flags & MSG_OOB) ? RSN_OOB : RSN_CALL);
    return true;
}

/* Into one buffer, in the section of the short way, which ends here: its value and errno. 0: not by
 * that. It may have waited: see was_cut(). */
static inline __attribute__((always_inline)) ssize_t receive_quick(struct pl_short *way, int fd,
                                                                   void *buf, size_t n, int flags)
{
    ssize_t got;

    way->cut = rsk_sig.cut;
    pl_short_rail_begin(way);
    got = buf && (ssize_t)n > 0 ? fb_recv_quick(way->s, fd, buf, n, flags) : 0;
    if (got)
        rsk_sig.was_cut = false;
    pl_short_rail_end(way);
    return pl_ret(got);
}

/* ---- read ---- */

__attribute__((noinline)) static ssize_t readv_rail(struct pl_short *way, const struct iovec *v,
                                                    int cnt)
{
    PL_HELD f = pl_short_held(way);
    ssize_t n = rail_read(f, v, cnt, 0);

    rsk_sig.was_cut = false;
    return pl_ret(n);
}

__attribute__((noinline)) static ssize_t read_long(int fd, void *buf, size_t n,
                                                   struct pl_short *way, ssize_t first)
{
    pl_ready();
    PL_HELD f = pl_short_stream(way, fd);
    struct iovec v = {buf, n};

    if (!f)
        return pl_real.read(fd, buf, n);
    return RECEIVE_FROM(way, first, f, &v, 1, 0, pl_real.read(fd, buf, n),
                        PL_TOO_LONG(n) ? -EFAULT : rail_read(f, &v, 1, 0));
}

PL_EXPORT PL_SHORT ssize_t read(int fd, void *buf, size_t n)
{
    return RECEIVE_SHORT(fd, true, true, pl_real.read(fd, buf, n),
                         receive_quick(&way, fd, buf, n, 0), read_long(fd, buf, n, &way, got));
}

PL_ALIAS(__read, read);

PL_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
    pl_ready();
    /* Too little room: libc reports it and aborts. */
    return n > room ? pl_real.__read_chk(fd, buf, n, room) : read(fd, buf, n);
}

__attribute__((noinline)) static ssize_t readv_long(int fd, const struct iovec *v, int cnt,
                                                    struct pl_short *way, ssize_t first)
{
    pl_ready();
    PL_HELD f = pl_short_stream(way, fd);

    if (!f)
        return pl_real.readv(fd, v, cnt);
    return RECEIVE_FROM(way, first, f, v, cnt, 0, pl_real.readv(fd, v, cnt),
                        rail_read(f, v, cnt, 0));
}

PL_EXPORT PL_SHORT ssize_t readv(int fd, const struct iovec *v, int cnt)
{
    return RECEIVE_SHORT(fd, true, false, pl_real.readv(fd, v, cnt), readv_rail(&way, v, cnt),
                         readv_long(fd, v, cnt, &way, got));
}

/* On a socket only offset -1 is no error, and these flags; RWF_NOWAIT alone means something. */
#define RWF_KNOWN (RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND)

PL_EXPORT ssize_t preadv2(int fd, const struct iovec *v, int cnt, off_t off, int flags)
{
    pl_ready();
    PL_HELD f = pl_get_stream(fd);

    if (!f || off != -1)
        return pl_real.preadv2(fd, v, cnt, off, flags); /* a socket's is an error at once */
    if (flags & ~RWF_KNOWN)
        fb_pin_rx(f->stream, RSN_CALL);
    return RECEIVE(f, v, cnt, 0, pl_real.preadv2(fd, v, cnt, off, flags),
                   flags & ~RWF_KNOWN || (flags & RWF_NOWAIT && !pl_iov_nowait())
                       ? -EOPNOTSUPP
                       : rail_read(f, v, cnt, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0));
}

PL_EXPORT ssize_t preadv64v2(int fd, const struct iovec *v, int cnt, off64_t off, int flags)
{
    return preadv2(fd, v, cnt, off, flags);
}

/* ---- recv ---- */

__attribute__((noinline)) static ssize_t recv_long(int fd, void *buf, size_t n, int flags,
                                                   struct pl_short *way, ssize_t first)
{
    pl_ready();
    PL_HELD f = pl_short_stream(way, fd);
    struct iovec v = pl_iov_one(buf, n);

    if (!f)
        return pl_real.recv(fd, buf, n, flags);
    if (pl_kernels_own(f, flags))
        return RSK_OPENED(pl_real.recv(fd, buf, n, flags));
    return RECEIVE_FROM(way, first, f, &v, 1, flags, pl_real.recv(fd, buf, n, flags),
                        rail(f, &v, 1, flags & ~RX_COMPAT, -EMSGSIZE));
}

PL_EXPORT PL_SHORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    return RECEIVE_SHORT(fd, !(flags & ~SHORT_FLAGS), true, pl_real.recv(fd, buf, n, flags),
                         receive_quick(&way, fd, buf, n, flags),
                         recv_long(fd, buf, n, flags, &way, got));
}

PL_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags);
PL_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags)
{
    pl_ready();
    return n > room ? pl_real.__recv_chk(fd, buf, n, room, flags) : recv(fd, buf, n, flags);
}

/* TCP gives no source address: the kernel sets its length to 0, and refuses a negative one late. */
static ssize_t from_nobody(ssize_t n, const void *addr, socklen_t *len)
{
    if (n < 0 || !addr)
        return n;
    if (!len)
        return -EFAULT;
    if ((int)*len < 0)
        return -EINVAL;
    *len = 0;
    return n;
}

static inline ssize_t recvfrom_quick(struct pl_short *way, int fd, void *buf, size_t n, int flags,
                                     const void *addr, socklen_t *len)
{
    ssize_t got = receive_quick(way, fd, buf, n, flags);

    return __builtin_expect(addr && got > 0, 0) ? pl_ret(from_nobody(got, addr, len)) : got;
}

__attribute__((noinline)) static ssize_t recvfrom_long(int fd, void *buf, size_t n, int flags,
                                                       __SOCKADDR_ARG addr, socklen_t *len,
                                                       struct pl_short *way, ssize_t first)
{
    pl_ready();
    PL_HELD f = pl_short_stream(way, fd);
    struct iovec v = pl_iov_one(buf, n);

    if (!f)
        return pl_real.recvfrom(fd, buf, n, flags, addr, len);
    if (pl_kernels_own(f, flags))
        return RSK_OPENED(pl_real.recvfrom(fd, buf, n, flags, addr, len));
    return RECEIVE_FROM(
        way, first, f, &v, 1, flags, pl_real.recvfrom(fd, buf, n, flags, addr, len),
        from_nobody(rail(f, &v, 1, flags & ~RX_COMPAT, -EMSGSIZE), addr.__sockaddr__, len));
}

PL_EXPORT PL_SHORT ssize_t recvfrom(int fd, void *buf, size_t n, int flags, __SOCKADDR_ARG addr,
                                    socklen_t *len)
{
    return RECEIVE_SHORT(fd, !(flags & ~SHORT_FLAGS), true,
                         pl_real.recvfrom(fd, buf, n, flags, addr, len),
                         recvfrom_quick(&way, fd, buf, n, flags, addr.__sockaddr__, len),
                         recvfrom_long(fd, buf, n, flags, addr, len, &way, got));
}

PL_EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t room, int flags,
                                 __SOCKADDR_ARG addr, socklen_t *len);
PL_EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t room, int flags,
                                 __SOCKADDR_ARG addr, socklen_t *len)
{
    pl_ready();
    return n > room ? pl_real.__recvfrom_chk(fd, buf, n, room, flags, addr, len)
                    : recvfrom(fd, buf, n, flags, addr, len);
}

static ssize_t rail_msg(struct pl_file *f, struct msghdr *msg, int flags)
{
    if (msg->msg_name && (int)msg->msg_namelen < 0)
        return -EINVAL;
    return pl_msg_told(f, msg, flags,
                       rail(f, msg->msg_iov, pl_iov_count(msg->msg_iovlen), flags, -EMSGSIZE));
}

/* When bytes of a ring came nobody knows. */
static void kernels_stamps(struct pl_file *f)
{
    if (!fb_plain_rx(f->stream) && fb_stamps(f->stream))
        fb_pin_rx(f->stream, RSN_OPTION);
}

/* The kernel has filled in what it says beside the bytes, which are to be received anew. */
static void unsay(struct msghdr *msg, const struct msghdr *was)
{
    msg->msg_namelen = was->msg_namelen;
    msg->msg_controllen = was->msg_controllen;
    msg->msg_flags = was->msg_flags;
}

/* Of the first message of recvmmsg the kernel has not been asked for an error yet. */
static ssize_t plain_one(int fd, struct mmsghdr *m, int flags)
{
    return pl_real.recvmmsg(fd, m, 1, flags, NULL) == 1 ? (ssize_t)m->msg_len : -1;
}

static ssize_t message(struct pl_file *f, int fd, struct msghdr *msg, struct mmsghdr *m, int flags,
                       bool again);

/* was: msg as it was before a call of the kernel's that met only a frame; NULL: there was none. A
 * stream that has boarded in that call, and whose messages have stamps, leaves for these and is
 * received from anew, once. */
static ssize_t message_on_rail(struct pl_file *f, int fd, struct msghdr *msg, struct mmsghdr *m,
                               int flags, const struct msghdr *was, bool again)
{
    ssize_t n;

    if (was)
        unsay(msg, was);
    if (!was || again || rsk_sig.was_cut || !fb_stamps(f->stream))
        return rail_msg(f, msg, flags);
    n = message(f, fd, msg, m, flags, true);
    return n < 0 ? -errno : n;
}

/* m: recvmmsg's, or NULL. */
static ssize_t message(struct pl_file *f, int fd, struct msghdr *msg, struct mmsghdr *m, int flags,
                       bool again)
{
    const struct msghdr was = *msg;
    bool asked = false;

    kernels_stamps(f);
    return RECEIVE(f, msg->msg_iov, pl_iov_count(msg->msg_iovlen), flags,
                   (asked = true, m ? plain_one(fd, m, flags) : pl_real.recvmsg(fd, msg, flags)),
                   message_on_rail(f, fd, msg, m, flags, asked ? &was : NULL, again));
}

PL_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    pl_ready();
    PL_HELD f = pl_get_stream(fd);
    ssize_t n;

    if (!f) {
        n = pl_real.recvmsg(fd, msg, flags);
        if (n >= 0)
            pl_arrived_with(fd, msg, flags);
        return n;
    }
    if (!msg || pl_kernels_own(f, flags))
        return RSK_OPENED(pl_real.recvmsg(fd, msg, flags));
    return message(f, fd, msg, NULL, flags, false);
}

ssize_t pl_recv_first(struct pl_file *f, int fd, struct mmsghdr *m, int flags)
{
    return message(f, fd, &m->msg_hdr, m, flags, false);
}
