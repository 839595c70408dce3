/*
 * tx.h - between tx.c, tx_board.c and tx_leave.c: the sending half's own parts, some of which
 * call.c, end.c, linger.c, link.c, quick.c and settings.c use too. The tx lock is held in all of
 * them but tx_board_forget.
 */
#ifndef FB_TX_H
#define FB_TX_H

#include "ipoib_fallback/stream.h"

/* The only place that changes the state; returns the table's actions. */
uint8_t tx_to(struct fb_conn *, enum fb_tx_event);
/* From now on a switch keeps the application's bytes waiting, until tx_to() has ended it. */
void tx_pause(struct fb_conn *);
/* The peer is proved and this half may board (or may not any more). */
void tx_want(struct fb_conn *, bool want);
/* ECHO came with the right X. */
void tx_echo(struct fb_conn *);
/* n bytes are the rail's: they are the stream's next. Only the holder of the tx lock writes the
 * counters while the half is not plain. */
static inline void tx_counted(struct fb_conn *c, size_t n)
{
    struct fb_pub *pub = c->s.pub;
    struct fb_pub_rail *show = c->x->show;

    c->x->tx.calls++;
    atomic_store_explicit(&pub->tx, pub->tx + n, memory_order_relaxed);
    atomic_store_explicit(&show->rail_tx, show->rail_tx + n, memory_order_relaxed);
}
/* n bytes have been copied into the ring: they are accepted. */
static inline void tx_gave(struct fb_conn *c, struct rsk_rail *rail, size_t n)
{
    /* Also if the rail has failed: the bytes are in the ring's memory and counted, and the replay
     * will carry them. */
    if (rail->wire->tx_put(rail, n) < 0)
        conn_todo_tx(c, TODO_FAIL);
    tx_counted(c, n);
}
/* Closed: FIN, if that is due, the half is plain, and no plain call is under way any more. */
void tx_fin(struct fb_conn *);
/* The kernel is told of a cork that was noted. */
void tx_cork(struct fb_conn *);
/* Fills in N, the epoch and the tag. */
void tx_tag_frame(struct fb_conn *, struct fb_frame *);
/* Writes what is left of tx.frame. 1: whole; 0: no room; < 0: the anchor's error. */
int tx_write_frame(struct fb_conn *);
/* A write has met the connection's end: the half is plain, and the kernel tells, or what was
 * taken is told. */
void tx_dead(struct fb_conn *);
/* Writes SWITCH. 1: the half is on the rail (or has left it again); 0: no room; < 0: error. */
int tx_write_switch(struct fb_conn *);
/* Is now a moment at which boarding may be tried with a byte in hand? */
bool tx_may_board(struct fb_conn *, int fd);
/* Tries to board before the first byte of v. 0: look at the state again. > 0: that many bytes
 * went plainly instead. < 0: -errno. Without bytes it goes on with what was announced, as far
 * as that goes. */
ssize_t tx_board(struct fb_conn *, int fd, const struct iovec *v, int cnt, int flags);
/* What has been waited in vain for answers; for the simulation, whose time begins anew. */
void tx_board_forget(void);
/* For a call that is the kernel's once the half is plain, of a stream that is pinned. 0: it is; or
 * -errno: -EAGAIN, TCP has no room for what goes before. */
int tx_back(struct fb_conn *, int fd);

#endif
