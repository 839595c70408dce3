/*
 * proof.c - see proof.h. The digests are unkeyed (a fixed key): they are never sent. The proofs are
 * keyed by both nonces, so an old one cannot be used again, and by the site key, if there is one.
 */
#include "ipoib_fallback/proof.h"

#include "config/reason.h"

#include <string.h>

#define WINDOW 256u

static const uint8_t zero_key[16];

static uint64_t checkpoint_at(unsigned i)
{
    return 16ull << i;
}

/* How many bytes before it its digest covers. */
static uint64_t window(unsigned i)
{
    uint64_t half = checkpoint_at(i) / 2;

    return i == 0 ? 16 : half < WINDOW ? half : WINDOW;
}

void fb_digest_init(struct fb_digest *d)
{
    memset(d, 0, sizeof(*d));
    fb_sip_init(&d->sip, zero_key);
    d->next = checkpoint_at(0);
}

void fb_digest_begin(struct fb_digest *d, uint64_t at)
{
    fb_sip_init(&d->sip, zero_key);
    d->next = checkpoint_at(0);
    if (at)
        fb_digest_unseen(d, 0, at);
}

/* The byte range [from, to) of the window before d->next, taken out of v which starts at `at`. */
static void add_range(struct fb_digest *d, uint64_t at, const struct iovec *v, int cnt,
                      uint64_t from, uint64_t to)
{
    for (int i = 0; i < cnt && at < to; i++) {
        uint64_t len = v[i].iov_len, end = at + len;

        if (end > from) {
            uint64_t lo = from > at ? from - at : 0;
            uint64_t hi = to < end ? to - at : len;

            fb_sip_add(&d->sip, (const char *)v[i].iov_base + lo, (size_t)(hi - lo));
        }
        at = end;
    }
}

static void reached(struct fb_digest *d)
{
    unsigned i = d->index;

    /* In this order, which past() relies on: who misses the oldest one sees that it
     * was run past. */
    d->index = (uint8_t)(i + 1);
    if (i >= 8)
        d->valid &= ~(1ull << (i - 8));
    if (d->unseen <= d->next - window(i)) {
        d->ring[i % 8] = fb_sip_end(&d->sip);
        d->valid |= 1ull << i;
    }
    fb_sip_init(&d->sip, zero_key);
    if (d->index >= FB_CHECKPOINTS)
        d->off = true;
    else
        d->next = checkpoint_at(d->index);
}

void fb_digest_add(struct fb_digest *d, uint64_t at, const struct iovec *v, int cnt, uint64_t n)
{
    uint64_t end = at + n, from = at;

    if (d->off)
        return;
    if (d->next == 0)
        fb_digest_init(d);
    for (;;) {
        uint64_t start = d->next - window(d->index);

        if (end <= start)
            return;
        if (from < start)
            from = start;
        if (end < d->next) {
            add_range(d, at, v, cnt, from, end);
            return;
        }
        add_range(d, at, v, cnt, from, d->next);
        from = d->next;
        reached(d);
        if (d->off)
            return;
    }
}

void fb_digest_unseen(struct fb_digest *d, uint64_t at, uint64_t n)
{
    if (d->next == 0 && !d->off)
        fb_digest_init(d);
    d->unseen = at + n;
    while (!d->off && at + n >= d->next)
        reached(d);
}

bool fb_digest_next(const struct fb_digest *d, uint64_t at, uint64_t end, uint64_t *from,
                    uint64_t *to)
{
    uint64_t start = d->next - window(d->index);

    *from = at > start ? at : start;
    *to = end < d->next ? end : d->next;
    return !d->off && *from < *to;
}

uint64_t fb_checkpoints_common(uint64_t a, uint64_t b)
{
    uint64_t both = a & b;

    for (int surplus = __builtin_popcountll(both) - 4; surplus > 0; surplus--)
        both &= both - 1;
    return both;
}

unsigned fb_checkpoints_cover(uint64_t mask)
{
    unsigned n = 0;

    for (mask &= (1ull << FB_CHECKPOINTS) - 1; mask; mask &= mask - 1)
        n += (unsigned)window((unsigned)__builtin_ctzll(mask));
    return n;
}

static bool take(struct fb_sip *s, const struct fb_digest *d, uint64_t mask)
{
    fb_sip_add(s, &mask, sizeof(mask));
    if (mask >> FB_CHECKPOINTS)
        return false;
    for (uint64_t left = mask; left; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctzll(left);
        uint64_t digest = d->ring[i % 8];

        /* After it: a stream that goes on takes the bit first, then the place. */
        if (!(d->valid & (1ull << i)))
            return false;
        fb_sip_add(s, &digest, sizeof(digest));
    }
    return true;
}

/* Was the oldest one of the last eight once, and is not any more? */
static bool past(const struct fb_digest *d, uint64_t mask)
{
    return mask && !(mask >> FB_CHECKPOINTS) && d->index > (unsigned)__builtin_ctzll(mask) + 8;
}

/* The key of one half of a proof. The nonces alone are known to any peer; what the site key makes
 * of them only to one that has it. */
static void key_of(const struct fb_proof_in *in, uint8_t half, uint8_t key[16])
{
    if (!in->key) {
        memcpy(key, half ? in->nonce1 : in->nonce0, 16);
        return;
    }
    for (uint8_t part = 0; part < 2; part++) {
        const uint8_t head[2] = {half, part};
        struct fb_sip s;
        uint64_t h;

        fb_sip_init(&s, in->key);
        fb_sip_add(&s, head, sizeof(head));
        fb_sip_add(&s, in->nonce0, 16);
        fb_sip_add(&s, in->nonce1, 16);
        h = fb_sip_end(&s);
        memcpy(key + 8 * part, &h, 8);
    }
}

bool fb_proof(const struct fb_proof_in *in, uint8_t out[16])
{
    if (!in->up_at && !in->down_at)
        return false;
    for (int half = 0; half < 2; half++) {
        struct fb_sip s;
        uint64_t h;
        uint8_t head[2] = {in->role, (uint8_t)half}, key[16];

        key_of(in, (uint8_t)half, key);
        fb_sip_init(&s, key);
        fb_sip_add(&s, half ? in->nonce0 : in->nonce1, 16);
        fb_sip_add(&s, head, sizeof(head));
        if (!take(&s, in->up, in->up_at) || !take(&s, in->down, in->down_at))
            return false;
        h = fb_sip_end(&s);
        memcpy(out + 8 * half, &h, 8);
    }
    return true;
}

int fb_judge(const struct fb_proof_in *in, const uint8_t theirs[16])
{
    uint8_t want[16];

    if (fb_proof(in, want))
        return fb_same(want, theirs, 16) ? 0 : RSN_PROOF;
    return past(in->up, in->up_at) || past(in->down, in->down_at) ? RSN_NOT_YET : RSN_PROOF;
}

void fb_tag(const uint8_t nonce0[16], const uint8_t nonce1[16], const void *data, size_t n,
            uint8_t out[16])
{
    for (int half = 0; half < 2; half++) {
        struct fb_sip s;
        uint64_t h;

        fb_sip_init(&s, half ? nonce1 : nonce0);
        fb_sip_add(&s, half ? nonce0 : nonce1, 16);
        fb_sip_add(&s, data, n);
        h = fb_sip_end(&s);
        memcpy(out + 8 * half, &h, 8);
    }
}

bool fb_same(const uint8_t *a, const uint8_t *b, size_t n)
{
    uint8_t diff = 0;

    for (size_t i = 0; i < n; i++)
        diff |= (uint8_t)(a[i] ^ b[i]);
    return diff == 0;
}
