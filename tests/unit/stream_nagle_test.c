/*
 * stream_nagle_test.c - nobody waits for bytes that TCP holds back, or for its acknowledgements:
 * Nagle's algorithm, TCP_CORK and delayed acknowledgements around a change of track.
 */
#include "tests/shim/shim.h"
#include "tests/unit/stream_pair.h"

#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/stream.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int unsent(const struct end *e)
{
    int n = -1;

    ioctl(e->fd, SIOCOUTQNSD, &n);
    return n;
}

/* A frame is not held back by TCP_CORK, nor is what was sent before it. */
TEST_CASE(stream, frames_are_pushed)
{
    unsigned char bytes[32] = {0};
    struct end a, b;
    int on = 1;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    ASSERT(setsockopt(a.fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)) == 0);
    end_leave(conn_of(a.s), RSN_RAIL_FAILED);
    ASSERT_EQ_INT(put(&a, bytes, 32), 32);
    EXPECT_EQ_INT(conn_of(a.s)->x->tx.state, TX_T);
    EXPECT(unsent(&a) <= 32); /* the bytes are the program's, which holds them back itself */
    ASSERT_EQ_INT(get(&b, bytes, 32), 32);
    done(&a);
    done(&b);
}

/* On a rail a cork is noted; the kernel has it when it is asked, and when the half
 * is TCP's again. */
TEST_CASE(stream, cork_on_a_rail)
{
    unsigned char bytes[32] = {0};
    struct end a, b;
    int on = 1, off = 0, has = -1;
    socklen_t len = sizeof(has);

    eager();
    pair(&a, &b);
    EXPECT(!fb_cork(a.s, (void *)8)); /* the kernel's, which says EFAULT */
    ASSERT(board(&a, &b));
    EXPECT(!fb_cork(a.s, (void *)8));
    EXPECT(fb_cork(a.s, &on));
    EXPECT(getsockopt(a.fd, IPPROTO_TCP, TCP_CORK, &has, &len) == 0 && has == 0);
    fb_cork_set(a.s);
    EXPECT(getsockopt(a.fd, IPPROTO_TCP, TCP_CORK, &has, &len) == 0 && has == 1);
    ASSERT_EQ_INT(put(&a, bytes, 32), 32);
    ASSERT_EQ_INT(get(&b, bytes, 32), 32);
    EXPECT(fb_cork(a.s, &off));
    EXPECT(fb_cork(a.s, &on));
    fb_cork_set(a.s);
    EXPECT(fb_cork(a.s, &off));
    end_leave(conn_of(a.s), RSN_RAIL_FAILED);
    EXPECT(!fb_cork(a.s, &on));
    EXPECT(getsockopt(a.fd, IPPROTO_TCP, TCP_CORK, &has, &len) == 0 && has == 0);
    done(&a);
    done(&b);
}

/* Nor is what comes again behind a frame that nobody has acknowledged: Nagle's
 * algorithm is on here. */
TEST_CASE(stream, residue_is_pushed)
{
    unsigned char bytes[64] = {0};
    struct end a, b;
    int had = -1;
    socklen_t len = sizeof(had);

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    ASSERT(getsockopt(a.fd, IPPROTO_TCP, TCP_NODELAY, &had, &len) == 0 && had == 0);
    ASSERT_EQ_INT(put(&a, bytes, 32), 32);
    end_leave(conn_of(a.s), RSN_RAIL_FAILED);
    EXPECT_EQ_INT(conn_of(a.s)->x->tx.state, TX_T);
    EXPECT(conn_of(a.s)->x->tx.E > conn_of(a.s)->x->tx.F);
    EXPECT_EQ_INT(unsent(&a), 0);
    EXPECT(getsockopt(a.fd, IPPROTO_TCP, TCP_NODELAY, &had, &len) == 0 && had == 0);
    ASSERT_EQ_INT(get(&b, bytes, 64), 32);
    done(&a);
    done(&b);
}

static bool acknowledges_at_once(const struct end *e)
{
    int at_once = -1;
    socklen_t len = sizeof(at_once);

    ASSERT(getsockopt(e->fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, &len) == 0);
    return at_once == 1;
}

/* Its own bytes carry acknowledgements no more: it must not wait for any, since Nagle holds the
 * peer's next meanwhile. */
TEST_CASE(stream, half_on_a_rail_acknowledges)
{
    char byte = 'x';
    struct end a, b;
    int later = 0;

    pair_proved(&a, &b);
    /* The kernel decides by how soon each has answered the other. */
    EXPECT_EQ_INT(setsockopt(a.fd, IPPROTO_TCP, TCP_QUICKACK, &later, sizeof(later)), 0);
    EXPECT(!acknowledges_at_once(&a));
    while (conn_of(a.s)->x->tx.state != TX_R) {
        ASSERT_EQ_INT(put(&a, &byte, 1), 1);
        ASSERT_EQ_INT(get(&b, &byte, 1), 1);
    }
    EXPECT_EQ_INT(conn_of(a.s)->x->rx.state, RX_t);
    EXPECT(acknowledges_at_once(&a));
    done(&a);
    done(&b);
}

/* Nor can it be asked to when the peer's frame has come, once FIN has gone. */
TEST_CASE(stream, half_that_has_ended_acknowledges)
{
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_WR), 0);
    UNTIL(conn_of(a.s)->x->tx.state == TX_T);
    EXPECT(acknowledges_at_once(&a));
    done(&a);
    done(&b);
}

/* A push had begun before the program set the option, and was over before fb_sockopt was told. */
TEST_CASE(stream, nodelay_set_during_a_push)
{
    struct end a, b;
    int on = 1, off = 0, has = -1;
    socklen_t len = sizeof(has);

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    ASSERT(setsockopt(a.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    ASSERT(setsockopt(a.fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof(off)) == 0);
    fb_sockopt(a.s, IPPROTO_TCP, TCP_NODELAY, on);
    EXPECT(getsockopt(a.fd, IPPROTO_TCP, TCP_NODELAY, &has, &len) == 0 && has == 1);
    done(&a);
    done(&b);
}
