/*
 * stream_leave_test.c - streams leave their rail, which has failed or must be left,
 * while threads read.
 */
#include "tests/shim/shim.h"
#include "tests/unit/stream_pair.h"

#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/stream.h"
#include "rsock/section.h"
#include "rsock/sys.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

/* The process takes its stream back to TCP in the middle of traffic: nothing is lost. */
TEST_CASE(stream, pinned_in_the_middle)
{
    struct echo x = {0};
    struct end a;
    pthread_t t;
    uint64_t pos = 0;
    bool ok;

    ok = echo_boarded(&a, &x, &t, &pos);
    for (int i = 0; ok && i < 4000; i++) {
        if (i == 3000)
            fb_pin(a.s, RSN_CALL, true);
        if (i == 3001)
            EXPECT(fb_plain(a.s));
        ok = round_trip(&a, &pos, 1 + (size_t)i % 3000);
    }
    EXPECT(ok);
    EXPECT(conn_rail_tx(conn_of(a.s)) > 0);
    EXPECT_EQ_INT(a.s->pub->path_tx, FB_PATH_TCP);
    EXPECT_EQ_INT(a.s->pub->path_rx, FB_PATH_TCP);
    EXPECT_EQ_INT(a.s->pub->reason, RSN_CALL);
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
    EXPECT_EQ_U64(x.bytes, pos);
    fb_put(x.e.s);
}

/* What was sent in many pieces is the same as in one. */
TEST_CASE(stream, proof_knows_all_pieces)
{
    enum { PIECES = 40, EACH = 64 };
    static unsigned char bytes[PIECES * EACH];
    struct iovec whole = {bytes, sizeof(bytes)}, v[PIECES];
    const struct fb_digest *d, *of_whole;
    struct end a, b;

    pair(&a, &b);
    fill(bytes, 0, sizeof(bytes));
    for (size_t i = 0; i < PIECES; i++)
        v[i] = (struct iovec){bytes + i * EACH, EACH};
    a.s->tx_mark = b.s->tx_mark = FB_DIGEST_NOW;
    conn_seen_tx(conn_of(a.s), 0, v, PIECES, sizeof(bytes));
    conn_seen_tx(conn_of(b.s), 0, &whole, 1, sizeof(bytes));
    d = &conn_seen(conn_of(a.s))->tx;
    of_whole = &conn_seen(conn_of(b.s))->tx;
    EXPECT(of_whole->index >= 8);
    EXPECT_EQ_U64(d->valid, of_whole->valid);
    for (int i = 0; i < 8; i++)
        EXPECT_EQ_U64(d->ring[i], of_whole->ring[i]);
    done(&a);
    done(&b);
}

/* What the next rail is proved with: whatever way the bytes took, both ends alone know them. */
TEST_CASE(stream, proof_knows_what_went_by_rail)
{
    struct echo x = {0};
    struct end a;
    pthread_t t;
    struct fb_digest want = {0};
    const struct fb_digest *of[4];
    unsigned char piece[1000];
    uint64_t pos = 0, next;
    unsigned checkpoint = 0;
    bool ok;

    ok = echo_boarded(&a, &x, &t, &pos);
    /* The first whose 256 bytes all go by rail. */
    while ((next = 16ull << checkpoint) < pos + 256)
        checkpoint++;
    while (ok && pos < next + 1000)
        ok = round_trip(&a, &pos, 500);
    ASSERT(ok);
    for (uint64_t at = 0, n; at < pos; at += n) {
        n = pos - at < sizeof(piece) ? pos - at : sizeof(piece);
        fill(piece, at, n);
        fb_digest_add(&want, at, &(struct iovec){piece, n}, 1, n);
    }
    /* The echo's thread may still be at the digest of what it sent last. */
    fb_get(a.s);
    done(&a);
    pthread_join(t, NULL);
    of[0] = &conn_seen(conn_of(a.s))->tx;
    of[1] = &conn_seen(conn_of(a.s))->rx;
    of[2] = &conn_seen(conn_of(x.e.s))->tx;
    of[3] = &conn_seen(conn_of(x.e.s))->rx;
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ_U64(of[i]->valid, want.valid);
        EXPECT(of[i]->valid >> checkpoint & 1);
        EXPECT_EQ_U64(of[i]->ring[checkpoint % 8], want.ring[checkpoint % 8]);
    }
    EXPECT(x.good);
    fb_put(a.s);
    fb_put(x.e.s);
}

/* TCP brings again what the ring has: a part before the look at how much that is, then the rest. */
static struct end *late_for;
static _Atomic int late_fd = -1, inq_late, lied, little_room;
static int (*real_inq)(int);
static uint64_t (*real_room)(int);

static int late_inq(int fd)
{
    uint64_t limit = sys_now() + PATIENCE;

    if (fd < 0 || fd != atomic_load(&late_fd) || conn_of(late_for->s)->x->rx.state != RX_sk)
        return real_inq(fd);
    while (!atomic_load(&lied) && real_inq(fd) < 14 && sys_now() < limit)
        sys_yield();
    atomic_store(&lied, 1);
    return real_inq(fd) - atomic_load(&inq_late);
}

static uint64_t late_room(int fd)
{
    return atomic_load(&little_room) ? 5 : real_room(fd);
}

/* How often a call of the kernel's was to wait where it would count time-outs from there. */
static _Atomic int timed_fd = -1, waits;
static ssize_t (*real_recv)(int, const struct iovec *, int, uint64_t, int);
static ssize_t (*real_send)(int, const struct iovec *, int, int);

static ssize_t counted_recv(int fd, const struct iovec *v, int cnt, uint64_t limit, int flags)
{
    if (fd == atomic_load(&timed_fd) && !(flags & MSG_DONTWAIT))
        atomic_fetch_add(&waits, 1);
    return real_recv(fd, v, cnt, limit, flags);
}

static ssize_t counted_send(int fd, const struct iovec *v, int cnt, int flags)
{
    if (fd == atomic_load(&timed_fd) && !(flags & MSG_DONTWAIT))
        atomic_fetch_add(&waits, 1);
    return real_send(fd, v, cnt, flags);
}

/* Before there is another thread. */
__attribute__((constructor)) static void lie(void)
{
    real_inq = fb_io.inq;
    real_room = fb_io.room;
    real_recv = fb_io.recv;
    real_send = fb_io.send;
    fb_io.inq = late_inq;
    fb_io.room = late_room;
    fb_io.recv = counted_recv;
    fb_io.send = counted_send;
}

/* a leaves with a line that is unread, and b's library sees so much of what comes. */
static void leave_late(struct end *a, struct end *b, int there)
{
    eager();
    pair(a, b);
    ASSERT(board(a, b));
    ASSERT(put(a, "the last line\n", 14) == 14);
    late_for = b;
    atomic_store(&inq_late, 14 - there);
    atomic_store(&lied, 0);
    atomic_store(&late_fd, b->fd);
    end_leave(conn_of(a->s), RSN_CALL);
    UNTIL(atomic_load(&lied));
    fb_lock(&conn_of(b->s)->x->rx.lock); /* what looked has done with it */
    atomic_store(&late_fd, -1);
    fb_unlock(&conn_of(b->s)->x->rx.lock);
}

static void hand_over_late(int there)
{
    struct end a, b;
    char got[64];

    leave_late(&a, &b, there);
    fb_pin(b.s, RSN_FDOPEN, true);
    EXPECT(fb_plain(b.s));
    EXPECT_EQ_INT(sys_recv(b.fd, got, sizeof(got), MSG_DONTWAIT), 14);
    EXPECT_MEMEQ(got, "the last line\n", 14);
    done(&a);
    done(&b);
}

/* The sender has left, and its bytes are unread: whoever is handed the socket gets all of them. */
TEST_CASE(stream, handed_over_as_tcp_brings_it_again)
{
    hand_over_late(0);
    hand_over_late(9);
}

/* While more is to come the socket keeps what it has room for, or the sender could not end. */
TEST_CASE(stream, room_is_made_for_what_tcp_brings_again)
{
    struct end a, b;
    char got[64];

    atomic_store(&little_room, 1);
    leave_late(&a, &b, 9);
    EXPECT_EQ_INT(fb_io.inq(b.fd), 10);
    atomic_store(&little_room, 0);
    EXPECT_EQ_INT(get(&b, got, sizeof(got)), 14);
    EXPECT_MEMEQ(got, "the last line\n", 14);
    done(&a);
    done(&b);
}

/* The rail fails under traffic: the stream goes on over TCP and boards after the hold-down. */
TEST_CASE(stream, failed_rail_goes_on_and_boards_again)
{
    struct echo x = {0};
    struct rsk_rail *rail;
    struct end a;
    pthread_t t;
    uint64_t pos = 0, limit;
    bool ok = true, again = false;

    ASSERT(echo_boarded(&a, &x, &t, &pos));
    rail = conn_of(a.s)->x->rail;
    ASSERT(rail != NULL);
    rail->wire->kill(rail, RSN_RAIL_FAILED);
    limit = sys_now() + PATIENCE;
    for (int i = 0; ok && !again && sys_now() < limit; i++) {
        ok = round_trip(&a, &pos, 1 + (size_t)i % 300);
        again = a.s->pub->path_tx == FB_PATH_SHM && conn_of(a.s)->x->show->switches >= 6;
        wait_for_news();
    }
    EXPECT(ok);
    EXPECT(again);
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
    EXPECT_EQ_U64(x.bytes, pos);
    fb_put(x.e.s);
}

static _Atomic bool handling, handled;

/* As preload/pl_signal.c counts one without SA_RESTART; and it takes its time. */
static void slow_handler(int sig)
{
    (void)sig;
    rsk_sig.seen++;
    rsk_sig.cut++;
    atomic_store(&handling, true);
    while (!atomic_load(&handled))
        sched_yield();
}

/* A handler runs in a thread that sleeps on the rail's word; then it is on TCP: no more sleep. */
TEST_CASE(stream, interrupted_while_its_rail_goes)
{
    struct sigaction sa = {.sa_handler = slow_handler};
    struct reader r = {0};
    struct end a, b;
    pthread_t t;

#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer puts handlers off until a call of libc's returns");
#endif
    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    sigaction(SIGUSR1, &sa, NULL);
    r.e = &a;
    pthread_create(&t, NULL, reader_main, &r);
    until_it_waits(&r);
    pthread_kill(t, SIGUSR1);
    UNTIL(atomic_load(&handling));
    fb_pin(b.s, RSN_CALL, true);
    UNTIL(conn_of(a.s)->x->rx.state == RX_t && !atomic_load(&conn_of(a.s)->x->rx_todo));
    atomic_store(&handled, true);
    EXPECT(comes_back(&r, t));
    EXPECT_EQ_INT(r.n, -EINTR);
    done(&a);
    done(&b);
}

static void set_timeout(struct end *e, int option, int seconds)
{
    const struct timeval tv = {seconds, 0};

    EXPECT_EQ_INT(setsockopt(e->fd, SOL_SOCKET, option, &tv, sizeof(tv)), 0);
    fb_sockopt(e->s, SOL_SOCKET, option, 0);
    atomic_store(&waits, 0);
    atomic_store(&timed_fd, e->fd);
}

/* SO_RCVTIMEO and SO_SNDTIMEO are for the whole call, though its stream leaves meanwhile. */
TEST_CASE(stream, timeout_goes_on_where_its_rail_ends)
{
    static unsigned char much[16 << 20];
    struct reader r = {0};
    struct end a, b;
    bool left = false;
    pthread_t t;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    set_timeout(&a, SO_RCVTIMEO, 1);
    r.e = &a;
    pthread_create(&t, NULL, reader_main, &r);
    until_it_waits(&r);
    fb_pin(b.s, RSN_CALL, true);
    EXPECT(comes_back(&r, t));
    EXPECT_EQ_INT(r.n, -EAGAIN);
    EXPECT_EQ_INT(atomic_load(&waits), 0);
    UNTIL(fb_plain(b.s));
    done(&a);
    done(&b);

    /* A busy machine may need longer than a second for what is to happen within the call. */
    for (int seconds = 1; seconds <= 16 && !left; seconds *= 4) {
        pair(&a, &b);
        ASSERT(board(&a, &b));
        set_timeout(&a, SO_SNDTIMEO, seconds);
        /* The ring fills, nobody reads it, and TCP's buffers fill as well (stall.c). */
        EXPECT(put(&a, much, sizeof(much)) < (ssize_t)sizeof(much));
        left = conn_of(a.s)->x->tx.state == TX_T;
        EXPECT_EQ_INT(atomic_load(&waits), 0);
        atomic_store(&timed_fd, -1);
        done(&a);
        done(&b);
    }
    EXPECT(left);
}

/* The rail is given back under a thread that sleeps on its word; what it waits for comes by TCP. */
TEST_CASE(stream, sleeping_reader_survives_its_rail)
{
    struct reader r = {0};
    unsigned char buf[64] = {0};
    struct end a, b;
    pthread_t t;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    r.e = &a;
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_WR), 0);
    pthread_create(&t, NULL, reader_main, &r);
    EXPECT_EQ_INT(get(&b, buf, sizeof(buf)), 0);
    until_it_waits(&r);
    if (conn_of(b.s)->x->rail)
        conn_of(b.s)->x->rail->wire->kill(conn_of(b.s)->x->rail, RSN_RAIL_FAILED);
    if (conn_of(a.s)->x->rail)
        conn_of(a.s)->x->rail->wire->kill(conn_of(a.s)->x->rail, RSN_RAIL_FAILED);
    link_release(conn_of(a.s));
    link_release(conn_of(b.s));
    jobs_done();
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    EXPECT(comes_back(&r, t));
    EXPECT_EQ_INT(r.n, sizeof(buf));
    done(&a);
    done(&b);
}

/* Some bytes from one end to the other. */
static bool said(struct end *from, struct end *to)
{
    unsigned char buf[32] = {0};

    return EXPECT_EQ_INT(put(from, buf, 32), 32) && EXPECT_EQ_INT(get(to, buf, 32), 32);
}

/* b has half of what is in out unread, and behind it an announced switch. What a has sent. */
static size_t unread_before_a_switch(struct end *a, struct end *b, const unsigned char *out,
                                     size_t size)
{
    size_t n = 0;

    eager();
    pair(a, b);
    UNTIL(said(b, a) && conn_of(a->s)->x->tx.want);
    /* b does not hear the announcement: these go by TCP, and the switch comes behind them. */
    fb_lock(&conn_of(b->s)->x->rx.lock);
    for (; n < size / 2; n += 500)
        ASSERT(put(a, out + n, 500) == 500);
    EXPECT_EQ_U64(conn_rail_tx(conn_of(a->s)), 0);
    rx_unlock(conn_of(b->s));
    for (; conn_rail_tx(conn_of(a->s)) == 0 && n < size; n += 10) {
        UNTIL(fb_io.now() >= conn_of(a->s)->x->tx.not_before); /* else it is no attempt */
        ASSERT(put(a, out + n, 10) == 10);
        let_go_on(ROUNDS_A_CALL);
    }
    ASSERT(conn_rail_tx(conn_of(a->s)) > 0);
    return n;
}

/* A switch announced beyond bytes that only this process's application can read must not hold up a
 * hand-over for seconds; what was announced is handed over as soon as it has come. */
TEST_CASE(stream, pinned_with_unread_bytes_before_the_switch)
{
    static unsigned char out[20000], in[20000];
    struct end a, b;
    uint64_t begin;
    size_t have = 0, n;
    ssize_t r;

    fill(out, 0, sizeof(out));
    n = unread_before_a_switch(&a, &b, out, sizeof(out));
    ASSERT(put(&a, out + n, sizeof(out) - n) == (ssize_t)(sizeof(out) - n));
    begin = sys_now();
    fb_pin(b.s, RSN_CALL, true);
    EXPECT(sys_now() - begin < 4000000000u);
    while (have < sizeof(in) && (r = get(&b, in + have, sizeof(in) - have)) > 0)
        have += (size_t)r;
    EXPECT_EQ_INT(have, sizeof(in));
    EXPECT_MEMEQ(in, out, sizeof(in));
    UNTIL(said(&a, &b) && b.s->pub->path_rx == FB_PATH_TCP);
    done(&a);
    done(&b);
}

/* Nobody else has it any more, whoever was forked since: its end is not left to anybody. */
TEST_CASE(stream, closed_unread_when_its_children_have_gone)
{
    static const unsigned char out[20000];
    struct end a, b;

    unread_before_a_switch(&a, &b, out, sizeof(out));
    ASSERT(conn_of(b.s)->x->rx.state == RX_gS);
    atomic_fetch_add(&heir_forks, 1); /* whose link has ended */
    EXPECT(conn_shared(conn_of(b.s)));
    EXPECT(!heir_held(conn_of(b.s)));
    done(&b);
    UNTIL(fb_poll(a.s, a.fd, POLLIN) & POLLERR);
    atomic_fetch_sub(&heir_forks, 1);
    done(&a);
}

static pthread_key_t late;
static sem_t polling, polled;
static struct fb_sleeper *late_sleeper;

/* Runs after the key of the library's, which was made before. */
static void polls_late(void *arg)
{
    struct pollfd p = {-1, POLLIN, 0};

    (void)arg;
    late_sleeper = fb_sleeper_poll(&p, 1);
    sem_post(&polling);
    sem_wait(&polled);
    fb_sleeper_end(late_sleeper);
}

static void *polls_to_the_end(void *arg)
{
    struct pollfd p = {-1, POLLIN, 0};

    (void)arg;
    fb_sleeper_end(fb_sleeper_poll(&p, 1));
    pthread_key_create(&late, polls_late);
    pthread_setspecific(late, &late);
    return NULL;
}

/* A thread that polls in its destructors has a record, too, which no other thread gets. */
TEST_CASE(stream, sleeper_of_a_thread_that_ends)
{
    struct pollfd p = {-1, POLLIN, 0};
    struct fb_sleeper *s;
    pthread_t t;

    sem_init(&polling, 0, 0);
    sem_init(&polled, 0, 0);
    ASSERT_EQ_INT(pthread_create(&t, NULL, polls_to_the_end, NULL), 0);
    sem_wait(&polling);
    EXPECT(late_sleeper != NULL);
    s = fb_sleeper_poll(&p, 1); /* this thread's first */
    EXPECT(s != NULL);
    EXPECT(s != late_sleeper);
    fb_sleeper_end(s);
    sem_post(&polled);
    pthread_join(t, NULL);
    pthread_key_delete(late);
}
