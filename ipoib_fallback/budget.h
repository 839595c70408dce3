/*
 * budget.h - rails are a cache: how many there may be, and who gives his up. Progress thread.
 */
#ifndef FB_BUDGET_H
#define FB_BUDGET_H

#include "ipoib_fallback/stream.h"

/* A stream wants a rail. True: it is counted, until budget_free. False: the budget is used up; a stream
 * that has been idle for a second may have been told to leave, so that asking again can help. */
bool budget_take(struct fb_conn *);
/* It has none any more, or did not get one. */
void budget_free(struct fb_conn *);
/* It has got this rail. */
void budget_up(struct fb_conn *, const struct rsk_rail *);
void budget_forget(void); /* forked child */

#endif
