/*
 * killed.h - a peer whose process was killed, as against one that ends its direction: see killed.c.
 */
#ifndef FB_KILLED_H
#define FB_KILLED_H

#include "ipoib_fallback/stream.h"

/* tx or rx lock held. Was the peer killed with bytes unread that are in its ring? True for ever
 * from then on, and the error, ECONNRESET, is told once by whichever call comes first. */
bool conn_killed(struct fb_conn *);
/* tx lock held. Before the kernel is told of the end of this direction, in whatever way. */
void conn_ends(struct fb_conn *);

#endif
