/*
 * find.h - accepted streams by their addresses.
 */
#ifndef FB_FIND_H
#define FB_FIND_H

#include "ipoib_fallback/stream.h"

/* A short name for addresses, of which others may have the same. */
uint32_t find_name(const struct rsk_tuple *);
/* An accepted stream begins: from now on it can be found. Any thread. */
void conn_findable(struct fb_conn *);
/* Its addresses are in pub, and its rule is found: sets CF_ADDRESSES. Any thread. */
void conn_known(struct fb_conn *);
/* The accepted stream of these addresses, with a reference, or NULL. Progress thread. */
struct fb_conn *conn_find(const struct rsk_tuple *);
void find_forget(void); /* forked child */

#endif
