/*
 * reach.h - being asked for rails.
 */
#ifndef FB_REACH_H
#define FB_REACH_H

#include "ipoib_fallback/stream.h"

/* An accepted stream wants a rail: requests for its port are answered. False: by no wire, for want of something that
 * there may be later. Progress thread. */
bool reach_add(struct fb_conn *, const struct rsk_accept_ops *shm,
               const struct rsk_accept_ops *verbs);
/* The stream is gone. Any thread. */
void reach_drop(struct fb_conn *);
void reach_forget(void); /* forked child */

#endif
