/*
 * stream.c - the registry of tracked connections: slots that are never unmapped, and
 * their counters in the file that stat reads. What plain calls count is plain.c's.
 */
#include "ipoib_fallback/stream.h"

#include "config/env.h"
#include "config/log.h"
#include "config/rules.h"
#include "ipoib_fallback/address.h"
#include "ipoib_fallback/find.h"
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/pubfile.h"
#include "ipoib_fallback/reach.h"
#include "ipoib_fallback/rule.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/tap.h"
#include "ipoib_fallback/worth.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#define CHUNKS (FB_MAX_STREAMS / FB_PER_CHUNK)

static struct fb_lock registry;
static struct fb_conn *_Atomic chunks[CHUNKS];
static _Atomic uint32_t used_slots;     /* ever used: slots below are valid */
static uint32_t free_head = UINT32_MAX; /* list through next_free */

static struct fb_conn *conn_at(uint32_t slot)
{
    struct fb_conn *chunk =
        atomic_load_explicit(&chunks[slot / FB_PER_CHUNK], memory_order_acquire);

    return chunk ? &chunk[slot % FB_PER_CHUNK] : NULL;
}

/*
 * A chunk is three arrays, each of whole pages: struct fb_conn, fb_seen, fb_more. What is not
 * touched has no page. No huge ones, which would touch it all.
 */
#define CHUNK_SIZE (FB_PART(fb_conn) + FB_PART(fb_seen) + FB_PART(fb_more))

static struct fb_conn *new_chunk(uint32_t slot)
{
    void *p = mmap(NULL, CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    SYS6(SYS_madvise, p, CHUNK_SIZE, MADV_NOHUGEPAGE, 0, 0, 0);
    if (!fb_pub_grow(slot + FB_PER_CHUNK)) {
        munmap(p, CHUNK_SIZE);
        return NULL;
    }
    return p;
}

/* A slot is used for the first time: what it keeps. */
static void first_use(struct fb_conn *c, uint32_t slot)
{
    uint32_t i = slot % FB_PER_CHUNK;
    char *chunk = (char *)(c - i);

    c->s.slot = slot;
    c->x = (struct fb_more *)(chunk + FB_PART(fb_conn) + FB_PART(fb_seen)) + i;
    c->s.pub = fb_pub_slot(slot);
}

/* Zero again, for the next stream in this slot; memory that nobody has written is only looked at,
 * and stays without a page of its own. Sixteen words at a time, in vectors, because every
 * connection pays for it. Whole words are stored, because who has no reference may be looking at
 * one (quick.c). */
static void clear(void *memory, size_t size)
{
    typedef uint64_t vector __attribute__((vector_size(16)));
    uint64_t *word = memory, *end = word + size / sizeof(*word);

    for (; end - word >= 16; word += 16) {
        const vector *v = (const void *)word;
        vector any = v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7];

        if (any[0] | any[1])
            break;
    }
    for (; word < end; word++)
        if (*word)
            atomic_store_explicit((_Atomic uint64_t *)word, 0, memory_order_relaxed);
}
_Static_assert(_Alignof(struct fb_more) >= 16, "clear() takes vectors");

/* All but the locks, of which he may even hold one for a moment. */
static void clear_more(struct fb_more *x)
{
    const size_t tx = offsetof(struct fb_more, tx.state), rx = offsetof(struct fb_more, rx.state);

    clear(x, offsetof(struct fb_more, tx.lock));
    clear((char *)x + tx, offsetof(struct fb_more, rx.lock) - tx);
    clear((char *)x + rx, sizeof(*x) - rx);
}

/* Zero, but for what stays the slot's; who has no reference looks at the gates, and at x. */
static void clear_conn(struct fb_conn *c)
{
    struct fb_stream *s = &c->s;

    atomic_store_explicit(&s->rx_gate, 0, memory_order_relaxed);
    atomic_store_explicit(&s->tx_gate, 0, memory_order_relaxed);
    memset((void *)&s->nonblock, 0,
           offsetof(struct fb_stream, refs) - offsetof(struct fb_stream, nonblock));
    memset((void *)&s->calls, 0,
           offsetof(struct fb_stream, slot) - offsetof(struct fb_stream, calls));
    atomic_store_explicit(&s->past_tx, 0, memory_order_relaxed);
    atomic_store_explicit(&s->past_rx, 0, memory_order_relaxed);
    memset((void *)&c->prefer, 0,
           offsetof(struct fb_conn, fresh) - offsetof(struct fb_conn, prefer));
}

/* Nobody has written to a digest that has not begun. */
static bool not_begun(uint8_t mark)
{
    return fb_digest_later(mark) || mark == FB_DIGEST_NOW;
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
            struct fb_conn *chunk = new_chunk(slot);

            if (!chunk) {
                fb_unlock(&registry);
                return NULL;
            }
            atomic_store_explicit(&chunks[slot / FB_PER_CHUNK], chunk, memory_order_release);
        }
        c = conn_at(slot);
        first_use(c, slot);
        used_slots++;
    }
    fb_unlock(&registry);
    return c;
}

static struct rsk_tuple tuple_of(const struct fb_conn *c, const struct fb_pub_addr *local,
                                 const struct fb_pub_addr *peer)
{
    const struct fb_pub_addr *src = c->s.role == FB_CONNECTED ? local : peer;
    const struct fb_pub_addr *dst = c->s.role == FB_CONNECTED ? peer : local;
    struct rsk_tuple t = {0};

    t.family = (uint8_t)dst->family;
    t.src_port = src->port;
    t.dst_port = dst->port;
    memcpy(t.src, src->addr, 16);
    memcpy(t.dst, dst->addr, 16);
    return t;
}

struct rsk_tuple conn_tuple(struct fb_conn *c)
{
    return tuple_of(c, &c->s.pub->local, &c->s.pub->peer);
}

/* The first call's thread and the progress thread may both be here, and write the same: no lock is
 * needed. Each looks its rule up with addresses of its own. */
bool conn_addresses(struct fb_conn *c)
{
    struct fb_pub_addr local, peer;
    struct rsk_tuple t;

    if (conn_flag(c, CF_ADDRESSES))
        return true;
    local = c->s.pub->local = address_of(c->fd, false);
    peer = c->s.pub->peer = address_of(c->fd, true);
    if (!local.family || local.family != peer.family)
        return false;
    t = tuple_of(c, &local, &peer);
    rule_find(c, &t); /* whoever sees the flag sees what the rule says */
    conn_known(c);
    return true;
}

bool conn_target(struct fb_conn *c)
{
    bool peer = c->s.role == FB_CONNECTED;
    struct fb_pub_addr *to = peer ? &c->s.pub->peer : &c->s.pub->local;

    if (conn_flag(c, CF_ADDRESSES) || atomic_load(&c->target))
        return true;
    *to = address_of(c->fd, peer);
    if (!to->family)
        return false;
    atomic_store(&c->target, true);
    return true;
}

/* What is worth a rail at once is digested from its first byte; what never is, not at all. */
static uint8_t first_mark(const struct fb_conn *c)
{
    if (c->s.flags & CF_PINNED)
        return FB_NO_DIGEST;
    return c->set->board_calls < 4 ? FB_DIGEST_FIRST : FB_DIGEST_LATER;
}

/* Of plain.c's policy: what count_call would find before. */
static uint32_t first_look(const struct fb_conn *c)
{
    return cfg_rules_may_decide() || c->set->board_bytes < 65536 ? 0 : c->set->board_calls / 2;
}

/* Why it will never be on a rail, or RSN_NEW. */
static int first_reason(int fd)
{
    if (hold_for_good())
        return hold_for_good();
    if (fd <= 2)
        return RSN_STDIO_FD;
    if (cfg.stream.mode == CFG_TCP)
        return RSN_MODE_TCP;
    return cfg.stream.board_never ? RSN_BOARD_NEVER : RSN_NEW;
}

/* What is stored before refs is nobody's yet: a stale fb_tryget fails until then, and whoever looks
 * without a reference makes nothing of it. Every connection pays for this, and each store that
 * would be ordered by itself costs as much as all of them. */
#define FIRST(member, value) atomic_store_explicit(&(member), value, memory_order_relaxed)

struct fb_stream *fb_track(int fd, enum fb_role role, int nonblock)
{
    struct fb_conn *c = take_slot();
    int reason = first_reason(fd);
    struct fb_pub *pub;
    uint8_t mark;

    if (!c)
        return NULL;
    pub = c->s.pub;
    clear_conn(c);
    memset((char *)pub + sizeof(pub->gen), 0, sizeof(*pub) - sizeof(pub->gen));
    pub->fd = fd;
    pub->role = (uint8_t)role;
    FIRST(pub->reason, (uint16_t)reason);
    c->s.role = (uint8_t)role;
    FIRST(c->fd, fd);
    FIRST(c->set, &cfg.stream);
    if (reason != RSN_NEW)
        FIRST(c->s.flags, CF_PINNED | CF_ASKED);
    else
        rule_read();
    mark = first_mark(c);
    FIRST(c->s.tx_mark, mark);
    FIRST(c->s.rx_mark, mark);
    FIRST(c->s.look_at, first_look(c));
    if (nonblock >= 0)
        FIRST(c->s.nonblock, (uint8_t)nonblock);
    FIRST(c->s.fds, 1);
    c->born = atomic_load(&heir_over);
    if (__builtin_expect(atomic_load_explicit(&heir_blind, memory_order_relaxed) != 0, 0)) {
        atomic_fetch_or(&c->s.flags, CF_PINNED | CF_ASKED | CF_SHARED);
        atomic_fetch_or(&pub->lent, FB_LENT_AWAY);
        conn_reason(c, RSN_SHARED);
    }
    c->gen = atomic_load_explicit(&pub->gen, memory_order_relaxed) + 1;
    atomic_store_explicit(&pub->gen, c->gen, memory_order_release);
    conn_began_at(c, role == FB_ACCEPTED ? fb_sleeps_now() : 0);
    atomic_store_explicit(&c->s.refs, 1, memory_order_release);
    if (role == FB_ACCEPTED)
        conn_findable(c);
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

static bool moved(const struct fb_stream *s)
{
    return s->pub->tx || s->pub->rx;
}

void fb_connect_said(struct fb_stream *s, int err)
{
    struct fb_conn *c = conn_of(s);
    int now = s->pub->reason, first = first_reason(c->fd);

    if (s->role != FB_CONNECTED || moved(s))
        return;
    switch (err) {
    case ECONNREFUSED:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
        if (now == first)
            conn_reason(c, RSN_NOT_ESTABLISHED);
        break;
    case 0:
    case EINPROGRESS:
        if (now == RSN_NOT_ESTABLISHED)
            conn_reason(c, first);
        break;
    }
}

/* A connection of which nothing has gone through this process may be a forked child's, who
 * counts it, or none. */
static bool counts(struct fb_conn *c)
{
    return moved(&c->s) || (!conn_shared(c) && c->s.pub->reason != RSN_NOT_ESTABLISHED);
}

void fb_put(struct fb_stream *s)
{
    struct fb_conn *c = conn_of(s);
    struct fb_pub_rail *show;

    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    conn_shard_over(c);
    reach_drop(c);
    given_over(c);
    rx_shown_free(c);
    rx_front_free(c);
    tap_gone(c);
    show = c->x->show;
    if (!not_begun(s->tx_mark) || !not_begun(s->rx_mark))
        clear(conn_seen(c), sizeof(struct fb_seen));
    clear_more(c->x);
    fb_lock(&registry);
    s->pub->role |= FB_PUB_CLOSING;
    if (counts(c))
        fb_pub_closed(s->pub, show);
    if (show)
        memset(show, 0, sizeof(*show)); /* before the slot is another stream's */
    atomic_store_explicit(&s->pub->gen, c->gen + 1, memory_order_release);
    c->next_free = free_head;
    free_head = c->s.slot;
    fb_unlock(&registry);
}

struct fb_conn *conn_in(uint32_t slot)
{
    return conn_at(slot);
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

    return atomic_load_explicit(&c->x->rail, memory_order_relaxed);
}

bool fb_may_change(const struct fb_stream *s)
{
    uint32_t flags = atomic_load(&s->flags);

    return flags & (CF_ASKED | CF_LINKED) && !(flags & CF_PINNED);
}

bool fb_untouched(const struct fb_stream *s)
{
    const struct fb_conn *c = (const struct fb_conn *)s;

    return conn_without_rail(atomic_load_explicit(&c->s.flags, memory_order_acquire)) &&
           c->born == atomic_load(&heir_forks) && !(atomic_load(&c->s.pub->lent) & FB_LENT_GIVEN);
}

bool fb_shared(struct fb_stream *s)
{
    return conn_shared(conn_of(s));
}

bool fb_may_linger(const struct fb_stream *s)
{
    return !conn_without_rail(atomic_load(&s->flags));
}

/* link_up claims the same word: it sees CF_CLOSED, or is seen. So does take_in (find.c), which
 * clears fresh first. */
bool fb_may_be_found(struct fb_stream *s)
{
    if (s->role != FB_ACCEPTED)
        return false;
    return (atomic_fetch_or(&s->flags, CF_CLOSED) & (CF_LINKED | CF_ASKED | CF_ADDRESSES)) ||
           atomic_load(&conn_of(s)->fresh) == 0;
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
    atomic_store(&c->x->show->boarded_at, (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec);
    conn_reason(c, RSN_NONE);
}

bool conn_other_protocol(const struct fb_conn *c)
{
    int protocol = 0;
    socklen_t len = sizeof(protocol);

    return sys_getsockopt(c->fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
           protocol != IPPROTO_TCP;
}

void fb_registry_forget(void)
{
    reach_forget();
    worth_forked();
    rule_forget();
    find_forget();
    memset(&registry, 0, sizeof(registry));
    for (uint32_t i = 0; i < CHUNKS && i <= used_slots / FB_PER_CHUNK; i++)
        atomic_store(&chunks[i], NULL);
    used_slots = 0;
    free_head = UINT32_MAX;
}
