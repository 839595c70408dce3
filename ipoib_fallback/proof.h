/*
 * proof.h - the knowledge of a stream: digests of what went by, taken at the same
 * byte numbers at both ends, from which two ends that share the TCP stream prove it
 * to each other before anything is written into it (DESIGN section 6).
 *
 * Checkpoint i lies at byte 16 * 2^i of a direction; its digest covers the second half of the bytes
 * before it, at most 256, and the first one's all 16. The two ends are never at the same place in a
 * stream that moves, so each keeps the last eight checkpoints and they settle on the newest four
 * that both have. At least one direction must have one: a direction that has carried fewer than 16
 * bytes proves nothing and is left out (iperf3's data connections are silent in one direction).
 *
 * A digest may begin anywhere in the stream, because most connections end before a rail is wanted
 * and shall not pay for it: plain.c says when.
 */
#ifndef FB_PROOF_H
#define FB_PROOF_H

#include "ipoib_fallback/siphash.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/uio.h>

#define FB_CHECKPOINTS 55 /* 16 * 2^54 = 2^58 bytes */

struct fb_digest {
    struct fb_sip sip;
    uint64_t next;            /* byte number of the next checkpoint; 0: not begun */
    uint64_t unseen;          /* bytes before this number did not all pass us */
    _Atomic uint64_t valid;   /* bit i: checkpoint i is in ring[i % 8] */
    _Atomic uint8_t index;    /* of the next checkpoint */
    _Atomic bool off;         /* it ends here: two calls at once, or the last checkpoint */
    _Atomic uint64_t ring[8]; /* read by the progress thread while the stream goes on */
};

/* A digest's mark, kept outside of it, so that most calls need not look at the digest. The lower
 * six bits: a shift that makes (end + 256) 0 as long as bytes that end at number `end` are none of
 * the next checkpoint's (fb_digest_wants). The two bits above: whether it has begun. */
enum {
    FB_DIGEST_STATE = 0xc0,      /* these bits, in which 0 is: begun */
    FB_DIGEST_FIRST = 4,         /* begun, and its next checkpoint is the first */
    FB_DIGEST_LATER = 0x40 | 14, /* not begun: does at 16 KiB of its direction, or that shifted */
    FB_DIGEST_NOW = 0x80,        /* not begun: does with the next bytes */
    FB_NO_DIGEST = 0xc0 | 63     /* ended, or will not begin */
};

/* May bytes that end before byte number `end` be of the digest with this mark? */
static inline bool fb_digest_wants(uint8_t mark, uint64_t end)
{
    return (end + 256) >> (mark & 63) != 0;
}
static inline bool fb_digest_later(uint8_t mark)
{
    return (mark & FB_DIGEST_STATE) == (FB_DIGEST_LATER & FB_DIGEST_STATE);
}
static inline uint8_t fb_digest_mark(const struct fb_digest *d)
{
    return d->off ? FB_NO_DIGEST : (uint8_t)(FB_DIGEST_FIRST + d->index);
}

void fb_digest_init(struct fb_digest *);
/* Begins one that is all zero, or has been ended since, at byte number `at`. */
void fb_digest_begin(struct fb_digest *, uint64_t at);
/* The bytes [at, at + n) of v passed. Callers are in order: at is where the last call ended. Cheap
 * except within 256 bytes of a checkpoint. */
void fb_digest_add(struct fb_digest *, uint64_t at, const struct iovec *v, int cnt, uint64_t n);
/* n bytes passed that we could not look at. */
void fb_digest_unseen(struct fb_digest *, uint64_t at, uint64_t n);
/* For bytes that can be had one by one (sendfile's): the next of [at, end) that it wants are
 * [*from, *to), at most 256; they may be added alone, and the next are looked for from *to on.
 * False: it wants none. */
bool fb_digest_next(const struct fb_digest *, uint64_t at, uint64_t end, uint64_t *from,
                    uint64_t *to);

/* The newest checkpoints in both masks, at most four; and how many bytes of the stream those of
 * a mask cover. */
uint64_t fb_checkpoints_common(uint64_t a, uint64_t b);
unsigned fb_checkpoints_cover(uint64_t mask);
/* The newest one of a mask, or -1. */
static inline int fb_checkpoint_newest(uint64_t mask)
{
    return mask ? 63 - __builtin_clzll(mask) : -1;
}

/* One side's proof for both nonces: role 0 is the connecting end. up is the direction connecting to
 * accepting. up_at and down_at are masks of the checkpoints that it is made of; an empty one leaves
 * the direction out. False when both are empty or a checkpoint is not held any more. */
struct fb_proof_in {
    const uint8_t *nonce0, *nonce1; /* of the connecting and the accepting end, 16 bytes each */
    const struct fb_digest *up, *down;
    uint64_t up_at, down_at;
    const uint8_t *key; /* the site key, 16 bytes; NULL: there is none */
    uint8_t role;
};
bool fb_proof(const struct fb_proof_in *, uint8_t out[16]);
/* The peer's proof, of the peer's role: 0, or why it is refused. RSN_NOT_YET if the stream has run
 * past a checkpoint since that was settled on, which says nothing against the peer. */
int fb_judge(const struct fb_proof_in *, const uint8_t theirs[16]);

/* The tag of a frame: over n bytes, keyed by both nonces. */
void fb_tag(const uint8_t nonce0[16], const uint8_t nonce1[16], const void *data, size_t n,
            uint8_t out[16]);
/* Equal, in constant time. */
bool fb_same(const uint8_t *a, const uint8_t *b, size_t n);

#endif
