/*
 * tap_test.c - a tap of a stream: the library's end over real streams, the tool's end that
 * it meets, and what each does when the other one writes nonsense or goes away. Both are
 * in this process.
 */
#include "tests/shim/shim.h"
#include "tests/unit/stream_pair.h"

#include "ipoib_fallback/pubfile.h"
#include "ipoib_fallback/tap.h"
#include "tools/tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/un.h>

enum { SIZE = TAP_LEAST };

static int descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    ASSERT(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static bool request(struct tap_link *l, struct end *e, uint32_t size, uint32_t snap)
{
    struct stat_process p = {
        .pid = (uint32_t)getpid(), .uid = geteuid(), .start_time = fb_pub_head()->start_time};
    struct stat_conn c = {.slot = conn_of(e->s)->s.slot, .gen = conn_of(e->s)->gen};

    return tap_request(l, &p, &c, size, snap);
}

/* A byte each way. */
static bool move(struct end *a, struct end *b)
{
    char c = 1;

    return put(a, &c, 1) == 1 && get(b, &c, 1) == 1 && put(b, &c, 1) == 1 && get(a, &c, 1) == 1;
}

static int until_it_comes(struct tap_link *l, struct end *a, struct end *b)
{
    int r = 0;

    while (r == 0) {
        ASSERT(move(a, b));
        r = tap_wait(l, 1);
    }
    return r;
}

static const uint8_t *next(struct tap_link *l, struct tap_record *r)
{
    const uint8_t *bytes = NULL;
    bool there = true;
    int is;

    while ((is = tap_next(l, r, &bytes)) == 0 && there)
        there = tap_sleep(l, 1); /* what it wrote before it went is still there */
    ASSERT_EQ_INT(is, 1);
    return bytes;
}

/* From here on everything is recorded. */
static void attach(struct tap_link *l, struct end *a, struct end *b, uint32_t size, uint32_t snap)
{
    struct tap_record r;

    ASSERT(request(l, a, size, snap));
    ASSERT_EQ_INT(until_it_comes(l, a, b), 1);
    for (unsigned flags = 0; flags < 2; flags++) {
        next(l, &r);
        EXPECT_EQ_INT(r.kind, TAP_BEGIN);
        EXPECT_EQ_INT(r.flags, flags);
        EXPECT_EQ_U64(r.at, flags ? a->s->pub->rx : a->s->pub->tx);
    }
}

/* fds: how many there were, of which the boarding may have closed one or two since. */
static void until_it_is_gone(struct end *a, int fds)
{
    while (atomic_load(&a->s->pub->tap) || conn_flag(conn_of(a->s), CF_TAP) || descriptors() > fds)
        jobs_done();
    EXPECT(!atomic_load(&conn_of(a->s)->x->tap));
}

static void rails(struct end *a, struct end *b)
{
    eager();
    pair(a, b);
    ASSERT(board(a, b));
    jobs_done();
}

TEST_CASE(tap, copies_both_directions)
{
    struct tap_link l;
    struct tap_record r;
    struct end a, b;
    unsigned char out[200000], in[200000];
    const uint8_t *bytes;
    uint64_t tx, rx;
    int fds;

    rails(&a, &b);
    fds = descriptors();
    attach(&l, &a, &b, 1 << 20, 0);
    tx = a.s->pub->tx;
    rx = a.s->pub->rx;
    fill(out, 0, sizeof(out));
    ASSERT_EQ_INT(put(&a, out, 200000), 200000);
    for (size_t at = 0; at < 200000; at += r.len) {
        bytes = next(&l, &r);
        ASSERT(r.kind == TAP_DATA && r.path == FB_PATH_SHM && r.flags == 0 && r.kept == r.len);
        EXPECT_EQ_INT(r.len, 200000 - at < TAP_PIECE ? (int)(200000 - at) : (int)TAP_PIECE);
        EXPECT_EQ_U64(r.at, tx + at);
        EXPECT(check(bytes, at, r.len));
    }
    ASSERT_EQ_INT(put(&b, out, 5000), 5000);
    ASSERT_EQ_INT(get(&a, in, sizeof(in)), 5000);
    bytes = next(&l, &r);
    EXPECT(r.kind == TAP_DATA && r.flags == TAP_RX && r.len == 5000 && r.at == rx);
    EXPECT(check(bytes, 0, 5000));
    /* Looking is not reading. */
    ASSERT_EQ_INT(put(&b, out, 100), 100);
    ASSERT_EQ_INT(fb_recvv(a.s, a.fd, &(struct iovec){in, 100}, 1, MSG_PEEK), 100);
    EXPECT_EQ_INT(tap_next(&l, &r, &bytes), 0);
    ASSERT_EQ_INT(get(&a, in, 100), 100);
    next(&l, &r);
    EXPECT(r.len == 100 && r.at == rx + 5000);
    tap_close(&l);
    until_it_is_gone(&a, fds);
    ASSERT(move(&a, &b));
    done(&a);
    done(&b);
}

TEST_CASE(tap, plain_bytes_and_gathered_ones)
{
    struct tap_link l;
    struct tap_record r;
    struct end a, b;
    unsigned char out[3000], in[8];
    struct iovec v[4] = {{out, 10}, {out + 10, 0}, {out + 10, 1000}, {out + 1010, 1990}};
    const uint8_t *bytes;
    uint64_t tx;

    rails(&a, &b);
    attach(&l, &a, &b, SIZE, 500);
    fb_pin(a.s, RSN_OPTION, false);
    while (a.s->pub->path_tx != FB_PATH_TCP || a.s->pub->path_rx != FB_PATH_TCP) {
        ASSERT(move(&a, &b));
        for (unsigned i = 0; i < 2; i++)
            next(&l, &r);
    }
    tx = a.s->pub->tx;
    fill(out, 0, sizeof(out));
    ASSERT(fb_tx_enter(a.s));
    fb_tx_leave(a.s, writev(a.fd, v, 4), v, 4);
    bytes = next(&l, &r);
    EXPECT(r.kind == TAP_DATA && r.path == FB_PATH_TCP && r.at == tx && r.len == 3000);
    EXPECT(r.reason == RSN_OPTION && r.kept == 500 && check(bytes, 0, 500));
    /* sendfile */
    ASSERT(fb_tx_enter(a.s));
    ASSERT_EQ_INT(write(a.fd, out, 100), 100);
    fb_tx_leave_file(a.s, 100, -1, -1);
    next(&l, &r);
    EXPECT(r.flags == TAP_UNSEEN && r.len == 100 && r.kept == 0 && r.at == tx + 3000);
    for (ssize_t n = 0; n < 3100;)
        n += get(&b, out, sizeof(out));
    done(&b);
    while (get(&a, in, sizeof(in)) > 0)
        ;
    done(&a);
    for (next(&l, &r); r.kind == TAP_DATA; next(&l, &r))
        EXPECT(r.flags == TAP_RX);
    EXPECT(r.kind == TAP_FIN && r.flags == TAP_RX);
    next(&l, &r);
    EXPECT(r.kind == TAP_FIN && r.flags == 0);
    next(&l, &r);
    EXPECT(r.kind == TAP_END && r.reason == 0);
    tap_close(&l);
}

TEST_CASE(tap, what_has_no_room_is_counted)
{
    struct tap_link l;
    struct tap_record r;
    struct end a, b;
    unsigned char buf[1000];
    uint64_t bytes = 0, packets = 0;
    const uint8_t *p;
    int n = 0;

    rails(&a, &b);
    attach(&l, &a, &b, SIZE, 0);
    for (int i = 0; i < 1000; i++) {
        fill(buf, 0, sizeof(buf));
        ASSERT_EQ_INT(put(&a, buf, 1000), 1000);
        ASSERT_EQ_INT(get(&b, buf, 1000), 1000);
    }
    while (tap_next(&l, &r, &p) == 1) {
        EXPECT_EQ_INT(r.lost, 0);
        n++;
    }
    EXPECT_EQ_INT(n, SIZE / (1000 + (int)sizeof(r)));
    tap_count_lost(&l);
    for (int i = 0; i <= FB_PATH_VERBS; i++)
        packets += l.lost_packets[i];
    bytes = l.lost_bytes;
    EXPECT_EQ_U64(packets, 1000 - (uint64_t)n);
    EXPECT_EQ_U64(bytes, 1000 * packets);
    ASSERT(move(&a, &b));
    next(&l, &r);
    EXPECT_EQ_U64(r.lost, packets);
    /* A tool that says it has read what was never there gets nothing, and harms nobody. */
    atomic_store(&l.ring->head, atomic_load(&l.ring->tail) + 8);
    ASSERT(move(&a, &b));
    atomic_store(&l.ring->head, atomic_load(&l.ring->tail) - SIZE - 8);
    ASSERT(move(&a, &b));
    tap_count_lost(&l);
    EXPECT_EQ_U64(l.lost_bytes, bytes + 4);
    done(&a);
    done(&b);
    tap_close(&l);
}

/* The program writes it; root reads it. */
TEST_CASE(tap, records_that_are_none)
{
    static const struct {
        uint64_t tail;
        struct tap_record r;
    } wrong[] = {
        {8, {.kind = TAP_DATA}},
        {sizeof(struct tap_record) - 8, {.kind = TAP_DATA}},
        {SIZE + 8, {.kind = TAP_DATA}},
        {UINT64_MAX, {.kind = TAP_DATA}},
        {SIZE, {.kind = TAP_END + 1}},
        {SIZE, {.path = FB_PATH_VERBS + 1}},
        {SIZE, {.len = TAP_PIECE + 1}},
        {SIZE, {.len = 1, .kept = 2}},
        {SIZE, {.len = UINT32_MAX, .kept = UINT32_MAX, .flags = TAP_UNSEEN}},
        {SIZE, {.len = UINT32_MAX, .kept = TAP_PIECE + 1, .flags = TAP_UNSEEN}},
        {64, {.len = 100, .kept = 100}},
    };
    size_t len = TAP_HEADER + SIZE;
    uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct tap_link l = {.ring = (void *)p, .data = p + TAP_HEADER, .size = SIZE};
    const uint8_t *bytes;
    struct tap_record r;

    ASSERT(p != MAP_FAILED);
    EXPECT_EQ_INT(tap_next(&l, &r, &bytes), 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        memcpy(p + TAP_HEADER, &wrong[i].r, sizeof(r));
        atomic_store(&l.ring->tail, wrong[i].tail);
        if (!EXPECT_EQ_INT(tap_next(&l, &r, &bytes), -1))
            EXPECT_EQ_U64(i, UINT64_MAX); /* which */
    }
    munmap(p, len);
}

/* A listener with a key of its own, for a stream that is asked for with it. */
static int listener(struct end *e, uint64_t key)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, TAP_NAME, (unsigned long long)key);

    ASSERT(bind(fd, (struct sockaddr *)&a,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0);
    ASSERT(listen(fd, 4) == 0);
    atomic_store(&e->s->pub->tap, key);
    return fd;
}

/* With so many descriptors, up to two. */
static void grant(int sock, int memfd, size_t count, const struct tap_grant *g)
{
    const int twice[2] = {memfd, memfd};
    struct iovec v = {(void *)(uintptr_t)g, sizeof(*g)};
    char control[CMSG_SPACE(sizeof(twice))] __attribute__((aligned(8))) = {0};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

    if (count) {
        struct cmsghdr *cm = (void *)control;

        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(cm), twice, count * sizeof(int));
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    ASSERT_EQ_INT(sendmsg(sock, &m, MSG_NOSIGNAL), sizeof(*g));
}

static int memory(size_t len, int seals)
{
    int fd = memfd_create("tap_test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ASSERT(fd >= 0 && ftruncate(fd, (off_t)len) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

TEST_CASE(tap, grants_that_are_none)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const struct tap_grant good = {.magic = TAP_MAGIC, .version = TAP_VERSION, .size = SIZE};
    struct tap_grant g[7] = {good, good, good, good, good, good, good};
    struct end a, b;
    int fds;

    g[0].magic++;
    g[1].version++;
    g[2].size = SIZE / 2;
    g[3].size = SIZE + 1;
    rails(&a, &b);
    fds = descriptors();
    for (int i = 0; i < 7; i++) {
        size_t len = TAP_HEADER + (i == 2 ? SIZE / 2 : i == 3 ? SIZE + 1 : SIZE);
        int l = listener(&a, 100 + (uint64_t)i), sock, memfd;
        struct tap_hello h;

        ASSERT(move(&a, &b));
        sock = accept4(l, NULL, NULL, SOCK_CLOEXEC);
        ASSERT_EQ_INT(recv(sock, &h, sizeof(h), 0), sizeof(h));
        EXPECT(h.magic == TAP_MAGIC && h.version == TAP_VERSION && h.why == TAP_WELCOME);
        EXPECT(h.slot == conn_of(a.s)->s.slot && h.gen == conn_of(a.s)->gen);
        memfd = memory(len, i == 4 ? F_SEAL_GROW : seals);
        grant(sock, memfd, i == 5 ? 0 : i == 6 ? 2 : 1, &g[i]);
        EXPECT_EQ_INT(recv(sock, &h, sizeof(h), 0), 0); /* it hangs up */
        close(sock);
        close(l);
        close(memfd);
        until_it_is_gone(&a, fds);
    }
    /* Nobody listens: a tool that was killed has left its key. */
    atomic_store(&a.s->pub->tap, 99);
    while (atomic_load(&a.s->pub->tap))
        ASSERT(move(&a, &b));
    until_it_is_gone(&a, fds);
    done(&a);
    done(&b);
}

TEST_CASE(tap, no_more_than_there_are_places)
{
    struct tap_link l[TAPS + 1];
    struct end a[TAPS + 1], b[TAPS + 1];

    for (int i = 0; i <= TAPS; i++) {
        rails(&a[i], &b[i]);
        if (i < TAPS)
            attach(&l[i], &a[i], &b[i], SIZE, 0);
    }
    ASSERT(request(&l[TAPS], &a[TAPS], SIZE, 0));
    EXPECT_EQ_INT(until_it_comes(&l[TAPS], &a[TAPS], &b[TAPS]), -1);
    tap_close(&l[TAPS]);
    /* One that is tapped is not tapped again. */
    EXPECT(!request(&l[TAPS], &a[0], SIZE, 0));
    tap_close(&l[TAPS]);
    tap_close(&l[0]);
    while (atomic_load(&a[0].s->pub->tap))
        jobs_done();
    attach(&l[TAPS], &a[TAPS], &b[TAPS], SIZE, 0);
    for (int i = 0; i <= TAPS; i++) {
        done(&a[i]);
        done(&b[i]);
        tap_close(&l[i]);
    }
    jobs_done();
}

/* Everything is plain for good, or this is a child: nothing is left. */
TEST_CASE(tap, ends_for_all)
{
    struct tap_link l;
    struct tap_record r;
    struct end a, b;
    int fds;

    rails(&a, &b);
    fds = descriptors();
    attach(&l, &a, &b, SIZE, 0);
    tap_end_all(RSN_IO_URING);
    next(&l, &r);
    EXPECT(r.kind == TAP_END && r.reason == RSN_IO_URING);
    tap_close(&l);
    until_it_is_gone(&a, fds);
    done(&a);
    done(&b);
}

static void *traffic(void *arg)
{
    struct end *a = arg;
    static uint64_t pos;

    while (round_trip(a, &pos, (size_t)(pos % 997) + 1) && pos < 4000000)
        ;
    return &pos;
}

/* Taps come and go while two threads send and receive at full tilt: each byte that is
 * recorded is right. */
TEST_CASE(tap, comes_and_goes)
{
    struct echo x = {0};
    struct end a;
    pthread_t t[2];
    uint64_t seen = 0;
    void *pos;

    eager();
    pair(&a, &x.e);
    fb_get(a.s); /* its slot stays its own until the last tap has looked */
    pthread_create(&t[0], NULL, echo_main, &x);
    pthread_create(&t[1], NULL, traffic, &a);
    for (int i = 0; i < 30; i++) {
        struct tap_link l;
        struct tap_record r;
        const uint8_t *bytes;
        int is = 0, n = 0;

        if (!EXPECT(request(&l, &a, SIZE, i & 1 ? 0 : 100)))
            break;
        while (is == 0 && a.s->pub->tx < 4000000)
            is = tap_wait(&l, 1);
        for (is = is == 1; is >= 0 && n < 200 && a.s->pub->tx < 4000000;) {
            is = tap_next(&l, &r, &bytes);
            EXPECT(is >= 0);
            if (is == 1 && r.kind == TAP_DATA) {
                EXPECT(check(bytes, r.at, r.kept));
                seen += r.kept;
                n++;
            }
        }
        tap_close(&l);
        /* As the tool finds it when the next one is asked for at once, or later. */
        while (i % 3 && atomic_load(&a.s->pub->tap) && a.s->pub->tx < 4000000)
            sched_yield();
    }
    pthread_join(t[1], &pos);
    EXPECT(*(uint64_t *)pos >= 4000000);
    EXPECT(seen > 1000);
    done(&a);
    pthread_join(t[0], NULL);
    EXPECT(x.good);
    fb_put(a.s);
}
