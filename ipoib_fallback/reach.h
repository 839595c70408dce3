/*
 * reach.h - being asked for rails.
 */
#ifndef FB_REACH_H
#define FB_REACH_H

#include "ipoib_fallback/stream.h"

/* An accepted stream wants a rail: requests for its port are answered. False: by no wire, for want
 * of something that there may be later. Progress thread. */
bool reach_add(struct fb_conn *, const struct rsk_accept_ops *shm,
               const struct rsk_accept_ops *verbs);
/* Are requests for this accepted stream's port answered already, so that nothing need be done for
 * it to be asked for? For a second: then somebody is to call reach_add, by whom what failed is
 * tried again. Its addresses are known. Any thread. */
bool reach_known(struct fb_conn *);
/* The stream is closed. Progress thread. */
void reach_over(struct fb_conn *);
/* The stream is gone. Any thread; what reach_over() has not seen takes memory, and so is not for a
 * signal handler. */
void reach_drop(struct fb_conn *);
/* Nobody is asked for by any wire any more: reach_known is false until somebody calls
 * reach_add. Any thread. */
void reach_unknown(void);
void reach_forget(void); /* forked child */

#endif
