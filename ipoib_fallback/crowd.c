/*
 * crowd.c - what the kernel knows of a thread that spins: how often it was thrown off its
 * processor (spin.h).
 */
#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/spin.h"

#include <sys/resource.h>

#define NS_PER_S  1000000000u
#define NS_PER_US 1000u

void crowd_look(struct fb_crowd *c, uint64_t at)
{
    struct rusage r;
    const struct timeval *u = &r.ru_utime, *s = &r.ru_stime;

    if (!fb_filtered() && getrusage(RUSAGE_THREAD, &r) == 0)
        fb_crowd_look(c, at, (uint64_t)r.ru_nivcsw,
                      (uint64_t)(u->tv_sec + s->tv_sec) * NS_PER_S +
                          (uint64_t)(u->tv_usec + s->tv_usec) * NS_PER_US);
}
