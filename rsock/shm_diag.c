/*
 * shm_diag.c - one exact NETLINK_SOCK_DIAG look-up (sock_diag(7)). The kernel answers within
 * the send, so the receive that follows does not wait.
 */
#include "rsock/shm_diag.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <string.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/sys.h"

enum { TCP_STATE_NEW_SYN_RECV = 12 }; /* linux/net/tcp_states.h, not exported by glibc */

struct question {
    struct nlmsghdr h;
    struct inet_diag_req_v2 r;
};

/* The progress thread's socket, which it keeps. It is of the network namespace that the thread is
 * in; the next thread may be in another, and makes its own. */
static int kept = -1;
static _Thread_local bool is_mine, keeps_none;

/* For one call another number, or less memory in use, may do. */
static bool passing(int err)
{
    return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -ENOBUFS;
}

/* Takes a netlink port id other than the process's pid. The kernel gives that to the first socket
 * that asks, and a program that uses netlink itself may count on having it. If none can be had here
 * the kernel chooses one. */
static void bind_elsewhere(int fd)
{
    struct sockaddr_nl at = {.nl_family = AF_NETLINK};

    for (int i = 0; i < 4; i++) {
        if (sys_getrandom(&at.nl_pid, sizeof at.nl_pid) != (int)sizeof at.nl_pid)
            return;
        at.nl_pid |= 1u << 31;
        if (sys_bind(fd, &at, sizeof at) != -EADDRINUSE)
            return;
    }
}

static void refused(int err)
{
    static atomic_bool said;

    /* systemd's filter says that there is no such family; SELinux and AppArmor say that it is
     * not permitted. */
    if (!atomic_exchange(&said, true))
        log_warn(
            "netlink sockets are refused (error %d), so the kernel cannot be asked who owns a connection: no rails "
            "within the host. %s",
            -err,
            err == -EACCES || err == -EPERM
                ? "A security module (SELinux, AppArmor) or a filter does not permit them: see the audit log"
                : "A unit of systemd needs RestrictAddressFamilies=AF_NETLINK");
}

/* -EACCES: there are none for this process. */
static int get_socket(void)
{
    int fd;

    if (is_mine && kept >= 0)
        return kept;
    /* Even for a moment it must not have the number that the application's next
     * descriptor would get. */
    fd = rsk_own_fd(
        sys_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG));
    if (fd < 0 && !passing(fd)) {
        refused(fd);
        return -EACCES;
    }
    if (fd >= 0 && rsk_loop_is_self() && !keeps_none) {
        bind_elsewhere(fd);
        rsk_own_close(kept);
        kept = fd;
        is_mine = true;
    }
    return fd;
}

static void put_socket(int fd, bool failed)
{
    if (fd == kept && !failed)
        return;
    if (fd == kept)
        kept = -1;
    rsk_own_close(fd);
}

void shm_diag_shut(void)
{
    rsk_own_close(kept);
    kept = -1;
    keeps_none = true; /* this thread: it is about to end */
}

void shm_diag_after_fork_child(void)
{
    kept = -1;
}

/* From the kernel, and no answer to an earlier question that was left behind unread. */
static ssize_t receive(int fd, void *to, size_t size, uint32_t seq)
{
    struct nlmsghdr h = {0};
    ssize_t n;

    for (;;) {
        struct sockaddr_nl from = {0};
        socklen_t len = sizeof from;

        n = SYS6(SYS_recvfrom, fd, to, size, 0, &from, &len);
        if (n < (ssize_t)sizeof h)
            return n < 0 ? n : -EPROTO;
        memcpy(&h, to, sizeof h);
        if (from.nl_pid == 0 && h.nlmsg_seq == seq)
            return n;
    }
}

static ssize_t exchange(int fd, struct question *q, void *to, size_t size)
{
    static _Atomic uint32_t seq;
    ssize_t n;

    q->h.nlmsg_seq = atomic_fetch_add(&seq, 1) + 1;
    n = sys_send(fd, q, sizeof *q, MSG_NOSIGNAL);
    return n < 0 ? n : receive(fd, to, size, q->h.nlmsg_seq);
}

static int ask(struct question *q, struct inet_diag_msg *out)
{
    union {
        struct nlmsghdr h;
        char room[2048];
    } a = {0};
    const struct nlmsgerr *e;
    ssize_t n = -1;

    /* What is wrong with a socket that was kept need not be wrong with a new one. */
    for (int tries = is_mine && kept >= 0 ? 2 : 1; n < 0 && tries > 0; tries--) {
        int fd = get_socket();

        if (fd < 0)
            return fd;
        n = exchange(fd, q, &a, sizeof a);
        put_socket(fd, n < 0);
    }
    if (n < 0)
        return (int)n;
    if (!NLMSG_OK(&a.h, (size_t)n))
        return -EPROTO;
    if (a.h.nlmsg_type == NLMSG_ERROR && a.h.nlmsg_len >= NLMSG_LENGTH(sizeof *e)) {
        e = NLMSG_DATA(&a.h);
        return e->error ? e->error : -EPROTO;
    }
    if (a.h.nlmsg_type != SOCK_DIAG_BY_FAMILY || a.h.nlmsg_len < NLMSG_LENGTH(sizeof *out))
        return -EPROTO;
    memcpy(out, NLMSG_DATA(&a.h), sizeof *out);
    return 0;
}

static void put_address(__be32 to[4], const struct rsk_tuple *t, const uint8_t *from, bool mapped)
{
    if (!mapped) {
        memcpy(to, from, t->family == AF_INET ? 4 : 16);
        return;
    }
    to[2] = htonl(0xffff);
    memcpy(&to[3], from, 4);
}

static int look_up(const struct rsk_tuple *t, enum shm_end end, bool mapped,
                   struct inet_diag_msg *out)
{
    const bool src = end == SHM_END_SRC;
    struct question q = {0};

    q.h.nlmsg_len = sizeof q;
    q.h.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    q.h.nlmsg_flags = NLM_F_REQUEST;
    q.r.sdiag_family = mapped ? AF_INET6 : t->family;
    q.r.sdiag_protocol = IPPROTO_TCP;
    q.r.id.idiag_sport = htons(src ? t->src_port : t->dst_port);
    q.r.id.idiag_dport = htons(src ? t->dst_port : t->src_port);
    put_address(q.r.id.idiag_src, t, src ? t->src : t->dst, mapped);
    put_address(q.r.id.idiag_dst, t, src ? t->dst : t->src, mapped);
    q.r.id.idiag_cookie[0] = q.r.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return ask(&q, out);
}

int shm_diag_owner(const struct rsk_tuple *t, enum shm_end end, uint32_t *uid)
{
    struct inet_diag_msg m;
    int err = look_up(t, end, false, &m);

    /* A dual-stack socket is found by its IPv4 addresses on the kernels that were read; by the
     * mapped ones everywhere else. */
    if (err && err != -EACCES && !passing(err) && t->family == AF_INET)
        err = look_up(t, end, true, &m);
    if (err == -EACCES)
        return RSN_NO_NETLINK;
    if (passing(err))
        return err == -EMFILE || err == -ENFILE ? RSN_LIMIT_FD : RSN_NO_MEMORY;
    if (err) {
        if (err != -ENOENT)
            log_debug("inet_diag: error %d", -err);
        return RSN_OTHER_HOST;
    }
    switch (m.idiag_state) {
    case TCP_ESTABLISHED:
    case TCP_CLOSE_WAIT:
    case TCP_FIN_WAIT1:
    case TCP_FIN_WAIT2:
        break;
    case TCP_SYN_RECV:
    case TCP_STATE_NEW_SYN_RECV:
        return RSN_NOT_YET;
    case TCP_LISTEN: /* what the look-up falls back to when there is no such connection */
        return RSN_OTHER_HOST;
    default:
        return RSN_NOT_ESTABLISHED;
    }
    /* In the backlog it has no owner yet; uid 0 then means nothing. */
    if (!m.idiag_inode)
        return RSN_NOT_YET;
    *uid = m.idiag_uid;
    return 0;
}

bool shm_diag_listens(const struct rsk_tuple *t)
{
    /* With the port of no peer the look-up can find nothing else. */
    struct rsk_tuple nobody = *t;
    struct inet_diag_msg m = {0};

    nobody.dst_port = 0;
    return look_up(&nobody, SHM_END_SRC, false, &m) == 0 && m.idiag_state == TCP_LISTEN;
}

bool shm_diag_usable(void)
{
    int fd;

    rsk_own_enter();
    fd = sys_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd >= 0)
        sys_close(fd);
    rsk_own_leave();
    return fd >= 0;
}
