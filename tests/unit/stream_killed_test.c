/*
 * stream_killed_test.c - ends that are not the stream's own: a peer that is killed, of which the
 * kernel shows FIN and the ring what it had not read; and a reset, whose error is the application's
 * to take. Real processes that are killed are in tests/conform/killed.c.
 */
#include "tests/shim/shim.h"
#include "tests/unit/stream_pair.h"

#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/stream.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Only what a sends is on the rail; b has never sent. */
static bool board_there(struct end *a, struct end *b)
{
    unsigned char buf[32] = {0};

    uint64_t limit = sys_now() + PATIENCE;

    while (sys_now() < limit) {
        if (put(a, buf, 32) != 32 || get(b, buf, 32) != 32)
            return false;
        if (a->s->pub->path_tx == FB_PATH_SHM && b->s->pub->path_rx == FB_PATH_SHM)
            return true;
        wait_for_news();
    }
    return false;
}

/* FIN as the kernel sends it for a process that is killed: the library has said nothing before. */
static void fin_without_a_word(struct end *a, struct end *b)
{
    shutdown(b->fd, SHUT_WR);
    while (!(fb_io.poll(a->fd, POLLRDHUP) & POLLRDHUP))
        sched_yield();
}

static void told_once(struct end *a, bool reads)
{
    unsigned char x = 0;
    int left = 0;
    socklen_t len = sizeof(left);

    EXPECT_EQ_INT(reads ? get(a, &x, 1) : put(a, &x, 1), -ECONNRESET);
    EXPECT_EQ_INT(put(a, &x, 1), -EPIPE);
    EXPECT_EQ_INT(get(a, &x, 1), 0);
    EXPECT_EQ_INT(put(a, &x, 1), -EPIPE);
    EXPECT_EQ_INT(fb_so_error(a->s), 0);
    EXPECT_EQ_INT(getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &left, &len), 0);
    EXPECT_EQ_INT(left, 0);
    jobs_done();
    EXPECT_EQ_INT(fb_ready(a->s, a->fd, POLLIN | POLLOUT | POLLRDHUP),
                  POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
}

TEST_CASE(killed, with_unread_bytes_of_one_direction)
{
    unsigned char buf[100] = {0};

    eager();
    for (int reads = 0; reads < 2; reads++) {
        struct end a, b;

        pair(&a, &b);
        ASSERT(board_there(&a, &b));
        EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
        fin_without_a_word(&a, &b);
        if (!reads) /* a send does not look: it has been told by then */
            while (!conn_of(a.s)->x->killed)
                sched_yield();
        told_once(&a, reads);
        done(&a);
        done(&b);
    }
}

TEST_CASE(killed, with_unread_bytes_of_both)
{
    unsigned char buf[100] = {0}, in[10] = {0};
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(put(&b, in, sizeof(in)), sizeof(in));
    fin_without_a_word(&a, &b);
    EXPECT_EQ_INT(get(&a, in, sizeof(in)), sizeof(in)); /* what has arrived comes first */
    told_once(&a, true);
    done(&a);
    done(&b);
}

static struct fb_conn *_Atomic shuts;
static _Atomic int state_then;
static int (*real_shutdown)(int, int);

static int shutdown_seen(int fd, int how)
{
    struct fb_conn *c = atomic_load(&shuts);

    if (c && fd == c->fd)
        atomic_store(&state_then, c->x->tx.state);
    return real_shutdown(fd, how);
}

/* Before there is a thread that could be calling it. */
__attribute__((constructor)) static void shutdown_by_ours(void)
{
    real_shutdown = fb_io.shutdown;
    fb_io.shutdown = shutdown_seen;
}

/* As long as the socket is not shut down no send may go to the kernel, which would take it. */
TEST_CASE(killed, and_shut_down_before_it_is_plain)
{
    unsigned char buf[100] = {0};
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board_there(&a, &b));
    atomic_store(&state_then, -1);
    atomic_store(&shuts, conn_of(a.s));
    EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
    fin_without_a_word(&a, &b);
    UNTIL(atomic_load(&state_then) >= 0);
    EXPECT(atomic_load(&state_then) != TX_T);
    atomic_store(&shuts, NULL);
    told_once(&a, true);
    done(&a);
    done(&b);
}

/* Poll says of it what it says of a reset. */
TEST_CASE(killed, is_seen_by_poll)
{
    const short all = POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP;
    unsigned char buf[100] = {0};
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board_there(&a, &b));
    EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
    fin_without_a_word(&a, &b);
    EXPECT_EQ_INT(fb_ready(a.s, a.fd, POLLIN | POLLOUT | POLLRDHUP), all);
    EXPECT_EQ_INT(fb_so_error(a.s), -ECONNRESET);
    EXPECT_EQ_INT(fb_ready(a.s, a.fd, POLLIN | POLLOUT | POLLRDHUP), all & ~POLLERR);
    done(&a);
    done(&b);
}

/* The next bytes are accepted, and no frame before them makes that fail. */
TEST_CASE(killed, having_read_all)
{
    unsigned char x = 0;
    struct end a, b;

    eager();
    for (int both = 0; both < 2; both++) {
        pair(&a, &b);
        ASSERT(both ? board(&a, &b) : board_there(&a, &b));
        fin_without_a_word(&a, &b);
        EXPECT_EQ_INT(get(&a, &x, 1), 0);
        while (conn_of(a.s)->x->tx.state == TX_R)
            sched_yield();
        EXPECT_EQ_INT(put(&a, &x, 1), 1);
        EXPECT_EQ_U64(conn_of(a.s)->x->own_tx, FB_FRAME); /* SWITCH, and no RESUME */
        EXPECT_EQ_INT(fb_so_error(a.s), 0);
        done(&a);
        done(&b);
    }
}

/* A half-close of a process that lives is none, whatever it has not read yet. */
TEST_CASE(killed, is_not_who_half_closes)
{
    unsigned char buf[100], in[100];
    struct end a, b;

    eager();
    for (int both = 0; both < 2; both++) {
        pair(&a, &b);
        ASSERT(both ? board(&a, &b) : board_there(&a, &b));
        fill(buf, 0, sizeof(buf));
        EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
        EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_WR), 0);
        EXPECT_EQ_INT(get(&a, in, sizeof(in)), 0);
        EXPECT_EQ_INT(fb_so_error(a.s), 0);
        EXPECT_EQ_INT(put(&a, buf, 10), 10);
        EXPECT_EQ_INT(get(&b, in, sizeof(in)), sizeof(in));
        EXPECT_MEMEQ(in, buf, sizeof(in));
        EXPECT_EQ_INT(get(&b, in, 10), 10);
        done(&a);
        done(&b);
    }
}

static int unread_in_kernel(struct end *e)
{
    int n = -1;

    ioctl(e->fd, FIONREAD, &n);
    return n;
}

/* What tells the kernel of a process that is killed on the way back to TCP that it had not read
 * all, or that it had. */
TEST_CASE(killed, on_the_way_back)
{
    static unsigned char buf[40000];
    struct end a, b;
    int small = 4096;

    eager();
    pair(&a, &b);
    setsockopt(b.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_WR), 0);
    while (conn_of(a.s)->x->tx.state != TX_T)
        sched_yield();
    while (conn_of(b.s)->x->rx.state != RX_sk)
        sched_yield();
    UNTIL(unread_in_kernel(&b) > 0);
    for (size_t have = 0; have < sizeof(buf);) {
        ssize_t n = get(&b, buf, sizeof(buf) - have);

        ASSERT(n > 0);
        have += (size_t)n;
    }
    EXPECT_EQ_INT(unread_in_kernel(&b), 0);
    EXPECT_EQ_INT(get(&b, buf, 1), 0);
    done(&a);
    done(&b);
}

static void resets(struct end *e)
{
    struct linger now = {.l_onoff = 1};

    EXPECT_EQ_INT(setsockopt(e->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    done(e);
}

/* The half that receives on the rail finds the reset, and leaves the error to the kernel: a send of
 * the application's that sleeps in there takes it. */
TEST_CASE(reset, is_left_to_the_kernel)
{
    unsigned char x = 0;
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board_there(&b, &a));
    resets(&b);
    while (conn_of(a.s)->x->rx.end == 0)
        sched_yield();
    jobs_done();
    EXPECT_EQ_INT(send(a.fd, &x, 1, MSG_NOSIGNAL), -1);
    EXPECT_EQ_INT(errno, ECONNRESET);
    EXPECT_EQ_INT(get(&a, &x, 1), 0);
    EXPECT_EQ_INT(put(&a, &x, 1), -EPIPE);
    done(&a);
}

TEST_CASE(reset, is_told_to_the_first_receive)
{
    unsigned char x = 0;
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board_there(&b, &a));
    resets(&b);
    while (conn_of(a.s)->x->rx.end == 0)
        sched_yield();
    EXPECT_EQ_INT(get(&a, &x, 1), -ECONNRESET);
    EXPECT_EQ_INT(get(&a, &x, 1), 0);
    EXPECT_EQ_INT(put(&a, &x, 1), -EPIPE);
    EXPECT_EQ_INT(fb_so_error(a.s), 0);
    done(&a);
}
