/*
 * stream_plain_test.c - before a stream has a rail, or while one is not used: what plain calls
 * leave behind (fb_usual, fb_count), what the peer may say too late, and what keeps it off.
 */
#include "tests/unit/stream_waits.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <linux/tcp.h>
#include <sys/mman.h>

static unsigned char out[20000], in[20000];

static void pair_after(struct end *a, struct end *b, struct cfg_stream set[2], uint32_t calls)
{
    eager();
    pair(a, b);
    after(a, &set[0], calls);
    after(b, &set[1], calls);
}

/* Few calls that move much, both ways together: as many bytes as the policy wants make it ask. */
TEST_CASE(stream_plain, bytes_count_before_calls_do)
{
    static struct cfg_stream set[2];
    struct end a, b;

    pair_after(&a, &b, set, 1000);
    /* No checkpoint of a direction is near when the sum is reached. */
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ_INT(put(&a, out, 20000), 20000);
        for (size_t have = 0; have < 20000;)
            have += (size_t)get(&b, in, 20000 - have);
        ASSERT_EQ_INT(put(&b, out, 12000), 12000);
        for (size_t have = 0; have < 12000;)
            have += (size_t)get(&a, in, 12000 - have);
    }
    EXPECT(!conn_flag(conn_of(a.s), CF_ASKED)); /* 64,000 */
    ASSERT_EQ_INT(put(&a, out, 1600), 1600);
    EXPECT(conn_flag(conn_of(a.s), CF_ASKED)); /* 65,600 */
    EXPECT(a.s->calls < 1000 / 2);
    done(&a);
    done(&b);
}

/* The first calls of a stream, which most have no more of, are counted and nothing else. */
TEST_CASE(stream_plain, few_small_calls)
{
    static struct cfg_stream set[2];
    struct end a, b;
    uint64_t end;

    pair_after(&a, &b, set, 8);
    for (int i = 0; i < 3; i++) {
        ASSERT(fb_tx_enter(a.s));
        ASSERT_EQ_INT(send(a.fd, out, 100, 0), 100);
        ASSERT(fb_usual(a.s, 100, false, &end));
        fb_count(a.s, 100, false, end);
        EXPECT_EQ_U64(a.s->pub->tx, 100u * (unsigned)(i + 1));
        EXPECT_EQ_U64(a.s->past_tx, a.s->pub->tx);
        EXPECT_EQ_INT(a.s->calls, i + 1);
        EXPECT_EQ_INT(a.s->tx_in, 0);
    }
    /* Half way: digests are to begin. */
    EXPECT(!fb_usual(a.s, 100, false, &end));
    /* What fails counts nothing. */
    ASSERT(fb_rx_enter(a.s));
    ASSERT(!fb_usual(a.s, -EAGAIN, true, &end));
    a.s->look_at = 100;
    ASSERT(fb_usual(a.s, -EAGAIN, true, &end));
    fb_count(a.s, -EAGAIN, true, end);
    EXPECT_EQ_U64(a.s->pub->rx, 0);
    EXPECT_EQ_INT(a.s->calls, 3);
    EXPECT_EQ_INT(a.s->rx_in, 0);
    done(&a);
    done(&b);
}

/* n bytes, which the receiver gets in so many pieces. */
static void pass(struct end *from, struct end *to, size_t n, size_t pieces)
{
    ASSERT_EQ_INT(put(from, out, n), (int)n);
    for (size_t i = 0; i < pieces; i++)
        for (size_t have = 0; have < n / pieces;)
            have += (size_t)get(to, in, n / pieces - have);
}

/* A few words, then much in one direction. The last of the words are sent when their sender is half
 * way to wanting a rail, and looks at what goes by; who gets them does not look yet, and never
 * will: no more come. */
static void much_after_words(struct end *to, struct end *from)
{
    uint64_t limit = sys_now() + PATIENCE;

    pass(from, to, 64, 4);
    pass(to, from, 40, 1);
    EXPECT(conn_seen(conn_of(to->s))->tx.valid != 0);
    while ((from->s->pub->path_tx != FB_PATH_SHM || to->s->pub->path_rx != FB_PATH_SHM) &&
           sys_now() < limit) {
        pass(from, to, 16000, 1);
        wait_for_news();
    }
    EXPECT_EQ_INT(from->s->pub->path_tx, FB_PATH_SHM);
    EXPECT_EQ_U64(conn_seen(conn_of(from->s))->rx.valid, 0);
}

TEST_CASE(stream_plain, much_after_a_few_words)
{
    /* which the progress thread may still go by when the stream has gone */
    static struct cfg_stream set[2][2];

    for (int i = 0; i < 2; i++) {
        struct end a, b;

        pair_after(&a, &b, set[i], 8);
        much_after_words(i ? &a : &b, i ? &b : &a);
        done(&a);
        done(&b);
    }
}

/* Until then who asks for a rail is refused. */
TEST_CASE(stream_plain, words_are_few_beside_16_times_as_much)
{
    static struct cfg_stream set[2];
    struct end a, b;

    pair_after(&a, &b, set, 8);
    pass(&a, &b, 64, 4);
    pass(&b, &a, 1000, 1);
    /* Slowly where 1 KiB is known, but not yet as much: it asks there again and again. */
    while (a.s->pub->path_tx != FB_PATH_SHM) {
        pass(&a, &b, a.s->pub->tx < 9000 || a.s->pub->tx > 15000 ? 300 : 10, 1);
        let_go_on(ROUNDS_A_CALL);
    }
    EXPECT(a.s->pub->tx > 16000);
    done(&a);
    done(&b);
}

/* As the last receive of most connections. Once a rail has been wanted the end is looked at more
 * closely: it may be what the kernel says after an error that the library has taken from it. */
TEST_CASE(stream_plain, the_end_of_who_never_wanted_a_rail)
{
    static struct cfg_stream set[2];
    struct end a, b;
    struct iovec into = {out, 1};
    uint64_t end;

    pair_after(&a, &b, set, 8);
    ASSERT(fb_rx_enter(a.s));
    ASSERT(fb_usual(a.s, 0, true, &end));
    fb_count(a.s, 0, true, end);
    EXPECT_EQ_INT(a.s->rx_in, 0);
    EXPECT_EQ_INT(a.s->calls, 0);
    EXPECT_EQ_U64(a.s->pub->rx, 0);
    /* An error that is the next call's, as recvmmsg leaves one behind; then the kernel says 0. */
    fb_keep_error(b.s, -ECONNRESET);
    ASSERT(fb_rx_enter(b.s));
    ASSERT(!fb_usual(b.s, 0, true, &end));
    EXPECT_EQ_INT(fb_rx_leave(b.s, b.fd, 0, &into, 1, 0), -ECONNRESET);
    ASSERT(fb_rx_enter(a.s));
    conn_set(conn_of(a.s), CF_ASKED);
    EXPECT(!fb_usual(a.s, 0, true, &end));
    fb_count(a.s, 0, true, end);
    ASSERT(fb_tx_enter(a.s));
    EXPECT(!fb_usual(a.s, 0, false, &end));
    fb_count(a.s, 0, false, end);
    done(&a);
    done(&b);
}

/* One that is pinned and never had a rail will have none: its end is the kernel's alone. */
TEST_CASE(stream_plain, end_of_what_stays_on_tcp)
{
    struct end a, b;
    uint64_t end;

    eager();
    pair(&a, &b);
    ASSERT(fb_rx_enter(a.s));
    atomic_fetch_or(&a.s->flags, CF_ASKED);
    EXPECT(!fb_usual(a.s, 0, true, &end));
    EXPECT(!fb_untouched(a.s));
    atomic_fetch_or(&a.s->flags, CF_PINNED);
    a.s->rx_mark = FB_NO_DIGEST;
    EXPECT(fb_usual(a.s, 0, true, &end));
    EXPECT(fb_untouched(a.s));
    atomic_fetch_or(&a.s->flags, CF_LINKED);
    EXPECT(!fb_usual(a.s, 0, true, &end));
    EXPECT(!fb_untouched(a.s));
    atomic_fetch_and(&a.s->flags, ~(uint32_t)CF_LINKED);
    fb_count(a.s, 0, true, end);
    done(&a);
    done(&b);
}

static bool has_page(const void *p)
{
    unsigned char there = 1;

    EXPECT_EQ_INT(mincore((void *)((uintptr_t)p & ~(uintptr_t)4095), 1, &there), 0);
    return there & 1;
}

/* What programs ask of a connection that has not been worth a rail. */
TEST_CASE(stream_plain, no_page_for_a_rail_before_one_is_wanted)
{
    enum { MOST = 100 };
    static struct cfg_stream set[2];
    struct end all[MOST][2], *a, *b;
    int n = 0;

    do { /* the pages of other cases' stay */
        a = &all[n][0];
        b = &all[n++][1];
        pair_after(a, b, set, 1000);
    } while (n < MOST && (has_page(conn_of(a->s)->x) || has_page(conn_of(b->s)->x)));
    ASSERT(!has_page(conn_of(a->s)->x));
    EXPECT_EQ_INT(fb_so_error(a->s), 0);
    pass(a, b, 100, 1);
    EXPECT_EQ_INT(fb_shutdown(a->s, a->fd, SHUT_RD), 0);
    EXPECT_EQ_INT(fb_shutdown(a->s, a->fd, SHUT_RDWR), 0);
    EXPECT_EQ_INT(fb_shutdown(b->s, b->fd, SHUT_RDWR), 0);
    EXPECT(!has_page(conn_of(a->s)->x));
    for (int i = 0; i < 2 * n; i++)
        done(&all[i / 2][i % 2]);
}

/* The gate goes up between the look at it and the end of the call: whoever was told meanwhile that
 * there is nothing to receive, because a call was in flight, is told to look again. */
TEST_CASE(stream_plain, gate_at_the_end_of_a_call)
{
    struct end a, b;
    uint32_t changes;
    uint64_t end;

    eager();
    pair(&a, &b);
    conn_set(conn_of(a.s), CF_PINNED | CF_ASKED);
    a.s->rx_mark = FB_NO_DIGEST;
    ASSERT(fb_rx_enter(a.s));
    ASSERT(fb_usual(a.s, -EAGAIN, true, &end));
    changes = conn_of(a.s)->x->changes;
    atomic_store(&a.s->rx_gate, 1);
    fb_count(a.s, -EAGAIN, true, end);
    EXPECT(conn_of(a.s)->x->changes != changes);
    EXPECT_EQ_INT(a.s->rx_in, 0);
    atomic_store(&a.s->rx_gate, 0);
    done(&a);
    done(&b);
}

/* Why an announcement of this end was refused; 0: it has not been. */
static int refusal(struct fb_conn *c)
{
    int reason;

    fb_lock(&c->x->ctl_lock);
    reason = c->x->mail.nak ? c->x->mail.nak_reason : 0;
    fb_unlock(&c->x->ctl_lock);
    return reason;
}

/* An announcement that comes when its sender waits no longer, and what was sent instead has been
 * read, is late; the peer has not broken the protocol. */
TEST_CASE(stream_plain, a_late_announcement_is_no_offence)
{
    struct rsk_msg m = {.type = FM_ANN, .att = 1, .a = 31, .b = 'x'};
    struct fb_conn *sender;
    struct end a, b;

    pair_proved(&a, &b);
    sender = conn_of(b.s);
    m.epoch = sender->x->epoch;
    ASSERT_EQ_INT(sender->x->rail->wire->ctl_send(sender->x->rail, &m), 0);
    UNTIL(refusal(sender) != 0);
    EXPECT_EQ_INT(refusal(sender), RSN_NO_ACK);
    EXPECT_EQ_INT(a.s->pub->path_rx, FB_PATH_TCP);
    EXPECT(board(&a, &b));
    done(&a);
    done(&b);
}

/* What a rail cannot honour. */
static const struct {
    int level, name, value;
} off[] = {{SOL_SOCKET, SO_OOBINLINE, 1},
           {SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE},
           {SOL_SOCKET, SO_MAX_PACING_RATE, 1000000},
           {IPPROTO_TCP, TCP_TX_DELAY, 10},
           {IPPROTO_IP, IP_RECVERR, 1}};
enum { OFF = sizeof(off) / sizeof(off[0]) };

/* An accepted socket may have it from its listener: nobody sets it. */
TEST_CASE(stream_plain, an_option_of_its_listener_keeps_it_off)
{
    eager();
    for (size_t i = 0; i < OFF; i++) {
        uint64_t limit = sys_now() + PATIENCE;
        struct end a, b;

        pair(&a, &b);
        ASSERT_EQ_INT(setsockopt(b.fd, off[i].level, off[i].name, &off[i].value, sizeof(int)), 0);
        while (b.s->pub->reason != RSN_OPTION && !boarded(&b) && sys_now() < limit) {
            pass(&a, &b, 32, 1);
            pass(&b, &a, 32, 1);
            wait_for_news();
        }
        EXPECT_EQ_INT(b.s->pub->reason, RSN_OPTION);
        EXPECT(fb_plain(b.s));
        done(&a);
        done(&b);
    }
}

TEST_CASE(stream_plain, an_option_takes_it_off)
{
    eager();
    for (size_t i = 0; i < OFF; i++) {
        const int none = off[i].name == SO_MAX_PACING_RATE ? -1 : 0;
        struct end a, b;

        pair(&a, &b);
        EXPECT(board(&a, &b));
        /* As it was. */
        ASSERT_EQ_INT(setsockopt(a.fd, off[i].level, off[i].name, &none, sizeof(int)), 0);
        fb_sockopt(a.s, off[i].level, off[i].name, 0);
        EXPECT(boarded(&a));
        ASSERT_EQ_INT(setsockopt(a.fd, off[i].level, off[i].name, &off[i].value, sizeof(int)), 0);
        fb_sockopt(a.s, off[i].level, off[i].name, 0);
        EXPECT_EQ_INT(a.s->pub->reason, RSN_OPTION);
        EXPECT_EQ_INT(a.s->pub->path_tx, FB_PATH_TCP);
        done(&a);
        done(&b);
    }
}

/* The pace of a fast network is more than 32 bits, and a filter is no number. */
TEST_CASE(stream_plain, a_pace_and_a_filter_keep_it_off)
{
    static struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};
    static const uint64_t pace = 5000000000u;
    static const struct sock_fprog filter = {1, all};

    for (int i = 0; i < 2; i++) {
        struct end a, b;

        eager();
        pair(&a, &b);
        EXPECT(!conn_option(conn_of(b.s)));
        ASSERT_EQ_INT(setsockopt(b.fd, SOL_SOCKET, i ? SO_ATTACH_FILTER : SO_MAX_PACING_RATE,
                                 i ? (const void *)&filter : &pace,
                                 i ? sizeof(filter) : sizeof(pace)),
                      0);
        EXPECT(conn_option(conn_of(b.s)));
        done(&a);
        done(&b);
    }
}

static bool in_the_ring_alone(struct end *e)
{
    struct fb_conn *c = conn_of(e->s);
    bool yes;

    fb_lock(&c->x->rx.lock);
    yes = c->x->rx.state == RX_sk && c->x->rx.V - c->x->rx.skip > e->s->pub->rx;
    fb_unlock(&c->x->rx.lock);
    return yes;
}

/* Who leaves with much that is unread sends it again, and the socket has no room for all of it. So
 * the ring is where it is read, and a call that is to be the kernel's does not wait until somebody
 * has, since who would is who calls. */
TEST_CASE(stream_plain, who_reads_a_ring_that_has_been_left_does_not_wait)
{
    enum { PIECES = 3 };
    const int little = 8192;
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    ASSERT_EQ_INT(setsockopt(b.fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), 0);
    memset(out, 'v', sizeof(out));
    for (int i = 0; i < PIECES; i++)
        ASSERT_EQ_INT(put(&a, out, sizeof(out)), (int)sizeof(out));
    end_leave(conn_of(a.s), RSN_CALL);
    UNTIL(in_the_ring_alone(&b));
    EXPECT_EQ_INT(waits_of_pin_rx(&b), 0);
    for (size_t have = 0; have < PIECES * sizeof(out);) {
        ssize_t n = get(&b, in, sizeof(in));

        ASSERT(n > 0);
        EXPECT(memcmp(in, out, (size_t)n) == 0);
        have += (size_t)n;
    }
    pass(&a, &b, 100, 1);
    done(&a);
    done(&b);
}

/* An error that ends nothing, from the send of that number. */
static _Atomic int stray_fd = -1, stray_at;
static ssize_t (*real_send)(int, const struct iovec *, int, int);

static ssize_t stray_send(int fd, const struct iovec *v, int cnt, int flags)
{
    if (fd == atomic_load(&stray_fd) && atomic_fetch_sub(&stray_at, 1) == 0)
        return -EHOSTUNREACH;
    return real_send(fd, v, cnt, flags);
}

/* Before there is another thread. */
__attribute__((constructor)) static void lie(void)
{
    real_send = fb_io.send;
    fb_io.send = stray_send;
}

/* ICMP's word that a host is away comes in the middle of a leave, to whatever of it is being sent:
 * that goes on, and the program hears of it. */
TEST_CASE(stream_plain, an_error_that_ends_nothing_while_it_leaves)
{
    int at = 0;

    for (bool came = true; came; at++) {
        struct end a, b;

        eager();
        pair(&a, &b);
        ASSERT(board(&a, &b));
        memset(out, 'u', 1000);
        ASSERT_EQ_INT(put(&a, out, 1000), 1000);
        atomic_store(&stray_at, at);
        atomic_store(&stray_fd, a.fd);
        /* What is unread comes by TCP. */
        fb_pin(b.s, RSN_CALL, true);
        fb_pin(a.s, RSN_CALL, true);
        atomic_store(&stray_fd, -1);
        came = atomic_load(&stray_at) < 0;
        EXPECT_EQ_INT(fb_so_error(a.s), came ? -EHOSTUNREACH : 0);
        EXPECT_EQ_INT(a.s->pub->path_tx, FB_PATH_TCP);
        for (size_t have = 0; have < 1000;) {
            ssize_t n = get(&b, in, 1000);

            ASSERT(n > 0);
            EXPECT(memcmp(in, out, (size_t)n) == 0);
            have += (size_t)n;
        }
        pass(&a, &b, 100, 1);
        pass(&b, &a, 100, 1);
        done(&a);
        done(&b);
    }
    EXPECT(at > 2); /* a frame, and what was unread */
}
