/*
 * find_test.c - an accepted stream is found by its addresses, in whatever slot it is, and not when
 * it is closed or the slot is another one's. The streams have no sockets: what the kernel would say
 * of them is put where the library keeps it. And how its addresses are written in the log.
 */
#include "ipoib_fallback/address.h"
#include "ipoib_fallback/find.h"
#include "tests/shim/shim.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MANY 3000

static struct rsk_tuple tuple(uint32_t n)
{
    struct rsk_tuple t = {.family = AF_INET, .src_port = (uint16_t)(n >> 8), .dst_port = 80};

    t.src[0] = 10;
    t.src[1] = (uint8_t)n;
    t.dst[0] = 10;
    return t;
}

static struct fb_stream *stream(uint32_t n, enum fb_role role)
{
    struct rsk_tuple t = tuple(n);
    struct fb_stream *s = fb_track(1 << 20, role, 0); /* no such number: no addresses yet */
    struct fb_pub_addr src = {.family = t.family, .port = t.src_port};
    struct fb_pub_addr dst = {.family = t.family, .port = t.dst_port};

    ASSERT(s);
    memcpy(src.addr, t.src, sizeof(src.addr));
    memcpy(dst.addr, t.dst, sizeof(dst.addr));
    s->pub->local = role == FB_CONNECTED ? src : dst;
    s->pub->peer = role == FB_CONNECTED ? dst : src;
    conn_known(conn_of(s));
    return s;
}

static struct fb_stream *find(uint32_t n)
{
    struct rsk_tuple t = tuple(n);
    struct fb_conn *c = conn_find(&t);

    if (!c)
        return NULL;
    fb_put(&c->s);
    return &c->s;
}

TEST_CASE(find, by_addresses)
{
    static struct fb_stream *s[MANY];

    EXPECT(!find(0));
    for (uint32_t i = 0; i < MANY; i++) {
        s[i] = stream(i, FB_ACCEPTED);
        if (i % 7 == 0)
            EXPECT(find(i) == s[i]);
    }
    for (uint32_t i = 0; i < MANY; i++)
        EXPECT(find(i) == s[i]);
    EXPECT(!find(MANY));
    for (uint32_t i = 0; i < MANY; i += 2)
        fb_put(s[i]);
    for (uint32_t i = 0; i < MANY; i++)
        EXPECT(find(i) == (i % 2 ? s[i] : NULL));
    /* Their slots again, with other addresses. */
    for (uint32_t i = 0; i < MANY; i += 2)
        s[i] = stream(MANY + i, FB_ACCEPTED);
    for (uint32_t i = 0; i < MANY; i += 2) {
        EXPECT(!find(i));
        EXPECT(find(MANY + i) == s[i]);
    }
    for (uint32_t i = 0; i < MANY; i++)
        fb_put(s[i]);
    for (uint32_t i = 0; i < 2 * MANY; i++)
        EXPECT(!find(i));
}

TEST_CASE(find, not_the_connecting_end_nor_a_closed_one)
{
    struct fb_stream *a = stream(1, FB_CONNECTED), *b;

    EXPECT(!find(1));
    b = stream(1, FB_ACCEPTED);
    EXPECT(find(1) == b);
    conn_set(conn_of(b), CF_CLOSED);
    EXPECT(!find(1));
    fb_put(a);
    fb_put(b);
}

/* Many short connections: the table is made anew now and then, and whoever lives stays in it. */
TEST_CASE(find, slots_are_used_again)
{
    for (uint32_t i = 0; i < 100000; i++) {
        struct fb_stream *s = stream(i % 60000, FB_ACCEPTED);

        if (i % 1000 == 0)
            EXPECT(find(i % 60000) == s);
        fb_put(s);
    }
}

static struct sockaddr_in name_of(int fd, bool peer)
{
    struct sockaddr_in a;
    socklen_t len = sizeof(a);

    ASSERT_EQ_INT((peer ? getpeername : getsockname)(fd, (struct sockaddr *)&a, &len), 0);
    return a;
}

/* Nobody has asked for the addresses before, nor will they be asked for a number
 * that was closed. */
TEST_CASE(find, asks_the_kernel)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                       from;
    int l = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0), far;
    struct rsk_tuple t = {.family = AF_INET};
    struct fb_stream *s, *closed, *early;
    struct fb_conn *c;

    ASSERT_EQ_INT(bind(l, (struct sockaddr *)&at, sizeof(at)) | listen(l, 1), 0);
    at = name_of(l, false);
    ASSERT_EQ_INT(connect(near, (struct sockaddr *)&at, sizeof(at)), 0);
    far = accept(l, NULL, NULL);
    from = name_of(far, true);
    t.src_port = ntohs(from.sin_port);
    t.dst_port = ntohs(at.sin_port);
    memcpy(t.src, &from.sin_addr, 4);
    memcpy(t.dst, &at.sin_addr, 4);
    closed = fb_track(far, FB_ACCEPTED, 0);
    conn_set(conn_of(closed), CF_CLOSED);
    EXPECT(!conn_find(&t));
    EXPECT(!conn_flag(conn_of(closed), CF_ADDRESSES));
    s = fb_track(far, FB_ACCEPTED, 0);
    EXPECT(!conn_flag(conn_of(s), CF_ADDRESSES));
    c = conn_find(&t);
    EXPECT(c && &c->s == s);
    if (c)
        fb_put(&c->s);
    EXPECT(fb_may_be_found(s)); /* the kernel may just be asked */
    EXPECT(!conn_find(&t));
    early = fb_track(far, FB_ACCEPTED, 0);
    EXPECT(!fb_may_be_found(early)); /* nor will it be */
    EXPECT(!conn_find(&t));
    EXPECT(!conn_flag(conn_of(early), CF_ADDRESSES));
    fb_put(early);
    fb_put(s);
    fb_put(closed);
    close(near);
    close(far);
    close(l);
}

/* A line of log says which connection it is of, also where nobody has needed its addresses yet, or
 * nobody knows them. */
TEST_CASE(find, addresses_in_words)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    char text[FB_WHO], want[FB_WHO];
    socklen_t len = sizeof(at);
    struct fb_stream *s = stream(2 << 8 | 7, FB_ACCEPTED);
    int l;

    EXPECT_STREQ(fb_who(s, -1, text), "10.0.0.0:80 with 10.7.0.0:2");
    memset(s->pub->local.addr, 0xfd, sizeof(s->pub->local.addr));
    s->pub->local.family = AF_INET6;
    s->pub->local.port = 65535;
    s->pub->peer = s->pub->local;
    EXPECT_STREQ(fb_who(s, -1, text), "[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:65535 with "
                                      "[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:65535");
    fb_put(s);
    EXPECT_STREQ(address_who(NULL, -1, text), "? with ?");
    l = socket(AF_INET6, SOCK_STREAM, 0);
    if (l < 0 || bind(l, (struct sockaddr *)&at, len) < 0 ||
        getsockname(l, (struct sockaddr *)&at, &len) < 0)
        SKIP("no IPv6");
    snprintf(want, sizeof(want), "[::1]:%u with ?", ntohs(at.sin6_port));
    s = fb_track(l, FB_ACCEPTED, 0);
    EXPECT_STREQ(fb_who(s, l, text), want);
    fb_put(s);
    close(l);
}
