/*
 * verbs_wire_calls.c - verbs_wire_test: what the layer above a rail does, and an
 * application's calls on it.
 */
#include "tests/lab/verbs_wire.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/env.h"
#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/sys.h"
#include "rsock/wire.h"

char pattern[2 * 65521];
struct conn *_Atomic waiting;
_Atomic int answer_not_yet;

int wrong(struct conn *c, const char *fmt, ...)
{
    va_list ap;

    if (!c->why[0]) {
        va_start(ap, fmt);
        vsnprintf(c->why, sizeof c->why, fmt, ap);
        va_end(ap);
    }
    return -1;
}

bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

void nap(unsigned us)
{
    struct timespec ts = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&ts, NULL);
}

unsigned rnd(struct conn *c, unsigned n)
{
    c->seed = c->seed * 1103515245 + 12345;
    return (c->seed >> 8) % n;
}

/* ---- what the layer above does */

static void push_job(void *arg)
{
    struct conn *c = arg;

    atomic_store(&c->push_posted, false);
    pthread_mutex_lock(&c->tx_lock);
    if (atomic_load(&c->rail))
        wire->tx_push(c->rail);
    pthread_mutex_unlock(&c->tx_lock);
}

static void on_notify(struct rsk_rail *r, unsigned events)
{
    struct conn *c = r->owner;

    atomic_fetch_or(&c->news, events);
    if (events & RSK_FAIL)
        atomic_store(&c->failed, true);
    if (events & RSK_TX && !atomic_exchange(&c->push_posted, true))
        rsk_loop_post(push_job, c);
}

static void have_rail(struct conn *c, struct rsk_rail *r)
{
    if (c->unwanted) { /* as for a stream that has ended meanwhile */
        wire->kill(r, RSN_ENDING);
        wire->destroy(r);
        atomic_store(&c->refused, RSN_ENDING);
        return;
    }
    r->owner = c;
    r->notify = on_notify;
    atomic_store(&c->rail, r);
}

void on_done(void *owner, struct rsk_rail *r, int reason)
{
    struct conn *c = owner;

    if (r)
        have_rail(c, r);
    else
        atomic_store(&c->refused, reason ? reason : -1);
}

static int on_find(const struct rsk_tuple *t, struct rsk_shard **shard, size_t *ring, void **owner)
{
    struct conn *c = atomic_load(&waiting);

    if (atomic_load(&answer_not_yet))
        return RSN_NOT_YET;
    if (!c || memcmp(t, &c->tuple, sizeof *t) != 0)
        return RSN_NOT_MINE;
    *shard = c->shard;
    *ring = c->ring;
    *owner = c;
    return 0;
}

static void on_accepted(void *owner, struct rsk_rail *r)
{
    have_rail(owner, r);
}

static void on_refused(void *owner, int reason)
{
    on_done(owner, NULL, reason);
}

const struct rsk_accept_ops ops = {on_find, on_accepted, on_refused};

/* ---- the application's calls on a rail */

static int sleep_for(struct conn *c, unsigned event)
{
    struct rsk_rail *r = c->rail;
    _Atomic uint32_t *word = event == RSK_RX ? r->rx_word : r->tx_word;
    struct timespec deadline;
    uint32_t v;

    if (c->spin) {
        if (wire->poll(r, RSK_ANY) & RSK_FAIL && event != RSK_RX)
            return wrong(c, "rail failed: %s", cfg_reason_name((int)r->failed));
        return r->failed && !(wire->poll(r, RSK_ANY) & event) ? wrong(c, "rail failed") : 0;
    }
    /* As an application's wait does: a while of spinning first. */
    if (c->brief) {
        uint64_t end = sys_now() + 20000;

        do {
            if (wire->poll(r, RSK_ANY) & (event | RSK_FAIL))
                break;
        } while (sys_now() < end);
    }
    v = atomic_load(word);
    if (wire->arm(r, event, RSK_BY_FUTEX)) {
        if (r->failed && !(wire->poll(r, RSK_ANY) & event))
            return wrong(c, "rail failed: %s", cfg_reason_name((int)r->failed));
        return 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += PATIENCE_S;
    if (sys_futex(word, FUTEX_WAIT_BITSET, v, &deadline) == -ETIMEDOUT)
        return wrong(c, "slept %d s for %s: tx %llu freed %llu push %zd poll %u", PATIENCE_S,
                     event == RSK_RX ? "RX" : "TX", (unsigned long long)c->tx,
                     (unsigned long long)wire->tx_freed(r), wire->tx_push(r),
                     wire->poll(r, RSK_ANY));
    return 0;
}

int send_all(struct conn *c, size_t n)
{
    struct iovec v[2];

    while (n) {
        size_t room, put = 0;
        int err = 0;

        pthread_mutex_lock(&c->tx_lock);
        room = wire->tx_space(c->rail, v);
        if (room > n)
            room = n;
        for (int i = 0; i < 2 && put < room; i++) {
            size_t k = v[i].iov_len < room - put ? v[i].iov_len : room - put;

            for (size_t at = 0; at < k;) {
                size_t off = (size_t)((c->tx + put + at) % 65521),
                       m = k - at < 65521 ? k - at : 65521;
                memcpy((char *)v[i].iov_base + at, pattern + off, m);
                at += m;
            }
            put += k;
        }
        if (room)
            err = wire->tx_put(c->rail, room);
        pthread_mutex_unlock(&c->tx_lock);
        if (err)
            return wrong(c, "tx_put: %d", err);
        c->tx += room;
        n -= room;
        if (!room && sleep_for(c, RSK_TX) < 0)
            return -1;
    }
    return 0;
}

/* Takes what is there, at most max; checks it. */
ssize_t recv_some(struct conn *c, size_t max)
{
    struct iovec v[2];
    size_t n = wire->rx_peek(c->rail, v), got = 0;

    if (n > max)
        n = max;
    for (int i = 0; i < 2 && got < n; i++) {
        size_t k = v[i].iov_len < n - got ? v[i].iov_len : n - got;

        for (size_t at = 0; at < k;) {
            size_t off = (size_t)((c->rx + got + at) % 65521), m = k - at < 65521 ? k - at : 65521;
            if (memcmp((char *)v[i].iov_base + at, pattern + off, m) != 0)
                return wrong(c, "wrong bytes near %zu", (size_t)c->rx + got + at);
            at += m;
        }
        got += k;
    }
    if (n)
        wire->rx_consume(c->rail, n);
    c->rx += n;
    return (ssize_t)n;
}

int recv_all(struct conn *c, size_t n)
{
    while (n) {
        ssize_t k = recv_some(c, c->slow ? 1 + rnd(c, 7000) : n);

        if (k < 0)
            return -1;
        n -= (size_t)k;
        if (k == 0 && sleep_for(c, RSK_RX) < 0)
            return -1;
        if (c->slow && rnd(c, 20) == 0)
            nap(2000);
    }
    return 0;
}

int ctl_wait(struct conn *c, struct rsk_msg *m)
{
    uint64_t end = sys_now() + PATIENCE_S * 1000000000ull;

    while (!wire->ctl_recv(c->rail, m)) {
        if (c->rail->failed || sys_now() > end)
            return wrong(c, "no control message: %s", cfg_reason_name((int)c->rail->failed));
        if (c->spin)
            wire->poll(c->rail, RSK_ANY);
        else
            nap(200);
    }
    return 0;
}

int ctl_put(struct conn *c, const struct rsk_msg *m)
{
    uint64_t end = sys_now() + PATIENCE_S * 1000000000ull;
    int err;

    while ((err = wire->ctl_send(c->rail, m)) == -EAGAIN && sys_now() < end)
        nap(200);
    return err ? wrong(c, "ctl_send: %d", err) : 0;
}

/* Both are ready to receive before either may send. */
int rail_start(struct conn *c, uint32_t limit, uint64_t tx, uint64_t rx)
{
    struct rsk_msg m = {.type = 1};

    c->rail->tx_limit = limit;
    c->tx = tx;
    c->rx = rx;
    wire->rx_start(c->rail, c->rx);
    wire->tx_start(c->rail, c->tx);
    if (ctl_put(c, &m) < 0 || ctl_wait(c, &m) < 0)
        return -1;
    pthread_mutex_lock(&c->tx_lock);
    wire->tx_open(c->rail);
    pthread_mutex_unlock(&c->tx_lock);
    return 0;
}
