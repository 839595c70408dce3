/*
 * heat.h - which streams are hot, where there are fewer rails than streams that want one. For
 * budget.c; progress thread.
 */
#ifndef FB_HEAT_H
#define FB_HEAT_H

#include "ipoib_fallback/stream.h"

/* One look at all streams, a second after the last. */
void heat_begin(void);
/* For each of them. True: it waits for a rail, and has moved bytes since the last look, or the next
 * one will tell. */
bool heat_count(struct fb_conn *);
/* There was no room for it. */
void heat_refused(struct fb_conn *);
/* Then those that are hottest get what room there is, and that of those that are coldest. */
void heat_end(void);

/* Until the next look, room is kept for those chosen: for how many in this budget. */
uint32_t heat_reserved(const struct cfg_use *of);
/* Is it one of them; and no more after this. */
bool heat_taken(struct fb_conn *);
/* Another one of those who were told has given his up. */
void heat_freed(void);
/* Those chosen are called, as many as there is room for. */
void heat_room(void);
void heat_forget(void);

#endif
