/*
 * shm_rdv_test.c - the shm rendezvous over real TCP connections on the loopback: who is
 * found, who is refused, and that nothing is left behind.
 */
#include "tests/shim/shim.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/shard.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_wire.h"
#include "rsock/sys.h"

static const struct rsk_wire *const w = &rsk_shm_wire;

/* ---- a TCP connection */

struct tcp {
    int listener, client, server;
    struct rsk_tuple t;
};

static bool tcp_new(struct tcp *c, int family)
{
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6}, local6 = {0};
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}},
                       local4 = {0};
    socklen_t len = sizeof a6, len4 = sizeof local4, len6 = sizeof local6;

    memset(c, 0, sizeof *c);
    /* A dual-stack listener for both families, as most servers have. */
    c->listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->listener < 0 || bind(c->listener, (struct sockaddr *)&a6, sizeof a6) ||
        listen(c->listener, 8) || getsockname(c->listener, (struct sockaddr *)&a6, &len))
        return false;
    c->client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a4.sin_port = a6.sin6_port;
    a6.sin6_addr = in6addr_loopback;
    c->t.family = (uint8_t)family;
    c->t.dst_port = ntohs(a6.sin6_port);
    if (family == AF_INET) {
        if (connect(c->client, (struct sockaddr *)&a4, sizeof a4) ||
            getsockname(c->client, (struct sockaddr *)&local4, &len4))
            return false;
        c->t.src_port = ntohs(local4.sin_port);
        memcpy(c->t.src, &local4.sin_addr, 4);
        memcpy(c->t.dst, &a4.sin_addr, 4);
    } else {
        if (connect(c->client, (struct sockaddr *)&a6, sizeof a6) ||
            getsockname(c->client, (struct sockaddr *)&local6, &len6))
            return false;
        c->t.src_port = ntohs(local6.sin6_port);
        memcpy(c->t.src, &local6.sin6_addr, 16);
        memcpy(c->t.dst, &a6.sin6_addr, 16);
    }
    c->server = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
    return c->server >= 0;
}

static void tcp_free(struct tcp *c)
{
    close(c->server);
    close(c->client);
    close(c->listener);
}

/* ---- this process as an asker and as one that is asked */

struct end {
    struct rsk_rail *rail;
    _Atomic int reason;
    sem_t heard, ctl;
};

static struct end asker, asked;
static bool drop_at_once;
static _Atomic int find_reason;
static struct rsk_shard *find_shard;

static void notify(struct rsk_rail *r, unsigned events)
{
    struct end *e = r->owner;

    if (events & RSK_CTL)
        sem_post(&e->ctl);
}

static void hear(struct end *e, struct rsk_rail *rail, int reason)
{
    EXPECT(rsk_loop_is_self());
    if (rail && drop_at_once) {
        w->destroy(rail);
        rail = NULL;
    }
    e->rail = rail;
    e->reason = reason;
    if (rail) {
        rail->owner = e;
        rail->notify = notify;
    }
    sem_post(&e->heard);
}

static void done(void *owner, struct rsk_rail *rail, int reason)
{
    hear(owner, rail, reason);
}

static int find(const struct rsk_tuple *t, struct rsk_shard **shard, size_t *ring, void **owner)
{
    (void)t;
    *shard = find_shard;
    *ring = 0;
    *owner = &asked;
    return find_reason;
}

static void accepted(void *owner, struct rsk_rail *rail)
{
    hear(owner, rail, 0);
}

static void refused(void *owner, int reason)
{
    hear(owner, NULL, reason);
}

static const struct rsk_accept_ops ops = {.find = find, .accepted = accepted, .refused = refused};

static bool soon(sem_t *s)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += 10;
    return sem_timedwait(s, &ts) == 0;
}

struct job {
    const struct rsk_tuple *t;
    struct rsk_shard *shard;
    struct rsk_rail *rail;
    int result;
    sem_t done;
};

static void do_listen(void *arg)
{
    struct job *j = arg;

    j->result = w->listen(AF_INET, j->t->dst_port, &ops);
    sem_post(&j->done);
}

static void do_connect(void *arg)
{
    struct job *j = arg;

    j->result = w->connect(j->t, j->shard, 65536, &asker, done);
    sem_post(&j->done);
}

static void do_destroy(void *arg)
{
    struct job *j = arg;

    if (j->rail)
        w->destroy(j->rail);
    sem_post(&j->done);
}

static int on_thread(void (*fn)(void *), struct job *j)
{
    sem_init(&j->done, 0, 0);
    j->result = -1;
    ASSERT_EQ_INT(rsk_loop_post(fn, j), 0);
    ASSERT(soon(&j->done));
    return j->result;
}

/* What the thread had begun is done: it hangs up after it has told the owner. */
static void settle(void)
{
    struct job j = {.rail = NULL};

    on_thread(do_destroy, &j);
}

static void destroy(struct end *e)
{
    struct job j = {.rail = e->rail};

    if (e->rail)
        on_thread(do_destroy, &j);
    e->rail = NULL;
}

static void begin(void)
{
    struct end *e[2] = {&asker, &asked};

    find_reason = 0;
    find_shard = NULL;
    for (int i = 0; i < 2; i++) {
        e[i]->rail = NULL;
        e[i]->reason = -1;
        sem_init(&e[i]->heard, 0, 0);
        sem_init(&e[i]->ctl, 0, 0);
    }
    ASSERT_EQ_INT(rsk_loop_start(true), 0);
    ASSERT_EQ_INT(w->usable(), 0);
}

/* The reason that connect() ended with. */
static int try_connect(const struct rsk_tuple *t, struct rsk_shard *shard)
{
    struct job j = {.t = t, .shard = shard};

    if (!EXPECT_EQ_INT(on_thread(do_connect, &j), 0) || !EXPECT(soon(&asker.heard)))
        return -1;
    return asker.reason;
}

static void send_all(struct rsk_rail *r, const char *text)
{
    struct iovec v[2];

    w->tx_start(r, 5);
    EXPECT_EQ_INT(w->tx_open(r), 0);
    if (!EXPECT(w->tx_space(r, v) >= strlen(text)))
        return;
    memcpy(v[0].iov_base, text, strlen(text));
    EXPECT_EQ_INT(w->tx_put(r, strlen(text)), 0);
}

static void receive_all(struct rsk_rail *r, const char *text)
{
    struct iovec v[2];
    uint64_t until = sys_now() + 5000000000u;

    w->rx_start(r, 5);
    while (w->rx_peek(r, v) < strlen(text) && sys_now() < until)
        usleep(100);
    if (EXPECT_EQ_INT(w->rx_peek(r, v), strlen(text)))
        EXPECT_MEMEQ(v[0].iov_base, text, strlen(text));
    w->rx_consume(r, v[0].iov_len);
}

static void talk(struct rsk_rail *a, struct rsk_rail *b)
{
    struct rsk_msg m = {.type = 9, .a = 42}, got = {0};

    send_all(a, "from a to b");
    receive_all(b, "from a to b");
    send_all(b, "and back");
    receive_all(a, "and back");
    EXPECT_EQ_INT(w->ctl_send(a, &m), 0);
    EXPECT(soon(&asked.ctl)); /* through the common shard and the progress thread */
    EXPECT_EQ_INT(w->ctl_recv(b, &got), 1);
    EXPECT_EQ_U64(got.a, 42);
    EXPECT_EQ_INT(w->ctl_send(b, &m), 0);
    EXPECT(soon(&asker.ctl));
    EXPECT_EQ_INT(w->ctl_recv(a, &got), 1);
}

/* ---- one process */

static void in_one_process(int family)
{
    struct tcp c;
    struct job j;

    begin();
    ASSERT(tcp_new(&c, family));
    j.t = &c.t;
    ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
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
    ASSERT(tcp_new(&c, AF_INET));
    j.t = &c.t;
    ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
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

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int count_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    while (fgets(line, sizeof line, f))
        n += strstr(line, "memfd:railsock") != NULL;
    fclose(f);
    return n;
}

TEST_CASE(shm_rdv, nothing_is_left_behind)
{
    int fds = 0, maps = 0;
    struct tcp c;
    struct job j;

    begin();
    ASSERT(tcp_new(&c, AF_INET));
    j.t = &c.t;
    ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
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
    ASSERT(tcp_new(&c, AF_INET));
    j.t = &c.t;
    ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
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
        ASSERT(tcp_new(&c[i], AF_INET));
        j.t = &c[i].t;
        ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
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
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_NOT_YET);
    find_reason = 250; /* a later version's */
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_PEER_REFUSED);
    EXPECT_EQ_INT(asked.reason, -1);
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
    socklen_t len = shm_rdv_name(&ss, (uint32_t)geteuid(), port, (uint32_t)getpid());
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

TEST_CASE(shm_rdv, strangers_are_refused)
{
    struct shm_request q = {.head = {.magic = SHM_MAGIC, .version = SHM_VERSION, .len = sizeof q},
                            .ring = 65536};
    struct shm_request bad;
    int good = shm_memfd_new(65536), open = sys_memfd_create("x", MFD_ALLOW_SEALING);
    int page = shm_sealed_memfd("page", 65536), event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int blocking = eventfd(0, EFD_CLOEXEC), null = sys_open("/dev/null", O_RDWR | O_CLOEXEC, 0);
    struct tcp c, other;
    int fds, sock;
    struct job j;

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
    bad.head.version = 2;
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
    int mine[] = {good, open, page, event, blocking, null};
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        close(mine[i]);
}

/* ---- other processes */

struct child {
    pid_t pid;
    int ready; /* readable when it listens */
};

/* A child that answers requests for this connection: with a reason, or with a rail that sends
 * back what it receives. */
static struct child child_new(const struct tcp *c, int reason, uid_t uid)
{
    struct child ch;
    int p[2];

    ASSERT_EQ_INT(pipe2(p, O_CLOEXEC), 0);
    ch.ready = p[0];
    ch.pid = fork();
    ASSERT(ch.pid >= 0);
    if (ch.pid == 0) {
        struct job j = {.t = &c->t};

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rsk_loop_after_fork_child();
        if (uid && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
            _exit(77);
        begin();
        /* A connection whose accepting end belongs to this user. */
        if (uid && accept4(c->listener, NULL, NULL, SOCK_CLOEXEC) < 0)
            _exit(5);
        find_reason = reason;
        on_thread(do_listen, &j);
        if (write(p[1], "x", 1) != 1 || !soon(&asked.heard) || !asked.rail)
            _exit(3);
        receive_all(asked.rail, "hello");
        send_all(asked.rail, "HELLO");
        pause();
        _exit(4);
    }
    close(p[1]);
    return ch;
}

static bool child_ready(struct child *c)
{
    char x;

    return read(c->ready, &x, 1) == 1;
}

static int child_end(struct child *c)
{
    int status = -1;

    close(c->ready);
    kill(c->pid, SIGKILL);
    waitpid(c->pid, &status, 0);
    return status;
}

/* Processes are forked before this one has threads: the thread sanitizer wants it so. */
static void with_children(int n, const int *reasons, int expected)
{
    struct child ch[3];
    struct tcp c;

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    for (int i = 0; i < n; i++)
        ch[i] = child_new(&c, reasons[i], 0);
    for (int i = 0; i < n; i++)
        ASSERT(child_ready(&ch[i]));
    begin();
    if (EXPECT_EQ_INT(try_connect(&c.t, NULL), expected) && !expected) {
        EXPECT_EQ_INT(asker.rail->peer_pid, ch[n - 1].pid);
        send_all(asker.rail, "hello");
        receive_all(asker.rail, "HELLO");
        /* The peer dies: what it wrote is there, nothing else happens. */
        child_end(&ch[n - 1]);
        EXPECT_EQ_INT(asker.rail->failed, 0);
        n--;
    }
    destroy(&asker);
    for (int i = 0; i < n; i++)
        child_end(&ch[i]);
    tcp_free(&c);
}

TEST_CASE(shm_rdv_processes, another_process)
{
    with_children(1, (int[]){0}, 0);
}

TEST_CASE(shm_rdv_processes, the_right_one_of_several)
{
    with_children(3, (int[]){RSN_NOT_MINE, RSN_NOT_MINE, 0}, 0);
}

TEST_CASE(shm_rdv_processes, nobody_owns_it)
{
    with_children(2, (int[]){RSN_NOT_MINE, RSN_NOT_MINE}, RSN_NOT_MINE);
}

TEST_CASE(shm_rdv_processes, one_that_died_is_nobody)
{
    struct child ch;
    struct tcp c;

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    ch = child_new(&c, 0, 0);
    ASSERT(child_ready(&ch));
    child_end(&ch);
    begin();
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_NO_PEER_LIB);
    tcp_free(&c);
}

TEST_CASE(shm_rdv_processes, one_that_hangs_costs_the_deadline)
{
    struct child ch;
    struct tcp c;
    uint64_t t0;

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    ch = child_new(&c, 0, 0);
    ASSERT(child_ready(&ch));
    kill(ch.pid, SIGSTOP);
    begin();
    t0 = sys_now();
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_RDV_TIMEOUT);
    EXPECT(sys_now() - t0 < 4000000000u);
    child_end(&ch);
    tcp_free(&c);
}

TEST_CASE(shm_rdv_processes, across_users)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}},
                       local = {0};
    socklen_t len = sizeof local;
    struct child ch;
    struct tcp c;
    int fd;

    if (geteuid() != 0)
        SKIP("only root can be another user");
    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    a.sin_port = htons(c.t.dst_port);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ch = child_new(&c, 0, 33);
    ASSERT_EQ_INT(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    getsockname(fd, (struct sockaddr *)&local, &len);
    ASSERT(child_ready(&ch));
    begin();
    /* Its rendezvous has the other user's name, and this connection's end is ours. */
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_NO_PEER_LIB);
    c.t.src_port = ntohs(local.sin_port);
    if (EXPECT_EQ_INT(try_connect(&c.t, NULL), 0)) {
        EXPECT_EQ_INT(asker.rail->peer_pid, ch.pid);
        send_all(asker.rail, "hello");
        receive_all(asker.rail, "HELLO");
    }
    destroy(&asker);
    child_end(&ch);
    close(fd);
    tcp_free(&c);
}

TEST_CASE(shm_rdv_processes, a_forked_child_keeps_nothing)
{
    int status = -1;
    struct tcp c;
    struct job j;
    pid_t pid;

    begin();
    ASSERT(tcp_new(&c, AF_INET));
    j.t = &c.t;
    ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
    ASSERT_EQ_INT(try_connect(&c.t, NULL), 0);
    ASSERT(soon(&asked.heard));
    pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        struct dirent *e;
        DIR *d;

        rsk_loop_after_fork_child();
        EXPECT_EQ_INT(count_maps(), 0);
        d = opendir("/proc/self/fd");
        while ((e = readdir(d)))
            EXPECT(atoi(e->d_name) < 512);
        closedir(d);
        _exit(0);
    }
    ASSERT_EQ_INT(waitpid(pid, &status, 0), pid);
    EXPECT_EQ_INT(status, 0);
    talk(asker.rail, asked.rail);
    destroy(&asker);
    destroy(&asked);
    tcp_free(&c);
    rsk_loop_stop();
}
