/*
 * siphash.h - SipHash-2-4 (Aumasson, Bernstein 2012), the keyed hash of the proofs,
 * as a running state so that a stream can be hashed as it goes by. 64-bit output.
 * No I/O, no allocation, any thread on its own state.
 */
#ifndef FB_SIPHASH_H
#define FB_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct fb_sip {
    uint64_t v0, v1, v2, v3;
    uint64_t tail; /* bytes not yet a full word */
    uint64_t len;
};

void fb_sip_init(struct fb_sip *, const uint8_t key[16]);
void fb_sip_add(struct fb_sip *, const void *data, size_t n);
/* The hash of what was added so far; the state stays usable. */
uint64_t fb_sip_end(const struct fb_sip *);

#endif
