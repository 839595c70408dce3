/*
 * settings.c - the settings of a socket that matter to a stream, and what a forked child
 * forgets.
 */
#include "ipoib_fallback/budget.h"
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/pubfile.h"
#include "ipoib_fallback/quota.h"
#include "ipoib_fallback/stream.h"
#include "ipoib_fallback/tap.h"
#include "ipoib_fallback/tx.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

void fb_set_nonblock(struct fb_stream *s, bool on)
{
    atomic_store(&s->nonblock, on);
}

/* past: calls find their time over. */
static uint64_t timeout_of(int fd, int name, bool past)
{
    struct timeval tv = {0, 0};
    socklen_t len = sizeof(tv);

    if (past)
        return 1;
    sys_getsockopt(fd, SOL_SOCKET, name, &tv, &len);
    if (tv.tv_sec > INT32_MAX) /* for ever, and not in 64 bits of nanoseconds */
        return 0;
    return (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

void conn_settings(struct fb_conn *c)
{
    int flags, again, low = 1, inq = 0;
    socklen_t len = sizeof(low), inq_len = sizeof(inq);

    if (conn_flag(c, CF_SETTINGS) || c->fd < 0)
        return;
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_CHANGED);
    /* Read again until it is the same: what another thread's fcntl has noted in s->nonblock
     * meanwhile may have been overwritten here by what was read before. */
    for (flags = sys_fcntl(c->fd, F_GETFL, 0); flags >= 0; flags = again) {
        c->s.nonblock = (flags & O_NONBLOCK) != 0;
        again = sys_fcntl(c->fd, F_GETFL, 0);
        if (again == flags)
            break;
    }
    c->x->rcv_timeout = timeout_of(c->fd, SO_RCVTIMEO, c->x->rcv_past);
    c->x->snd_timeout = timeout_of(c->fd, SO_SNDTIMEO, c->x->snd_past);
    if (sys_getsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &low, &len) == 0 && low != 1)
        conn_set(c, CF_RCVLOWAT);
    c->x->tells_inq = sys_getsockopt(c->fd, IPPROTO_TCP, TCP_INQ, &inq, &inq_len) == 0 && inq;
    c->x->stamps = conn_stamps(c);
    conn_set(c, CF_SETTINGS);
    if (conn_flag(c, CF_CHANGED))
        atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_SETTINGS);
}

void conn_changed(struct fb_conn *c)
{
    conn_set(c, CF_CHANGED);
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_SETTINGS);
}

/* What a rail cannot honour: errors and notices that come beside the bytes, a pace, a delay. An
 * accepted socket has them from its listener. */
static const struct option {
    int level, name;
    int64_t none;
} pins[] = {{SOL_SOCKET, SO_OOBINLINE, 0},        {SOL_SOCKET, SO_PEEK_OFF, -1},
            {SOL_SOCKET, SO_TIMESTAMPING_OLD, 0}, /* the new one, too: not each kernel tells that */
            {SOL_SOCKET, SO_TIMESTAMPING_NEW, 0}, {SOL_SOCKET, SO_MAX_PACING_RATE, -1},
            {IPPROTO_TCP, TCP_TX_DELAY, 0},       {IPPROTO_IP, IP_RECVERR, 0},
            {IPPROTO_IPV6, IPV6_RECVERR, 0}};
/* What recvmsg alone would tell. */
static const struct option stamps[] = {{SOL_SOCKET, SO_TIMESTAMP_OLD, 0},
                                       {SOL_SOCKET, SO_TIMESTAMP_NEW, 0},
                                       {SOL_SOCKET, SO_TIMESTAMPNS_OLD, 0},
                                       {SOL_SOCKET, SO_TIMESTAMPNS_NEW, 0}};
enum {
    PINS = sizeof(pins) / sizeof(pins[0]),
    STAMPS = sizeof(stamps) / sizeof(stamps[0]),
};

static bool has_any(const struct fb_conn *c, const struct option *o, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        union {
            int64_t whole; /* a rate */
            int32_t number;
        } value = {0};
        socklen_t len = sizeof(value);
        bool whole = o[i].name == SO_MAX_PACING_RATE;

        if (sys_getsockopt(c->fd, o[i].level, o[i].name, &value, &len) == 0 &&
            (whole && len == sizeof(value) ? value.whole : value.number) != o[i].none)
            return true;
    }
    return false;
}

/* A program of BPF's that looks at what arrives. */
static bool filtered(const struct fb_conn *c)
{
    socklen_t len = 0; /* asks for their number */
    int r = sys_getsockopt(c->fd, SOL_SOCKET, SO_GET_FILTER, NULL, &len);

    return r == 0 ? len > 0 : r == -EACCES; /* eBPF's has none that could be shown */
}

/* A signal tells of each arrival. Set while it was not connected yet nobody has seen it. */
static bool signals(const struct fb_conn *c)
{
    int flags = sys_fcntl(c->fd, F_GETFL, 0);

    return flags >= 0 && (flags & O_ASYNC);
}

bool conn_option(const struct fb_conn *c)
{
    return has_any(c, pins, PINS) || filtered(c) || signals(c);
}

bool conn_stamps(const struct fb_conn *c)
{
    return has_any(c, stamps, STAMPS);
}

/* Who never wants a rail has no page for it. */
static void past(_Atomic bool *is, bool now)
{
    if (atomic_load(is) != now)
        atomic_store(is, now);
}

/* TCP would hold less from now on, or more. By the bound that a rail has begun with its receiver
 * tells of room, so the stream boards anew. The peer is to leave, too, or the rail would stay
 * for its half. */
static void bounded(struct fb_conn *c)
{
    struct rsk_msg m = {.type = FM_LEAVE_REQ, .a = c->s.pub->rx, .reason = RSN_BUFFER};
    struct rsk_rail *rail;

    if (!conn_flag(c, CF_LINKED))
        return;
    fb_lock(&c->x->tx.lock);
    rail = c->x->rail;
    if (c->x->tx.state == TX_R && rail && !rail->failed &&
        tx_bounded(rail, fb_io.bound(c->fd)) != tx_most(rail)) {
        m.epoch = c->x->epoch;
        rail->wire->ctl_send(rail, &m);
        c->x->end_reason = RSN_BUFFER;
        tx_leave(c, RSN_BUFFER, true);
    }
    tx_unlock(c);
}

void fb_sockopt(struct fb_stream *s, int level, int name, int value)
{
    struct fb_conn *c = conn_of(s);

    for (size_t i = 0; i < PINS; i++)
        if (pins[i].level == level && pins[i].name == name && conn_option(c))
            fb_pin(s, RSN_OPTION, true);
    if (level == SOL_SOCKET) {
        switch (name) {
        case SO_RCVTIMEO_OLD:
        case SO_RCVTIMEO_NEW:
            past(&c->x->rcv_past, value < 0);
            conn_changed(c);
            break;
        case SO_SNDTIMEO_OLD:
        case SO_SNDTIMEO_NEW:
            past(&c->x->snd_past, value < 0);
            conn_changed(c);
            break;
        case SO_TIMESTAMP_OLD:
        case SO_TIMESTAMP_NEW:
        case SO_TIMESTAMPNS_OLD:
        case SO_TIMESTAMPNS_NEW:
            conn_changed(c);
            break;
        case SO_SNDBUF:
        case SO_SNDBUFFORCE:
        case SO_BUF_LOCK:
            bounded(c);
            break;
        case SO_RCVLOWAT:
            if (value != 0 && value != 1) { /* the kernel takes 0 for 1 */
                if (conn_flag(c, CF_LINKED))
                    conn_set(c, CF_RCVLOWAT);
                fb_pin(s, RSN_OPTION, true);
            } else { /* its listener's may have been another */
                atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_RCVLOWAT);
                conn_changed(c);
            }
            break;
        case SO_ATTACH_FILTER:
        case SO_ATTACH_BPF:
        case SO_ATTACH_REUSEPORT_CBPF:
        case SO_ATTACH_REUSEPORT_EBPF:
            fb_pin(s, RSN_OPTION, true);
            break;
        default:
            break;
        }
        return;
    }
    if (level != IPPROTO_TCP)
        return;
    switch (name) {
    case TCP_INQ:
        conn_changed(c);
        break;
    case TCP_NODELAY:
        /* Between the kernel's call and this one a push may have set back what was before
         * (fb_io.push). */
        if (conn_flag(c, CF_LINKED)) {
            fb_lock(&c->x->tx.lock);
            sys_setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof(value));
            tx_unlock(c);
        }
        break;
    case TCP_ULP:
    case TCP_REPAIR:
    case TCP_MD5SIG: /* each segment is signed, and what goes over a rail is not */
    case TCP_MD5SIG_EXT:
    case 38: /* TCP_AO_ADD_KEY */
        fb_pin(s, RSN_OPTION, true);
        break;
    default:
        break;
    }
}

enum { CALLERS = 8192 }; /* bytes of stack that are theirs */

/* A variable of a function that has called us, as good as always: the stack is mapped from here to
 * those. Else rt_sigprocmask is asked, which reads its set, 8 bytes, before it looks at `how`,
 * which is none: EFAULT, or EINVAL and nothing has happened. */
static bool readable(const void *p, size_t n)
{
    uintptr_t at = (uintptr_t)p & ~(uintptr_t)7, end = (uintptr_t)p + n;

    if (at - (uintptr_t)__builtin_frame_address(0) < CALLERS)
        return true;
    while (at < end && SYS6(SYS_rt_sigprocmask, -1, at, NULL, 8, 0, 0) == -EINVAL)
        at += 8;
    return at >= end;
}

/* With another process that may ask the kernel, what the kernel has is right. */
bool fb_cork(struct fb_stream *s, const void *value)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_rail *rail;
    bool noted;
    int on;

    /* The gate first: who never wanted a rail has no page for the state. */
    if (!atomic_load_explicit(&s->tx_gate, memory_order_relaxed) || c->x->tx.state != TX_R ||
        conn_flag(c, CF_SHARED | CF_CLOSED) || !readable(value, sizeof(on)))
        return false;
    memcpy(&on, value, sizeof(on));
    fb_lock(&c->x->tx.lock);
    rail = c->x->rail;
    noted = c->x->tx.state == TX_R && rail && !rail->failed && !c->x->tx.fin;
    if (noted)
        c->x->tx.cork = on ? FB_CORK | FB_CORK_ON : FB_CORK;
    tx_unlock(c);
    return noted;
}

void fb_cork_set(struct fb_stream *s)
{
    struct fb_conn *c = conn_of(s);

    if (!conn_flag(c, CF_LINKED))
        return;
    fb_lock(&c->x->tx.lock);
    tx_cork(c);
    tx_unlock(c);
}

void fb_after_fork_child(void)
{
    heir_forget();
    heir_child_forget();
    given_forget();
    budget_forget();
    quota_forget();
    rdv_forget();
    hold_forget();
    harass_forget();
    fb_registry_forget();
    io_forget();
    tap_forget();
    sleepers_forget();
    fb_pub_forget();
}
