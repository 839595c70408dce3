/*
 * stream.c - checked streams for fault tests: every byte is a function of its place, and who
 * measures writes down when nothing came, and which way the bytes took. A plain program, run
 * with the library.
 *
 *   stream PORT KINDS         measures: accepts one connection of each kind, until SIGTERM
 *   stream PORT KINDS HOST    the other end
 *
 * KINDS are letters:
 *   p   64 bytes to the other end and back, again and again
 *   d   bytes from the other end, for as long as the measuring end wants
 *   u   bytes to the other end
 *
 * Output of the measuring end, times are CLOCK_REALTIME:
 *   track K TIME tcp|rail     bytes came this way for the first time since they came the other way;
 *                             known from the kernel's own count of what the TCP connection received
 *   gap K TIME MS             nothing came for so long (if longer than GAP_MS)
 * Output of both ends, one line for each connection:
 *   end K READ WRITTEN HOW TRACK   HOW is `ok`, `eof` (it ended unasked), or an error's name;
 *                                  TRACK is how the last bytes came
 *   wrong K ...               a byte that is not what it should be, or counts that differ
 * Status 1 after a `wrong`, 0 otherwise.
 *
 * STREAM_COUNTS names a file that holds, also after a SIGKILL, how many bytes each connection has
 * written: 8 bytes each.
 *
 * An orderly end: the reader asks for it by one byte (d), the writer half-closes, the reader
 * answers with the number of bytes that it has read, and the writer compares.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { KINDS = 8, PING = 64, PIECE = 8192, GAP_MS = 50, WINDOW_MS = 100, PAUSE_US = 5000 };

static _Atomic bool stop, bad;
static sem_t stops; /* can be taken once it is told to stop */
static bool measures;

struct conn {
    int fd;
    char kind;
    uint64_t in, out; /* bytes read and written */
    uint64_t *count;  /* of the bytes written, for others to see */
    uint64_t kernel;  /* received by the TCP connection, frames included */
    uint64_t seen;    /* of `in`, at the same time */
    double last;      /* when something came */
    double window;    /* when `kernel` and `seen` were taken */
    int track;        /* 0 unknown, 't', 'r' */
    const char *how;
};

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Has no period that a ring's size divides. Eight bytes at a time: the hosts are slow. */
static uint64_t word(char kind, uint64_t i)
{
    uint64_t x = (i + (uint64_t)kind) * 0x9e3779b97f4a7c15ull;

    return x ^ x >> 29;
}

static unsigned char byte(char kind, uint64_t at)
{
    return (unsigned char)(word(kind, at >> 3) >> (8 * (at & 7)));
}

static void fill(char kind, uint64_t at, unsigned char *buf, size_t n)
{
    size_t i = 0;

    for (; i < n && ((at + i) & 7); i++)
        buf[i] = byte(kind, at + i);
    for (; i + 8 <= n; i += 8) {
        uint64_t w = word(kind, (at + i) >> 3);

        memcpy(buf + i, &w, 8);
    }
    for (; i < n; i++)
        buf[i] = byte(kind, at + i);
}

static bool ended(struct conn *c, const char *how)
{
    if (!c->how)
        c->how = how;
    return false;
}

static bool wrong(struct conn *c, const char *what, uint64_t a, uint64_t b)
{
    printf("wrong %c %s: %llu, %llu\n", c->kind, what, (unsigned long long)a,
           (unsigned long long)b);
    atomic_store(&bad, true);
    return ended(c, "wrong");
}

/* ---- what is written down */

/*
 * What has come over TCP, the kernel has counted, frames included. Bytes can lie there for a while
 * before they are read, so of a stream that is not asked and answered a window is looked at.
 */
static void note(struct conn *c)
{
    struct tcp_info ti;
    socklen_t len = sizeof(ti);
    double t = now();
    int track;

    if (measures && t - c->last > GAP_MS / 1e3)
        printf("gap %c %.6f %.0f\n", c->kind, t, (t - c->last) * 1e3);
    c->last = t;
    if (c->kind != 'p' && t - c->window < WINDOW_MS / 1e3)
        return;
    memset(&ti, 0, sizeof(ti));
    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0)
        return;
    track = ti.tcpi_bytes_received - c->kernel < (c->in - c->seen) / 2 ? 'r' : 't';
    c->kernel = ti.tcpi_bytes_received;
    c->seen = c->in;
    c->window = t;
    if (measures && track != c->track)
        printf("track %c %.6f %s\n", c->kind, t, track == 'r' ? "rail" : "tcp");
    c->track = track;
}

/* ---- bytes */

static bool put(struct conn *c, const void *buf, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t r = send(c->fd, (const char *)buf + done, n - done, MSG_NOSIGNAL);

        if (r < 0)
            return ended(c, strerrorname_np(errno));
        done += (size_t)r;
        c->out += (uint64_t)r;
        __atomic_store_n(c->count, c->out, __ATOMIC_RELEASE);
    }
    return true;
}

/* At most n bytes, checked. 0: the end, or an error. */
static size_t get(struct conn *c, unsigned char *buf, size_t n)
{
    static _Thread_local unsigned char want[PIECE * 8];
    ssize_t r = recv(c->fd, buf, n < sizeof(want) ? n : sizeof(want), 0);

    if (r <= 0) {
        if (r < 0)
            ended(c, strerrorname_np(errno));
        return 0;
    }
    fill(c->kind, c->in, want, (size_t)r);
    for (ssize_t i = 0; i < r; i++)
        if (buf[i] != want[i]) {
            wrong(c, "byte at", c->in + (uint64_t)i, buf[i]);
            return 0;
        }
    c->in += (uint64_t)r;
    note(c);
    return (size_t)r;
}

/* ---- kinds */

static void ping(struct conn *c)
{
    unsigned char buf[PING];

    while (!atomic_load(&stop)) {
        fill(c->kind, c->out, buf, PING);
        if (!put(c, buf, PING))
            return;
        while (c->in < c->out)
            if (get(c, buf, PING) == 0) {
                ended(c, "eof");
                return;
            }
        usleep(PAUSE_US);
    }
}

static void pong(struct conn *c)
{
    unsigned char buf[PING];
    size_t n;

    while ((n = get(c, buf, PING)) > 0)
        if (!put(c, buf, n))
            return;
    if (!c->how && c->in % PING)
        ended(c, "eof"); /* in the middle of a ping */
}

static void writes(struct conn *c)
{
    unsigned char buf[PIECE], asked;
    struct pollfd p = {c->fd, POLLIN, 0};
    uint64_t count;

    for (;;) {
        if (measures ? atomic_load(&stop) : poll(&p, 1, 0) > 0)
            break;
        fill(c->kind, c->out, buf, PIECE);
        if (!put(c, buf, PIECE))
            return;
        usleep(PAUSE_US);
    }
    if (!measures) {
        ssize_t r = recv(c->fd, &asked, 1, 0);

        if (r != 1) {
            ended(c, r < 0 ? strerrorname_np(errno) : "eof");
            return;
        }
    }
    shutdown(c->fd, SHUT_WR);
    if (recv(c->fd, &count, sizeof(count), MSG_WAITALL) != sizeof(count))
        ended(c, errno ? strerrorname_np(errno) : "eof");
    else if (count != c->out)
        wrong(c, "read by the other end, written", count, c->out);
}

static void *ask_to_end(void *arg)
{
    const struct conn *c = arg;

    while (sem_wait(&stops) != 0)
        ;
    sem_post(&stops); /* for the next one */
    send(c->fd, "", 1, MSG_NOSIGNAL);
    return NULL;
}

static void reads(struct conn *c)
{
    unsigned char buf[PIECE];
    pthread_t t = 0;

    if (measures && pthread_create(&t, NULL, ask_to_end, c) == 0)
        pthread_detach(t);
    while (get(c, buf, PIECE) > 0)
        ;
    if (c->how)
        return;
    if (measures && !atomic_load(&stop))
        ended(c, "eof");
    else if (send(c->fd, &c->in, sizeof(c->in), MSG_NOSIGNAL) < 0)
        ended(c, strerrorname_np(errno));
}

static void *run(void *arg)
{
    struct conn *c = arg;
    int one = 1, idle = 4, interval = 2, count = 4;

    c->last = now();
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    /* Who only reads hears of a host that vanishes in no other way. */
    setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    errno = 0;
    switch (c->kind) {
    case 'p':
        (measures ? ping : pong)(c);
        break;
    case 'd':
        (measures ? reads : writes)(c);
        break;
    default:
        (measures ? writes : reads)(c);
    }
    printf("end %c %llu %llu %s %s\n", c->kind, (unsigned long long)c->in,
           (unsigned long long)c->out, c->how ? c->how : "ok", c->track == 'r' ? "rail" : "tcp");
    close(c->fd);
    return NULL;
}

/* ---- set-up */

static void on_term(int sig)
{
    (void)sig;
    atomic_store(&stop, true);
    sem_post(&stops);
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 8) < 0) {
        perror("listen");
        exit(2);
    }
    return fd;
}

static int dial(const char *host, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, host, &a.sin_addr);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        perror("connect");
        exit(2);
    }
    return fd;
}

static uint64_t *counts(const char *name)
{
    static uint64_t nowhere[KINDS];
    int fd = name ? open(name, O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
    void *p;

    if (!name)
        return nowhere;
    if (fd < 0 || ftruncate(fd, sizeof(nowhere)) < 0) {
        perror(name);
        exit(2);
    }
    p = mmap(NULL, sizeof(nowhere), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) {
        perror(name);
        exit(2);
    }
    return p;
}

int main(int argc, char **argv)
{
    static struct conn conns[KINDS];
    struct sigaction sa = {.sa_handler = on_term, .sa_flags = SA_RESTART};
    pthread_t threads[KINDS];
    uint64_t *count;
    size_t n;
    int l = -1;

    if (argc < 3 || strlen(argv[2]) > KINDS) {
        fprintf(stderr, "usage: stream PORT KINDS [HOST]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    measures = argc == 3;
    count = counts(getenv("STREAM_COUNTS"));
    sem_init(&stops, 0, 0);
    sigaction(SIGTERM, &sa, NULL);
    if (measures)
        l = listen_on((uint16_t)atoi(argv[1]));
    for (n = 0; argv[2][n]; n++) {
        struct conn *c = &conns[n];

        c->kind = argv[2][n];
        c->count = &count[n];
        /* One after another on both ends, so that the kinds agree. */
        c->fd = measures ? accept(l, NULL, NULL) : dial(argv[3], (uint16_t)atoi(argv[1]));
        if (c->fd < 0 || pthread_create(&threads[n], NULL, run, c)) {
            perror("accept");
            return 2;
        }
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    return atomic_load(&bad);
}
