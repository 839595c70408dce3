/*
 * stream_test.c - two tracked ends of a real TCP connection over loopback, driven
 * through fb.h as the intercepting layer does, with the real progress thread and
 * the real shared-memory wire. Every byte is a function of its offset.
 */
#include "tests/calls.h"
#include "tests/shim/shim.h"

#include "config/env.h"
#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/stream.h"
#include "rsock/loop.h"
#include "rsock/sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct end {
    int fd;
    struct fb_stream *s;
};

static void pair(struct end *a, struct end *b)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sin);
    int l = socket(AF_INET, SOCK_STREAM, 0);

    (void)bind(l, (struct sockaddr *)&sin, sizeof(sin));
    listen(l, 1);
    getsockname(l, (struct sockaddr *)&sin, &len);
    a->fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)connect(a->fd, (struct sockaddr *)&sin, sizeof(sin));
    b->fd = accept(l, NULL, NULL);
    close(l);
    a->s = fb_track(a->fd, FB_CONNECTED, 0);
    b->s = fb_track(b->fd, FB_ACCEPTED, 0);
}

static ssize_t put(struct end *e, const void *p, size_t n)
{
    return call_send(e->s, e->fd, p, n);
}

static ssize_t get(struct end *e, void *p, size_t n)
{
    return call_recv(e->s, e->fd, p, n);
}

static void done(struct end *e)
{
    fb_close(e->s, e->fd);
    close(e->fd);
    fb_put(e->s);
}

static void fill(unsigned char *p, uint64_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(from + i);
}

static bool check(const unsigned char *p, uint64_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte_at(from + i))
            return false;
    return true;
}

static void eager(void)
{
    static bool done_once; /* the progress thread reads what cfg_init writes */

    if (done_once)
        return;
    done_once = true;
    setenv("RAILSOCK_BOARD", "eager", 1);
    cfg_init();
}

struct echo {
    struct end e;
    uint64_t bytes;
    bool good;
};

static void *echo_main(void *arg)
{
    struct echo *x = arg;
    unsigned char buf[70000];

    x->good = true;
    for (;;) {
        ssize_t n = get(&x->e, buf, sizeof(buf)), m = 0;

        if (n <= 0) {
            x->good = x->good && n == 0;
            break;
        }
        x->good = x->good && check(buf, x->bytes, (size_t)n);
        x->bytes += (uint64_t)n;
        while (m < n) {
            ssize_t r = put(&x->e, buf + m, (size_t)(n - m));
            if (r < 0) {
                x->good = false;
                goto out;
            }
            m += r;
        }
    }
out:
    done(&x->e);
    return NULL;
}

static bool round_trip(struct end *e, uint64_t *pos, size_t n)
{
    static unsigned char out[70000], in[70000];
    size_t have = 0, sent = 0;

    fill(out, *pos, n);
    while (sent < n) {
        ssize_t r = put(e, out + sent, n - sent);

        if (r < 0)
            return false;
        sent += (size_t)r;
    }
    while (have < n) {
        ssize_t r = get(e, in + have, n - have);

        if (r <= 0)
            return false;
        have += (size_t)r;
    }
    *pos += n;
    return memcmp(in, out, n) == 0;
}

TEST_CASE(stream, ping_pong_boards_both_ways)
{
    struct echo x = {0};
    struct end a;
    pthread_t t;
    uint64_t pos = 0;
    bool ok = true;

    eager();
    pair(&a, &x.e);
    fb_get(x.e.s);
    pthread_create(&t, NULL, echo_main, &x);
    for (int i = 0; ok && i < 20000; i++) {
        ok = round_trip(&a, &pos, (size_t)(i % 97) + 1);
        if (i > 1000 && a.s->pub->path_tx == FB_PATH_SHM && a.s->pub->path_rx == FB_PATH_SHM &&
            i % 500 != 0 && i > 4000)
            break;
        if (i < 200)
            usleep(200);
    }
    EXPECT(ok);
    EXPECT_EQ_INT(a.s->pub->path_tx, FB_PATH_SHM);
    EXPECT_EQ_INT(a.s->pub->path_rx, FB_PATH_SHM);
    EXPECT(a.s->pub->rail_tx > 0);
    EXPECT(a.s->pub->rail_rx > 0);
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
    EXPECT_EQ_U64(x.bytes, pos);
    fb_put(x.e.s);
}

static int endless(struct rsk_rail *r, struct rsk_msg *m)
{
    (void)r;
    *m = (struct rsk_msg){.type = FM_OWED};
    return 1;
}

struct swap {
    struct rsk_rail *rail;
    const struct rsk_wire *wire;
    _Atomic bool done;
};

/* On the progress thread, which looks at the rail whenever it likes. */
static void swap_job(void *arg)
{
    struct swap *w = arg;

    w->rail->wire = w->wire;
    atomic_store(&w->done, true);
}

static void swap_wire(struct rsk_rail *rail, const struct rsk_wire *wire)
{
    struct swap w = {.rail = rail, .wire = wire};

    ASSERT_EQ_INT(rsk_loop_post(swap_job, &w), 0);
    while (!atomic_load(&w.done))
        sched_yield();
}

/* Whoever takes messages has something else to do as well: this test ends, or it hangs. */
TEST_CASE(stream, messages_without_end)
{
    static struct rsk_wire talkative;
    struct echo x = {0};
    struct end a;
    pthread_t t;
    uint64_t pos = 0;
    struct rsk_rail *rail;

    eager();
    pair(&a, &x.e);
    fb_get(x.e.s);
    pthread_create(&t, NULL, echo_main, &x);
    for (int i = 0; i < 20000 && a.s->pub->path_rx != FB_PATH_SHM; i++)
        ASSERT(round_trip(&a, &pos, 100));
    rail = conn_of(a.s)->rail;
    ASSERT(rail != NULL);
    rsk_rail_get(rail);
    talkative = *rail->wire;
    talkative.ctl_recv = endless;
    swap_wire(rail, &talkative);
    conn_mail(conn_of(a.s));
    EXPECT(round_trip(&a, &pos, 100));
    swap_wire(rail, &rsk_shm_wire);
    rsk_rail_put(rail);
    EXPECT(round_trip(&a, &pos, 100));
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
    fb_put(x.e.s);
}

struct bulk {
    struct end *e;
    uint64_t total, done;
    size_t most;
    bool good;
    unsigned seed;
};

static void *bulk_out(void *arg)
{
    struct bulk *b = arg;
    unsigned char *buf = malloc(b->most);

    b->good = true;
    while (b->done < b->total && b->good) {
        size_t n = 1 + (size_t)rand_r(&b->seed) % b->most;
        ssize_t r;

        if (n > b->total - b->done)
            n = (size_t)(b->total - b->done);
        fill(buf, b->done, n);
        r = put(b->e, buf, n);
        b->good = r == (ssize_t)n;
        b->done += n;
    }
    if (b->good)
        fb_shutdown(b->e->s, b->e->fd, SHUT_WR);
    free(buf);
    return NULL;
}

static void *bulk_in(void *arg)
{
    struct bulk *b = arg;
    unsigned char *buf = malloc(b->most);
    ssize_t r;

    b->good = true;
    while ((r = get(b->e, buf, 1 + (size_t)rand_r(&b->seed) % b->most)) > 0) {
        b->good = b->good && check(buf, b->done, (size_t)r);
        b->done += (uint64_t)r;
    }
    b->good = b->good && r == 0;
    free(buf);
    return NULL;
}

/* Both directions at full tilt, ends by shutdown: every byte arrives once, in order, then EOF. */
static void full_tilt(uint64_t total, size_t most, bool *rail)
{
    struct end a, b;
    struct bulk w[4];
    pthread_t t[4];

    eager();
    pair(&a, &b);
    for (int i = 0; i < 4; i++)
        w[i] = (struct bulk){i < 2 ? &a : &b, total, 0, most, true, (unsigned)i + 1};
    pthread_create(&t[0], NULL, bulk_out, &w[0]);
    pthread_create(&t[1], NULL, bulk_in, &w[1]);
    pthread_create(&t[2], NULL, bulk_out, &w[2]);
    pthread_create(&t[3], NULL, bulk_in, &w[3]);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 4; i++) {
        EXPECT(w[i].good);
        EXPECT_EQ_U64(w[i].done, total);
    }
    /* One may be done before the other is scheduled at all. */
    *rail = a.s->pub->rail_tx > 0 || b.s->pub->rail_tx > 0;
    done(&a);
    done(&b);
}

TEST_CASE(stream, full_tilt_both_ways)
{
    bool rail;

    full_tilt(200u << 20, 100000, &rail);
    EXPECT(rail);
}

TEST_CASE(stream, small_writes_full_tilt)
{
    bool rail;

    full_tilt(3u << 20, 40, &rail);
    EXPECT(rail);
}

/* Boards a.. with a few round trips; true when both directions are on the rail. */
static bool board(struct end *a, struct end *b)
{
    unsigned char buf[32] = {0};

    for (int i = 0; i < 2000; i++) {
        if (put(a, buf, 32) != 32 || get(b, buf, 32) != 32 || put(b, buf, 32) != 32 ||
            get(a, buf, 32) != 32)
            return false;
        if (a->s->pub->path_tx == FB_PATH_SHM && b->s->pub->path_tx == FB_PATH_SHM &&
            a->s->pub->path_rx == FB_PATH_SHM && b->s->pub->path_rx == FB_PATH_SHM)
            return true;
        usleep(500);
    }
    return false;
}

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
    usleep(1000);
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

/* The process takes its stream back to TCP in the middle of traffic: nothing is lost. */
TEST_CASE(stream, pinned_in_the_middle)
{
    struct echo x = {0};
    struct end a;
    pthread_t t;
    uint64_t pos = 0;
    bool ok = true;

    eager();
    pair(&a, &x.e);
    fb_get(x.e.s);
    pthread_create(&t, NULL, echo_main, &x);
    for (int i = 0; ok && i < 4000; i++) {
        if (i < 200)
            usleep(100);
        if (i == 3000)
            fb_pin(a.s, RSN_CALL, true);
        if (i == 3001)
            EXPECT(fb_plain(a.s));
        ok = round_trip(&a, &pos, 1 + (size_t)i % 3000);
    }
    EXPECT(ok);
    EXPECT(a.s->pub->rail_tx > 0);
    EXPECT_EQ_INT(a.s->pub->path_tx, FB_PATH_TCP);
    EXPECT_EQ_INT(a.s->pub->path_rx, FB_PATH_TCP);
    EXPECT_EQ_INT(a.s->pub->reason, RSN_CALL);
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
    EXPECT_EQ_U64(x.bytes, pos);
    fb_put(x.e.s);
}

/* The rail fails under traffic: the stream goes on over TCP and boards again after the hold-down. */
TEST_CASE(stream, failed_rail_goes_on_and_boards_again)
{
    struct echo x = {0};
    struct end a;
    pthread_t t;
    uint64_t pos = 0;
    bool ok = true, again = false, failed = false;

    eager();
    pair(&a, &x.e);
    fb_get(x.e.s);
    pthread_create(&t, NULL, echo_main, &x);
    for (int i = 0; ok && i < 40000 && !again; i++) {
        struct rsk_rail *rail = conn_of(a.s)->rail;

        if (!failed && a.s->pub->path_tx == FB_PATH_SHM && a.s->pub->path_rx == FB_PATH_SHM &&
            rail) {
            rail->wire->kill(rail, RSN_RAIL_FAILED);
            failed = true;
        } else if (failed && a.s->pub->path_tx == FB_PATH_SHM && a.s->pub->switches >= 6) {
            again = true;
        }
        ok = round_trip(&a, &pos, 1 + (size_t)i % 300);
        usleep(100);
    }
    EXPECT(ok);
    EXPECT(failed);
    EXPECT(again);
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
    EXPECT_EQ_U64(x.bytes, pos);
    fb_put(x.e.s);
}

struct reader {
    struct end *e;
    ssize_t n;
    _Atomic bool done;
    unsigned char buf[8192];
};

static void *reader_main(void *arg)
{
    struct reader *r = arg;

    r->n = get(r->e, r->buf, sizeof(r->buf));
    r->done = true;
    return NULL;
}

/* For a call that must come back: a test that would hang ends instead. */
static bool comes_back(struct reader *r, pthread_t t)
{
    for (int i = 0; i < 1000 && !r->done; i++)
        usleep(5000);
    if (!r->done) {
        FAILF("the reader does not come back");
        _exit(1);
    }
    pthread_join(t, NULL);
    return true;
}

/* The rail is given back under a thread that sleeps on its word; what it waits for comes by TCP. */
/* The echo's end owes its frame, and no rail is left over which it could be asked for it. */
TEST_CASE(stream, failed_rail_then_handed_over)
{
    struct echo x = {0};
    struct end a;
    pthread_t t;
    uint64_t pos = 0;
    bool ok = true, failed = false;

    eager();
    pair(&a, &x.e);
    fb_get(x.e.s);
    pthread_create(&t, NULL, echo_main, &x);
    for (int i = 0; ok && i < 40000 && !failed; i++) {
        struct rsk_rail *rail = conn_of(x.e.s)->rail;

        ok = round_trip(&a, &pos, 1 + (size_t)i % 300);
        if (a.s->pub->path_tx == FB_PATH_SHM && a.s->pub->path_rx == FB_PATH_SHM && rail) {
            rail->wire->kill(rail, RSN_RAIL_FAILED);
            conn_todo_tx(conn_of(x.e.s), TODO_FAIL);
            conn_todo_rx(conn_of(x.e.s), TODO_FAIL);
            conn_serve(conn_of(x.e.s));
            failed = true;
        }
        usleep(100);
    }
    ASSERT(ok && failed);
    for (int i = 0; i < 5000 && conn_of(x.e.s)->rail; i++)
        usleep(1000);
    EXPECT(conn_of(x.e.s)->rail == NULL);
    fb_pin(a.s, RSN_CALL, true);
    EXPECT(fb_plain(a.s));
    EXPECT(round_trip(&a, &pos, 100));
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
    fb_put(x.e.s);
}

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
    usleep(50000);
    if (conn_of(b.s)->rail)
        conn_of(b.s)->rail->wire->kill(conn_of(b.s)->rail, RSN_RAIL_FAILED);
    if (conn_of(a.s)->rail)
        conn_of(a.s)->rail->wire->kill(conn_of(a.s)->rail, RSN_RAIL_FAILED);
    link_release(conn_of(a.s));
    link_release(conn_of(b.s));
    usleep(50000);
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    EXPECT(comes_back(&r, t));
    EXPECT_EQ_INT(r.n, sizeof(buf));
    done(&a);
    done(&b);
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
        usleep(1000);
        EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_WR), 0);
        EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
        usleep(1000);
        EXPECT_EQ_INT(put(&a, buf, sizeof(buf)), sizeof(buf));
        EXPECT_EQ_INT(get(&b, buf, sizeof(buf)), sizeof(buf));
        done(&a);
        usleep(1000);
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
    usleep(20000);
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

/* A switch announced beyond bytes that only this process's application can read must not hold up a
 * hand-over for seconds; what was announced is handed over as soon as it has come. */
TEST_CASE(stream, pinned_with_unread_bytes_before_the_switch)
{
    static unsigned char out[20000], in[20000];
    unsigned char buf[32] = {0};
    struct end a, b;
    uint64_t begin;
    size_t have = 0;
    ssize_t r;

    eager();
    pair(&a, &b);
    for (int i = 0; i < 2000 && !conn_of(a.s)->tx.want; i++) {
        EXPECT_EQ_INT(put(&b, buf, 32), 32);
        EXPECT_EQ_INT(get(&a, buf, 32), 32);
        usleep(500);
    }
    ASSERT(conn_of(a.s)->tx.want);
    fill(out, 0, sizeof(out));
    for (size_t n = 0; n < sizeof(out); n += 500) {
        ASSERT(put(&a, out + n, 500) == 500);
        usleep(2000);
    }
    begin = sys_now();
    fb_pin(b.s, RSN_CALL, true);
    EXPECT(sys_now() - begin < 1000000000u);
    while (have < sizeof(in) && (r = get(&b, in + have, sizeof(in) - have)) > 0)
        have += (size_t)r;
    EXPECT_EQ_INT(have, sizeof(in));
    EXPECT_MEMEQ(in, out, sizeof(in));
    for (int i = 0; i < 1000 && b.s->pub->path_rx != FB_PATH_TCP; i++) {
        EXPECT_EQ_INT(put(&a, buf, 32), 32);
        EXPECT_EQ_INT(get(&b, buf, 32), 32);
        usleep(500);
    }
    EXPECT_EQ_INT(b.s->pub->path_rx, FB_PATH_TCP);
    done(&a);
    done(&b);
}

/* SHUT_RD of one end is no end of the other, and what the peer's half says by TCP still comes. */
TEST_CASE(stream, shut_for_reading)
{
    unsigned char buf[64] = {0};
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_RD), 0);
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
    usleep(5000);
    EXPECT_EQ_INT(conn_of(a.s)->rx.end, 1);
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
    } while (a.s->pub->rail_rx == 0);
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
    EXPECT_EQ_INT(put(&b, buf, sizeof(buf)), sizeof(buf));
    EXPECT(take_all(&a, buf, sizeof(buf)));
    EXPECT_EQ_INT(get(&a, buf, sizeof(buf)), 0);
    done(&b);
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

/* A thread that polls in its destructors has a record of its own, too: no other thread gets it meanwhile. */
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

/* The peer has closed, and said so; this end's FIN must not cost it the bytes it has not read yet. */
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
    done(&a);
    EXPECT_EQ_INT(get(&b, in, 1000), 1000);
    have = 1000;
    usleep(30000);
    EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_WR), 0);
    usleep(30000);
    while (have < sizeof(in) && (r = get(&b, in + have, sizeof(in) - have)) > 0)
        have += (size_t)r;
    EXPECT_EQ_INT(have, sizeof(in));
    EXPECT_EQ_INT(get(&b, out, 1), 0);
    EXPECT_MEMEQ(in + 1000, out + 1000, sizeof(in) - 1000);
    done(&b);
}
