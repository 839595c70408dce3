/*
 * stream_test.c - streams board, and carry every byte once and in order.
 */
#include "tests/shim/shim.h"
#include "tests/unit/stream_pair.h"

#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/stream.h"
#include "rsock/loop.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* In a process of its own, where nothing has boarded: it stands before all other cases. */
static void spins(void)
{
    struct cfg_stream patient = cfg_stream_defaults, hasty = cfg_stream_defaults;
    struct fb_conn a = {.set = &patient}, b = {.set = &hasty}, c = {.set = &cfg_stream_defaults};
    struct fb_spin fresh = {0}, learnt = {0};

    patient.spin_auto = hasty.spin_auto = false;
    patient.spin_ns = 70000;
    hasty.spin_ns = 0;
    EXPECT_EQ_INT(fb_spin_most(), 20000);
    spin_joined(&b, false);
    EXPECT_EQ_INT(fb_spin_most(), 0);
    EXPECT(!fb_spin_slow());
    spin_joined(&a, true);
    EXPECT(fb_spin_slow());
    EXPECT_EQ_INT(fb_spin_most(), 70000);
    spin_joined(&b, false);
    EXPECT_EQ_INT(fb_spin_most(), 70000);
    EXPECT_EQ_INT(spin_budget(&a, &fresh), 70000);
    EXPECT_EQ_INT(spin_budget(&b, &fresh), 0);
    spin_served(&a, &learnt, 30000);
    EXPECT_EQ_INT(learnt.ns, 61000);
    spin_measured(300000, true);
    EXPECT_EQ_INT(spin_budget(&b, &fresh), 0); /* not what somebody has chosen */
    EXPECT_EQ_INT(fb_spin_most(), 70000);
    spin_joined(&c, true);
    EXPECT_EQ_INT(fb_spin_most(), 300000);
    EXPECT_EQ_INT(spin_budget(&c, &fresh), 300000);
    /* What one wire has taught is nothing to the other, which wakes by a futex and has a
     * limit of its own. */
    spin_joined(&c, false);
    EXPECT_EQ_INT(spin_budget(&c, &fresh), 20000);
    spin_measured(300000, false);
    EXPECT_EQ_INT(spin_budget(&c, &fresh), 100000);
}

TEST_CASE(stream, spins_as_its_rule_says)
{
    EXPECT_EQ_INT(in_a_child(spins), 0);
}

TEST_CASE(stream, ping_pong_boards_both_ways)
{
    struct echo x = {0};
    struct end a;
    pthread_t t;
    uint64_t pos = 0;
    bool ok;

    ok = echo_boarded(&a, &x, &t, &pos);
    for (int i = 0; ok && i < 4000; i++)
        ok = round_trip(&a, &pos, (size_t)(i % 97) + 1);
    EXPECT(ok);
    EXPECT_EQ_INT(a.s->pub->path_tx, FB_PATH_SHM);
    EXPECT_EQ_INT(a.s->pub->path_rx, FB_PATH_SHM);
    EXPECT(conn_rail_tx(conn_of(a.s)) > 0);
    EXPECT(conn_rail_rx(conn_of(a.s)) > 0);
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
    ASSERT(board_echo(&a, &pos));
    rail = conn_of(a.s)->x->rail;
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

/* 200 MiB both ways take 10 s with the thread sanitizer. */
#ifdef __SANITIZE_THREAD__
#define MUCH (50u << 20)
#else
#define MUCH (200u << 20)
#endif

/* Both directions at full tilt, ends by shutdown: every byte arrives once, in order, then EOF. */
static void full_tilt(uint64_t total, size_t most, bool past, bool *rail)
{
    struct end a, b;
    struct bulk w[4];
    pthread_t t[4];

    eager();
    pair(&a, &b);
    if (past) {
        struct fb_past it = {.since = sys_now(), .kept = UINT16_MAX, .on = true};

        conn_of(a.s)->x->tx.past = conn_of(b.s)->x->tx.past = it;
    }
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
    EXPECT(!past || conn_of(a.s)->x->tx.past.kept < UINT16_MAX); /* turns were counted */
    /* One may be done before the other is scheduled at all. */
    *rail = conn_rail_tx(conn_of(a.s)) > 0 || conn_rail_tx(conn_of(b.s)) > 0;
    done(&a);
    done(&b);
}

/* The same, until it was not all over before there was a rail. */
static void by_rail(uint64_t total, size_t most, bool past)
{
    bool rail = false;

    for (int i = 0; i < 10 && !rail; i++)
        full_tilt(total, most, past, &rail);
    EXPECT(rail);
}

TEST_CASE(stream, full_tilt_both_ways)
{
    by_rail(MUCH, 100000, false);
}

/* What is written past the caches is there when the cursor says so. */
TEST_CASE(stream, past_the_caches_full_tilt)
{
    by_rail(MUCH, 100000, true);
}

TEST_CASE(stream, small_writes_full_tilt)
{
    by_rail(3u << 20, 40, false);
}

/* More pieces than are looked at at once, on a half that is TCP's: all of them go. */
TEST_CASE(stream, many_pieces_on_a_plain_half)
{
    char bytes[40] = "forty pieces of one byte each, and so on";
    struct iovec v[40];
    struct end a, b;

    eager();
    pair(&a, &b);
    for (size_t i = 0; i < 40; i++)
        v[i] = (struct iovec){&bytes[i], 1};
    EXPECT_EQ_INT(fb_sendv(a.s, a.fd, v, 40, 0), 40);
    done(&a);
    done(&b);
}

/* What a thread in poll sleeps on: a word that changes when there are bytes, and none when it would
 * miss something. */
TEST_CASE(stream, words_of_a_rail)
{
    struct fb_words w = {0};
    struct end a, b;
    char byte;

    eager();
    pair(&a, &b);
    EXPECT_EQ_INT(fb_has_words(a.s, POLLIN), 0);
    EXPECT_EQ_INT(fb_arm_words(a.s, a.fd, POLLIN, &w), 0);
    EXPECT(w.rail == NULL);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(fb_ready(a.s, a.fd, POLLIN), 0); /* also looks at what has come by TCP */
    EXPECT_EQ_INT(fb_has_words(a.s, 0), 0);
    EXPECT_EQ_INT(fb_has_words(a.s, POLLRDHUP), 0);
    EXPECT_EQ_INT(fb_has_words(a.s, POLLIN | POLLRDHUP), 1);
    EXPECT_EQ_INT(fb_has_words(a.s, POLLIN | POLLOUT), 2);
    /* There is room: nobody has to sleep. */
    EXPECT_EQ_INT(fb_arm_words(a.s, a.fd, POLLIN | POLLOUT, &w), POLLOUT);
    EXPECT(w.rail == NULL);
    EXPECT_EQ_INT(fb_arm_words(a.s, a.fd, POLLIN, &w), 0);
    ASSERT(w.rail != NULL && w.n == 1);
    EXPECT_EQ_U64(*w.word[0], w.value[0]);
    EXPECT_EQ_INT(put(&b, "x", 1), 1);
    EXPECT(*w.word[0] != w.value[0]);
    fb_words_put(&w);
    EXPECT_EQ_INT(fb_arm_words(a.s, a.fd, POLLIN, &w), POLLIN);
    EXPECT(w.rail == NULL);
    EXPECT_EQ_INT(get(&a, &byte, 1), 1);
    /* Who wants no more has an end to be told of. */
    EXPECT_EQ_INT(fb_ready(b.s, b.fd, POLLIN), 0);
    EXPECT_EQ_INT(fb_has_words(b.s, POLLIN), 1);
    EXPECT_EQ_INT(fb_shutdown(b.s, b.fd, SHUT_RD), 0);
    EXPECT_EQ_INT(fb_has_words(b.s, POLLIN), 0);
    EXPECT_EQ_INT(fb_arm_words(b.s, b.fd, POLLIN, &w), POLLIN);
    EXPECT(w.rail == NULL);
    /* The peer's end is the kernel's to tell: from when it is known here there are no words. */
    done(&b);
    UNTIL(!fb_has_words(a.s, POLLIN));
    EXPECT_EQ_INT(fb_arm_words(a.s, a.fd, POLLIN | POLLRDHUP, &w), POLLIN | POLLRDHUP);
    EXPECT(w.rail == NULL);
    done(&a);
}

/* A rail that somebody still has words of stays until they are given back. */
TEST_CASE(stream, words_outlive_the_stream)
{
    struct fb_words w = {0};
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    EXPECT_EQ_INT(fb_ready(a.s, a.fd, POLLIN), 0);
    EXPECT_EQ_INT(fb_arm_words(a.s, a.fd, POLLIN, &w), 0);
    ASSERT(w.rail != NULL);
    done(&a);
    done(&b);
    for (int i = 0; i < 100; i++) {
        jobs_done();
        EXPECT_EQ_INT(*w.word[0] - w.value[0] > 100, 0); /* its memory is there */
    }
    fb_words_put(&w);
}

static ssize_t put_with(struct end *e, void *p, size_t n, int flags)
{
    struct iovec v = {p, n};
    ssize_t r;

    if (!fb_tx_enter(e->s))
        return fb_sendv(e->s, e->fd, &v, 1, flags);
    r = send(e->fd, p, n, flags | MSG_NOSIGNAL);
    fb_tx_leave(e->s, r, &v, 1);
    return r;
}

/* They ask for nothing before a send does, or a recvmsg: QEMU and iperf 2 set them on each
 * connection, and go on without. */
TEST_CASE(stream, zero_copy_and_stamps_may_be_asked_for)
{
    static const int names[] = {SO_ZEROCOPY, SO_TIMESTAMP, SO_TIMESTAMPNS};
    const int on = 1;

    eager();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct end a, b;

        pair(&a, &b);
        EXPECT_EQ_INT(setsockopt(a.fd, SOL_SOCKET, names[i], &on, sizeof(on)), 0);
        fb_sockopt(a.s, SOL_SOCKET, names[i], on);
        EXPECT(board(&a, &b));
        EXPECT_EQ_INT(fb_stamps(a.s), i != 0);
        EXPECT(!fb_stamps(b.s));
        done(&a);
        done(&b);
    }
}

/* A proxy in the middle of a long answer: there is always more. */
TEST_CASE(stream, boards_while_there_is_always_more)
{
    struct end a, b;
    uint64_t pos = 0;
    int on = 1;

    eager();
    pair(&a, &b);
    while (a.s->pub->path_tx != FB_PATH_SHM) {
        unsigned char bytes[100], back[100];

        fill(bytes, pos, sizeof(bytes));
        ASSERT_EQ_INT(put_with(&a, bytes, sizeof(bytes), MSG_MORE), sizeof(bytes));
        setsockopt(a.fd, IPPROTO_TCP, TCP_NODELAY, &on,
                   sizeof(on)); /* the kernel has waited long enough */
        for (size_t n = 0; n < sizeof(bytes);) {
            ssize_t r = get(&b, back, sizeof(back) - n);

            ASSERT(r > 0);
            EXPECT(check(back, pos + n, (size_t)r));
            n += (size_t)r;
        }
        pos += sizeof(bytes);
        ASSERT_EQ_INT(put(&b, back, 1), 1);
        ASSERT_EQ_INT(get(&a, back, 1), 1);
        wait_for_news();
    }
    done(&a);
    done(&b);
}

/* Who announces with MSG_MORE what follows, each time, boards where it follows, or with
 * the next head. */
TEST_CASE(stream, head_and_body_board)
{
    unsigned char bytes[100] = {0};
    struct end a, b;

    eager();
    pair(&a, &b);
    while (a.s->pub->path_tx != FB_PATH_SHM || b.s->pub->path_rx != FB_PATH_SHM) {
        ASSERT_EQ_INT(put_with(&a, bytes, 20, MSG_MORE), 20);
        ASSERT_EQ_INT(put_with(&a, bytes, 80, 0), 80);
        for (ssize_t n = 0, r; n < 100; n += r) {
            r = get(&b, bytes, sizeof(bytes));
            ASSERT(r > 0);
        }
        ASSERT_EQ_INT(put(&b, bytes, 1), 1);
        ASSERT_EQ_INT(get(&a, bytes, 1), 1);
        wait_for_news();
    }
    done(&a);
    done(&b);
}
