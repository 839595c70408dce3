/*
 * switch_pause.c - what a change of track costs: 64 bytes go to and fro, and each round trip
 * is put down as one in which the stream changed track, or not, by the counter that the
 * library shows (pub.h).
 *
 *   switch_pause SECONDS                 the server is a child
 *   switch_pause SECONDS ADDRESS PORT    or it is there
 *   switch_pause serve PORT              for one connection
 *
 * Prints in ns: the median of the quiet round trips, and the number, median, 99th percentile and
 * longest of those with a change. Without the library there is none.
 */
#include "bench.h"
#include "shown.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 64, MOST = 4000000 };

/* The counter of this process's connection; NULL: no library, or nothing is shown. */
static const _Atomic uint32_t *switches_of(int fd)
{
    const struct fb_pub_file *f = shown();

    for (uint32_t i = 0; f && i < f->nslots; i++)
        if (f->slot[i].gen % 2 && f->slot[i].fd == fd)
            return &shown_rail(f, i)->switches;
    return NULL;
}

static void serve(int l)
{
    int fd = accept(l, NULL, NULL), on = 1;
    char b[BYTES];

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    while (recv(fd, b, BYTES, 0) == BYTES && send(fd, b, BYTES, 0) == BYTES)
        ;
    _exit(0);
}

static int later(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x > y ? 1 : x < y ? -1 : 0;
}

static int listening_at(struct sockaddr_in *at)
{
    int l = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    socklen_t len = sizeof(*at);

    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    must(bind(l, (struct sockaddr *)at, len) == 0 && listen(l, 1) == 0, "listen");
    getsockname(l, (struct sockaddr *)at, &len);
    return l;
}

/* A server on another host takes its time to start. */
static int connected_soon(const struct sockaddr_in *at)
{
    for (int tries = 0;; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0)
            return fd;
        must(errno == ECONNREFUSED && tries < 300, "connect");
        close(fd);
        usleep(100000);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint64_t *quiet = malloc(MOST * sizeof(*quiet)), *changed = malloc(MOST * sizeof(*changed));
    uint64_t begin, last, until, total = (uint64_t)(argc > 1 ? atoi(argv[1]) : 5) * 1000000000u;
    int l, fd, on = 1;
    const _Atomic uint32_t *counter;
    uint32_t before = 0, first;
    size_t nq = 0, nc = 0;
    char b[BYTES] = "to and fro";
    pid_t pid = 0;

    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        at.sin_addr.s_addr = htonl(INADDR_ANY);
        at.sin_port = htons((uint16_t)atoi(argv[2]));
        serve(listening_at(&at));
    }
    if (getenv("BENCH_ADDRESS")) /* where there is an RDMA device */
        at.sin_addr.s_addr = inet_addr(getenv("BENCH_ADDRESS"));
    must(quiet && changed, "malloc");
    if (argc == 4) {
        at.sin_addr.s_addr = inet_addr(argv[2]);
        at.sin_port = htons((uint16_t)atoi(argv[3]));
    } else {
        l = listening_at(&at);
        pid = fork();
        if (pid == 0)
            serve(l);
        close(l);
    }
    fd = connected_soon(&at);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    counter = switches_of(fd);
    first = counter ? *counter : 0;
    begin = last = now();
    until = begin + total;
    while (last < until && nq < MOST && nc < MOST) {
        uint64_t t;
        uint32_t is;

        must(send(fd, b, BYTES, 0) == BYTES && recv(fd, b, BYTES, 0) == BYTES, "ping");
        t = now();
        is = counter ? *counter : 0;
        if (is != before)
            changed[nc++] = t - last;
        else
            quiet[nq++] = t - last;
        before = is;
        last = t;
    }
    close(fd);
    if (pid)
        waitpid(pid, NULL, 0);
    qsort(quiet, nq, sizeof(*quiet), later);
    qsort(changed, nc, sizeof(*changed), later);
    must(nq > 0, "no round trip");
    printf(
        "{\"quiet\": %llu, \"switches\": %u, \"seconds\": %.3f, \"changed\": %zu, \"median\": %llu, "
        "\"p99\": %llu, \"worst\": %llu}\n",
        (unsigned long long)quiet[nq / 2], before - first, (double)(last - begin) / 1e9, nc,
        (unsigned long long)(nc ? changed[nc / 2] : 0),
        (unsigned long long)(nc ? changed[nc * 99 / 100] : 0),
        (unsigned long long)(nc ? changed[nc - 1] : 0));
    return 0;
}
