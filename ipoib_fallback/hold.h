/*
 * hold.h - for the files of this folder: whether rails may be asked for and attached.
 */
#ifndef FB_HOLD_H
#define FB_HOLD_H

#include <stdbool.h>

#include "config/log.h"
#include "ipoib_fallback/fb_process.h"

/* No rail may begin: the application is inside fb_hold, or nothing boards any more (hold_for_good).
 * Progress thread: a rail that has begun just before a hold goes up is ended by that hold. */
bool hold_on(void);
/* 0, or why nothing boards any more. */
int hold_for_good(void);
void hold_forget(void); /* forked child */
/* Starts the progress thread, if it does not run. If it was lost after a hold its work goes on, and
 * accepted streams that had asked ask anew. 0 or -errno; -EBUSY: it may not start during a hold, or
 * could not a moment ago. */
int hold_start(void);
/* Why it does not run: -errno of the start in words. */
const char *hold_words(int err, char number[static CFG_ERRNO_WORDS]);

#endif
