/*
 * worth.h - from how many calls on a connection to an address is worth a rail. A boarding costs
 * both ends together as much as some hundred requests save by it, so a stream that ends soon after
 * has lost by it. How long a stream will live nobody knows; how long the last ones to the same
 * address have lived is known here. Each of them says, for each of eight bounds (the settings' own,
 * and twice as much, up to 128 times), what that bound would have gained or lost with it; the bound
 * that would have gained most with the last few is taken. So where streams are short none of them
 * boards, but one that lives longer than they do still does.
 *
 * Only where nobody has said when to board, and for the connecting end, which asks. A hint without
 * a lock: two threads whose streams end at once may lose what the one has noted.
 */
#ifndef FB_WORTH_H
#define FB_WORTH_H

#include "ipoib_fallback/stream.h"

#define WORTH_BOUNDS 8
/* Calls at one end after which a boarding has paid for itself: one of several streams to the
 * address, whose threads it keeps waiting as well; and the only one. tests/bench/lives.py. */
#define WORTH_COST       320
#define WORTH_COST_ALONE 100

/* By how many bits the bounds of its settings are to be shifted: 0 to 7. Its addresses are
 * known. Any thread. */
unsigned worth_shift(struct fb_conn *);
/* Has it been more than 0 in this process? Any thread. */
bool worth_learned(void);
/* By how many bits the bounds of an accepted stream's settings are to be shifted for its digests:
 * more than 0 where nobody has asked for one of many. Any thread. */
unsigned worth_unasked(struct fb_conn *);
/* Somebody has asked for an accepted stream. Any thread. */
void worth_asked(void);
/* The application has closed it. Nobody else in this process moves bytes on it; shared: another
 * process may go on with it. Any thread. */
void worth_ended(struct fb_conn *, bool shared);
/* Forked child: the streams are its parent's. */
void worth_forked(void);
/* For tests. */
void worth_forget(void);

#endif
