/*
 * stream_shut_test.c - streams that are shut for reading, or both ways, before they board or
 * while on a rail.
 */
#include "tests/asleep.h"
#include "tests/shim/shim.h"
#include "tests/unit/stream_pair.h"

#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/stream.h"
#include "ipoib_fallback/tx.h"
#include "rsock/sys.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

/* SHUT_RD of one end is no end of the other, and what the peer's half says by TCP still comes. The
 * kernel is not told of it, and its watcher does not wait for what it would say. */
TEST_CASE(stream, shut_for_reading)
{
    unsigned char buf[64] = {0};
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_RD), 0);
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
    EXPECT_EQ_INT(fb_poll(a.s, a.fd, POLLIN | POLLRDHUP), POLLIN | POLLRDHUP);
    jobs_done();
    EXPECT_EQ_INT(conn_of(a.s)->x->anchor_bits, 0);
    EXPECT_EQ_INT(conn_of(a.s)->x->rx.end, 0);
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
    EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(get(&b, buf, sizeof(buf)), sizeof(buf));
    done(&b);
    done(&a);
}

/* All n bytes, at an end for which a receive that finds nothing says 0, as the kernel does. */
static bool take_all(struct end *e, unsigned char *buf, size_t n)
{
    uint64_t until = sys_now() + 10000000000ull;
    size_t have = 0;

    while (have < n && sys_now() < until) {
        ssize_t r = get(e, buf + have, n - have);

        if (r < 0)
            return false;
        have += (size_t)r;
        sched_yield();
    }
    return have == n;
}

/* The same said before there was a rail. */
TEST_CASE(stream, shut_for_reading_before_it_boards)
{
    unsigned char buf[64] = {0};
    struct end a, b;

    eager();
    pair(&a, &b);
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_RD), 0);
    do {
        ASSERT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
        ASSERT(take_all(&a, buf, sizeof(buf)));
    } while (conn_rail_rx(conn_of(a.s)) == 0);
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    EXPECT(take_all(&a, buf, sizeof(buf)));
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
    done(&b);
    done(&a);
}

/* Before it is connected a shutdown only ends the attempt: the socket can be connected anew,
 * and then reads. */
TEST_CASE(stream, shut_for_reading_while_it_connects)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sin);
    int l = socket(AF_INET, SOCK_STREAM, 0), fd[4];
    struct end a;

    (void)bind(l, (struct sockaddr *)&sin, sizeof(sin));
    listen(l, 0);
    getsockname(l, (struct sockaddr *)&sin, &len);
    /* More than the queue holds: the last gets no answer. */
    for (int i = 0; i < 4; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fd[i], (struct sockaddr *)&sin, sizeof(sin));
    }
    a = (struct end){fd[3], fb_track(fd[3], FB_CONNECTED, 1)};
    ASSERT(a.s != NULL);
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_RD), 0);
    EXPECT(!conn_of(a.s)->shut);
    done(&a);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    close(l);
}

/* What lay in the ring is in the socket when the call returns, although poll says after SHUT_RD
 * that there is something. */
TEST_CASE(stream, pinned_after_shut_for_reading)
{
    static const char text[] = "was there before";

    eager();
    for (int round = 0; round < 20; round++) {
        char buf[sizeof(text)];
        struct end a, b;

        pair(&a, &b);
        ASSERT(board(&a, &b));
        ASSERT(put(&a, text, sizeof(buf)) == sizeof(buf));
        EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_RD), 0);
        fb_pin(b.s, RSN_CALL, true);
        EXPECT(fb_plain(b.s));
        EXPECT_EQ_INT(recv(b.fd, buf, sizeof(buf), MSG_DONTWAIT), sizeof(buf));
        EXPECT_MEMEQ(buf, text, sizeof(buf));
        done(&a);
        done(&b);
    }
}

/* The peer takes its half back, by frames and by what it sends again, which is no
 * reason for a reset. */
TEST_CASE(stream, shut_both_ways)
{
    static const char text[] = "was there before";

    eager();
    for (int round = 0; round < 40; round++) {
        bool unread = round % 2, pinned = round % 4 == 1;
        char buf[sizeof(text)] = "";
        struct end a, b;
        int err = 0;
        socklen_t len = sizeof(err);

        pair(&a, &b);
        ASSERT(board(&a, &b));
        if (unread)
            ASSERT(put(&a, text, sizeof(buf)) == sizeof(buf));
        EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_RDWR), 0);
        EXPECT_EQ_INT(fb_poll(b.s, b.fd, POLLIN | POLLRDHUP), POLLIN | POLLRDHUP | POLLHUP);
        EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
        if (pinned) {
            fb_pin(b.s, RSN_CALL, true);
            EXPECT(fb_plain(b.s));
        }
        EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_WR), 0);
        UNTIL(fb_plain(a.s));
        EXPECT_EQ_INT(get(&b, buf, sizeof(buf)), unread ? sizeof(buf) : 0);
        if (unread)
            EXPECT_MEMEQ(buf, text, sizeof(buf));
        EXPECT_EQ_INT(get(&b, buf, sizeof(buf)), 0);
        UNTIL(fb_plain(b.s) && !fb_shut_late(b.s));
        EXPECT_EQ_INT(getsockopt(b.fd, SOL_SOCKET, SO_ERROR, &err, &len), 0);
        EXPECT_EQ_INT(err, 0);
        done(&a);
        done(&b);
    }
}

enum { PIECES = 40, PIECE = 1000, MUCH = PIECES * PIECE };

static _Atomic int slow_fd = -1, sent_now;
static ssize_t (*real_send)(int, const struct iovec *, int, int);

/* What the sender sends again, one piece at a time: then there is no room for a while. */
static ssize_t slow_send(int fd, const struct iovec *v, int cnt, int flags)
{
    struct iovec piece = {v->iov_base, v->iov_len < PIECE ? v->iov_len : PIECE};

    if (fd != slow_fd)
        return real_send(fd, v, cnt, flags);
    return atomic_exchange(&sent_now, 1) ? -EAGAIN : real_send(fd, &piece, 1, flags);
}

/* Before there is a thread that could be calling it. */
__attribute__((constructor)) static void sends_by_ours(void)
{
    real_send = fb_io.send;
    fb_io.send = slow_send;
}

static void *goes_on(void *of)
{
    struct fb_conn *c = of;
    bool there = false;

    while (!there) {
        atomic_store(&sent_now, 0);
        fb_lock(&c->x->tx.lock);
        there = tx_push(c);
        tx_unlock(c);
        jobs_done();
    }
    return NULL;
}

/* Whoever has the socket next gets all of it, however slowly it comes again, and then the end. */
static void hand_over_when_shut(bool wait)
{
    static unsigned char out[MUCH], in[MUCH];
    struct end a, b;
    pthread_t t;
    int err = 0;
    socklen_t len = sizeof(err);
    size_t have = 0;
    ssize_t n;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    fill(out, 0, MUCH);
    ASSERT(put(&a, out, MUCH) == MUCH);
    atomic_store(&sent_now, 0);
    atomic_store(&slow_fd, a.fd);
    EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_RDWR), 0);
    UNTIL(conn_of(a.s)->x->tx.state == TX_L3 && conn_of(b.s)->x->rx.state == RX_sk);
    if (!wait) {
        fb_pin(b.s, RSN_SHARED, false);
        EXPECT_EQ_INT(conn_of(b.s)->x->rx.state, RX_t);
        EXPECT(fb_shut_late(b.s));
    }
    pthread_create(&t, NULL, goes_on, conn_of(a.s));
    if (wait) {
        fb_pin(b.s, RSN_SHARED, true);
        EXPECT(!fb_shut_late(b.s));
    }
    pthread_join(t, NULL);
    UNTIL(fb_plain(b.s) && !fb_shut_late(b.s));
    atomic_store(&slow_fd, -1);
    while (have < MUCH && (n = recv(b.fd, in + have, MUCH - have, MSG_DONTWAIT)) > 0)
        have += (size_t)n;
    EXPECT_EQ_INT(have, MUCH);
    EXPECT_MEMEQ(in, out, MUCH);
    EXPECT_EQ_INT(recv(b.fd, in, 1, MSG_DONTWAIT), 0);
    EXPECT_EQ_INT(getsockopt(b.fd, SOL_SOCKET, SO_ERROR, &err, &len), 0);
    EXPECT_EQ_INT(err, 0);
    done(&a);
    done(&b);
}

TEST_CASE(stream, handed_over_when_shut_both_ways)
{
    hand_over_when_shut(true);
}

TEST_CASE(stream, leaves_when_shut_both_ways)
{
    hand_over_when_shut(false);
}

/* More of it is unread than the socket would take, and nobody waits for the rest. */
TEST_CASE(stream, shut_both_ways_before_much)
{
    struct end a, b;
    unsigned char piece[4096];
    struct iovec v = {piece, sizeof(piece)};
    uint64_t from = 0, to = 0;
    ssize_t n;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    for (;;) {
        fill(piece, from, sizeof(piece));
        n = fb_sendv(a.s, a.fd, &v, 1, MSG_DONTWAIT);
        if (n <= 0)
            break;
        from += (uint64_t)n;
    }
    ASSERT(from >= 100000);
    EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_RDWR), 0);
    EXPECT(fb_shut_late(b.s));
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_WR), 0);
    while ((n = get(&b, piece, sizeof(piece))) > 0) {
        ASSERT(check(piece, to, (size_t)n));
        to += (uint64_t)n;
    }
    EXPECT_EQ_INT(n, 0);
    EXPECT_EQ_U64(to, from);
    done(&a);
    done(&b);
}

struct sleeps {
    struct end *e;
    _Atomic int tid;
    _Atomic bool back;
    ssize_t got;
};

static void *receives_one(void *arg)
{
    struct sleeps *s = arg;
    unsigned char byte;

    atomic_store(&s->tid, sys_gettid());
    s->got = get(s->e, &byte, 1);
    atomic_store(&s->back, true);
    return NULL;
}

/* The rail has failed, and the peer's half, which owes its frame, will not write it to who
 * is at his end. */
TEST_CASE(stream, shut_both_ways_wakes_who_waits_without_a_rail)
{
    struct rsk_rail *rail;
    struct sleeps s = {0};
    struct end a, b;
    pthread_t t;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    for (int i = 0; i < 2; i++) {
        struct fb_conn *c = conn_of(i ? b.s : a.s);

        rail = c->x->rail;
        ASSERT(rail != NULL);
        rail->wire->kill(rail, RSN_RAIL_FAILED);
        conn_todo_tx(c, TODO_FAIL);
        conn_todo_rx(c, TODO_FAIL);
        conn_serve(c);
    }
    UNTIL(!conn_of(a.s)->x->rail && !conn_of(b.s)->x->rail);
    s.e = &a;
    ASSERT_EQ_INT(pthread_create(&t, NULL, receives_one, &s), 0);
    until_it_sleeps(&s.tid);
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_RDWR), 0);
    UNTIL(atomic_load(&s.back));
    pthread_join(t, NULL);
    EXPECT_EQ_INT(s.got, 0);
    done(&b);
    done(&a);
}

/* It waits for the frame that the peer owes, and which it asks for when it is closed: from a closed
 * socket that draws RST, and the peer, who has sent nothing, would see an error. */
TEST_CASE(stream, shut_both_ways_and_closed)
{
    unsigned char byte = 0;
    struct end a, b;

    eager();
    for (int i = 0; i < 20; i++) {
        pair(&a, &b);
        ASSERT(board(&a, &b));
        EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_RDWR), 0);
        UNTIL(conn_of(a.s)->x->tx.state == TX_L1 && conn_of(a.s)->x->tx.owed);
        done(&b);
        EXPECT_EQ_INT(get(&a, &byte, 1), 0);
        UNTIL(conn_of(a.s)->x->tx.state == TX_T);
        fb_closed_over(false);
        EXPECT_EQ_INT(fb_poll(a.s, a.fd, POLLIN), POLLIN);
        EXPECT_EQ_INT(fb_so_error(a.s), 0);
        EXPECT_EQ_INT(fb_io.poll(a.fd, POLLIN) & (POLLHUP | POLLERR), 0);
        done(&a);
    }
}
