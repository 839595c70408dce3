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
