/*
 * netns.h - see netns.c.
 */
#ifndef FB_NETNS_H
#define FB_NETNS_H

#include "ipoib_fallback/stream.h"

/* Its addresses mean something else here: what answers to them is not the other end. */
bool netns_another(struct fb_conn *);
/* Progress thread: it may be in another namespace now. */
void netns_moved(void);

#endif
