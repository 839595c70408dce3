/*
 * rx_end.c - the end of a half that has been on a rail: who tells it, and as what.
 * Under the rx lock.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/rx.h"

#include <errno.h>

void rx_ended(struct fb_conn *c, int end)
{
    c->x->rx.end = FB_EOF;
    if (end != 0 && !atomic_load(&c->x->told))
        conn_untold(c, end);
}

/* The kernel has said 0. It counts a FIN among the bytes received; an end without one was an error.
 * If this library has not taken that error, here or in a call that may still be under way, then a
 * call that nobody sees has, a FILE's for example, and has told it. */
static bool told_unseen(struct fb_conn *c, int fd)
{
    return !hold_for_good() && !conn_shared(c) && !c->shut && !fb_lock_held(&c->x->tx.lock) &&
           atomic_load(&c->s.tx_in) == 0 && atomic_load(&c->x->peekers) == 0 &&
           !atomic_load(&c->x->swallowed) && (fb_io.poll(fd, 0) & POLLHUP) &&
           fb_io.received(fd) == conn_krx(c);
}

/* Behind FIN the kernel says 0, or another thread has just been told the error: but no stream
 * of which something may be missing ends as if it were whole, if the program has not heard of
 * it (fb_told). */
int rx_take_end(struct fb_conn *c, int fd)
{
    int end = c->x->rx.end;
    char byte;
    struct iovec v = {&byte, 1};
    ssize_t n = 0;

    if (end == FB_KERNELS || end == FB_MISSING)
        n = fb_io.recv(fd, &v, 1, 1, MSG_DONTWAIT);
    c->x->rx.end = FB_EOF;
    if (n < 0 && n != -EAGAIN)
        return (int)n;
    if (n == 0 && end == FB_MISSING && told_unseen(c, fd))
        conn_reset_told(c);
    n = atomic_exchange(&c->x->swallowed, 0);
    return n == 0 && end == FB_MISSING && !atomic_load(&c->x->told) ? -ECONNRESET : (int)n;
}

void rx_at_end(struct fb_conn *c, ssize_t n, bool whole)
{
    if (n == -EPIPE)
        c->x->rx.end = whole ? FB_KERNELS : FB_MISSING;
    else
        rx_ended(c, n < 0 ? (int)n : whole ? 0 : -ECONNRESET);
}

/* Only the kernel knows how far the connection has been read. While bytes come too fast for it to
 * say, they are the application's: a sender that has boarded sends only frames. */
bool rx_robbed(struct fb_conn *c, int fd, uint64_t more)
{
    int64_t n = fd < 0 || hold_for_good() ? 0 : fb_io.beyond(fd, conn_krx(c) + more);

    if (n == 0)
        return false;
    if (n < 0 || c->s.pub->rx + more + (uint64_t)n > c->x->rx.S) {
        rx_broken(c, "somebody else has received bytes at an announced switch");
    } else { /* they were the application's, and so is what follows */
        atomic_fetch_add(&c->s.pub->rx, (uint64_t)n);
        conn_seen(c)->rx.off = true;
        c->s.rx_mark = FB_NO_DIGEST;
        conn_set(c, CF_PINNED);
        atomic_store(&c->x->leave_why, RSN_BYPASSED);
        conn_todo_tx(c, TODO_LEAVE);
    }
    conn_reason(c, RSN_BYPASSED);
    return true;
}
