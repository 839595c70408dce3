/*
 * rule.h - which rule decides for a stream (config/rules.h).
 */
#ifndef FB_RULE_H
#define FB_RULE_H

#include "ipoib_fallback/stream.h"

/* The process has a connection that may board: the first one reads the rules' files, while it still
 * is who it was when it connected or accepted, and where. Without a descriptor for that the next
 * one does, or rule_find. Any thread; no lock is held. */
void rule_read(void);
/* The stream's addresses are known: gives it its settings, once and for all, and pins it if they
 * say TCP. Any thread; no lock is held. */
void rule_find(struct fb_conn *, const struct rsk_tuple *);
/* rsk_wire.on_route: maps and service type of the stream's rule. owner: the stream, or NULL for the
 * accepted one of these addresses. */
void rule_route(const struct rsk_tuple *, void *owner, struct rsk_route *);
/* Forked child: it may have been forked off while they were read. */
void rule_forget(void);

#endif
