/*
 * plain.c - the bookkeeping of calls that the application's own thread makes on a plain
 * half: counters, digests of what went by, and the policy that says when a stream is worth a
 * rail. Between fb_rx_enter and fb_rx_leave (fb_tx_...) the stream is held by its count of
 * calls in flight.
 *
 * This is all that a connection on TCP costs beside the look-up of its descriptor: it uses the
 * first cache line of struct fb_conn and the counters, nothing else unless a checkpoint is near.
 */
#include "config/rules.h"
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/killed.h"
#include "ipoib_fallback/reach.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/tap.h"
#include "ipoib_fallback/worth.h"

#include "rsock/sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

/* Calls, at most, after which who waits to be asked for looks whether he still can be. */
#define LOOKS_EACH 64

void conn_consider(struct fb_conn *c)
{
    if (conn_flag(c, CF_PINNED | CF_ASKED | CF_CLOSED) || !conn_set(c, CF_ASKED))
        return;
    rdv_ask(c);
}

void conn_afresh(struct fb_conn *c)
{
    c->x->old_calls = atomic_load(&c->s.calls);
    c->x->old_bytes = c->s.pub->rx + c->s.pub->tx;
    atomic_fetch_and(&c->s.flags, ~(uint32_t)(CF_ASKED | CF_LOOKS));
}

/* shift: worth.h. */
static bool worth_it(struct fb_conn *c, uint32_t calls, unsigned shift)
{
    const struct cfg_stream *set = conn_config(c);

    return (calls - c->x->old_calls) >> shift >= set->board_calls ||
           (c->s.pub->rx + c->s.pub->tx - c->x->old_bytes) >> shift >= set->board_bytes;
}

/* Of the way to being worth it; what was before conn_afresh counts, so it may say so too soon.
 * After look_again: so far. */
static inline bool half_way(struct fb_conn *c, uint32_t calls)
{
    const struct cfg_stream *set = conn_config(c);

    if (__builtin_expect(conn_flag(c, CF_LOOKS), 0))
        return calls >= atomic_load_explicit(&c->s.look_at, memory_order_relaxed);
    return calls >= set->board_calls / 2 || c->s.pub->rx + c->s.pub->tx >= set->board_bytes / 2;
}

/* Of a digest that has not begun, and is not being begun by a call of another thread. */
static bool mark_later(_Atomic uint8_t *mark, uint8_t to)
{
    uint8_t now = atomic_load_explicit(mark, memory_order_relaxed);

    return fb_digest_later(now) && (now == to || atomic_compare_exchange_strong(mark, &now, to));
}

/* Most connections end before half way, and never touch the memory for them. A direction that comes
 * to 16 KiB before does not wait for this. */
bool conn_begin_digests(struct fb_conn *c)
{
    bool tx = mark_later(&c->s.tx_mark, FB_DIGEST_NOW);

    return mark_later(&c->s.rx_mark, FB_DIGEST_NOW) || tx;
}

/* Before a checkpoint has passed nothing could be proved. */
static bool provable(struct fb_conn *c)
{
    return (conn_seen(c)->tx.valid | conn_seen(c)->rx.valid) != 0;
}

/* Its next calls are not looked at, until it has had so many. */
static void look_again(struct fb_conn *c, uint32_t calls)
{
    atomic_store_explicit(&c->s.look_at, calls, memory_order_relaxed);
    conn_set(c, CF_LOOKS);
}

/* When will it be worth it with that shift, if it goes on as it has so far? */
static uint32_t worth_at(struct fb_conn *c, uint32_t calls, unsigned shift)
{
    const struct cfg_stream *set = conn_config(c);
    uint64_t had = calls - c->x->old_calls;
    uint64_t bytes = c->s.pub->rx + c->s.pub->tx - c->x->old_bytes;
    uint64_t by_calls = (uint64_t)set->board_calls << shift;
    uint64_t by_bytes = had * (set->board_bytes << shift) / (bytes | 1) + 1;

    return c->x->old_calls + (uint32_t)(by_calls < by_bytes ? by_calls : by_bytes);
}

/* By how many bits its bounds are to be shifted for its digests. */
static unsigned off_by(struct fb_conn *c)
{
    if (c->s.role == FB_ACCEPTED)
        return worth_unasked(c);
    return worth_learned() && conn_target(c) ? worth_shift(c) : 0;
}

/* Where streams are found not to be worth a rail, or nobody asks for one, digests are for nothing:
 * they begin half way to when it will be worth it after all. True: later; and a call of the
 * connecting end is looked at again then. */
static bool put_off(struct fb_conn *c, uint32_t calls)
{
    bool begun = !fb_digest_later(atomic_load_explicit(&c->s.tx_mark, memory_order_relaxed)) ||
                 !fb_digest_later(atomic_load_explicit(&c->s.rx_mark, memory_order_relaxed));
    unsigned shift = begun ? 0 : off_by(c);
    uint32_t at = shift ? (c->x->old_calls + worth_at(c, calls, shift)) / 2 : 0;
    bool tx, rx;

    if (calls >= at)
        return false;
    tx = mark_later(&c->s.tx_mark, (uint8_t)(FB_DIGEST_LATER + shift));
    rx = mark_later(&c->s.rx_mark, (uint8_t)(FB_DIGEST_LATER + shift));
    if (!tx || !rx)
        return false;
    if (c->s.role == FB_ACCEPTED && !worth_it(c, calls, 0))
        at = worth_at(c, calls, 0); /* from then on it can be asked for */
    look_again(c, at);
    return true;
}

/* The kernel is asked for a stream's addresses when a rail is wanted: most connections end before
 * that, and of the others most that are worth one by their calls are found not to be by the address
 * that they were made to. Only where rules say what is wanted is it at the first call, because they
 * go by address. */
static __attribute__((noinline)) void consider(struct fb_conn *c, uint32_t calls)
{
    bool ruled = cfg_rules_may_decide(), later;
    unsigned shift;

    if (ruled && calls == 1)
        conn_addresses(c);
    if (conn_flag(c, CF_ASKED) || !half_way(c, calls))
        return;
    later = put_off(c, calls);
    if (!later)
        conn_begin_digests(c);
    else if (c->s.role == FB_CONNECTED)
        return;
    if (!ruled && !worth_it(c, calls, 0))
        return;
    /* Without them its rule is not known; and another thread's first call may still be looking. */
    if (!(ruled ? conn_addresses(c) : conn_target(c)))
        return;
    if (!worth_it(c, calls, 0))
        return;
    shift = worth_shift(c);
    if (!worth_it(c, calls, shift)) {
        look_again(c, worth_at(c, calls, shift));
    } else if (!later && !provable(c)) {
        return;
    } else if (c->s.role == FB_ACCEPTED && reach_known(c)) {
        /* Who asks finds it, and most end before anybody does (rdv_accept.c). */
        uint16_t reason = RSN_NEW;

        atomic_compare_exchange_strong(&c->s.pub->reason, &reason, RSN_WAIT_PEER);
        look_again(c, calls + (calls < LOOKS_EACH ? calls : LOOKS_EACH));
    } else {
        conn_consider(c);
    }
}

static inline void count_call(struct fb_conn *c)
{
    uint32_t calls = atomic_load_explicit(&c->s.calls, memory_order_relaxed) + 1;

    atomic_store_explicit(&c->s.calls, calls, memory_order_relaxed);
    if (__builtin_expect(!conn_flag(c, CF_ASKED), 0) && (calls == 1 || half_way(c, calls)))
        consider(c, calls);
}

static __attribute__((noinline)) void no_digest(struct fb_digest *d, _Atomic uint8_t *mark)
{
    d->off = true;
    *mark = FB_NO_DIGEST;
}

/* Where bytes that were sent can be had for the digest. in: a file (-1: none), in which the first
 * of them is number `from` (-1: they are those before its position). v: memory of a call that has
 * not returned; all the same another thread may have given it back, which knows by the peer's
 * answer that the bytes were sent. */
struct origin {
    const struct iovec *v;
    int cnt, in;
    int64_t from;
};

/* n bytes, at most 256, from byte number `at` of it. False: they cannot be had. */
static bool from_memory(const struct origin *o, uint64_t at, char *to, size_t n)
{
    enum { SOME = 16 };
    struct iovec some[SOME];

    for (int i = 0; i < o->cnt && n > 0; i++) {
        const struct iovec *v = &some[i % SOME];
        int left = o->cnt - i;
        size_t have;

        if (v == some &&
            !fb_copy(some, &o->v[i], (size_t)(left < SOME ? left : SOME) * sizeof(*v), true))
            return false;
        if (at >= v->iov_len) {
            at -= v->iov_len;
            continue;
        }
        have = v->iov_len - at < n ? (size_t)(v->iov_len - at) : n;
        if (!fb_copy(to, (const char *)v->iov_base + at, have, true))
            return false;
        to += have;
        n -= have;
        at = 0;
    }
    return n == 0;
}

static bool from_file(const struct origin *o, uint64_t at, char *to, size_t n)
{
    return o->in >= 0 && o->from >= 0 &&
           SYS6(SYS_pread64, o->in, to, n, o->from + (int64_t)at, 0, 0) == (long)n;
}

/* The digest gets what it wants, a few hundred bytes at each checkpoint. */
static __attribute__((noinline)) void add_sent(struct fb_conn *c, uint64_t at, uint64_t n,
                                               struct origin o)
{
    struct fb_digest *d = &conn_seen(c)->tx;
    uint64_t end = at + n, first, last;
    uint8_t now = c->s.tx_mark;
    char piece[256];

    if (now & FB_DIGEST_STATE) {
        if (!fb_digest_wants(now, end))
            return;
        fb_digest_begin(d, at);
    } else if (d->next == 0) {
        fb_digest_begin(d, 0);
    }
    if (o.in >= 0 && o.from < 0 && fb_digest_next(d, at, end, &first, &last))
        o.from = SYS6(SYS_lseek, o.in, 0, SEEK_CUR, 0, 0, 0) - (int64_t)n;
    for (uint64_t next = at; fb_digest_next(d, next, end, &first, &last); next = last) {
        struct iovec v = {piece, (size_t)(last - first)};

        if (!(o.v ? from_memory : from_file)(&o, first - at, piece, v.iov_len)) {
            fb_digest_unseen(d, at, n);
            break;
        }
        fb_digest_add(d, first, &v, 1, v.iov_len);
    }
    atomic_store_explicit(&c->s.tx_mark, fb_digest_mark(d), memory_order_relaxed);
}

void conn_seen_tx(struct fb_conn *c, uint64_t at, const struct iovec *v, int cnt, uint64_t n)
{
    add_sent(c, at, n, (struct origin){.v = v, .cnt = cnt, .in = -1});
}

void conn_seen_rx(struct fb_conn *c, uint64_t at, const struct iovec *v, int cnt, uint64_t n)
{
    struct fb_digest *d = &conn_seen(c)->rx;
    uint8_t now = c->s.rx_mark;

    if (now & FB_DIGEST_STATE) {
        if (!fb_digest_wants(now, at + n))
            return;
        fb_digest_begin(d, at);
    }
    fb_digest_add(d, at, v, cnt, n);
    atomic_store_explicit(&c->s.rx_mark, fb_digest_mark(d), memory_order_relaxed);
}

/* Two plain calls at once: which bytes came first is not known, so the digests end here. Acquire: a
 * call that has just left was the last to write them. */
static inline bool alone(const _Atomic uint32_t *in)
{
    return __builtin_expect(atomic_load_explicit(in, memory_order_acquire) == 1, 1);
}

/* The kernel says 0. The other half may know better, or be about to: it may just have taken the
 * error, when it wrote a frame. */
static __attribute__((noinline)) ssize_t at_end(struct fb_conn *c)
{
    if (conn_flag(c, CF_LINKED)) {
        fb_lock(&c->x->tx.lock);
        conn_killed(c);
        tx_unlock(c);
    }
    return conn_told(c, 0);
}

/* Who never had a rail has no page for it. Before the call is counted out. */
static inline void missed(struct fb_conn *c, ssize_t n, const struct iovec *v, int cnt)
{
    if (__builtin_expect(conn_flag(c, CF_LINKED), 0) &&
        (n < 0 || (n > 0 && (size_t)n < fb_iov_size(v, cnt))))
        conn_no_data(c);
}

void fb_rx_out(struct fb_stream *s)
{
    conn_wake(conn_of(s), RSK_RX);
}

ssize_t fb_rx_leave(struct fb_stream *s, int fd, ssize_t n, const struct iovec *v, int cnt,
                    int flags)
{
    struct fb_conn *c = conn_of(s);

    (void)fd;
    if (__builtin_expect(n < 0 && !v, 0))
        atomic_store(&c->x->lost, true);
    if (__builtin_expect(conn_flag(c, CF_BY_CALL), 0))
        return rx_by_call_left(c, n, v, cnt);
    if (n <= 0 || (flags & MSG_PEEK)) {
        if (n < 0)
            missed(c, n, v, cnt);
        if (n == -ECONNRESET && conn_flag(c, CF_LINKED))
            conn_reset_told(c);
        atomic_fetch_sub(&s->rx_in, 1);
        if (n == 0)
            n = fb_iov_size(v, cnt) ? at_end(c) : conn_told(c, n);
        if (tap_on(c) && n <= 0 && fb_iov_size(v, cnt))
            tap_end_of(c, n);
        if (atomic_load(&s->rx_gate))
            fb_rx_out(s);
        /* An in-flight peek may have seen frame bytes. */
        if (n > 0 && atomic_load(&s->rx_gate))
            return FB_RETRY;
        return n;
    }
    if (__builtin_expect(atomic_load(&s->rx_gate) == 0, 1)) {
        uint64_t at;

        /* The gate was down after the kernel's call: the bytes are from before any announcement. */
        if (!alone(&s->rx_in))
            no_digest(&conn_seen(c)->rx, &s->rx_mark);
        at = atomic_fetch_add_explicit(&s->pub->rx, (uint64_t)n, memory_order_relaxed);
        atomic_store_explicit(&c->s.past_rx, at + (uint64_t)n, memory_order_relaxed);
        if (conn_seen_wants(&s->rx_mark, at + (uint64_t)n))
            conn_seen_rx(c, at, v, cnt, (uint64_t)n);
        if (tap_on(c))
            tap_copy(c, TAP_RX, FB_PATH_TCP, at, v, cnt, (size_t)n);
        missed(c, n, v, cnt);
        atomic_fetch_sub(&s->rx_in, 1);
        if (__builtin_expect(atomic_load(&s->rx_gate), 0))
            fb_rx_out(s);
        count_call(c);
        return n;
    }
    fb_lock(&c->x->rx.lock);
    if (c->x->rx.state == RX_t) {
        rx_count(c, v, cnt, (size_t)n);
    } else {
        n = rx_feed(c, v, cnt, (size_t)n);
    }
    missed(c, n, v, cnt);
    atomic_fetch_sub(&s->rx_in, 1);
    rx_unlock(c);
    conn_wake(c, RSK_RX | FB_EV_STATE);
    return n;
}

static inline uint64_t count_tx(struct fb_conn *c, uint64_t n)
{
    uint64_t at;

    if (!alone(&c->s.tx_in))
        no_digest(&conn_seen(c)->tx, &c->s.tx_mark);
    at = atomic_fetch_add_explicit(&c->s.pub->tx, n, memory_order_relaxed);
    atomic_store_explicit(&c->s.past_tx, at + n, memory_order_relaxed);
    return at;
}

static inline void refused(struct fb_conn *c, ssize_t n)
{
    if (__builtin_expect(n >= 0, 1) || conn_without_rail(atomic_load(&c->s.flags)))
        return;
    conn_no_room(c); /* edges are counted from when it has asked: counts.c */
    if (n == -ECONNRESET && conn_flag(c, CF_LINKED))
        atomic_store(&c->x->told, true);
}

void fb_tx_leave(struct fb_stream *s, ssize_t n, const struct iovec *v, int cnt)
{
    struct fb_conn *c = conn_of(s);

    if (n > 0) {
        uint64_t at = count_tx(c, (uint64_t)n);

        if (conn_seen_wants(&s->tx_mark, at + (uint64_t)n))
            conn_seen_tx(c, at, v, cnt, (uint64_t)n);
        if (tap_on(c))
            tap_copy(c, 0, FB_PATH_TCP, at, v, cnt, (size_t)n);
    }
    refused(c, n);
    atomic_fetch_sub(&s->tx_in, 1);
    if (n > 0)
        count_call(c);
}

void fb_tx_leave_file(struct fb_stream *s, ssize_t n, int in, int64_t from)
{
    struct fb_conn *c = conn_of(s);

    if (n > 0) {
        uint64_t at = count_tx(c, (uint64_t)n);

        if (conn_seen_wants(&s->tx_mark, at + (uint64_t)n))
            add_sent(c, at, (uint64_t)n, (struct origin){.in = in, .from = from});
        if (tap_on(c))
            tap_copy(c, 0, FB_PATH_TCP, at, NULL, 0, (size_t)n);
    }
    refused(c, n);
    atomic_fetch_sub(&s->tx_in, 1);
    if (n > 0)
        count_call(c);
}
