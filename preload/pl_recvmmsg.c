/*
 * pl_recvmmsg.c - several messages with one call: each is received as by recvmsg (pl_recv.c), in a loop like the kernel's.
 *
 * Called by the application on any thread, also in signal handlers.
 */
#include "preload/pl_own.h"
#include "preload/pl_wait.h"

#include "rsock/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

/* What the kernel's recvmmsg asks before it receives anything, and all that it does with no message. (SO_ERROR would
 * also give, and take, an error that ends nothing.) On a plain half its own call for the first does it, but for the
 * time. 0 or -errno. */
static int error_of(struct pl_file *f, int fd, struct mmsghdr *msgs, int flags,
                    struct timespec *timeout)
{
    int err = fb_so_error(f->stream);

    if (!err && (timeout || atomic_load(&f->stream->rx_gate))) {
        err = (int)SYS6(SYS_recvmmsg, fd, msgs, 0, flags, timeout, 0);
        if (err)
            fb_told(f->stream, fd);
    }
    return err;
}

bool pl_another(int fd, int flags, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    struct timeval limit = {0, 0};
    struct timespec ts = {0, 0};
    socklen_t len = sizeof(limit);
    int n;

    if (flags & MSG_DONTWAIT || ppoll(&p, 1, &ts, NULL) > 0 ||
        SYS6(SYS_fcntl, fd, F_GETFL, 0, 0, 0, 0) & O_NONBLOCK)
        return true; /* or the call itself says that there is none */
    sys_getsockopt(fd, SOL_SOCKET, events == POLLIN ? SO_RCVTIMEO : SO_SNDTIMEO, &limit, &len);
    ts = (struct timespec){limit.tv_sec, limit.tv_usec * 1000};
    n = ppoll(&p, 1, limit.tv_sec || limit.tv_usec ? &ts : NULL, NULL);
    if (n == 0)
        errno = EAGAIN;
    return n > 0;
}

/*
 * One message after the other, as the kernel's own loop, which no frame could wake: MSG_WAITFORONE waits for the first
 * only, the time is looked at after each, and an error that comes after the first is the next call's.
 */
static int one_by_one(struct pl_file *f, int fd, struct mmsghdr *msgs, unsigned int cnt, int flags,
                      struct timespec *timeout)
{
    uint64_t deadline = pl_deadline_ts(timeout);
    int each = flags & ~MSG_WAITFORONE, saved = errno;
    uint32_t signals = rsk_sig.seen;
    unsigned int i = 0;
    ssize_t n;

    do {
        n = i == 0 || pl_another(fd, each, POLLIN) ? pl_recv_one(f, fd, &msgs[i], each, i == 0)
                                                   : -1;
        if (n < 0)
            break;
        msgs[i++].msg_len = (unsigned int)n;
        if (flags & MSG_WAITFORONE)
            each |= MSG_DONTWAIT;
        /* A handler that ran in a wait ends it here, as the next wait of the kernel's. */
    } while (i < cnt && !pl_expired(deadline) && rsk_sig.seen == signals);
    if (i == 0)
        return -1;
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        fb_keep_error(f->stream, -errno);
    (void)pl_remaining(deadline, timeout);
    errno = saved;
    return (int)i;
}

PL_EXPORT int recvmmsg(int fd, struct mmsghdr *msgs, unsigned int cnt, int flags,
                       struct timespec *timeout)
{
    pl_ready();
    PL_HELD f = pl_get_stream(fd);
    int err;

    if (!f)
        return pl_real.recvmmsg(fd, msgs, cnt, flags, timeout);
    if (!msgs || cnt == 0 || pl_kernels_own(f, flags))
        return RSK_OPENED(pl_real.recvmmsg(fd, msgs, cnt, flags, timeout));
    /* Before anything that can still be read, as the kernel has it here. */
    err = error_of(f, fd, msgs, flags, timeout);
    return err ? (int)pl_ret(err) : one_by_one(f, fd, msgs, cnt, flags, timeout);
}
