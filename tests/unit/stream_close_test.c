/*
 * stream_close_test.c - what a number stands for once its stream has been closed or forgotten, and
 * calls that are under way then.
 */
#include "ipoib_fallback/tx.h"
#include "tests/unit/stream_pair.h"

#include <errno.h>
#include <fcntl.h>

/* From the close on, and before the kernel's: what another thread does with the number then is
 * neither the stream's, which may be on its way back to TCP, nor ends in EPIPE. */
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

/* The number stays the socket's, in another table of descriptors. */
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

/* connect() to AF_UNSPEC ends the connection, and the socket is somebody else's next: what is left
 * of the stream does nothing on it. */
TEST_CASE(stream, a_number_that_is_connected_anew)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    socklen_t len = sizeof(at);
    int l = socket(AF_INET, SOCK_STREAM, 0), anew;
    struct end a, b;
    char c;

    ASSERT(l >= 0 && bind(l, (struct sockaddr *)&at, len) == 0 && listen(l, 1) == 0 &&
           getsockname(l, (struct sockaddr *)&at, &len) == 0);
    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    ASSERT_EQ_INT(connect(a.fd, &none, sizeof(none)), 0);
    fb_disconnected(a.s, a.fd);
    ASSERT_EQ_INT(connect(a.fd, (struct sockaddr *)&at, len), 0);
    anew = accept(l, NULL, NULL);
    ASSERT(anew >= 0);
    UNTIL(atomic_load(&a.s->refs) == 1);
    EXPECT(send(a.fd, "f", 1, MSG_NOSIGNAL) == 1 && recv(anew, &c, 1, 0) == 1 && c == 'f');
    EXPECT(send(anew, "b", 1, MSG_NOSIGNAL) == 1 && recv(a.fd, &c, 1, 0) == 1 && c == 'b');
    EXPECT(recv(anew, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    close(anew);
    close(a.fd);
    close(l);
    fb_put(a.s);
    done(&b);
}

/* A close is not the end of what another process has been given, before the rail is
 * given back either. */
TEST_CASE(stream, closed_after_it_was_passed_on)
{
    struct fb_conn *c;
    struct end a, b;
    int other;
    char byte;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    c = conn_of(a.s);
    other = fcntl(a.fd, F_DUPFD_CLOEXEC, 0);
    conn_set(c, CF_RELEASE); /* as if that job were under way */
    ASSERT(fb_hand_over(a.s, RSN_SHARED, RSK_RX | RSK_TX));
    ASSERT(c->x->rail != NULL);
    fb_close(a.s, a.fd);
    close(a.fd);
    atomic_fetch_and(&a.s->flags, ~(uint32_t)CF_RELEASE);
    link_release(c);
    UNTIL(atomic_load(&a.s->refs) == 1);
    EXPECT_EQ_INT(send(other, "f", 1, MSG_NOSIGNAL), 1);
    EXPECT(get(&b, &byte, 1) == 1 && byte == 'f');
    close(other);
    EXPECT_EQ_INT(get(&b, &byte, 1), 0);
    fb_put(a.s);
    done(&b);
}

static _Atomic bool handshake_over;

/* What the last message of the proof does, when nothing but its timer wakes the lingering
 * close any more. */
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

/* A send of the kernel's that is under way ends as if nothing had been closed: FIN
 * comes after it. */
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

static _Atomic uint64_t later;

static uint64_t now_later(void)
{
    return sys_now() + later;
}

__attribute__((constructor)) static void clock_of_ours(void)
{
    fb_io.now = now_later;
}

static bool is_over_after(struct fb_conn *c, uint64_t ns)
{
    later += ns;
    link_linger(c);
    jobs_done();
    return !conn_flag(c, CF_LINGER);
}

/* More is sent than fits into TCP, and closed. Nobody reads for twice so long; then what comes must
 * be all, and end so. */
static void closed_and_not_read(uint64_t ns, bool all, ssize_t end)
{
    static unsigned char bytes[65536];
    int l = pair_listener(), small = 4096;
    size_t sent = 0, got = 0;
    struct fb_conn *c;
    struct end a, b;
    ssize_t n;

    eager();
    setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    pair_at(l, &a, &b);
    setsockopt(a.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    ASSERT(board(&a, &b));
    c = conn_of(a.s);
    fcntl(a.fd, F_SETFL, O_NONBLOCK);
    a.s->nonblock = true;
    while ((n = put(&a, bytes, sizeof(bytes))) > 0)
        sent += (size_t)n;
    EXPECT_EQ_INT(n, -EAGAIN);
    fb_pin(a.s, RSN_CALL, false);
    EXPECT_EQ_INT(c->x->tx.state, TX_L3);
    fb_close(a.s, a.fd);
    close(a.fd);
    jobs_done();
    /* As often as it finds room for some more, or somebody at the locks, it has its time anew. */
    if (all)
        EXPECT(!is_over_after(c, ns) && !is_over_after(c, ns));
    else
        UNTIL(is_over_after(c, ns));
    later = 0;
    while ((n = get(&b, bytes, sizeof(bytes))) > 0)
        got += (size_t)n;
    EXPECT_EQ_INT(n, end);
    EXPECT(all ? got == sent : got <= sent);
    fb_put(a.s);
    done(&b);
    close(l);
}

/* What was sent before a close is the peer's, also if he does not read for more than the minute for
 * which a close waits for his end. */
TEST_CASE(stream, closed_and_not_read_for_long)
{
    closed_and_not_read(100000000000, true, 0);
}

/* But a peer who takes nothing at all does not keep a rail for ever. */
TEST_CASE(stream, closed_and_never_read)
{
    closed_and_not_read(300000000000, false, -ECONNRESET);
}

/* handed: and the peer has said that it has. */
static bool on_its_way(struct fb_conn *c, bool handed)
{
    bool yes;

    fb_lock(&c->x->tx.lock);
    yes = c->x->tx.state == TX_L3 && c->x->tx.handed == handed;
    tx_unlock(c);
    return yes;
}

/* Its peer reads by TCP alone from some place on, and nobody there may miss what does not
 * come: a process that ends with some of it unsent resets the connection. Else the peer has
 * all of it in its ring. */
static void ends_undrained(bool handed)
{
    static unsigned char bytes[65536];
    int l = pair_listener(), small = 4096;
    struct linger how = {0, 0};
    socklen_t len = sizeof(how);
    struct end a, b;

    eager();
    setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    pair_at(l, &a, &b);
    setsockopt(a.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    ASSERT(board(&a, &b));
    fcntl(a.fd, F_SETFL, O_NONBLOCK);
    a.s->nonblock = true;
    while (put(&a, bytes, sizeof(bytes)) > 0)
        ;
    fb_pin(handed ? b.s : a.s, RSN_CALL, false);
    UNTIL(on_its_way(conn_of(a.s), handed));
    end_give_up(conn_of(a.s));
    ASSERT_EQ_INT(getsockopt(a.fd, SOL_SOCKET, SO_LINGER, &how, &len), 0);
    EXPECT_EQ_INT(how.l_onoff, handed);
    done(&b);
    done(&a);
    close(l);
}

TEST_CASE(stream, ends_with_some_of_it_on_its_way)
{
    ends_undrained(true);
    ends_undrained(false);
}

/* It has left its rail already, and nothing tells the peer of the close in whose queue bytes are
 * yet. The peer is asked for its frame, which would reset the connection when it came later. */
static void closed_on_its_way(bool residue)
{
    static unsigned char bytes[65536];
    int l = pair_listener(), small = 4096;
    size_t sent = 0, got = 0;
    struct fb_conn *c, *peer;
    struct end a, b;
    ssize_t n;

    eager();
    setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    pair_at(l, &a, &b);
    ASSERT(board(&a, &b));
    setsockopt(a.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    c = conn_of(a.s);
    peer = conn_of(b.s);
    fcntl(a.fd, F_SETFL, O_NONBLOCK);
    a.s->nonblock = true;
    while (residue && (n = put(&a, bytes, sizeof(bytes))) > 0)
        sent += (size_t)n;
    fb_lock(&c->x->tx.lock);
    tx_leave(c, RSN_STALLED, true);
    tx_unlock(c);
    UNTIL(c->x->tx.state == (residue ? TX_L3 : TX_T));
    while (!residue && (n = put(&a, bytes, sizeof(bytes))) > 0)
        sent += (size_t)n;
    EXPECT_EQ_INT(c->x->rx.state, RX_r);
    fb_close(a.s, a.fd);
    close(a.fd);
    UNTIL(peer->x->tx.state == TX_T);
    while ((n = get(&b, bytes, sizeof(bytes))) > 0)
        got += (size_t)n;
    EXPECT_EQ_INT(n, 0);
    EXPECT_EQ_U64(got, sent);
    fb_put(a.s);
    done(&b);
    close(l);
}

TEST_CASE(stream, closed_when_one_direction_has_left)
{
    closed_on_its_way(false);
}

TEST_CASE(stream, closed_while_one_direction_is_leaving)
{
    closed_on_its_way(true);
}
