/*
 * tap.c - copies what a tapped connection sends and receives into the tool's ring. It never waits
 * for the tool: a record that finds no room is counted and left out. Threads of this process that
 * send and receive at the same time wait for one another's copies.
 */
#include "ipoib_fallback/tap.h"

#include <string.h>

static uint64_t wall_clock(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void write_at(struct tap *t, uint64_t pos, const void *p, size_t n,
                     void (*copy)(void *, const void *, size_t))
{
    size_t at = (size_t)pos & (t->size - 1), first = t->size - at;

    if (first > n)
        first = n;
    copy(t->data + at, p, first);
    copy(t->data, (const char *)p + first, n - first);
}

static void ours(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
}

/* The application's, where somebody may have given back what has been sent: plain.c. */
static void theirs(void *to, const void *from, size_t n)
{
    if (n && !fb_copy(to, from, n, true))
        memset(to, 0, n);
}

struct place {
    const struct iovec *v;
    int cnt;
    size_t off;
};

/* Goes on by n bytes, which are there; copies the first `kept` of them to pos. */
static void take(struct tap *t, uint64_t pos, struct place *p, size_t n, size_t kept)
{
    while (n > 0 && p->cnt > 0) {
        size_t have = p->v->iov_len - p->off, m;

        if (have > n)
            have = n;
        m = have < kept ? have : kept;
        write_at(t, pos, (const char *)p->v->iov_base + p->off, m, theirs);
        pos += m;
        kept -= m;
        n -= have;
        p->off += have;
        if (p->off == p->v->iov_len) {
            p->v++;
            p->cnt--;
            p->off = 0;
        }
    }
}

static void put(struct tap *t, struct tap_record *r, struct place *p)
{
    /* Acquire: the tool has read what lies before head. */
    uint64_t used = t->tail - atomic_load_explicit(&t->ring->head, memory_order_acquire);
    size_t need = sizeof(*r) + ((r->kept + 7u) & ~(size_t)7);

    if (used > t->size || t->size - used < need) { /* or head is no place that it could be at */
        atomic_fetch_add_explicit(&t->ring->lost[r->path].bytes, r->len, memory_order_relaxed);
        atomic_fetch_add_explicit(&t->ring->lost[r->path].packets, r->kind == TAP_DATA,
                                  memory_order_relaxed);
        t->lost += r->kind == TAP_DATA;
        if (p)
            take(t, 0, p, r->len, 0);
        return;
    }
    r->lost = t->lost;
    t->lost = 0;
    write_at(t, t->tail, r, sizeof(*r), ours);
    if (p)
        take(t, t->tail + sizeof(*r), p, r->len, r->kept);
    t->tail += need;
    /* Release: whoever reads this reads the record. */
    atomic_store_explicit(&t->ring->tail, t->tail, memory_order_release);
}

/* The connection's tap, locked, if it has one that is ready. */
static struct tap *locked(struct fb_conn *c)
{
    struct tap *t = atomic_load_explicit(&c->x->tap, memory_order_acquire);

    if (!t) {
        tap_ask(c);
        return NULL;
    }
    fb_lock(&t->lock);
    if (t->conn == c && t->ring)
        return t;
    fb_unlock(&t->lock);
    return NULL;
}

void tap_copy(struct fb_conn *c, unsigned flags, enum fb_path path, uint64_t at,
              const struct iovec *v, int cnt, size_t n)
{
    struct tap *t = locked(c);
    struct place p = {v, cnt, 0};
    struct tap_record r = {.at = at,
                           .kind = TAP_DATA,
                           .path = (uint8_t)path,
                           .flags = (uint8_t)flags,
                           .reason = c->s.pub->reason};

    if (!t)
        return;
    r.time = wall_clock();
    if (!v || cnt == 0) {
        r.flags |= TAP_UNSEEN;
        r.len = (uint32_t)n; /* one call moves no more than 2 GiB */
        put(t, &r, NULL);
        n = 0;
    }
    for (; n > 0; n -= r.len) {
        r.len = n < TAP_PIECE ? (uint32_t)n : TAP_PIECE;
        r.kept = t->snap && t->snap < r.len ? t->snap : r.len;
        put(t, &r, &p);
        r.at += r.len;
    }
    fb_unlock(&t->lock);
}

void tap_mark(struct fb_conn *c, enum tap_kind kind, unsigned flags)
{
    struct tap *t = locked(c);
    struct fb_pub *pub = c->s.pub;
    uint8_t bit = (uint8_t)(1u << (2 * kind + (flags & TAP_RX)));
    struct tap_record r = {.at = flags & TAP_RX ? pub->rx : pub->tx,
                           .kind = (uint8_t)kind,
                           .path = FB_PATH_TCP, /* ends are the kernel's */
                           .flags = (uint8_t)flags,
                           .reason = pub->reason};

    if (!t)
        return;
    if (!(t->marked & bit)) {
        t->marked |= bit;
        r.time = wall_clock();
        put(t, &r, NULL);
    }
    fb_unlock(&t->lock);
}

void tap_end_of(struct fb_conn *c, ssize_t n)
{
    if (n == 0 && !atomic_load(&c->shut))
        tap_mark(c, TAP_FIN, TAP_RX);
    else if (n == -ECONNRESET || n == -EPIPE || n == -ETIMEDOUT)
        tap_mark(c, TAP_RESET, TAP_RX);
}

void tap_first(struct tap *t)
{
    struct fb_pub *pub = t->conn->s.pub;
    struct tap_record tx = {.kind = TAP_BEGIN, .at = pub->tx};
    struct tap_record rx = {.kind = TAP_BEGIN, .at = pub->rx, .flags = TAP_RX};

    put(t, &tx, NULL);
    put(t, &rx, NULL);
}

void tap_last(struct tap *t, int reason)
{
    struct tap_record r = {.kind = TAP_END, .reason = (uint16_t)reason};

    if (t->ring)
        put(t, &r, NULL); /* without room the tool learns it from the socket */
}
