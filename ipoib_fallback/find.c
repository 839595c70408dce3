/*
 * find.c - which of our accepted connections has these addresses: what a peer that asks for a rail
 * names. A hash table of the progress thread's own, so that looking takes no lock and no walk
 * through all connections. accept, and who learns the addresses of a connection, on any thread,
 * puts its slot on a list, also without a lock; the table takes the list in when it is asked.
 *
 * An entry is a hint, because slots are used again: it is believed if the stream that is there now
 * has these addresses. Entries of streams that are gone go when the table grows.
 */
#include "ipoib_fallback/find.h"

#include <stdlib.h>
#include <string.h>

/* Slots, each and one; of fb_conn.fresh, 0: not on the list. The last on it has LAST. */
#define LAST UINT32_MAX
static _Atomic uint32_t fresh;

struct entry {
    uint32_t id, slot; /* slot and one; 0: empty */
};
static struct entry *table; /* open addressing, at most half full */
static uint32_t size, used;

/* A name for both addresses, short enough to be kept for each stream. Whoever makes connections to
 * us may choose them so that many have one name, and then looking takes as long as there are such;
 * their number is bounded by his ports. */
uint32_t find_name(const struct rsk_tuple *t)
{
    uint64_t word[sizeof(*t) / 8], h = 0;

    memcpy(word, t, sizeof(*t));
    for (unsigned i = 0; i < sizeof(word) / sizeof(word[0]); i++) {
        h = (h ^ word[i]) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}
_Static_assert(sizeof(struct rsk_tuple) % 8 == 0, "find_name");

/*
 * A slot is on the list once. Whoever finds it marked need not add it again: take_in() clears the
 * mark before it looks at the stream, and so sees what the caller has written before. But only to
 * read the mark does not ensure that: on arm64 the caller's earlier writes may be seen later. So
 * the mark is written once more as it is, and take_in(), whose exchange reads what was written
 * here, or later, sees them. No handler comes between the two steps: the caller is in a section.
 */
void conn_findable(struct fb_conn *c)
{
    uint32_t none = 0, head = atomic_load(&fresh);

    while (!atomic_compare_exchange_strong(&c->fresh, &none, LAST)) {
        if (atomic_fetch_or(&c->fresh, 0) != 0)
            return;
        none = 0;
    }
    do
        atomic_store(&c->fresh, head ? head : LAST);
    while (!atomic_compare_exchange_weak(&fresh, &head, c->s.slot + 1));
}

void conn_known(struct fb_conn *c)
{
    struct rsk_tuple t = conn_tuple(c);

    c->id = find_name(&t);
    conn_set(c, CF_ADDRESSES);
    if (c->s.role == FB_ACCEPTED)
        conn_findable(c);
}

/* Does the entry still say something? */
static bool holds(const struct entry *e)
{
    struct fb_conn *c = conn_in(e->slot - 1);

    return atomic_load(&c->s.refs) && c->id == e->id && conn_flag(c, CF_ADDRESSES);
}

static void put(struct entry e)
{
    uint32_t i = e.id & (size - 1);

    for (; table[i].slot; i = (i + 1) & (size - 1))
        if (table[i].id == e.id && table[i].slot == e.slot)
            return;
    table[i] = e;
    used++;
}

/* Room for one more. What has not been is left out: a stream that is not found stays on TCP. */
static bool room(void)
{
    struct entry *old = table;
    uint32_t was = size, live = 0;

    if (2 * (used + 1) <= size)
        return true;
    for (uint32_t i = 0; i < was; i++)
        live += old[i].slot && holds(&old[i]);
    for (size = 64; size < 4 * (live + 1);)
        size *= 2;
    table = calloc(size, sizeof(*table));
    if (!table) {
        table = old;
        size = was;
        return false;
    }
    used = 0;
    for (uint32_t i = 0; i < was; i++)
        if (old[i].slot && holds(&old[i]))
            put(old[i]);
    free(old);
    return true;
}

/* Most connections do not live until somebody asks for one, so the kernel has not been asked for
 * the addresses. The number may be closed, and be another connection's, while it is asked here:
 * then CF_CLOSED was set before, and conn_find looks at that after. */
static void take(uint32_t at)
{
    struct fb_conn *c = conn_in(at - 1);

    if (!fb_tryget(&c->s))
        return;
    if (!conn_flag(c, CF_CLOSED) && conn_addresses(c) && room())
        put((struct entry){c->id, at});
    fb_put(&c->s);
}

static void take_in(void)
{
    uint32_t at = atomic_exchange(&fresh, 0);

    while (at && at != LAST) {
        struct fb_conn *c = conn_in(at - 1);
        uint32_t next = atomic_exchange(&c->fresh, 0);

        take(at);
        at = next;
    }
}

struct fb_conn *conn_find(const struct rsk_tuple *t)
{
    uint32_t id = find_name(t);

    take_in();
    for (uint32_t i = id & (size - 1); size && table[i].slot; i = (i + 1) & (size - 1)) {
        struct fb_conn *c = conn_in(table[i].slot - 1);

        if (table[i].id != id || !fb_tryget(&c->s))
            continue;
        /* Only now: before, the slot may have been another stream's, of the other end
         * for all we know. */
        if (c->s.role == FB_ACCEPTED && conn_flag(c, CF_ADDRESSES) && !conn_flag(c, CF_CLOSED)) {
            struct rsk_tuple own = conn_tuple(c);

            if (memcmp(&own, t, sizeof(own)) == 0)
                return c;
        }
        fb_put(&c->s);
    }
    return NULL;
}

void find_forget(void)
{
    atomic_store(&fresh, 0);
    table = NULL; /* the parent's memory: frames below us may be in malloc */
    size = used = 0;
}
