/*
 * given.c - a connection that one process accepts and passes on to another by SCM_RIGHTS, unused, as Node's cluster does.
 *
 * Who gives it keeps it on TCP and does not board it any more. If it has passed it on exactly once, nobody else can have it, and the
 * kernel has closed its number, then it is its receiver's alone. The giver's file of counters has a word for it, found by the
 * socket's cookie, which no other socket ever has:
 *
 *   giver     before the message is sent      cookie << 8                 the place may have been another's, which is lost
 *   receiver  has it                          | how often it has come     if it is there at all; else it is not tracked
 *   giver     the kernel has closed it        | CLOSED                    if it is still there
 *   receiver  is asked for a rail             once and CLOSED: its alone
 *
 * Nobody makes the word anew: who finds another cookie's there stays on TCP. Counted is how often it comes, since the giver is guessed:
 * it is who made or listened for the socket over which the message came (SO_PEERCRED), and the receiver may pass the connection on over
 * one that the same process has made. Somebody in between without the library is not seen; if it reads or writes before the
 * boarding, the kernel's counters show it, as everywhere.
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

/* What else it is then; often: also if this is the first time. False: the word is another's. */
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

/* It was accepted here, and nothing is known that would keep it off a rail, nor of somebody else who has it; a message that was to take
 * it away and could not be sent has changed nothing. */
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

/* Others' words stay mapped: many connections come from few processes, and a stream looks at its own word later. */
enum { GIVERS = 64 };
static struct {
    int32_t pid;
    fb_pub_given *words;
} givers[GIVERS];
static unsigned n_givers;
static struct fb_lock lock;

void given_forget(void)
{
    lock = (struct fb_lock){0};
}

/* lock held. A place for one more, or GIVERS: a process that is no more gives up its own. Its words stay mapped, as streams look at them. */
static unsigned place(void)
{
    if (n_givers < GIVERS)
        return n_givers;
    for (unsigned i = 0; i < GIVERS; i++)
        if (SYS6(SYS_kill, givers[i].pid, 0, 0, 0, 0, 0) == -ESRCH)
            return i;
    return GIVERS;
}

/* That cookie's word, if that process has made one. */
static fb_pub_given *word_of(int32_t giver, uint64_t cookie)
{
    const unsigned slot = cookie % FB_PUB_GIVEN_SLOTS;
    fb_pub_given *word = NULL;
    unsigned at;

    fb_lock(&lock);
    for (unsigned i = 0; !word && i < n_givers; i++)
        if (givers[i].pid == giver && atomic_load(&givers[i].words[slot]) >> SHIFT == cookie)
            word = &givers[i].words[slot];
    /* An earlier one of that number may be there, and has no such word. */
    if (!word && (at = place()) < GIVERS) {
        fb_pub_given *words = fb_pub_given_there(giver, cookie);

        if (words) {
            givers[at].pid = giver;
            givers[at].words = words;
            n_givers += at == n_givers;
            word = &words[slot]; /* as it was: who writes there looks again */
        }
    }
    fb_unlock(&lock);
    return word;
}

/* It has come, or once more. */
static fb_pub_given *counted(uint64_t cookie, int32_t giver, bool often)
{
    fb_pub_given *word = cookie && giver > 0 ? word_of(giver, cookie) : NULL;

    return word && add(word, cookie, CAME_ONCE, often) ? word : NULL;
}

void fb_untracked(int fd, int32_t giver)
{
    (void)counted(cookie_of(fd), giver, true);
}

struct fb_stream *fb_arrived(int fd, int32_t giver)
{
    uint64_t cookie = cookie_of(fd), sent, received;
    fb_pub_given *word = counted(cookie, giver, false);
    struct fb_stream *s;
    struct fb_conn *c;

    if (!word || !fb_io.counters(fd, &sent, &received) || sent || received)
        return NULL;
    s = fb_track(fd, FB_ACCEPTED, -1);
    if (!s)
        return NULL;
    c = conn_of(s);
    c->x->cookie = cookie;
    c->x->word = word;
    conn_give_away(c);
    if (c->s.pub->reason == RSN_NEW)
        conn_reason(c, RSN_SHARED);
    return s;
}

bool given_elsewhere(struct fb_conn *c)
{
    struct fb_more *x = c->x;

    if (!x->word)
        return false;
    if (atomic_load(x->word) != (x->cookie << SHIFT | CLOSED | CAME_ONCE))
        return true;
    log_info("stream %u: who has passed it on has closed it", c->s.slot);
    x->word = NULL;
    /* Who had it as well may have set what calls of ours had read before. */
    conn_changed(c);
    return false;
}
