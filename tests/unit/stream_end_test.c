/*
 * stream_end_test.c - ends of streams on a rail, of one direction or both, by whatever number.
 */
#include "tests/shim/shim.h"
#include "tests/unit/stream_waits.h"

#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/stream.h"
#include "rsock/sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

TEST_CASE(stream, close_delivers_what_was_sent)
{
    unsigned char buf[5000], in[5000];
    struct end a, b;
    size_t have = 0;
    ssize_t r;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    fill(buf, 0, sizeof(buf));
    EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
    done(&a);
    while ((r = get(&b, in + have, sizeof(in) - have)) > 0)
        have += (size_t)r;
    EXPECT_EQ_INT(have == sizeof(in) ? get(&b, in, 1) : r, 0);
    EXPECT_EQ_INT(have, sizeof(in));
    EXPECT_MEMEQ(in, buf, sizeof(in));
    done(&b);
}

TEST_CASE(stream, close_with_unread_bytes_resets)
{
    unsigned char buf[100] = {0};
    struct end a, b;
    ssize_t r;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
    done(&b);
    r = get(&a, buf, sizeof(buf));
    EXPECT_EQ_INT(r, -ECONNRESET);
    done(&a);
}

TEST_CASE(stream, half_close_then_the_other_way)
{
    unsigned char buf[300000], in[4096];
    struct end a, b;
    uint64_t have = 0;
    ssize_t r;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_WR), 0);
    EXPECT_EQ_INT(get(&b, in, sizeof(in)), 0);
    fill(buf, 0, 100000);
    EXPECT_EQ_INT(put(&b, buf, 100000), 100000);
    done(&b);
    while ((r = get(&a, in, sizeof(in))) > 0) {
        EXPECT(check(in, have, (size_t)r));
        have += (uint64_t)r;
    }
    EXPECT_EQ_INT(r, 0);
    EXPECT_EQ_U64(have, 100000);
    done(&a);
}

/* The number that the anchor is watched under is closed while the socket lives on under another. */
TEST_CASE(stream, duplicate_outlives_the_first_number)
{
    unsigned char buf[64] = {0};
    struct end a, b;

    eager();
    for (int i = 0; i < 20; i++) {
        int first, second;

        pair(&a, &b);
        ASSERT(board(&a, &b));
        first = a.fd;
        second = dup(first);
        fb_dup(a.s, second);
        fb_close(a.s, first);
        close(first);
        a.fd = second;
        jobs_done();
        EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_WR), 0);
        EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
        jobs_done();
        EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
        EXPECT_EQ_INT(get(&b, buf, sizeof(buf)), sizeof(buf));
        done(&a);
        jobs_done();
        done(&b);
    }
}

/* Another thread closes the number, and it becomes another file's: the reader leaves that alone. */
TEST_CASE(stream, closed_under_a_reader)
{
    struct reader r = {0};
    struct end a, b;
    pthread_t t;
    int other[2];
    char x;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    r.e = &a;
    fb_get(a.s);
    pthread_create(&t, NULL, reader_main, &r);
    until_it_waits(&r);
    fb_close(a.s, a.fd);
    socketpair(AF_UNIX, SOCK_STREAM, 0, other);
    dup2(other[0], a.fd);
    EXPECT_EQ_INT(write(other[1], "x", 1), 1);
    EXPECT(comes_back(&r, t));
    EXPECT_EQ_INT(r.n, -EBADF);
    EXPECT_EQ_INT(recv(other[0], &x, 1, MSG_DONTWAIT), 1);
    EXPECT_EQ_INT(get(&b, &x, 1), 0);
    close(other[0]);
    close(other[1]);
    close(a.fd);
    fb_put(a.s);
    fb_put(a.s);
    done(&b);
}

static bool fin_answered(int fd)
{
    struct tcp_info ti;
    socklen_t len = sizeof(ti);

    ASSERT_EQ_INT(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len), 0);
    return ti.tcpi_state == TCP_FIN_WAIT2 || ti.tcpi_state == TCP_TIME_WAIT ||
           ti.tcpi_state == TCP_CLOSE;
}

/* On the progress thread: one more look at the socket of a stream that was closed, if it
 * is still there. */
static void lingers_on(void *arg)
{
    struct fb_conn *c = arg;

    if (c->fd >= 0)
        link_linger(c);
}

/* The peer has closed, and said so; this end's FIN must not cost it the bytes it has
 * not read yet. */
TEST_CASE(stream, end_after_the_peers_close_keeps_what_came)
{
    static unsigned char out[200000], in[200000];
    struct end a, b;
    size_t have = 0;
    ssize_t r = 0;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    fill(out, 0, sizeof(out));
    EXPECT_EQ_INT(put(&a, out, sizeof(out)), sizeof(out));
    fb_get(a.s);
    done(&a);
    EXPECT_EQ_INT(get(&b, in, 1000), 1000);
    have = 1000;
    while (!conn_flag(conn_of(b.s), CF_PEER_CLOSED))
        sched_yield();
    EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_WR), 0);
    /* A reset must not come, neither from a's kernel, for the FIN, nor from the thread that
     * has a's socket. */
    UNTIL(fin_answered(b.fd));
    ASSERT_EQ_INT(rsk_loop_post(lingers_on, conn_of(a.s)), 0);
    jobs_done();
    jobs_done();
    while (have < sizeof(in) && (r = get(&b, in + have, sizeof(in) - have)) > 0)
        have += (size_t)r;
    EXPECT_EQ_INT(have, sizeof(in));
    EXPECT_EQ_INT(get(&b, out, 1), 0);
    EXPECT_MEMEQ(in + 1000, out + 1000, sizeof(in) - 1000);
    done(&b);
    fb_put(a.s);
}

static void leaves(void *arg)
{
    struct fb_conn *c = conn_of(((struct end *)arg)->s);

    fb_lock(&c->x->tx.lock);
    tx_leave(c, RSN_IDLE, false);
    tx_unlock(c);
}

/* The bytes that a MSG_WAITALL has are on a rail that was left, and the reset on TCP: the next call
 * is a send, which tells of it instead of the kernel's SIGPIPE. */
TEST_CASE(stream, reset_after_part_of_a_waitall_on_the_way_to_tcp)
{
    struct linger now = {.l_onoff = 1};
    unsigned char out[2000], in[4000];
    struct iovec v = {in, sizeof(in)};
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    fill(out, 0, sizeof(out));
    EXPECT_EQ_INT(put(&a, out, 1000), 1000);
    ASSERT_EQ_INT(rsk_loop_post(leaves, &a), 0);
    ASSERT_EQ_INT(rsk_loop_post(leaves, &b), 0);
    jobs_done();
    EXPECT_EQ_INT(put(&b, out, 10), 10);
    EXPECT_EQ_INT(get(&a, in, 10), 10);
    EXPECT_EQ_INT(put(&a, out + 1000, 1000), 1000);
    EXPECT_EQ_INT(a.s->pub->path_tx, FB_PATH_TCP);
    EXPECT_EQ_INT(b.s->pub->path_tx, FB_PATH_TCP);
    EXPECT_EQ_INT(setsockopt(a.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    done(&a);
    EXPECT_EQ_INT(fb_recvv(b.s, b.fd, &v, 1, MSG_WAITALL), sizeof(out));
    EXPECT_MEMEQ(in, out, sizeof(out));
    EXPECT_EQ_INT(put(&b, out, 1), -ECONNRESET);
    EXPECT_EQ_INT(put(&b, out, 1), -EPIPE);
    done(&b);
}

static void fails(struct end *e)
{
    struct fb_conn *c = conn_of(e->s);

    fb_lock(&c->watch_lock);
    if (c->x->rail)
        c->x->rail->wire->kill(c->x->rail, RSN_RAIL_FAILED);
    fb_unlock(&c->watch_lock);
    conn_todo_tx(c, TODO_FAIL);
    conn_todo_rx(c, TODO_FAIL);
    conn_serve(c);
    link_release(c);
}

/* What is sent then comes by TCP alone; and the thread that watches sockets may be
 * busy for long. */
TEST_CASE(stream, hears_without_the_progress_thread_once_its_rail_is_gone)
{
    unsigned char buf[64] = {0};

    eager();
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        struct reader r = {0};
        struct held h;
        struct end a, b;
        pthread_t t;

        pair(&a, &b);
        ASSERT(board(&a, &b));
        fails(&a);
        fails(&b);
        UNTIL(!conn_of(a.s)->x->rail && !conn_of(b.s)->x->rail);
        hold(&h);
        if (conn_of(a.s)->x->rx.state != RX_r) {
            /* that thread has written the frame that b owes, as it does after a while: once more */
            sleeps--;
            goto next;
        }
        if (sleeps) {
            r.e = &a;
            pthread_create(&t, NULL, reader_main, &r);
            until_it_waits(&r);
            EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
            EXPECT(comes_back(&r, t));
            EXPECT_EQ_INT(r.n, sizeof(buf));
        } else {
            EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
            UNTIL(fb_ready(a.s, a.fd, POLLIN) & POLLIN);
            EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), sizeof(buf));
        }
next:
        let_go(&h);
        done(&a);
        done(&b);
    }
}

/* What is unread lies in the ring, and nothing follows: a call that is to be the kernel's
 * waits for nobody. */
TEST_CASE(stream, nothing_waits_for_who_has_reset)
{
    const struct linger now = {1, 0};
    unsigned char buf[6] = {0};
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(setsockopt(b.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    done(&b);
    UNTIL(fb_io.poll(a.fd, POLLRDHUP) & POLLHUP);
    EXPECT_EQ_INT(waits_of_pin_rx(&a), 0);
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), sizeof(buf));
    done(&a);
}

/* A call has asked for the stream to be handed back, and the peer, which has heard nothing yet,
 * goes. With a reset or not: what it has sent is in the ring, and nowhere else. */
static void goes_unasked(bool reset)
{
    const struct linger now = {1, 0};
    unsigned char buf[6] = {0};
    struct end a, b;
    struct held h;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    hold(&h);
    fb_pin(a.s, RSN_CALL, false);
    EXPECT(conn_of(a.s)->x->rx.frozen);
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    if (reset)
        EXPECT_EQ_INT(setsockopt(b.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    done(&b);
    let_go(&h);
    UNTIL(conn_of(a.s)->x->rx.end != 0 || fb_ready(a.s, a.fd, POLLIN));
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(get(&a, buf, 1), reset ? -ECONNRESET : 0);
    done(&a);
}

TEST_CASE(stream, what_is_in_the_ring_of_who_resets_unasked)
{
    goes_unasked(true);
}

TEST_CASE(stream, what_is_in_the_ring_of_who_closes_unasked)
{
    goes_unasked(false);
}

static int unheard(struct rsk_rail *rail, const struct rsk_msg *m)
{
    (void)rail;
    (void)m;
    return 0;
}

/* The same where there was nothing in the ring when the call asked: its rail stays until the peer
 * has answered, or has gone. The peer hears nothing of it. */
static void goes_unheard(bool reset)
{
    const struct linger now = {1, 0};
    unsigned char buf[6] = {0};
    static struct rsk_wire mute; /* the rail may outlive its stream */
    struct rsk_rail *rail;
    struct end a, b;

    eager();
    pair_proved(&a, &b);
    while (conn_of(a.s)->x->rx.state != RX_r) { /* only b sends: a has no frame to tell b by */
        ASSERT_EQ_INT(put(&b, buf, 1), 1);
        ASSERT_EQ_INT(get(&a, buf, 1), 1);
    }
    rail = conn_of(a.s)->x->rail;
    mute = *rail->wire;
    mute.ctl_send = unheard;
    rail->wire = &mute;
    fb_pin(a.s, RSN_CALL, false);
    EXPECT(conn_of(a.s)->x->rx.frozen);
    link_release(conn_of(a.s));
    UNTIL(!conn_flag(conn_of(a.s), CF_RELEASE));
    EXPECT(conn_of(a.s)->x->rail == rail);
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    if (reset) {
        EXPECT_EQ_INT(setsockopt(b.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
        done(&b);
    } else { /* its kernel says so, and its rail knows nothing */
        shutdown(b.fd, SHUT_WR);
    }
    UNTIL(fb_io.poll(a.fd, POLLRDHUP) & POLLRDHUP);
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(get(&a, buf, 1), reset ? -ECONNRESET : 0);
    UNTIL(!conn_of(a.s)->x->rail); /* also while the number is open */
    done(&a);
    if (!reset)
        done(&b);
}

TEST_CASE(stream, what_comes_into_the_ring_before_a_reset_unheard)
{
    goes_unheard(true);
}

TEST_CASE(stream, what_comes_into_the_ring_before_an_end_unheard)
{
    goes_unheard(false);
}

/* What stat says of a stream that was pinned is why, also when its peer's BYE comes before its
 * rail has gone. */
TEST_CASE(stream, pinned_stream_keeps_its_reason)
{
    struct end a, b;
    struct held h;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    hold(&h);
    fb_pin(a.s, RSN_CALL, false);
    link_end(conn_of(a.s), RSN_PEER_LEFT);
    EXPECT_EQ_INT(a.s->pub->reason, RSN_CALL);
    link_end(conn_of(b.s), RSN_PEER_LEFT);
    EXPECT_EQ_INT(b.s->pub->reason, RSN_PEER_LEFT);
    let_go(&h);
    done(&a);
    done(&b);
}

/* The half that is plain has told the reset, and the thread that watches sockets is busy: a send to
 * the rail is none. */
TEST_CASE(stream, nothing_is_sent_to_a_rail_after_a_reset)
{
    const struct linger now = {1, 0};
    char byte = 'x';
    struct end a, b;
    struct held h;

    eager();
    pair_proved(&a, &b);
    while (conn_of(a.s)->x->tx.state != TX_R) {
        ASSERT_EQ_INT(put(&a, &byte, 1), 1);
        ASSERT_EQ_INT(get(&b, &byte, 1), 1);
    }
    ASSERT_EQ_INT(conn_of(a.s)->x->rx.state, RX_t);
    hold(&h);
    EXPECT_EQ_INT(setsockopt(b.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    done(&b);
    EXPECT_EQ_INT(get(&a, &byte, 1), -ECONNRESET);
    EXPECT_EQ_INT(put(&a, &byte, 1), -EPIPE);
    let_go(&h);
    done(&a);
}

/* The peer has ended the rail; its disconnect makes that a failed one before anybody has read
 * so. */
TEST_CASE(stream, one_that_the_peer_has_ended_has_not_failed)
{
    struct rsk_msg bye = {.type = FM_BYE};
    struct rsk_rail *there;
    struct end a, b;
    struct fb_conn *c;
    struct held h;

    pair_proved(&a, &b);
    c = conn_of(a.s);
    there = conn_of(b.s)->x->rail;
    hold(&h);
    link_release(c); /* it is the next that is done */
    bye.epoch = c->x->epoch;
    ASSERT_EQ_INT(there->wire->ctl_send(there, &bye), 0);
    atomic_store(&c->x->rail->failed, RSN_RAIL_FAILED);
    let_go(&h);
    EXPECT(!c->x->rail);
    EXPECT_EQ_INT(a.s->pub->reason, RSN_PEER_LEFT);
    done(&a);
    done(&b);
}
