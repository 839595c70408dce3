/*
 * stream.c - the registry of tracked connections: slots that are never unmapped,
 * their counters in the file that stat reads, the plain path's bookkeeping, and
 * the policy that says when a stream is worth a rail.
 */
#include "ipoib_fallback/stream.h"

#include "config/env.h"
#include "config/log.h"
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/pubfile.h"
#include "ipoib_fallback/reach.h"
#include "ipoib_fallback/rule.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/tap.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#define PER_CHUNK 64u
#define CHUNKS    (FB_MAX_STREAMS / PER_CHUNK)

static struct fb_lock registry;
static struct fb_conn *_Atomic chunks[CHUNKS];
static _Atomic uint32_t used_slots;     /* ever used: slots below are valid */
static uint32_t free_head = UINT32_MAX; /* list through next_free */

static struct fb_conn *conn_at(uint32_t slot)
{
    struct fb_conn *chunk = atomic_load_explicit(&chunks[slot / PER_CHUNK], memory_order_acquire);

    return chunk ? &chunk[slot % PER_CHUNK] : NULL;
}

static struct fb_conn *take_slot(void)
{
    struct fb_conn *c = NULL;

    fb_lock(&registry);
    if (free_head != UINT32_MAX) {
        c = conn_at(free_head);
        free_head = c->next_free;
    } else if (used_slots < FB_MAX_STREAMS) {
        uint32_t slot = used_slots;

        if (!conn_at(slot)) {
            void *p = mmap(NULL, PER_CHUNK * sizeof(struct fb_conn), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

            if (p == MAP_FAILED || !fb_pub_grow(slot + PER_CHUNK)) {
                if (p != MAP_FAILED)
                    munmap(p, PER_CHUNK * sizeof(struct fb_conn));
                fb_unlock(&registry);
                return NULL;
            }
            atomic_store_explicit(&chunks[slot / PER_CHUNK], p, memory_order_release);
        }
        c = conn_at(slot);
        c->slot = slot;
        used_slots++;
    }
    fb_unlock(&registry);
    return c;
}

static struct fb_pub_addr address_of(int fd, bool peer)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof(ss);
    int r = peer ? sys_getpeername(fd, &ss, &len) : sys_getsockname(fd, &ss, &len);
    struct fb_pub_addr out = {0};

    if (r < 0)
        return out;
    if (ss.ss_family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)&ss;

        out.family = AF_INET;
        out.port = ntohs(in->sin_port);
        memcpy(out.addr, &in->sin_addr, 4);
    } else if (ss.ss_family == AF_INET6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;

        out.port = ntohs(in6->sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
            out.family = AF_INET;
            memcpy(out.addr, &in6->sin6_addr.s6_addr[12], 4);
        } else {
            out.family = AF_INET6;
            memcpy(out.addr, &in6->sin6_addr, 16);
        }
    }
    return out;
}

/* The first call's thread and the progress thread may both be here, and write the same: without a lock, because
 * before a rail is wanted a handler may jump out of it. Each looks its rule up with addresses of its own. */
bool conn_addresses(struct fb_conn *c)
{
    struct fb_pub_addr local, peer, *src, *dst;
    struct rsk_tuple t = {0};

    if (conn_flag(c, CF_ADDRESSES))
        return true;
    local = c->s.pub->local = address_of(c->fd, false);
    peer = c->s.pub->peer = address_of(c->fd, true);
    if (!local.family || local.family != peer.family)
        return false;
    src = c->s.role == FB_CONNECTED ? &local : &peer;
    dst = c->s.role == FB_CONNECTED ? &peer : &local;
    t.family = (uint8_t)src->family;
    t.src_port = src->port;
    t.dst_port = dst->port;
    memcpy(t.src, src->addr, 16);
    memcpy(t.dst, dst->addr, 16);
    c->tuple = t;
    rule_find(c, &t); /* whoever sees the flag sees what the rule says */
    conn_set(c, CF_ADDRESSES);
    return true;
}

struct fb_stream *fb_track(int fd, enum fb_role role, int nonblock)
{
    struct fb_conn *c = take_slot();
    struct fb_pub *pub;
    uint32_t slot;

    if (!c)
        return NULL;
    slot = c->slot;
    memset(c, 0, sizeof(*c)); /* refs 0: a stale fb_tryget fails until the end of this function */
    c->slot = slot;
    pub = c->s.pub = fb_pub_slot(slot);
    memset((char *)pub + sizeof(pub->gen), 0, sizeof(*pub) - sizeof(pub->gen));
    pub->fd = fd;
    pub->role = (uint8_t)role;
    pub->reason = cfg.stream.mode == CFG_TCP ? RSN_MODE_TCP
                  : cfg.stream.board_never   ? RSN_BOARD_NEVER
                                             : RSN_NEW;
    c->s.role = (uint8_t)role;
    c->fd = fd;
    for (int i = 0; i < 3; i++)
        c->alt_fd[i] = -1;
    c->watch_fd = -1;
    c->set = &cfg.stream;
    c->rx.end = 1;
    fb_digest_init(&c->seen_tx);
    fb_digest_init(&c->seen_rx);
    if (cfg.stream.mode == CFG_TCP || cfg.stream.board_never)
        c->flags = CF_PINNED | CF_ASKED;
    if (fd <= 2) {
        c->flags = CF_PINNED | CF_ASKED;
        pub->reason = RSN_STDIO_FD;
    }
    if (hold_for_good()) {
        c->flags = CF_PINNED | CF_ASKED;
        pub->reason = (uint16_t)hold_for_good();
    }
    if (nonblock >= 0)
        c->s.nonblock = (uint8_t)nonblock;
    atomic_store(&c->s.fds, 1);
    if (role == FB_ACCEPTED)
        conn_addresses(c);
    c->born = atomic_load(&heir_forks);
    c->gen = atomic_fetch_add(&pub->gen, 1) + 1;
    atomic_store_explicit(&c->s.refs, 1, memory_order_release);
    return &c->s;
}

void fb_get(struct fb_stream *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

bool fb_tryget(struct fb_stream *s)
{
    uint32_t n = atomic_load_explicit(&s->refs, memory_order_relaxed);

    while (n)
        if (atomic_compare_exchange_weak_explicit(&s->refs, &n, n + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

void fb_put(struct fb_stream *s)
{
    struct fb_conn *c = conn_of(s);

    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    fb_prefer_shard(s, NULL);
    reach_drop(c);
    rx_shown_free(c);
    tap_gone(c);
    fb_pub_closed(s->pub);
    atomic_fetch_add(&s->pub->gen, 1);
    fb_lock(&registry);
    c->next_free = free_head;
    free_head = c->slot;
    fb_unlock(&registry);
}

struct fb_conn *conn_find(const struct rsk_tuple *t)
{
    for (uint32_t i = 0; i < used_slots; i++) {
        struct fb_conn *c = conn_at(i);

        if (!c || !conn_flag(c, CF_ADDRESSES) || !fb_tryget(&c->s))
            continue;
        /* Only now: before, the slot may have been another stream's, of the other end for all we know. */
        if (c->s.role == FB_ACCEPTED && conn_flag(c, CF_ADDRESSES) &&
            memcmp(&c->tuple, t, sizeof(*t)) == 0 && !conn_flag(c, CF_CLOSED))
            return c;
        fb_put(&c->s);
    }
    return NULL;
}

struct fb_conn *conn_of_slot(uint32_t slot, uint32_t gen)
{
    struct fb_conn *c = slot < used_slots ? conn_at(slot) : NULL;

    if (!c || !fb_tryget(&c->s))
        return NULL;
    if (c->gen == gen)
        return c;
    fb_put(&c->s);
    return NULL;
}

bool fb_may_board(const struct fb_stream *s)
{
    const struct fb_conn *c = (const struct fb_conn *)s;

    return atomic_load_explicit(&c->rail, memory_order_relaxed) && !c->rcv_timeout;
}

bool fb_ever_tracked(void)
{
    return used_slots != 0;
}

void conn_each(void (*fn)(struct fb_conn *, void *), void *arg)
{
    for (uint32_t i = 0; i < used_slots; i++) {
        struct fb_conn *c = conn_at(i);

        if (!c || !fb_tryget(&c->s))
            continue;
        fn(c, arg);
        fb_put(&c->s);
    }
}

void conn_reason(struct fb_conn *c, int reason)
{
    atomic_store_explicit(&c->s.pub->reason, (uint16_t)reason, memory_order_relaxed);
}

void conn_boarded(struct fb_conn *c)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    atomic_store(&c->s.pub->boarded_at, (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec);
    conn_reason(c, RSN_NONE);
}

static uint64_t timeout_of(int fd, int name)
{
    struct timeval tv = {0, 0};
    socklen_t len = sizeof(tv);

    sys_getsockopt(fd, SOL_SOCKET, name, &tv, &len);
    return (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

void conn_settings(struct fb_conn *c)
{
    int flags, again, low = 1;
    socklen_t len = sizeof(low);

    if (conn_flag(c, CF_SETTINGS) || c->fd < 0)
        return;
    /* Until it has not changed meanwhile: fcntl may have told us before we wrote what was. */
    for (flags = sys_fcntl(c->fd, F_GETFL, 0); flags >= 0; flags = again) {
        c->s.nonblock = (flags & O_NONBLOCK) != 0;
        again = sys_fcntl(c->fd, F_GETFL, 0);
        if (again == flags)
            break;
    }
    c->rcv_timeout = timeout_of(c->fd, SO_RCVTIMEO);
    c->snd_timeout = timeout_of(c->fd, SO_SNDTIMEO);
    if (sys_getsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &low, &len) == 0 && low != 1)
        conn_set(c, CF_RCVLOWAT);
    conn_set(c, CF_SETTINGS);
}

void conn_consider(struct fb_conn *c)
{
    if (conn_flag(c, CF_PINNED | CF_ASKED | CF_CLOSED) || !conn_set(c, CF_ASKED))
        return;
    rdv_ask(c);
}

void conn_afresh(struct fb_conn *c)
{
    c->old_calls = atomic_load(&c->s.ready_at);
    c->old_bytes = c->s.pub->rx + c->s.pub->tx;
    atomic_fetch_and(&c->flags, ~(uint32_t)CF_ASKED);
}

static void count_call(struct fb_conn *c)
{
    uint64_t calls = atomic_load_explicit(&c->s.ready_at, memory_order_relaxed) + 1;

    atomic_store_explicit(&c->s.ready_at, calls, memory_order_relaxed);
    if (calls == 1)
        conn_addresses(c);
    if (__builtin_expect(conn_flag(c, CF_ASKED), 0))
        return;
    /* Without them its rule is not known; and another thread's first call may still be looking. */
    if (!conn_addresses(c))
        return;
    /* Before a checkpoint has passed nothing could be proved. */
    if ((calls - c->old_calls >= conn_config(c)->board_calls ||
         c->s.pub->rx + c->s.pub->tx - c->old_bytes >= conn_config(c)->board_bytes) &&
        (c->seen_tx.valid | c->seen_rx.valid))
        conn_consider(c);
}

/* Two plain calls at once: which bytes came first is not known, so the digests end here. Acquire: a call that
 * has just left was the last to write them. */
static void digest_order(struct fb_digest *d, const _Atomic uint32_t *in)
{
    if (atomic_load_explicit(in, memory_order_acquire) != 1)
        d->off = true;
}

ssize_t fb_rx_leave(struct fb_stream *s, int fd, ssize_t n, const struct iovec *v, int cnt,
                    int flags)
{
    struct fb_conn *c = conn_of(s);

    (void)fd;
    if (__builtin_expect(c->rx.by_call, 0))
        return rx_by_call_left(c, n, v, cnt);
    if (n <= 0 || (flags & MSG_PEEK)) {
        atomic_fetch_sub(&s->rx_in, 1);
        n = conn_told(c, n);
        if (tap_on(c) && n <= 0 && fb_iov_size(v, cnt))
            tap_end_of(c, n);
        if (atomic_load(&s->rx_gate))
            conn_wake(c, RSK_RX);
        /* An in-flight peek may have seen frame bytes. */
        if (n > 0 && atomic_load(&s->rx_gate))
            return FB_RETRY;
        return n;
    }
    if (__builtin_expect(atomic_load(&s->rx_gate) == 0, 1)) {
        uint64_t at;

        /* The gate was down after the kernel's call: the bytes are from before any announcement. */
        digest_order(&c->seen_rx, &s->rx_in);
        at = atomic_fetch_add_explicit(&s->pub->rx, (uint64_t)n, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->krx, (uint64_t)n, memory_order_relaxed);
        if (!c->seen_rx.off)
            fb_digest_add(&c->seen_rx, at, v, cnt, (uint64_t)n);
        if (tap_on(c))
            tap_copy(c, TAP_RX, FB_PATH_TCP, at, v, cnt, (size_t)n);
        atomic_fetch_sub(&s->rx_in, 1);
        count_call(c);
        return n;
    }
    fb_lock(&c->rx.lock);
    if (c->rx.state == RX_t) {
        rx_count_plain(c, v, cnt, (size_t)n);
    } else {
        n = rx_feed(c, v, cnt, (size_t)n);
    }
    atomic_fetch_sub(&s->rx_in, 1);
    rx_unlock(c);
    conn_wake(c, RSK_RX | FB_EV_STATE);
    return n;
}

void fb_tx_leave(struct fb_stream *s, int fd, ssize_t n, const struct iovec *v, int cnt, int flags)
{
    struct fb_conn *c = conn_of(s);

    (void)fd;
    if (n > 0) {
        uint64_t at;

        digest_order(&c->seen_tx, &s->tx_in);
        at = atomic_fetch_add_explicit(&s->pub->tx, (uint64_t)n, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->ktx, (uint64_t)n, memory_order_relaxed);
        if (!c->seen_tx.off)
            fb_digest_add(&c->seen_tx, at, v, cnt, (uint64_t)n);
        if (tap_on(c))
            tap_copy(c, 0, FB_PATH_TCP, at, v, cnt, (size_t)n);
        if (flags & MSG_MORE)
            conn_set(c, CF_CORKED);
        else if (conn_flag(c, CF_CORKED))
            fb_sockopt(s, fd, IPPROTO_TCP, 0);
    }
    atomic_fetch_sub(&s->tx_in, 1);
    if (n > 0)
        count_call(c);
}

void fb_tx_leave_unseen(struct fb_stream *s, ssize_t n)
{
    struct fb_conn *c = conn_of(s);

    if (n > 0) {
        uint64_t at;

        digest_order(&c->seen_tx, &s->tx_in);
        at = atomic_fetch_add_explicit(&s->pub->tx, (uint64_t)n, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->ktx, (uint64_t)n, memory_order_relaxed);
        fb_digest_unseen(&c->seen_tx, at, (uint64_t)n);
        if (tap_on(c))
            tap_copy(c, 0, FB_PATH_TCP, at, NULL, 0, (size_t)n);
    }
    atomic_fetch_sub(&s->tx_in, 1);
    if (n > 0)
        count_call(c);
}

void fb_registry_forget(void)
{
    reach_forget();
    rule_forget();
    memset(&registry, 0, sizeof(registry));
    for (uint32_t i = 0; i < CHUNKS && i <= used_slots / PER_CHUNK; i++)
        atomic_store(&chunks[i], NULL);
    used_slots = 0;
    free_head = UINT32_MAX;
}
