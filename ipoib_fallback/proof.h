/*
 * proof.h - the knowledge of a stream: digests of what went by, taken at the same
 * byte numbers at both ends, from which two ends that share the TCP stream prove it
 * to each other before anything is written into it (DESIGN section 6).
 *
 * Checkpoint i lies at byte 16 * 4^i of a direction; its digest covers the up to 256 bytes before
 * it. The two ends are never at the same place in a stream that moves, so each keeps the last
 * eight checkpoints and they settle on the newest that both have. At least one direction must
 * have one: a direction that has carried fewer than 16 bytes proves nothing and is left out
 * (iperf3's data connections are silent in one direction).
 */
#ifndef FB_PROOF_H
#define FB_PROOF_H

#include "ipoib_fallback/siphash.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/uio.h>

#define FB_CHECKPOINTS 28 /* 16 * 4^27 = 2^58 bytes */

struct fb_digest {
    struct fb_sip sip;
    uint64_t next;            /* byte number of the next checkpoint */
    uint64_t unseen;          /* bytes before this number did not all pass us */
    _Atomic uint32_t valid;   /* bit i: checkpoint i is in ring[i % 8] */
    _Atomic uint8_t index;    /* of the next checkpoint */
    _Atomic bool off;         /* it ends here: two calls at once, or the last checkpoint */
    _Atomic uint64_t ring[8]; /* read by the progress thread while the stream goes on */
};

/* May bytes that end before byte number `end` be of a digest whose next checkpoint is `mark`? If not, fb_digest_add
 * would do nothing, and who remembers the mark need not look at the digest itself. */
#define FB_NO_DIGEST UINT8_MAX
static inline bool fb_digest_wants(uint8_t mark, uint64_t end)
{
    uint64_t next;

    if (mark >= FB_CHECKPOINTS)
        return false;
    next = 16ull << (2 * mark);
    return next < 256 || end > next - 256;
}
static inline uint8_t fb_digest_mark(const struct fb_digest *d)
{
    return d->off ? FB_NO_DIGEST : d->index;
}

void fb_digest_init(struct fb_digest *);
/* The bytes [at, at + n) of v passed. Callers are in order: at is where the last call ended. Cheap
 * except within 256 bytes of a checkpoint. */
void fb_digest_add(struct fb_digest *, uint64_t at, const struct iovec *v, int cnt, uint64_t n);
/* n bytes passed that we could not look at (sendfile). */
void fb_digest_unseen(struct fb_digest *, uint64_t at, uint64_t n);

/* The newest checkpoint in both masks, or -1. */
int fb_checkpoint_common(uint32_t a, uint32_t b);

/* One side's proof for both nonces: role 0 is the connecting end. up is the direction connecting to
 * accepting; a checkpoint of -1 leaves the direction out. False when up and down are both -1 or a
 * checkpoint is not held any more. */
struct fb_proof_in {
    const uint8_t *nonce0, *nonce1; /* of the connecting and the accepting end, 16 bytes each */
    const struct fb_digest *up, *down;
    int up_at, down_at;
    uint8_t role;
};
bool fb_proof(const struct fb_proof_in *, uint8_t out[16]);
/* The peer's proof, of the peer's role: 0, or why it is refused. RSN_NOT_YET if the stream has run past a checkpoint
 * since that was settled on, which says nothing against the peer. */
int fb_judge(const struct fb_proof_in *, const uint8_t theirs[16]);

/* The tag of a frame: over n bytes, keyed by both nonces. */
void fb_tag(const uint8_t nonce0[16], const uint8_t nonce1[16], const void *data, size_t n,
            uint8_t out[16]);
/* Equal, in constant time. */
bool fb_same(const uint8_t *a, const uint8_t *b, size_t n);

#endif
