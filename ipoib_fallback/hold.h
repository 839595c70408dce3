/*
 * hold.h - for the files of this folder: whether rails may be asked for and attached.
 */
#ifndef FB_HOLD_H
#define FB_HOLD_H

#include <stdbool.h>

#include "config/log.h"

/* The application is inside fb_hold: no rail begins. Progress thread: what it looks at before a hold
 * has gone up is ended by the hold itself. */
bool hold_on(void);
/* 0, or why nothing boards any more. */
int hold_for_good(void);
void hold_forget(void); /* forked child */
/* The progress thread shall run; what it had to do before a hold goes on, and who asked before asks anew. 0 or -errno; -EBUSY: it
 * may not just now, or could not a moment ago. */
int hold_start(void);
/* Why it does not run: -errno of the start in words. */
const char *hold_words(int err, char number[static CFG_ERRNO_WORDS]);

#endif
