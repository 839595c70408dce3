/*
 * plain_calls.c - what calls cost that no rail serves: nanoseconds per call on a pipe, a file, and
 * a TCP connection whose other end is a process without the library; and that connection's
 * throughput. Prints one JSON object. bench/plain.py runs it with and without the library.
 *
 *   plain_calls              measures
 *   plain_calls --peer       the other end: listens, prints the port, does what its standard input
 *                            says
 */
#include "bench.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 64, CALLS = 500, BATCHES = 61, BULK = 65536 };

static char buf[BULK];

/* ---- the other end ---- */

/* One letter and a count: 'r' takes that many bytes from the connection, 'w' writes them there. */
struct order {
    char what;
    int32_t bytes;
};

static int peer(void)
{
    struct sockaddr_in at;
    int l = listening(&at, 1), fd;
    struct order o;
    uint16_t port = ntohs(at.sin_port);

    must(write(1, &port, sizeof(port)) == sizeof(port), "port");
    fd = accept(l, NULL, NULL);
    must(fd >= 0, "accept");
    while (read(0, &o, sizeof(o)) == sizeof(o)) {
        for (ssize_t n; o.bytes > 0; o.bytes -= (int32_t)n) {
            size_t want = o.bytes < BULK ? (size_t)o.bytes : BULK;

            n = o.what == 'r' ? read(fd, buf, want) : write(fd, buf, want);
            must(n > 0, "peer");
        }
        must(write(1, "", 1) == 1, "done");
    }
    return 0;
}

static int orders, answers;

static void order(char what, int bytes)
{
    struct order o = {.what = what, .bytes = bytes};

    must(write(orders, &o, sizeof(o)) == sizeof(o), "order");
}

static void done(void)
{
    must(read(answers, buf, 1) == 1, "peer");
}

static int connection(const char *self)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int to[2], from[2];
    uint16_t port;

    must(pipe(to) == 0 && pipe(from) == 0, "pipe");
    if (fork() == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        unsetenv("LD_PRELOAD");
        execl(self, self, "--peer", (char *)NULL);
        _exit(1);
    }
    close(to[0]);
    close(from[1]);
    orders = to[1], answers = from[0];
    must(read(answers, &port, sizeof(port)) == sizeof(port), "port");
    at.sin_port = htons(port);
    return connected(&at);
}

/* ---- measuring ---- */

static const char *comma = "";

/* The tenth part of the batches that was fastest: what others do on the machine only adds. */
static void result(const char *call, const char *on, double *batch)
{
    qsort(batch, BATCHES, sizeof(*batch), by_size);
    printf("%s\"%s %s\": %.1f", comma, call, on, batch[BATCHES / 10]);
    comma = ", ";
}

/* CALLS times, timed; before and after are not. */
#define MEASURE(name, on, before, call, after)            \
    do {                                                  \
        double batch[BATCHES];                            \
        for (int b_ = 0; b_ < BATCHES; b_++) {            \
            uint64_t since_;                              \
            before;                                       \
            since_ = now();                               \
            for (int i_ = 0; i_ < CALLS; i_++)            \
                if (!(call)) {                            \
                    perror(name);                         \
                    exit(1);                              \
                }                                         \
            batch[b_] = (double)(now() - since_) / CALLS; \
            after;                                        \
        }                                                 \
        result(name, on, batch);                          \
    } while (0)

static void nothing(void)
{
}

static void wait_for(int fd, int bytes)
{
    int have = 0;

    do
        must(ioctl(fd, FIONREAD, &have) == 0, "FIONREAD");
    while (have < bytes);
}

/* Readiness of a descriptor that has something to read. */
static void readiness(const char *on, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct epoll_event ev = {.events = EPOLLIN};
    int ep = epoll_create1(EPOLL_CLOEXEC);

    MEASURE("poll", on, nothing(), poll(&p, 1, 0) == 1, nothing());
    must(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll_ctl");
    MEASURE("epoll_wait", on, nothing(), epoll_wait(ep, &ev, 1, 0) == 1, nothing());
    close(ep);
}

static void on_pipe(void)
{
    int p[2];

    must(pipe(p) == 0, "pipe");
    MEASURE("write", "pipe", nothing(), write(p[1], buf, SIZE) == SIZE,
            must(read(p[0], buf, CALLS * SIZE) == CALLS * SIZE, "read"));
    MEASURE("read", "pipe", must(write(p[1], buf, CALLS * SIZE) == CALLS * SIZE, "write"),
            read(p[0], buf, SIZE) == SIZE, nothing());
    must(write(p[1], buf, 1) == 1, "write");
    readiness("pipe", p[0]);
}

static void on_file(void)
{
    int fd = memfd_create("file", MFD_CLOEXEC);

    MEASURE("write", "file", lseek(fd, 0, SEEK_SET), write(fd, buf, SIZE) == SIZE, nothing());
    MEASURE("read", "file", lseek(fd, 0, SEEK_SET), read(fd, buf, SIZE) == SIZE, nothing());
}

static void on_tcp(int fd)
{
    uint64_t since;
    int64_t sent = 0;

    /* What a connection does before anybody thinks of a rail, and the asking for one. */
    for (int i = 0; i < 200; i++) {
        order('w', SIZE);
        must(recv(fd, buf, SIZE, MSG_WAITALL) == SIZE, "recv");
        done();
        order('r', SIZE);
        must(write(fd, buf, SIZE) == SIZE, "write");
        done();
        usleep(1000);
    }
    MEASURE("write", "tcp", order('r', CALLS * SIZE), write(fd, buf, SIZE) == SIZE, done());
    MEASURE("read", "tcp", order('w', CALLS * SIZE); done();
            wait_for(fd, CALLS * SIZE), read(fd, buf, SIZE) == SIZE, nothing());
    order('w', 1);
    done();
    wait_for(fd, 1);
    readiness("tcp", fd);
    must(read(fd, buf, 1) == 1, "read");
    order('r', 1 << 30);
    since = now();
    while (sent < 1 << 30) {
        ssize_t n = write(fd, buf, BULK);

        must(n > 0, "bulk");
        sent += n;
    }
    done();
    printf(", \"throughput tcp\": %.1f", (double)sent * 1000.0 / (double)(now() - since));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--peer") == 0)
        return peer();
    printf("{");
    on_pipe();
    on_file();
    on_tcp(connection(argv[0]));
    printf("}\n");
    close(orders);
    return wait(NULL) < 0;
}
