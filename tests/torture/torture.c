/*
 * torture.c - streams between two processes whose every byte is a function of its place, read and
 * written in every way that there is: blocking and not, threads, poll, select, epoll, peeking,
 * small and large, with half-closes and forks between. A plain program; it is run with the library,
 * whose RAILSOCK_TEST_SWITCH makes the streams change track while it runs.
 *
 *   torture SEED SECONDS PORT       the server is a child; prints what was done, status 1 when
 *                                   bytes were wrong or a stream did not end as it should
 *
 * TORTURE_PACE=MS: writers pause for up to so long between two calls, and forks are few.
 * The streams live for longer and carry less, so that a slow machine spends its time on
 * changes of track.
 *
 * What one connection does follows from SEED and its number, on both ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 6 /* TORTURE_AT_ONCE may say less */, ROOM = 200000, PATIENCE_S = 30 };

static uint64_t seed;
static int port;
static uint32_t pace;
static _Atomic uint64_t moved, streams;
static _Atomic bool failed;

struct rng {
    uint64_t s;
};

static uint32_t rnd(struct rng *r, uint32_t n)
{
    r->s = r->s * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(r->s >> 33) % n;
}

/* One direction of one connection. */
struct half {
    int fd, number;
    bool writes;
    uint64_t total, at; /* bytes */
    struct rng rng;
    unsigned char *buf;
};

static void wrong(const struct half *h, const char *format, ...)
{
    va_list ap;
    char text[200];

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    printf("connection %d, %s, at %llu of %llu: %s\n", h->number, h->writes ? "writing" : "reading",
           (unsigned long long)h->at, (unsigned long long)h->total, text);
    fflush(stdout);
    atomic_store(&failed, true);
}

/* Differs between connections and directions, and has no period that a ring's size divides. */
static unsigned char byte(const struct half *h, uint64_t at)
{
    uint64_t x = (at + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)h->total;

    return (unsigned char)(x >> 29 ^ x >> 47);
}

static size_t some(struct half *h, uint64_t left)
{
    static const uint32_t most[] = {1, 8, 64, 1500, 4096, 65536, ROOM};
    size_t n = 1 + rnd(&h->rng, most[rnd(&h->rng, 7)]);

    return n < left ? n : (size_t)left;
}

/* One call that writes. Bytes, 0 = it would block, -1 = wrong. */
static ssize_t write_some(struct half *h)
{
    size_t n = some(h, h->total - h->at), cut = rnd(&h->rng, (uint32_t)n + 1);
    struct iovec v[2] = {{h->buf, cut}, {h->buf + cut, n - cut}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    ssize_t r;

    for (size_t i = 0; i < n; i++)
        h->buf[i] = byte(h, h->at + i);
    switch (rnd(&h->rng, 4)) {
    case 0:
        r = write(h->fd, h->buf, n);
        break;
    case 1:
        r = writev(h->fd, v, 2);
        break;
    case 2:
        r = sendmsg(h->fd, &m, MSG_NOSIGNAL);
        break;
    default:
        r = send(h->fd, h->buf, n, MSG_NOSIGNAL | (rnd(&h->rng, 8) ? 0 : MSG_DONTWAIT));
    }
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (r <= 0) {
        wrong(h, "write says %zd, %s", r, strerrorname_np(errno));
        return -1;
    }
    h->at += (uint64_t)r;
    atomic_fetch_add(&moved, (uint64_t)r);
    return r;
}

static bool same(struct half *h, ssize_t n, const char *how)
{
    for (ssize_t i = 0; i < n; i++)
        if (h->buf[i] != byte(h, h->at + (uint64_t)i)) {
            wrong(h, "%s: byte %zd of %zd is %02x, not %02x", how, i, n, h->buf[i],
                  byte(h, h->at + (uint64_t)i));
            return false;
        }
    return true;
}

/* One call that reads. Bytes, 0 = it would block, -1 = the end or wrong. */
static ssize_t read_some(struct half *h)
{
    size_t n = some(h, ROOM), cut = rnd(&h->rng, (uint32_t)n + 1);
    struct iovec v[2] = {{h->buf, cut}, {h->buf + cut, n - cut}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    const char *how = "recv";
    ssize_t r;

    switch (rnd(&h->rng, 6)) {
    case 0:
        how = "read";
        r = read(h->fd, h->buf, n);
        break;
    case 1:
        how = "readv";
        r = readv(h->fd, v, 2);
        break;
    case 2:
        how = "recvmsg";
        r = recvmsg(h->fd, &m, 0);
        break;
    case 3:
        how = "recv(MSG_PEEK)";
        r = recv(h->fd, h->buf, n, MSG_PEEK);
        if (r > 0)
            return same(h, r, how) ? r : -1;
        break;
    case 4:
        how = "recv(MSG_WAITALL)";
        r = recv(h->fd, h->buf, n, MSG_WAITALL);
        break;
    default:
        r = recv(h->fd, h->buf, n, rnd(&h->rng, 8) ? 0 : MSG_DONTWAIT);
    }
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (r < 0) {
        wrong(h, "%s says %s", how, strerrorname_np(errno));
        return -1;
    }
    if (r == 0) {
        if (h->at != h->total)
            wrong(h, "%s: the stream ends early", how);
        return -1;
    }
    if (h->at + (uint64_t)r > h->total) {
        wrong(h, "%s: %zd bytes are too many", how, r);
        return -1;
    }
    if (!same(h, r, how))
        return -1;
    h->at += (uint64_t)r;
    return r;
}

/* What a step leaves behind: sometimes a pause, so that the peer meets full and empty buffers. */
static void pause_maybe(struct half *h)
{
    if (!rnd(&h->rng, 60))
        usleep(rnd(&h->rng, 3000));
    if (pace && h->writes)
        usleep(rnd(&h->rng, pace * 1000));
}

/* Waits in one of the ways that there are. False: nothing happened for too long. */
static bool wait_for(struct half *h, int epoll)
{
    short want = h->writes ? POLLOUT : POLLIN;
    struct epoll_event ev;
    int r;

    if (epoll >= 0) {
        r = epoll_wait(epoll, &ev, 1, PATIENCE_S * 1000);
    } else if (rnd(&h->rng, 2) && h->fd < FD_SETSIZE) {
        fd_set set;
        struct timeval tv = {PATIENCE_S, 0};

        FD_ZERO(&set);
        FD_SET(h->fd, &set);
        r = select(h->fd + 1, h->writes ? NULL : &set, h->writes ? &set : NULL, NULL, &tv);
    } else {
        struct pollfd p = {h->fd, want, 0};

        r = poll(&p, 1, PATIENCE_S * 1000);
    }
    if (r == 0)
        wrong(h, "nothing for %d s (%s)", PATIENCE_S, epoll >= 0 ? "epoll" : "poll, select");
    return r != 0;
}

static void *run_half(void *arg)
{
    struct half *h = arg;
    bool wait = rnd(&h->rng, 2);
    int epoll = -1;

    h->buf = malloc(ROOM);
    if (wait && rnd(&h->rng, 2)) {
        uint32_t edge = rnd(&h->rng, 2) ? (uint32_t)EPOLLET : 0u;
        struct epoll_event ev = {.events = (h->writes ? EPOLLOUT : EPOLLIN) | edge};

        epoll = epoll_create1(EPOLL_CLOEXEC);
        epoll_ctl(epoll, EPOLL_CTL_ADD, h->fd, &ev);
    }
    while (!atomic_load(&failed) && !(h->writes && h->at == h->total)) {
        ssize_t r = h->writes ? write_some(h) : read_some(h);

        if (r < 0)
            break;
        if (r == 0 && wait && !wait_for(h, epoll))
            break;
        if (r == 0 && !wait)
            usleep(200);
        pause_maybe(h);
    }
    if (h->writes)
        shutdown(h->fd, SHUT_WR);
    if (epoll >= 0)
        close(epoll);
    free(h->buf);
    return NULL;
}

/* A blocking socket with time-outs, so that nothing hangs for ever, or a non-blocking one. */
static uint64_t length(struct rng *r)
{
    static const uint32_t most[] = {100, 200000, 8000000, 60000000};

    return rnd(r, most[rnd(r, pace ? 3 : 4)]);
}

static void one_connection(int fd, int number, bool client)
{
    struct rng r = {seed * 1000003 + (uint64_t)number};
    uint64_t up = length(&r);
    /* Where one direction has ended the other one stays on TCP. */
    uint64_t down = pace ? up + 1 : length(&r);
    struct half h[2] = {{.fd = fd, .number = number, .writes = true, .total = client ? up : down},
                        {.fd = fd, .number = number, .total = client ? down : up}};
    struct timeval patience = {PATIENCE_S, 0};
    pthread_t t;
    int on = 1;

    h[0].rng.s = r.s * 3 + client;
    h[1].rng.s = r.s * 5 + client;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (rnd(&r, 2))
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (rnd(&r, 2))
        fcntl(fd, F_SETFL, O_NONBLOCK);
    pthread_create(&t, NULL, run_half, &h[0]);
    run_half(&h[1]);
    pthread_join(t, NULL);
    if (!atomic_load(&failed) && h[1].at != h[1].total)
        wrong(&h[1], "not finished");
    close(fd);
    atomic_fetch_add(&streams, 1);
}

/* ---- both processes */

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg, number;

    if (recv(fd, &number, sizeof(number), MSG_WAITALL) == sizeof(number))
        one_connection(fd, number, false);
    else
        close(fd);
    return NULL;
}

static void server(int l)
{
    unsigned n = 0;

    for (;;) {
        int fd = accept4(l, NULL, NULL, ++n % 4 ? SOCK_CLOEXEC : 0);
        pthread_t t;

        if (fd < 0)
            break;
        pthread_create(&t, NULL, serve, (void *)(intptr_t)fd);
        pthread_detach(t);
    }
    _exit(0);
}

static time_t until;

static void *client(void *arg)
{
    static _Atomic int numbers;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = *(const in_addr_t *)arg};

    while (time(NULL) < until && !atomic_load(&failed)) {
        int number = atomic_fetch_add(&numbers, 1);
        int fd = socket(AF_INET, SOCK_STREAM | (number % 4 ? SOCK_CLOEXEC : 0), 0);

        if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
            send(fd, &number, sizeof(number), 0) != sizeof(number)) {
            printf("connection %d: connect: %s\n", number, strerrorname_np(errno));
            atomic_store(&failed, true);
            break;
        }
        one_connection(fd, number, true);
    }
    return NULL;
}

/* Children that touch nothing, as for a snapshot, and others that run a program. */
static void *forker(void *arg)
{
    struct rng r = {seed + 77};

    (void)arg;
    while (time(NULL) < until && !atomic_load(&failed)) {
        pid_t pid = fork();

        if (pid == 0) {
            usleep(rnd(&r, 20000));
            if (!rnd(&r, 8)) /* what it could use stays on TCP from then on */
                execl("/bin/true", "true", NULL);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
        usleep((pace ? 2000000 : 20000) + rnd(&r, 100000));
    }
    return NULL;
}

static int listen_here(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(l, (struct sockaddr *)&any, sizeof(any)) < 0 || listen(l, 64) < 0) {
        printf("port %d: %s\n", port, strerrorname_np(errno));
        exit(1);
    }
    return l;
}

int main(int argc, char **argv)
{
    in_addr_t to = htonl(INADDR_LOOPBACK);
    const char *few = getenv("TORTURE_AT_ONCE"), *slow = getenv("TORTURE_PACE");
    int at_once = few ? atoi(few) : AT_ONCE;
    pthread_t t[AT_ONCE], f;
    pid_t pid = 0;

    if (argc < 4) {
        fprintf(stderr, "usage: torture SEED SECONDS PORT [server | HOST]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    pace = slow ? (uint32_t)atoi(slow) : 0;
    seed = strtoull(argv[1], NULL, 10);
    until = time(NULL) + atoi(argv[2]);
    port = atoi(argv[3]);
    if (argc > 4 && strcmp(argv[4], "server") == 0)
        server(listen_here());
    if (argc > 4) {
        to = inet_addr(argv[4]);
    } else {
        int l = listen_here();

        pid = fork();
        if (pid == 0)
            server(l);
        close(l);
    }
    at_once = at_once < AT_ONCE ? at_once : AT_ONCE;
    for (int i = 0; i < at_once; i++)
        pthread_create(&t[i], NULL, client, &to);
    pthread_create(&f, NULL, forker, NULL);
    for (int i = 0; i < at_once; i++)
        pthread_join(t[i], NULL);
    pthread_join(f, NULL);
    printf("%llu streams, %llu MB written here\n", (unsigned long long)atomic_load(&streams),
           (unsigned long long)atomic_load(&moved) >> 20);
    fflush(stdout);
    /* Whoever asks how often the streams have switched does so now. */
    if (!atomic_load(&failed) && getenv("TORTURE_WAIT"))
        (void)!read(0, &argc, 1);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return atomic_load(&failed);
}
