/*
 * stream_test.c - two tracked ends of a real TCP connection over loopback, driven
 * through fb.h as the intercepting layer does, with the real progress thread and
 * the real shared-memory wire. Every byte is a function of its offset.
 */
#include "tests/shim/shim.h"

#include "config/env.h"
#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/stream.h"
#include "rsock/sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
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

    bind(l, (struct sockaddr *)&sin, sizeof(sin));
    listen(l, 1);
    getsockname(l, (struct sockaddr *)&sin, &len);
    a->fd = socket(AF_INET, SOCK_STREAM, 0);
    connect(a->fd, (struct sockaddr *)&sin, sizeof(sin));
    b->fd = accept(l, NULL, NULL);
    close(l);
    a->s = fb_track(a->fd, FB_CONNECTED, 0);
    b->s = fb_track(b->fd, FB_ACCEPTED, 0);
}

static ssize_t put(struct end *e, const void *p, size_t n)
{
    struct iovec v = {(void *)p, n};
    ssize_t r;

    if (!fb_tx_enter(e->s))
        return fb_sendv(e->s, e->fd, &v, 1, 0);
    r = write(e->fd, p, n);
    r = r < 0 ? -errno : r;
    fb_tx_leave(e->s, e->fd, r, &v, 1, 0);
    return r;
}

static ssize_t get(struct end *e, void *p, size_t n)
{
    struct iovec v = {p, n};
    ssize_t r = FB_RETRY;

    if (fb_rx_enter(e->s)) {
        r = read(e->fd, p, n);
        r = fb_rx_leave(e->s, e->fd, r < 0 ? -errno : r, &v, 1, 0);
    }
    return r == FB_RETRY ? fb_recvv(e->s, e->fd, &v, 1, 0) : r;
}

static void done(struct end *e)
{
    fb_close(e->s, e->fd);
    close(e->fd);
    fb_put(e->s);
}

static unsigned char at(uint64_t i)
{
    return (unsigned char)((i * 2654435761u) >> 13);
}

static void fill(unsigned char *p, uint64_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = at(from + i);
}

static bool check(const unsigned char *p, uint64_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != at(from + i))
            return false;
    return true;
}

static void eager(void)
{
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
    *rail = a.s->pub->rail_tx > 0 && b.s->pub->rail_tx > 0;
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

        if (!failed && a.s->pub->path_tx == FB_PATH_SHM && a.s->pub->path_rx == FB_PATH_SHM && rail) {
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
