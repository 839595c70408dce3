/*
 * pubfile.h - the file that shows this process's connections (pub.h), made when the
 * first connection is tracked.
 */
#ifndef FB_PUBFILE_H
#define FB_PUBFILE_H

#include "ipoib_fallback/pub.h"

#include <stdbool.h>

/* Room for slots [0, n). False: no memory. Where the file cannot be had (no /dev/shm, a chroot, no
 * space) the memory is anonymous and stat does not see it. Under the registry lock. */
bool fb_pub_grow(uint32_t n);
struct fb_pub *fb_pub_slot(uint32_t slot);
/* The rest of a slot, zero at first, for a stream that wants a rail. NULL: no memory.
 * Progress thread. */
struct fb_pub_rail *fb_pub_rail(uint32_t slot);
/* Adds the connection to the sums of closed ones. The rest may be NULL. Under the registry lock. */
void fb_pub_closed(const struct fb_pub *, const struct fb_pub_rail *);
/* given.c's words: this process's; NULL: no room. */
typedef _Atomic uint64_t fb_pub_given;
fb_pub_given *fb_pub_given_here(void);
/* That process's of this user's, until they are given back, if there is one for that
 * cookie; else NULL. */
fb_pub_given *fb_pub_given_there(int32_t pid, uint64_t cookie);
void fb_pub_given_gone(fb_pub_given *);
/* Removes the file: the process ends. */
void fb_pub_remove(void);
/* It is about to execute another program, which has none of what is shown: off. That has failed:
 * on. Nothing in a vfork child. */
void fb_pub_show(bool on);
/* The file's head; NULL before the first connection. */
struct fb_pub_file *fb_pub_head(void);
/* Forked child: the parent's file stays mapped, for heir.c; NULL if there is none that is shared.
 * As after fb_pub_forget. */
struct fb_pub_file *fb_pub_hand_on(void);
/* Gives back what that was. NULL: nothing. */
void fb_pub_end(struct fb_pub_file *theirs);
/* Forked child: the next grow makes a file of its own. */
void fb_pub_forget(void);

#endif
