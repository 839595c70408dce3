/*
 * frail.h - rails that do not last: how long their streams, and all others to that host, wait for
 * the next one. For rdv.c; progress thread.
 */
#ifndef FB_FRAIL_H
#define FB_FRAIL_H

#include "ipoib_fallback/stream.h"

/* c's rail has ended, for that reason. How long c is to wait for the next one, in ns; 0: no longer
 * than it would anyway. */
uint64_t frail_ended(struct fb_conn *c, int reason);
/* c asks again: if its rail has failed that was not because the other end was about to go. */
void frail_goes_on(struct fb_conn *c);
/* For how long nobody shall ask for a rail to c's peer, in ns; 0: it may be asked now. */
uint64_t frail_for(const struct fb_conn *c);
/* c asks for one; */
void frail_asks(const struct fb_conn *c);
/* has one, over which its peer has answered. */
void frail_proved(const struct fb_conn *c);

#endif
