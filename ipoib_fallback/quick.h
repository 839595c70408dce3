/*
 * quick.h - quick.c's part for call.c, whose caller has a reference. How many bytes; 0: the general
 * way. No lock held.
 */
#ifndef FB_QUICK_H
#define FB_QUICK_H

#include "ipoib_fallback/stream.h"

/* Also -EAGAIN: the ring is empty, and the call does not wait. */
ssize_t rx_quick(struct fb_conn *, const struct iovec *v, int cnt, int flags);
size_t tx_quick(struct fb_conn *, const struct iovec *v, int cnt, int flags);

#endif
