/*
 * stream_tally_test.c - what has come and gone since an edge was told, of a stream
 * that changes track.
 */
#include "tests/unit/stream_ahead.h"

/* What has come is counted in the same way in the kernel, in the ring and in both, read or not: it
 * is by that that an edge is told once (preload/pl_epoll_ready.c). But who finds less than asked
 * for is told of all that follows. */
TEST_CASE(stream_tally, read_or_not)
{
    struct end a, b;
    struct fb_tally t;
    uint64_t pos;
    size_t half;

    cross(&a, &b, &pos);
    more(&b, &pos, 3000);
    half = (size_t)pos / 2;
    UNTIL(count(&a) >= pos);
    t = fb_tally(a.s, a.fd);
    EXPECT(t.in != 0 && t.out != 0);
    end_leave(conn_of(b.s), RSN_IDLE);
    more(&b, &pos, 1);
    UNTIL(count(&a) >= pos);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, t.in + 1);
    for (size_t at = 0; at < half; at += 10) {
        fill(out, at, 10);
        ASSERT_EQ_INT(get(&a, in, 10), 10);
        EXPECT(memcmp(in, out, 10) == 0);
        /* What is behind the ring in the kernel it does not see from there: an edge
         * more, none less. */
        EXPECT(fb_tally(a.s, a.fd).in <= t.in + 1);
    }
    UNTIL(conn_of(a.s)->x->rx.state == RX_sk || conn_of(a.s)->x->rx.state == RX_t);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, t.in + 1);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).out, t.out);
    ASSERT_EQ_INT(put(&a, in, 1), 1);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).out, t.out + 1);
    while (get(&a, in, sizeof(in)) == (ssize_t)sizeof(in))
        ;
    UNTIL(conn_of(a.s)->x->rx.state == RX_t);
    EXPECT(fb_tally(a.s, a.fd).in > t.in + 1);
    t = fb_tally(a.s, a.fd);
    EXPECT_EQ_INT(fb_poll(a.s, a.fd, POLLIN), 0);
    EXPECT(fb_tally(a.s, a.fd).in > t.in);
    t = fb_tally(a.s, a.fd);
    more(&b, &pos, 1);
    UNTIL(count(&a) == 1);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, t.in + 1);
    /* Who cannot know what others read says nothing; nor what others send. */
    fb_pin(a.s, RSN_CALL, false);
    UNTIL(conn_of(a.s)->x->rx.state == RX_t);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, t.in + 1);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).out, 0);
    fb_maybe_shared(a.s);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, 0);
    done(&b);
    done(&a);
}

/* On a rail, with something to be read. */
static void with_bytes(struct end *a, struct end *b, uint64_t *pos)
{
    eager();
    pair(a, b);
    ASSERT(board(a, b));
    more(b, pos, 3000);
    UNTIL(count(a) >= *pos);
}

/* What was told on the rail the kernel tells again of who leaves it for good: by the tally
 * it is the same. */
TEST_CASE(stream_tally, of_who_is_pinned)
{
    struct end a, b;
    struct fb_tally t;
    uint64_t pos = 0;

    with_bytes(&a, &b, &pos);
    t = fb_tally(a.s, a.fd);
    EXPECT(t.in != 0);
    fb_pin(a.s, RSN_OPTION, false);
    for (int i = 0; i < 299; i++) {
        uint64_t now = fb_tally(a.s, a.fd).in;

        EXPECT(now <= t.in);
        ASSERT_EQ_INT(get(&a, in, 10), 10);
    }
    UNTIL(conn_of(a.s)->x->rx.state == RX_t);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, t.in);
    more(&b, &pos, 1);
    UNTIL(count(&a) == 11);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, t.in + 1);
    done(&b);
    done(&a);
}

/* Who reads past the library may have found the end of what has come: what was told before is
 * told once more. */
TEST_CASE(stream_tally, of_who_reads_past_it)
{
    struct end a, b;
    struct fb_tally t;
    uint64_t pos = 0;

    with_bytes(&a, &b, &pos);
    for (int i = 0; i < 2; i++) {
        t = fb_tally(a.s, a.fd);
        EXPECT(t.in != 0);
        fb_pin_rx(a.s, RSN_CALL);
        UNTIL(fb_plain_rx(a.s));
        UNTIL(count(&a) >= pos);
        EXPECT(fb_tally(a.s, a.fd).in > t.in);
    }
    done(&b);
    done(&a);
}

/* Edges are counted from when it has asked, and so is a send that is refused: the next edge
 * is another one. */
TEST_CASE(stream_tally, of_who_has_asked)
{
    struct end a, b;
    struct fb_tally t;
    uint64_t end;

    pair(&a, &b);
    EXPECT(fb_tx_enter(a.s));
    atomic_store(&a.s->tx_mark, FB_NO_DIGEST);
    conn_set(conn_of(a.s), CF_ASKED);
    EXPECT(!fb_usual(a.s, -1, false, &end));
    EXPECT(fb_usual(a.s, 1, false, &end));
    fb_tx_leave(a.s, -EAGAIN, NULL, 0);
    t = fb_tally(a.s, a.fd);
    EXPECT(t.out != 0);
    EXPECT(fb_tx_enter(a.s));
    fb_tx_leave(a.s, -EAGAIN, NULL, 0);
    EXPECT(fb_tally(a.s, a.fd).out > t.out);
    done(&b);
    done(&a);
}

/* Without a rail only the kernel tells of it. */
TEST_CASE(stream_tally, none_of_who_is_pinned_before)
{
    struct end a, b;
    uint64_t pos = 0;

    eager();
    pair(&a, &b);
    fb_pin(a.s, RSN_OPTION, false);
    more(&b, &pos, 100);
    UNTIL(count(&a) == 100);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).in, 0);
    EXPECT_EQ_U64(fb_tally(a.s, a.fd).out, 0);
    done(&b);
    done(&a);
}
