/*
 * pl_recvmmsg.c - several messages with one call: each is received as by recvmsg (pl_recv.c), in a
 * loop like the kernel's. And what a message from a rail says beside its bytes.
 *
 * Called by the application on any thread, also in signal handlers.
 */
#include "preload/pl_own.h"
#include "preload/pl_wait.h"

#include "rsock/sys.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <netinet/in.h>
#include <string.h>

/* As the kernel's put_cmsg: what there is no room for is cut off, and the flag says so. */
static void put_inq(struct msghdr *msg, int inq)
{
    struct cmsghdr head = {
        .cmsg_len = CMSG_LEN(sizeof inq), .cmsg_level = IPPROTO_TCP, .cmsg_type = TCP_CM_INQ};
    size_t room = msg->msg_control ? msg->msg_controllen : 0;

    msg->msg_controllen = 0;
    if (room < head.cmsg_len)
        msg->msg_flags |= MSG_CTRUNC;
    if (room < sizeof head)
        return;
    if (room < head.cmsg_len)
        head.cmsg_len = room;
    memcpy(msg->msg_control, &head, sizeof head);
    memcpy(CMSG_DATA((struct cmsghdr *)msg->msg_control), &inq, head.cmsg_len - sizeof head);
    msg->msg_controllen = room < CMSG_SPACE(sizeof inq) ? room : CMSG_SPACE(sizeof inq);
}

ssize_t pl_msg_told(struct pl_file *f, struct msghdr *msg, int flags, ssize_t n)
{
    int inq;

    if (n < 0)
        return n;
    if (msg->msg_name)
        msg->msg_namelen = 0;
    msg->msg_flags = flags & MSG_CMSG_CLOEXEC;
    inq = fb_inq_told(f->stream, f->fd);
    if (inq >= 0)
        put_inq(msg, inq);
    else
        msg->msg_controllen = 0;
    return n;
}

/* The socket's error, for which the kernel's recvmmsg looks before it receives anything. With no
 * message it does nothing else, and is called like that here. (SO_ERROR would also give, and take,
 * an error that ends nothing.) On a plain half the kernel's call for the first message looks
 * itself, but is not given the time-out. 0 or -errno. */
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

/* One behind the first, on any half: a handler ends its wait, where recvmsg itself
 * would begin again. */
static ssize_t next_one(struct pl_file *f, int fd, struct msghdr *h, int flags)
{
    const struct iovec *v = h->msg_iov;
    int cnt = pl_iov_count(h->msg_iovlen);
    struct iovec one;
    size_t total;
    ssize_t n;

    if ((flags & ~(MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL)) || fb_stamps(f->stream) ||
        (h->msg_name && (int)h->msg_namelen < 0) || pl_iov_fit(&v, &cnt, &one, -EMSGSIZE, &total))
        return recvmsg(fd, h, flags);
    pthread_testcancel();
    n = fb_recv_on(f->stream, f->fd, v, cnt, flags & ~MSG_NOSIGNAL);
    if (n == -EINTR)
        pthread_testcancel();
    return pl_ret(pl_msg_told(f, h, flags, n));
}

/*
 * One message after the other, as the kernel's own loop, which no frame could wake: MSG_WAITFORONE
 * waits for the first only, the time is looked at after each, and an error that comes after the
 * first is the next call's.
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
        n = i == 0 ? pl_recv_first(f, fd, msgs, each) : next_one(f, fd, &msgs[i].msg_hdr, each);
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
    int err, n;

    if (!f) {
        n = pl_real.recvmmsg(fd, msgs, cnt, flags, timeout);
        for (int i = 0; i < n; i++)
            pl_arrived_with(fd, &msgs[i].msg_hdr, flags);
        return n;
    }
    if (!msgs || cnt == 0 || pl_kernels_own(f, flags))
        return RSK_OPENED(pl_real.recvmmsg(fd, msgs, cnt, flags, timeout));
    /* Before anything that can still be read, as the kernel has it here. */
    err = error_of(f, fd, msgs, flags, timeout);
    return err ? (int)pl_ret(err) : one_by_one(f, fd, msgs, cnt, flags, timeout);
}
