/*
 * shm_rdv_test.c - the shm rendezvous within one process: who is found, who is refused, and that
 * nothing is left behind.
 */
#include "tests/shim/shim.h"
#include "tests/unit/numbers.h"
#include "tests/unit/shm_rdv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <sys/mman.h>

#include "config/reason.h"
#include "rsock/own.h"
#include "rsock/shard.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_wire.h"
#include "rsock/sys.h"

/* ---- this process as an asker and as one that is asked */

/* What the thread had begun is done: it hangs up after it has told the owner. */
static void settle(void)
{
    struct job j = {.rail = NULL};

    on_thread(do_destroy, &j);
}

/* A connection whose accepting end can be asked for a rail; j is for what follows. */
static void reachable(struct tcp *c, int family, struct job *j)
{
    ASSERT(tcp_new(c, family));
    j->t = &c->t;
    ASSERT_EQ_INT(on_thread(do_listen, j), 0);
}

/* ---- one process */

static void in_one_process(int family)
{
    struct tcp c;
    struct job j;

    begin();
    reachable(&c, family, &j);
    ASSERT_EQ_INT(on_thread(do_listen, &j), 0); /* idempotent */
    ASSERT_EQ_INT(try_connect(&c.t, NULL), 0);
    ASSERT(soon(&asked.heard));
    ASSERT_EQ_INT(asked.reason, 0);
    EXPECT_EQ_INT(asker.rail->rx_size, 65536);
    EXPECT_EQ_INT(asker.rail->peer_pid, getpid());
    EXPECT_EQ_INT(asked.rail->peer_pid, getpid());
    EXPECT(asker.rail->shard == rsk_shard_common());
    talk(asker.rail, asked.rail);
    destroy(&asker);
    destroy(&asked);
    tcp_free(&c);
}

TEST_CASE(shm_rdv, one_process_ipv4)
{
    in_one_process(AF_INET);
}

TEST_CASE(shm_rdv, one_process_ipv6)
{
    in_one_process(AF_INET6);
}

static int own_fds[64], n_own_fds;

static void own_fd(void *arg, int fd)
{
    (void)arg;
    own_fds[n_own_fds++] = fd;
}

TEST_CASE(shm_rdv, data_news_goes_to_the_chosen_shard)
{
    struct rsk_shard *mine = rsk_shard_new(own_fd, NULL), *yours = rsk_shard_new(own_fd, NULL);
    struct pollfd pfd = {.events = POLLIN};
    struct tcp c;
    struct job j;

    begin();
    n_own_fds = 0;
    find_shard = yours;
    reachable(&c, AF_INET, &j);
    ASSERT_EQ_INT(try_connect(&c.t, mine), 0);
    ASSERT(soon(&asked.heard));
    ASSERT(asked.rail && asker.rail);
    EXPECT(asker.rail->shard == mine);
    EXPECT(asked.rail->shard == yours);
    EXPECT_EQ_INT(n_own_fds, 2);
    talk(asker.rail, asked.rail);
    /* asked was added last, so its descriptor is the second */
    while (rsk_shard_drain(yours))
        ;
    EXPECT_EQ_INT(w->arm(asked.rail, RSK_RX, RSK_BY_SHARD), 0);
    EXPECT(!rsk_shard_arm(yours));
    pfd.fd = own_fds[1];
    EXPECT_EQ_INT(poll(&pfd, 1, 0), 0);
    send_all(asker.rail, "x");
    EXPECT_EQ_INT(poll(&pfd, 1, 1000), 1);
    rsk_shard_disarm(yours);
    destroy(&asker);
    destroy(&asked);
    rsk_shard_put(mine);
    rsk_shard_put(yours);
    tcp_free(&c);
}

TEST_CASE(shm_rdv, nothing_is_left_behind)
{
    int fds = 0, maps = 0;
    struct tcp c;
    struct job j;

    begin();
    reachable(&c, AF_INET, &j);
    for (int i = 0; i < 30; i++) {
        find_reason = i % 3 == 1 ? RSN_NOT_MINE : i % 3 == 2 ? RSN_BUDGET : 0;
        ASSERT_EQ_INT(try_connect(&c.t, NULL), find_reason);
        if (!find_reason)
            ASSERT(soon(&asked.heard));
        destroy(&asker);
        destroy(&asked);
        if (i == 5) {
            fds = count_fds();
            maps = count_maps();
        }
    }
    EXPECT_EQ_INT(count_fds(), fds);
    EXPECT_EQ_INT(count_maps(), maps);
    tcp_free(&c);
}

TEST_CASE(shm_rdv, destroyed_as_soon_as_it_is_handed_over)
{
    struct tcp c;
    struct job j;

    begin();
    reachable(&c, AF_INET, &j);
    drop_at_once = true;
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ_INT(try_connect(&c.t, NULL), 0);
        EXPECT(soon(&asked.heard));
    }
    settle();
    drop_at_once = false;
    tcp_free(&c);
}

TEST_CASE(shm_rdv, two_descriptors_for_many_rails)
{
    struct rsk_rail *rails[2][20];
    struct tcp c[20];
    int before = 0;
    struct job j;

    begin();
    for (int i = 0; i < 20; i++) {
        reachable(&c[i], AF_INET, &j);
    }
    for (int i = 0; i < 20; i++) {
        ASSERT_EQ_INT(try_connect(&c[i].t, NULL), 0);
        ASSERT(soon(&asked.heard));
        rails[0][i] = asker.rail;
        rails[1][i] = asked.rail;
        settle();
        if (i == 0)
            before = count_fds();
    }
    EXPECT_EQ_INT(count_fds(), before);
    for (int i = 0; i < 20; i++) {
        asker.rail = rails[0][i];
        asked.rail = rails[1][i];
        destroy(&asker);
        destroy(&asked);
        tcp_free(&c[i]);
    }
}

/* ---- refusals */

TEST_CASE(shm_rdv, refusals_have_their_reasons)
{
    struct rsk_tuple other;
    struct tcp c;
    struct job j;
    int reason;

    begin();
    ASSERT(tcp_new(&c, AF_INET));
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_NO_PEER_LIB);
    other = c.t;
    other.src_port ^= 1;
    EXPECT_EQ_INT(try_connect(&other, NULL), RSN_OTHER_HOST);
    other = c.t;
    memcpy(other.dst, (uint8_t[]){192, 0, 2, 1}, 4);
    EXPECT_EQ_INT(try_connect(&other, NULL), RSN_OTHER_HOST);
    j.t = &c.t;
    ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
    find_reason = RSN_NOT_YET;
    /* That there was nobody is remembered for a moment. */
    while ((reason = try_connect(&c.t, NULL)) == RSN_NO_PEER_LIB)
        sched_yield();
    EXPECT_EQ_INT(reason, RSN_NOT_YET);
    find_reason = 250; /* a later version's */
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_PEER_REFUSED);
    EXPECT_EQ_INT(asked.reason, -1);
    tcp_free(&c);
}

/* An application with many descriptors would get a number that is closed, and taken for ours, next,
 * and could not close it. */
TEST_CASE(shm_rdv, what_is_noted_is_open)
{
    struct tcp c;

    begin();
    ASSERT(tcp_new(&c, AF_INET));
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_NO_PEER_LIB);
    settle();
    for (int fd = rsk_own_next(0); fd >= 0; fd = rsk_own_next(fd + 1))
        EXPECT(fcntl(fd, F_GETFD) >= 0);
    tcp_free(&c);
}

TEST_CASE(shm_rdv, not_accepted_yet)
{
    struct tcp c, d;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}},
                       local = {0};
    socklen_t len = sizeof local;
    int fd;

    begin();
    ASSERT(tcp_new(&c, AF_INET));
    d = c;
    a.sin_port = htons(c.t.dst_port);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ_INT(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    getsockname(fd, (struct sockaddr *)&local, &len);
    d.t.src_port = ntohs(local.sin_port);
    EXPECT_EQ_INT(try_connect(&d.t, NULL), RSN_NOT_YET);
    close(fd);
    tcp_free(&c);
}

/* Connects to our own rendezvous as a stranger would. */
static int stranger(uint16_t port)
{
    struct sockaddr_storage ss;
    socklen_t len = shm_rdv_name(&ss, (uint32_t)geteuid(), port, (uint32_t)getpid(), 0);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&ss, len)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int reply_reason(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    struct shm_reply p = {0};

    if (poll(&pfd, 1, 5000) != 1 || recv(fd, &p, sizeof p, 0) < (ssize_t)sizeof p.head)
        return -1;
    return p.head.magic == SHM_MAGIC ? (int)p.head.reason : -2;
}

static int ask_as_stranger(const struct shm_request *q, size_t len, int memfd, int page, int event)
{
    struct shm_fds fds = {.fd = {memfd, page, event}, .n = memfd < 0 ? 0 : 3};
    int sock = stranger(q->tuple.dst_port), reason;

    if (sock < 0 || shm_msg_send(sock, q, len, &fds))
        return -3;
    reason = reply_reason(sock);
    close(sock);
    return reason;
}

/* A peer that ends, or whose deadline has passed, has broken nothing. */
TEST_CASE(shm_rdv, one_that_goes_before_the_answer)
{
    struct shm_request q = {.head = {.magic = SHM_MAGIC, .version = SHM_VERSION, .len = sizeof q},
                            .ring = 65536};
    int memfd = shm_memfd_new(65536), page = shm_sealed_memfd("page", 65536), sock;
    int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct shm_fds fds = {.fd = {memfd, page, event}, .n = 3};
    struct tcp c;
    struct job j;

    begin();
    reachable(&c, AF_INET, &j);
    q.tuple = c.t;
    sock = stranger(c.t.dst_port);
    ASSERT(sock >= 0);
    ASSERT_EQ_INT(shm_msg_send(sock, &q, sizeof q, &fds), 0);
    ASSERT_EQ_INT(poll(&(struct pollfd){.fd = sock, .events = POLLIN}, 1, 5000), 1);
    close(sock); /* with the reply unread */
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(asked.reason, RSN_NO_PEER_LIB);
    close(memfd);
    close(page);
    close(event);
    tcp_free(&c);
}

/* An end of a stream whose other end another process has made. */
static int made_by_another(void)
{
    int pair[2], way[2], fd = -1;
    struct shm_fds got;
    pid_t pid;

    ASSERT_EQ_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, way), 0);
    pid = fork();
    if (pid == 0) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0)
            shm_msg_send(way[1], "x", 1, &(struct shm_fds){.fd = {pair[1]}, .n = 1});
        _exit(0);
    }
    ASSERT(pid > 0 && waitpid(pid, NULL, 0) == pid);
    if (shm_msg_recv(way[0], &(char){0}, 1, &got) == 1 && got.n == 1)
        fd = shm_fds_take(&got, 0);
    close(way[0]);
    close(way[1]);
    return fd;
}

TEST_CASE(shm_rdv, strangers_are_refused)
{
    int stream[2], datagram[2], foreign = made_by_another();
    struct shm_request q = {.head = {.magic = SHM_MAGIC, .version = SHM_VERSION, .len = sizeof q},
                            .ring = 65536};
    struct shm_request bad;
    int good = shm_memfd_new(65536), open = sys_memfd_create("x", MFD_ALLOW_SEALING);
    int page = shm_sealed_memfd("page", 65536), event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int blocking = eventfd(0, EFD_CLOEXEC), null = sys_open("/dev/null", O_RDWR | O_CLOEXEC, 0);
    struct tcp c, other;
    int fds, sock;
    struct job j;

    ASSERT(foreign >= 0);
    ASSERT_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream), 0);
    ASSERT_EQ_INT(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, datagram), 0);
    begin();
    ASSERT(tcp_new(&c, AF_INET));
    ASSERT(tcp_new(&other, AF_INET));
    j.t = &c.t;
    ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
    ASSERT_EQ_INT(sys_ftruncate(open, SHM_HEADER + 2 * 65536), 0);
    q.tuple = c.t;
    /* The first one makes our bell for this uid, which stays. */
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, good, page, event), 0);
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(asked.reason, RSN_NO_PEER_LIB); /* hung up without a confirmation */
    fds = count_fds();

    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, open, page, event), RSN_PEER_PROTOCOL);
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, page, page, event), RSN_PEER_PROTOCOL);
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, -1, -1, -1), RSN_PEER_PROTOCOL);
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q - 1, good, page, event), RSN_PEER_PROTOCOL);
    EXPECT_EQ_INT(ask_as_stranger(&q, 3, good, page, event), RSN_PEER_PROTOCOL);
    bad = q;
    bad.head.version = SHM_VERSION + 1;
    EXPECT_EQ_INT(ask_as_stranger(&bad, sizeof bad, good, page, event), RSN_VERSION);
    bad = q;
    bad.head.magic++;
    EXPECT_EQ_INT(ask_as_stranger(&bad, sizeof bad, good, page, event), RSN_PEER_PROTOCOL);
    bad = q;
    bad.ring = 1u << 31;
    EXPECT_EQ_INT(ask_as_stranger(&bad, sizeof bad, good, page, event), RSN_PEER_PROTOCOL);
    bad = q;
    bad.tuple.src_port ^= 1;
    EXPECT_EQ_INT(ask_as_stranger(&bad, sizeof bad, good, page, event), RSN_UID);
    bad = q;
    bad.tuple.family = 77;
    EXPECT_EQ_INT(ask_as_stranger(&bad, sizeof bad, good, page, event), RSN_PEER_PROTOCOL);
    EXPECT_EQ_INT(asked.reason, RSN_NO_PEER_LIB); /* the owner was not bothered */

    bad = q;
    bad.data_slot = 4096;
    EXPECT_EQ_INT(ask_as_stranger(&bad, sizeof bad, good, page, event), RSN_PEER_PROTOCOL);
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, good, page, null), RSN_PEER_PROTOCOL);
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, good, page, blocking), RSN_PEER_PROTOCOL);
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, good, page, foreign), RSN_PEER_PROTOCOL);
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, good, page, datagram[0]), RSN_PEER_PROTOCOL);
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, good, page, other.client), RSN_PEER_PROTOCOL);
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, good, page, stream[0]), 0);
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(asked.reason, RSN_NO_PEER_LIB);
    EXPECT_EQ_INT(ask_as_stranger(&q, sizeof q, good, good, event), RSN_PEER_PROTOCOL);
    ASSERT(soon(&asked.heard));
    EXPECT_EQ_INT(asked.reason, RSN_PEER_PROTOCOL);

    /* One that says nothing is thrown out in time. */
    sock = stranger(c.t.dst_port);
    ASSERT(sock >= 0);
    EXPECT_EQ_INT(poll(&(struct pollfd){.fd = sock, .events = POLLIN}, 1, 6000), 1);
    close(sock);
    EXPECT_EQ_INT(count_fds(), fds);

    /* The rendezvous still works. */
    EXPECT_EQ_INT(try_connect(&c.t, NULL), 0);
    ASSERT(soon(&asked.heard));
    destroy(&asker);
    destroy(&asked);
    tcp_free(&c);
    tcp_free(&other);
    int mine[] = {good, open,      page,      event,       blocking,
                  null, stream[0], stream[1], datagram[0], datagram[1]};
    rsk_own_close(foreign);
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        close(mine[i]);
}
