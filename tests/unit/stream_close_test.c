/*
 * stream_close_test.c - what a number stands for once its stream has been closed or forgotten, and calls that are under way
 * then.
 */
#include "tests/unit/stream_pair.h"

#include <errno.h>
#include <fcntl.h>

/* From the close on, and before the kernel's: what another thread does with the number then is neither the stream's, which may be
 * on its way back to TCP, nor ends in EPIPE. */
TEST_CASE(stream, a_closed_number_stands_for_nothing)
{
    unsigned char byte = 0;
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    fb_close(a.s, a.fd);
    EXPECT(fcntl(a.fd, F_GETFD) >= 0);
    EXPECT(send(a.fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EBADF);
    EXPECT(recv(a.fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EBADF);
    EXPECT_EQ_INT(close(a.fd), 0);
    fb_put(a.s);
    EXPECT_EQ_INT(get(&b, &byte, 1), 0);
    done(&b);
}

/* The kernel's connection ends with the stream, and the number stays its socket's: connect() to AF_UNSPEC. */
TEST_CASE(stream, a_number_that_stays)
{
    int type = 0;
    socklen_t len = sizeof(type);
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    fb_forget(a.s, a.fd);
    EXPECT_EQ_INT(getsockopt(a.fd, SOL_SOCKET, SO_TYPE, &type, &len), 0);
    EXPECT_EQ_INT(type, SOCK_STREAM);
    close(a.fd);
    fb_put(a.s);
    done(&b);
}

static _Atomic bool handshake_over;

/* What the last message of the proof does, when nothing but its timer wakes the lingering close any more. */
static void no_timer(void *stream)
{
    struct fb_conn *c = stream;

    if (c->x->linger_pause < 4000000) {
        (void)rsk_loop_post(no_timer, c);
        return;
    }
    link_no_timer(c);
    handshake_over = true;
}

static bool fin_sent(struct fb_conn *c)
{
    bool yes;

    fb_lock(&c->x->tx.lock);
    yes = c->x->tx.fin_done;
    tx_unlock(c);
    return yes;
}

/* A send of the kernel's that is under way ends as if nothing had been closed: FIN comes after it. */
TEST_CASE(stream, closed_under_a_plain_send)
{
    unsigned char bytes[32] = {0};
    struct fb_conn *c;
    struct end a, b;

    pair_proved(&a, &b);
    c = conn_of(a.s);
    ASSERT_EQ_INT(c->x->tx.state, TX_T);
    atomic_fetch_add(&a.s->tx_in, 1);
    fb_close(a.s, a.fd);
    EXPECT(!fin_sent(c));
    EXPECT(!fb_tx_enter(a.s));
    EXPECT_EQ_INT(send(c->fd, "late", 4, MSG_NOSIGNAL), 4); /* by what the call has of the socket */
    close(a.fd);
    ASSERT_EQ_INT(rsk_loop_post(no_timer, c), 0);
    UNTIL(handshake_over);
    EXPECT(!fin_sent(c));
    atomic_fetch_sub(&a.s->tx_in, 1);
    UNTIL(fin_sent(c));
    ASSERT_EQ_INT(get(&b, bytes, 32), 4);
    EXPECT_EQ_INT(get(&b, bytes, 32), 0);
    fb_put(a.s);
    done(&b);
}
