/*
 * given.c - a connection that one process accepts and passes on to another by SCM_RIGHTS, unused, as Node's cluster does.
 *
 * Who gives it keeps it on TCP and does not board it any more. If it has passed it on exactly once, nobody else can have it, and it
 * closes its number, then it is its receiver's alone. The giver's file of counters has a word for it, found by the socket's cookie,
 * which no other socket ever has:
 *
 *   giver     before the message is sent      cookie << 8                 the place may have been another's, which is lost
 *   receiver  has it                          | how often it has come     if it is there at all; else it is not tracked
 *   giver     its last number closes          | CLOSED                    if it is still there
 *   receiver  is asked for a rail             once and CLOSED: its alone
 *
 * Nobody makes the word anew: who finds another cookie's there stays on TCP. Counted are receivers, since the giver is guessed:
 * it is who made or listened for the socket over which the message came (SO_PEERCRED), and the receiver may pass the connection on over
 * one that the same process has made. Somebody in between without the library is not seen; if it reads or writes before the
 * boarding, the kernel's counters show it, as everywhere.
 *
 * The giver: application threads. The receiver: application threads, the last line its progress thread.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/pubfile.h"

#include "config/log.h"

#include <sys/socket.h>

enum { CLOSED = 1, CAME_ONCE = 2, CAME_OFTEN = 4, STATE = 7, SHIFT = 8 };

/* 0: there is none, or it has no room in a word. */
static uint64_t cookie_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof(cookie);

    return sys_getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0 || cookie >> (64 - SHIFT)
               ? 0
               : cookie;
}

static bool add(fb_pub_given *at, uint64_t cookie, uint64_t (*next)(uint64_t))
{
    uint64_t word = atomic_load(at);

    while (word >> SHIFT == cookie)
        if (atomic_compare_exchange_weak(at, &word, next(word)))
            return true;
    return false;
}

static uint64_t closed(uint64_t word)
{
    return word | CLOSED;
}

static uint64_t came(uint64_t word)
{
    return word & CAME_ONCE ? word | CAME_OFTEN : word | CAME_ONCE;
}

/* ---- the giver */

/* For one message, and for nothing else, it has been made somebody else's as well; and it began here. */
static bool for_one_message(struct fb_conn *c)
{
    return atomic_load(&c->x->gives) == 1 && c->s.role == FB_ACCEPTED && !c->x->heritage &&
           !c->x->giver && c->s.pub->reason == RSN_SHARED;
}

void fb_giving(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    fb_pub_given *at;

    if (!for_one_message(c))
        return;
    c->x->cookie = cookie_of(fd);
    at = c->x->cookie ? fb_pub_given_here(c->x->cookie) : NULL;
    if (at)
        atomic_store(at, c->x->cookie << SHIFT);
}

void fb_not_given(struct fb_stream *s)
{
    atomic_fetch_sub(&conn_of(s)->x->gives, 1);
}

void given_closed(struct fb_conn *c)
{
    uint64_t cookie = c->x->cookie;
    fb_pub_given *at;

    if (!cookie || !for_one_message(c) || heir_may_have(c))
        return;
    at = fb_pub_given_here(cookie);
    if (at)
        add(at, cookie, closed);
}

/* ---- the receiver */

static bool add_came(fb_pub_given *at, uint64_t cookie)
{
    return add(at, cookie, came);
}

struct fb_stream *fb_arrived(int fd, int32_t giver)
{
    uint64_t cookie = cookie_of(fd), sent, received;
    struct fb_stream *s;
    struct fb_conn *c;

    /* In any case it has come once more. */
    if (!cookie || !fb_pub_given_there(giver, cookie, add_came) ||
        !fb_io.counters(fd, &sent, &received) || sent || received)
        return NULL;
    s = fb_track(fd, FB_ACCEPTED, -1);
    if (!s)
        return NULL;
    c = conn_of(s);
    c->x->giver = giver;
    c->x->cookie = cookie;
    conn_give_away(c);
    if (c->s.pub->reason == RSN_NEW)
        conn_reason(c, RSN_SHARED);
    return s;
}

bool given_elsewhere(struct fb_conn *c)
{
    struct fb_more *x = c->x;
    uint64_t word;

    if (!x->giver)
        return false;
    word = fb_pub_given_there(x->giver, x->cookie, NULL);
    if (word >> SHIFT != x->cookie || (word & STATE) != (CLOSED | CAME_ONCE))
        return true;
    log_info("stream %u: process %d, which has passed it on, has closed it", c->s.slot, x->giver);
    x->giver = 0;
    /* Who had it as well may have set what calls of ours had read before. */
    conn_changed(c);
    return false;
}
