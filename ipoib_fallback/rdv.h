/*
 * rdv.h - between rdv.c, rdv_accept.c and rdv_rail.c. Progress thread.
 */
#ifndef FB_RDV_H
#define FB_RDV_H

#include "ipoib_fallback/stream.h"

/* Where one direction has ended the other one does not begin to board: only the kernel knows
 * whether the end that has sent FIN still receives. That is then its reason. */
bool rdv_half_closed(struct fb_conn *);
/* Does it ask for large rings, which its settings do not say? */
bool rdv_wants_large(struct fb_conn *);
/* There was no memory for a rail, or no room. If that may be for its large rings it asks for small
 * ones from now on, until rdv_small_no_more: true. */
bool rdv_small_again(struct fb_conn *);
void rdv_small_no_more(struct fb_conn *);
/* It is in the budget, and asks for large rings only if there is room for those. */
void rdv_fit(struct fb_conn *);
/* For the call that is being made: its reference goes with the next job. */
struct rsk_shard *rdv_shard_for(struct fb_conn *);
/* A stream that moves much with each call gains from a large ring, because the two copies overlap;
 * many small conversations gain from small ones, which stay in the cache. */
size_t rdv_ring_for(struct fb_conn *);
/* Pins a stream that must not have a rail: it is not TCP, has an option that a rail cannot honour,
 * or somebody else in this process may take its bytes (fb_on_foreign). True: it is pinned. */
bool rdv_pin_foreign(struct fb_conn *);
/* It has just asked: from now on it is asked for, or asks its peer. */
void rdv_begin(struct fb_conn *);
/* It is asked for from now on: rdv_accept.c. */
void rdv_be_reachable(struct fb_conn *);

#endif
