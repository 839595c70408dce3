/*
 * processors.h - has this machine one processor alone? Then no wait spins: whoever it waits for
 * cannot run meanwhile. That a program is kept on one (taskset, a server's own settings) says
 * nothing of that, since its peer may be kept on another; and where both are on the same, waits
 * learn that to spin is in vain.
 */
#ifndef FB_PROCESSORS_H
#define FB_PROCESSORS_H

#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic bool fb_one_processor; /* of any thread; false until it is known */

/* Finds out, once. Progress thread. Where it is not told, and where there may be a filter for
 * system calls, there are several. */
void processors_look(void);
#endif
