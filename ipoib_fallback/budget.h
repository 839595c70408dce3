/*
 * budget.h - rails are a cache: how many there may be, and who gives his up. Progress thread.
 */
#ifndef FB_BUDGET_H
#define FB_BUDGET_H

#include "ipoib_fallback/stream.h"

/* A stream wants a rail. True: it is counted, until budget_free. False: the budget is used up; the
 * stream is to have reason `budget`, and is called when there is room for it (rdv_now), if it is
 * among the hottest that wait. */
bool budget_take(struct fb_conn *);
/* There was room here, but not at the other end, or there has just been none. To be called
 * before budget_free. */
void budget_refused(struct fb_conn *);
/* It has none any more, or did not get one. */
void budget_free(struct fb_conn *);
/* The size of the rings of what is taken is known, before they are. False: there is no room for as
 * many bytes, or it is more than a stranger may choose. */
bool budget_fits(void *conn, size_t bytes, bool stranger);
/* It has got this rail. */
void budget_up(struct fb_conn *, const struct rsk_rail *);
void budget_forget(void); /* forked child */

/* ---- for heat.c ---- */

/* The budget that a stream that waits has to wait for: its rule's own, or NULL: the process's, or
 * there is room. */
const struct cfg_use *budget_of(struct fb_conn *);
/* For how many more there is room in that one. */
uint32_t budget_room(const struct cfg_use *, struct fb_conn *);
/* Since when a stream on a rail has moved nothing; 0: it is none, or has just moved. */
uint64_t budget_idle_since(struct fb_conn *);
/* It gives its rail back; false: not now, because it has bytes that nobody has read. */
bool budget_leave(struct fb_conn *, int reason);
/* It was to, long ago, and the peer says nothing: it is stopped, or lies. */
void budget_overdue(struct fb_conn *);

#endif
