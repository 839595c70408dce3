/*
 * given.c - a connection that one process accepts and passes on to another by SCM_RIGHTS, unused,
 * as Node's cluster does.
 *
 * Who gives it keeps it on TCP and does not board it any more. If it has passed it on exactly once,
 * nobody else can have it, and the kernel has closed its number, then it is its receiver's alone.
 * The giver's file of counters has a word for it, found by the socket's cookie, which no other
 * socket ever has:
 *
 *   giver     before the message is sent      cookie << 8                 the place may have been
 *                                                                         another's, which is lost
 *   receiver  has it                          | how often it has come     if it is there at all;
 *                                                                         else it is not tracked
 *   giver     the kernel has closed it        | CLOSED                    if it is still there
 *   receiver  is asked for a rail             once and CLOSED: its alone
 *
 * Nobody makes the word anew: who finds another cookie's there stays on TCP. Counted is how often
 * it comes, since the giver is guessed: it is who made or listened for the socket over which the
 * message came (SO_PEERCRED), and the receiver may pass the connection on over one that the same
 * process has made. Somebody in between without the library is not seen; if it reads or writes
 * before the boarding, the kernel's counters show it, as everywhere.
 *
 * Application threads, their handlers put off; given_elsewhere on the progress thread.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/pubfile.h"

#include "config/log.h"

#include <errno.h>
#include <sys/socket.h>

enum { CLOSED = 1, CAME_ONCE = 2, CAME_OFTEN = 4, SHIFT = FB_PUB_GIVEN_SHIFT };

/* 0: there is none, or it has no room in a word. */
static uint64_t cookie_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof(cookie);

    return sys_getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0 || cookie >> (64 - SHIFT)
               ? 0
               : cookie;
}

/* Adds `state` to the word; with CAME_ONCE also CAME_OFTEN, if CAME_ONCE is there already, or if
 * `often` says so. False: the place is another cookie's by now. */
static bool add(fb_pub_given *at, uint64_t cookie, unsigned state, bool often)
{
    uint64_t word = atomic_load(at), next;

    while (word >> SHIFT == cookie) {
        next = word | state;
        if (state == CAME_ONCE && (often || word & CAME_ONCE))
            next |= CAME_OFTEN;
        if (atomic_compare_exchange_weak(at, &word, next))
            return true;
    }
    return false;
}

/* ---- the giver */

/* It was accepted here, nothing keeps it off a rail, and nobody else is known to have it. That is
 * still so after a message with it could not be sent, though the stream was pinned for that one. */
bool fb_may_give(struct fb_stream *s)
{
    struct fb_conn *c = conn_of(s);
    uint8_t lent = atomic_load(&s->pub->lent);
    bool again = lent & FB_LENT_GIVEN && s->pub->reason == RSN_SHARED;

    return !hold_for_good() && s->role == FB_ACCEPTED && !(lent & FB_LENT_AWAY) &&
           (again || !conn_flag(c, CF_PINNED | CF_SHARED)) && !c->x->heritage && !c->x->rcv_past &&
           !c->x->snd_past;
}

void fb_giving(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    uint64_t cookie = cookie_of(fd);
    fb_pub_given *words = cookie ? fb_pub_given_here() : NULL;

    if (!words)
        return;
    c->x->cookie = cookie;
    atomic_store(&words[cookie % FB_PUB_GIVEN_SLOTS], cookie << SHIFT);
    atomic_fetch_or(&s->pub->lent, FB_LENT_GIVEN);
}

void fb_not_given(struct fb_stream *s)
{
    uint8_t lent = atomic_load(&s->pub->lent);

    while (!(lent & FB_LENT_OFTEN))
        if (atomic_compare_exchange_weak(&s->pub->lent, &lent, (uint8_t)(lent & ~FB_LENT_AWAY)))
            return;
}

void given_closed(struct fb_conn *c)
{
    const uint8_t lent = atomic_load(&c->s.pub->lent) &
                         (FB_LENT_GIVEN | FB_LENT_AWAY | FB_LENT_OFTEN | FB_LENT_FOREIGN);

    /* A thread that is still in a call has the socket. */
    if (lent == (FB_LENT_GIVEN | FB_LENT_AWAY) && atomic_load(&c->s.rx_in) == 0 &&
        atomic_load(&c->s.tx_in) == 0 && c->s.pub->reason == RSN_SHARED && !heir_may_have(c))
        add(fb_pub_given_here() + c->x->cookie % FB_PUB_GIVEN_SLOTS, c->x->cookie, CLOSED, false);
}

/* ---- the receiver */

/* Others' words stay mapped for as long as they live: many connections come from few processes, and
 * a stream looks at its word later. */
enum { GIVERS = 64 };
static struct fb_giver {
    int32_t pid;
    uint32_t users; /* who look at its words */
    fb_pub_given *words;
} givers[GIVERS];
static unsigned n_givers;
static struct fb_lock lock;

void given_forget(void)
{
    lock = (struct fb_lock){0}; /* what the parent's streams looked at stays */
}

/* lock held. A place for one more, or NULL: a process that is no more gives up its own once no
 * stream looks there. */
static struct fb_giver *place(void)
{
    if (n_givers < GIVERS)
        return &givers[n_givers];
    for (struct fb_giver *g = givers; g < givers + GIVERS; g++)
        if (!g->users && SYS6(SYS_kill, g->pid, 0, 0, 0, 0, 0) == -ESRCH)
            return g;
    return NULL;
}

static fb_pub_given *word_in(const struct fb_giver *g, uint64_t cookie)
{
    return &g->words[cookie % FB_PUB_GIVEN_SLOTS];
}

/* That process, if it has made a word for that cookie, with one user more. */
static struct fb_giver *giver_of(int32_t pid, uint64_t cookie)
{
    struct fb_giver *found = NULL, *g;

    fb_lock(&lock);
    for (g = givers; !found && g < givers + n_givers; g++)
        if (g->pid == pid && atomic_load(word_in(g, cookie)) >> SHIFT == cookie)
            found = g;
    /* An earlier one of that number may be there, and has no such word. */
    if (!found && (g = place())) {
        fb_pub_given *words = fb_pub_given_there(pid, cookie);

        if (words) {
            if (g->words)
                fb_pub_given_gone(g->words);
            *g = (struct fb_giver){.pid = pid, .words = words};
            n_givers += g == givers + n_givers;
            found = g; /* its word as it was: who writes there looks again */
        }
    }
    if (found)
        found->users++;
    fb_unlock(&lock);
    return found;
}

static void let_go(struct fb_giver *g)
{
    fb_lock(&lock);
    g->users--;
    fb_unlock(&lock);
}

/* It has come, or once more. */
static struct fb_giver *counted(uint64_t cookie, int32_t pid, bool often)
{
    struct fb_giver *g = cookie && pid > 0 ? giver_of(pid, cookie) : NULL;

    if (!g || add(word_in(g, cookie), cookie, CAME_ONCE, often))
        return g;
    let_go(g);
    return NULL;
}

void fb_untracked(int fd, int32_t giver)
{
    struct fb_giver *g = counted(cookie_of(fd), giver, true);

    if (g)
        let_go(g);
}

struct fb_stream *fb_arrived(int fd, int32_t giver)
{
    uint64_t cookie = cookie_of(fd), sent, received;
    struct fb_giver *g = counted(cookie, giver, false);
    struct fb_stream *s = NULL;
    struct fb_conn *c;

    if (!g)
        return NULL;
    if (fb_io.counters(fd, &sent, &received) && !sent && !received)
        s = fb_track(fd, FB_ACCEPTED, -1);
    if (!s) {
        let_go(g);
        return NULL;
    }
    c = conn_of(s);
    c->x->cookie = cookie;
    atomic_store(&c->x->giver, g);
    conn_give_away(c);
    if (c->s.pub->reason == RSN_NEW)
        conn_reason(c, RSN_SHARED);
    return s;
}

void given_over(struct fb_conn *c)
{
    struct fb_giver *g = atomic_load(&c->x->giver);

    if (!g)
        return;
    atomic_store(&c->x->giver, NULL);
    let_go(g);
}

bool given_elsewhere(struct fb_conn *c)
{
    struct fb_giver *g = atomic_load(&c->x->giver);

    if (!g)
        return false;
    if (atomic_load(word_in(g, c->x->cookie)) != (c->x->cookie << SHIFT | CLOSED | CAME_ONCE))
        return true;
    log_info("stream %u: who has passed it on has closed it", c->s.slot);
    given_over(c);
    /* Who had it as well may have set what calls of ours had read before. */
    conn_changed(c);
    return false;
}
