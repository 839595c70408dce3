/*
 * siphash.c - see siphash.h. Checked against the reference vectors in
 * tests/unit/proof_test.c.
 */
#include "ipoib_fallback/siphash.h"

#include <string.h>

#define ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))

static inline void one_round(struct fb_sip *s)
{
    s->v0 += s->v1;
    s->v1 = ROTL(s->v1, 13) ^ s->v0;
    s->v0 = ROTL(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = ROTL(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = ROTL(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = ROTL(s->v1, 17) ^ s->v2;
    s->v2 = ROTL(s->v2, 32);
}

static inline void word(struct fb_sip *s, uint64_t m)
{
    s->v3 ^= m;
    one_round(s);
    one_round(s);
    s->v0 ^= m;
}

void fb_sip_init(struct fb_sip *s, const uint8_t key[16])
{
    uint64_t k0, k1;

    memcpy(&k0, key, 8);
    memcpy(&k1, key + 8, 8);
    s->v0 = k0 ^ 0x736f6d6570736575ull;
    s->v1 = k1 ^ 0x646f72616e646f6dull;
    s->v2 = k0 ^ 0x6c7967656e657261ull;
    s->v3 = k1 ^ 0x7465646279746573ull;
    s->tail = 0;
    s->len = 0;
}

void fb_sip_add(struct fb_sip *to, const void *data, size_t n)
{
    const uint8_t *p = data;
    struct fb_sip state = *to, *s = &state; /* in registers: data may be anything, this too */

    while (n > 0) {
        unsigned fill = (unsigned)(s->len & 7);

        if (fill == 0 && n >= 8) {
            uint64_t m;

            memcpy(&m, p, 8);
            word(s, m);
            s->len += 8;
            p += 8;
            n -= 8;
            continue;
        }
        s->tail |= (uint64_t)*p++ << (8 * fill);
        n--;
        s->len++;
        if (fill == 7) {
            word(s, s->tail);
            s->tail = 0;
        }
    }
    *to = state;
}

uint64_t fb_sip_end(const struct fb_sip *s)
{
    struct fb_sip e = *s;

    word(&e, e.tail | (e.len << 56));
    e.v2 ^= 0xff;
    for (int i = 0; i < 4; i++)
        one_round(&e);
    return e.v0 ^ e.v1 ^ e.v2 ^ e.v3;
}
