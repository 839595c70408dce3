/*
 * hold.h - for the files of this folder: whether rails may be asked for and attached.
 */
#ifndef FB_HOLD_H
#define FB_HOLD_H

#include <stdbool.h>

/* The application is inside fb_hold: no rail begins. Progress thread: what it looks at before a hold
 * has gone up is ended by the hold itself. */
bool hold_on(void);
/* 0, or why nothing boards any more. */
int hold_for_good(void);
void hold_forget(void); /* forked child */

#endif
