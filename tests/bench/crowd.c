/*
 * crowd.c - very many connections between two processes, of which some are busy: an echo server
 * that waits in epoll_wait, and a client that does what its standard input says and answers each
 * order with one JSON object. bench/scale.py runs them, with the library.
 *
 *   crowd serve [edge]        prints its port
 *   crowd drive PORT [edge]
 *       open N                until there are N connections; each new one has had 64 bytes each way
 *       board MOST            64 bytes each way on all, in turns, until all are on a rail; at most
 *                             MOST turns
 *       pass BYTES            so many each way on each connection, one after the other
 *       load K SECONDS        64 bytes to and fro on K of the connections all the time, the others
 *                             are silent
 *       zipf S SECONDS SHIFT  32 answers are waited for at any time; each that comes is followed by
 *                             a request on some connection: that of rank r gets a share of 1/r^S.
 *                             Half way ranks move on by SHIFT connections. What was done in each
 *                             tenth of the time is told
 *       quiet SECONDS         waits in epoll_wait for nothing
 */
#include "bench.h"
#include "shown.h"

#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    SIZE = 64,
    ROOM = 65536,
    EVENTS = 256,
    WINDOW = 32,
    DRAWS = 1 << 20,
    PARTS = 10,
    SLICES = 1000
};

#define SLICE 0.02

static uint32_t edge; /* EPOLLET or 0 */
static char buf[ROOM];
static char text[ROOM + 256]; /* of which every connection sends another part: see part_of */

static void send_all(int fd, const char *from, size_t n)
{
    while (n > 0) {
        ssize_t done = send(fd, from, n, MSG_NOSIGNAL);

        must(done > 0 || errno == EAGAIN, "send");
        n -= done > 0 ? (size_t)done : 0;
    }
}

static void add(int ep, int fd, uint32_t data)
{
    struct epoll_event ev = {.events = EPOLLIN | edge, .data.u32 = data};
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    must(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll_ctl");
}

/* ---- the server ---- */

static void echo(int fd)
{
    ssize_t n;

    do {
        n = recv(fd, buf, ROOM, MSG_DONTWAIT);
        if (n > 0)
            send_all(fd, buf, (size_t)n);
        else if (n == 0)
            close(fd);
        else
            must(errno == EAGAIN || errno == ECONNRESET, "recv");
    } while (edge && n > 0);
}

static _Noreturn void serve(void)
{
    struct sockaddr_in at;
    struct epoll_event ev[EVENTS] = {{.events = EPOLLIN}};
    int l = listening(&at, 4096), ep = epoll_create1(EPOLL_CLOEXEC), n;

    must(epoll_ctl(ep, EPOLL_CTL_ADD, l, &ev[0]) == 0, "epoll_ctl");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        n = epoll_wait(ep, ev, EVENTS, -1);
        must(n >= 0 || errno == EINTR, "epoll_wait");
        for (int i = 0; i < n; i++) {
            int fd = (int)ev[i].data.u32;

            if (fd == 0) {
                fd = accept(l, NULL, NULL);
                must(fd > 0, "accept");
                add(ep, fd, (uint32_t)fd);
            } else {
                echo(fd);
            }
        }
    }
}

/* ---- the client ---- */

static struct sockaddr_in server;
static int ep, n_open;
static struct end {
    int fd;
    uint32_t had; /* bytes of an answer that is not whole yet */
    uint64_t sent, got;
} * ends;
static uint64_t waits, events;

/* What connection i has at byte `at`, and from there on. */
static const char *part_of(int i, uint64_t at)
{
    return text + ((at + (uint64_t)i * 7) & 255);
}

static void ask(int i, size_t n)
{
    send_all(ends[i].fd, part_of(i, ends[i].sent), n);
    ends[i].sent += n;
}

/* Count, or 0: nothing is there. */
static size_t hear(int i, size_t most, int flags)
{
    ssize_t r = recv(ends[i].fd, buf, most, flags);

    must(r > 0 || (r < 0 && errno == EAGAIN), "recv");
    if (r < 0)
        return 0;
    must(memcmp(buf, part_of(i, ends[i].got), (size_t)r) == 0, "another answer than was asked for");
    ends[i].got += (uint64_t)r;
    return (size_t)r;
}

static void turn(int i, size_t bytes)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < ROOM / 4 ? bytes - at : ROOM / 4;
        ask(i, n);
        for (size_t got = 0; got < n;)
            got += hear(i, n - got, 0);
    }
}

static void open_until(int n)
{
    uint64_t since = now();
    int was = n_open;
    struct end *more = realloc(ends, (size_t)n * sizeof(*ends));

    must(more != NULL, "realloc");
    ends = more;
    for (; n_open < n; n_open++) {
        ends[n_open] = (struct end){.fd = connected(&server)};
        add(ep, ends[n_open].fd, (uint32_t)n_open);
        turn(n_open, SIZE);
    }
    printf("{\"opened\": %d, \"seconds\": %.3f}\n", n - was, seconds_since(since));
}

/* How many are on a rail in both directions, and all bytes, and those on a rail, both ways. */
struct look {
    int on;
    uint64_t bytes, rail;
};

static struct look look(const struct fb_pub_file *f)
{
    struct look k = {0};

    for (uint32_t i = 0; f && i < f->nslots; i++) {
        const struct fb_pub *p = &f->slot[i];

        if (p->gen % 2 == 0)
            continue;
        k.on += p->path_tx != FB_PATH_TCP && p->path_rx != FB_PATH_TCP;
        k.bytes += p->tx + p->rx;
        k.rail += shown_rail(f, i)->rail_tx + shown_rail(f, i)->rail_rx;
    }
    return k;
}

static void board(int most)
{
    const struct fb_pub_file *f = shown();
    struct look k = {0};
    uint64_t since = now();
    int turns = 0;

    for (; k.on < n_open && turns < most; turns++) {
        for (int i = 0; i < n_open; i++)
            turn(i, SIZE);
        k = look(f);
    }
    printf("{\"on\": %d, \"turns\": %d, \"seconds\": %.3f}\n", k.on, turns, seconds_since(since));
}

static void pass(size_t bytes)
{
    uint64_t since = now();

    for (int i = 0; i < n_open; i++)
        turn(i, bytes);
    printf("{\"seconds\": %.3f}\n", seconds_since(since));
}

/* Waits once; answers[] gets who has answered, each as often as it has. How many. */
static int answered(int *answers, int most, int ms)
{
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(ep, ev, most < EVENTS ? most : EVENTS, ms), found = 0;

    must(n >= 0 || errno == EINTR, "epoll_wait");
    n = n < 0 ? 0 : n;
    waits++;
    events += (uint64_t)n;
    for (int i = 0; i < n; i++) {
        int at = (int)ev[i].data.u32;
        size_t r;

        do {
            r = hear(at, ROOM, MSG_DONTWAIT);
            ends[at].had += (uint32_t)r;
        } while (edge && r > 0);
        for (; ends[at].had >= SIZE; ends[at].had -= SIZE)
            answers[found++] = at;
    }
    return found;
}

/* A slice is SLICE seconds of the time; ns is of the tenth part of them that was fastest, for an
 * event: what others do on the machine only adds. */
static void load(int k, double seconds)
{
    static double slice[SLICES];
    int answers[2 * EVENTS], flying = k, slices = 0;
    uint64_t since = now(), trips = 0, before = 0;
    double took = 0, last = 0;

    must(k <= EVENTS && k <= n_open, "load");
    waits = events = 0;
    for (int i = 0; i < k; i++)
        ask((int)((int64_t)i * n_open / k), SIZE);
    while (flying > 0) {
        int n = answered(answers, EVENTS, -1);

        if (took < seconds)
            took = seconds_since(since);
        if (took - last >= SLICE && slices < SLICES) {
            slice[slices++] = (took - last) * 1e9 / (double)(events - before);
            before = events;
            last = took;
        }
        for (int i = 0; i < n; i++)
            if (took < seconds) {
                ask(answers[i], SIZE);
                trips++;
            } else {
                flying--;
            }
    }
    must(slices > 0, "slices");
    qsort(slice, (size_t)slices, sizeof(slice[0]), by_size);
    printf(
        "{\"trips\": %llu, \"seconds\": %.3f, \"waits\": %llu, \"events\": %llu, \"ns\": %.1f}\n",
        (unsigned long long)trips, took, (unsigned long long)waits, (unsigned long long)events,
        slice[slices / 10]);
}

/* Ranks from 0, by chance. */
static uint16_t *draw(double s)
{
    uint16_t *rank = malloc(DRAWS * sizeof(*rank));
    double *up_to = calloc((size_t)n_open, sizeof(*up_to)), sum = 0;
    uint64_t x = 88172645463325252u;

    must(rank && up_to && n_open > 0 && n_open <= 65536, "draw");
    for (int i = 0; i < n_open; i++)
        up_to[i] = sum += pow(i + 1, -s);
    for (int i = 0; i < DRAWS; i++) {
        int low = 0, high = n_open - 1;
        double v;

        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        v = (double)(x >> 11) / 9007199254740992.0 * sum;
        while (low < high) {
            int middle = (low + high) / 2;

            if (up_to[middle] < v)
                low = middle + 1;
            else
                high = middle;
        }
        rank[i] = (uint16_t)low;
    }
    free(up_to);
    return rank;
}

static void zipf(double s, double seconds, int shift)
{
    const struct fb_pub_file *f = shown();
    struct look was = look(f), is;
    uint16_t *rank = draw(s);
    uint64_t since = now(), trips = 0, drawn = 0, before = 0;
    int answers[2 * EVENTS], flying = 0, part = 0, moved = 0;
    double took = 0, last = 0;

    printf("{\"parts\": [");
    for (int n = WINDOW; part < PARTS || flying > 0;) {
        for (int i = 0; i < n && part < PARTS; i++, flying++)
            ask((rank[drawn++ % DRAWS] + moved) % n_open, SIZE);
        n = answered(answers, EVENTS, -1);
        flying -= n;
        trips += (uint64_t)n;
        took = seconds_since(since);
        if (part == PARTS || took < seconds * (part + 1) / PARTS)
            continue;
        is = look(f);
        printf("%s{\"trips\": %.0f, \"on\": %d, \"share\": %.4f}", part ? ", " : "",
               (double)(trips - before) / (took - last), is.on,
               (double)(is.rail - was.rail) /
                   (double)(is.bytes > was.bytes ? is.bytes - was.bytes : 1));
        was = is;
        before = trips;
        last = took;
        if (++part == PARTS / 2)
            moved = shift;
    }
    printf("], \"trips\": %llu, \"seconds\": %.3f}\n", (unsigned long long)trips, took);
    free(rank);
}

static void quiet(double seconds)
{
    int answers[2 * EVENTS];

    must(answered(answers, EVENTS, (int)(seconds * 1000)) == 0, "quiet");
    printf("{\"on\": %d}\n", look(shown()).on);
}

static int drive(int port)
{
    char line[128];
    double a, b;
    int n;

    server = (struct sockaddr_in){.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ep = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(i % 256 * 167 + 13);
    while (fgets(line, sizeof(line), stdin)) {
        if (sscanf(line, "open %d", &n) == 1)
            open_until(n);
        else if (sscanf(line, "board %d", &n) == 1)
            board(n);
        else if (sscanf(line, "pass %d", &n) == 1)
            pass((size_t)n);
        else if (sscanf(line, "load %d %lf", &n, &a) == 2)
            load(n, a);
        else if (sscanf(line, "zipf %lf %lf %d", &a, &b, &n) == 3)
            zipf(a, b, n);
        else if (sscanf(line, "quiet %lf", &a) == 1)
            quiet(a);
        else
            return 2;
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    most_descriptors();
    if (argc > 2 && strcmp(argv[1], "drive") == 0) {
        edge = argc > 3 && strcmp(argv[3], "edge") == 0 ? EPOLLET : 0;
        return drive(atoi(argv[2]));
    }
    edge = argc > 2 && strcmp(argv[2], "edge") == 0 ? EPOLLET : 0;
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        serve();
    return 2;
}
