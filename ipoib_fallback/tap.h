/*
 * tap.h - a copy of a connection's bytes for `railsock tap` (tap_ring.h). tap.c copies, on
 * whichever thread sends or receives; tap_link.c begins and ends it, on the progress thread.
 *
 * Without a tap this costs a look at pub->tap, which lies in the line of the counters that
 * every call writes.
 */
#ifndef FB_TAP_H
#define FB_TAP_H

#include "ipoib_fallback/stream.h"
#include "ipoib_fallback/tap_ring.h"
#include "rsock/loop.h"
#include "rsock/own.h"

enum { TAPS = 8 }; /* at once, of different connections */

struct tap {
    /* Nothing is taken while it is held. Held over the copy: the memory must not be
     * unmapped under it. */
    struct fb_lock lock;
    struct fb_conn *conn;  /* NULL: its stream is gone, or the place is free */
    struct tap_ring *ring; /* NULL: not yet, or not any more */
    uint8_t *data;
    uint32_t size, snap;
    uint64_t tail;
    uint32_t lost;  /* since the last record */
    uint8_t marked; /* which ends have been told, by kind and direction */

    /* Progress thread. */
    bool used;
    int fd;
    unsigned uid; /* the tool's */
    uint64_t key;
    struct rsk_watch *watch;
    struct rsk_own_map map;
    struct rsk_job end;
};

/* Does somebody want a copy? */
static inline bool tap_on(const struct fb_conn *c)
{
    return __builtin_expect(atomic_load_explicit(&c->s.pub->tap, memory_order_relaxed) != 0, 0);
}

/* Only if tap_on(). n bytes of the stream, the first of which has the number `at`, have gone over
 * path and lie in v; NULL: nobody has them. flags: TAP_RX. Any lock may be held. */
void tap_copy(struct fb_conn *, unsigned flags, enum fb_path path, uint64_t at,
              const struct iovec *v, int cnt, size_t n);
/* Only if tap_on(). A direction has ended; once. */
void tap_mark(struct fb_conn *, enum tap_kind, unsigned flags);

/* Only if tap_on(). A receive with room for bytes gave n, 0 or -errno: is that the stream's end? */
void tap_end_of(struct fb_conn *, ssize_t n);
/* Where the stream stands; that nothing comes any more, as it is closed (0) or for a
 * reason. Lock held. */
void tap_first(struct tap *);
void tap_last(struct tap *, int reason);

/* ---- tap_link.c ---- */

void tap_ask(struct fb_conn *);  /* any thread: somebody wants a copy, and gets none yet */
void tap_gone(struct fb_conn *); /* the stream's last reference is given back */
/* Any thread: everything is plain for good, and perhaps not seen any more. */
void tap_end_all(int reason);
void tap_forget(void); /* forked child */

#endif
