/*
 * uring_tcp.c - the kernel's TCP at its best: two processes on the loopback address, each with an
 * io_uring that only it uses, so that one system call sends and receives. Prints one figure;
 * passes no judgement.
 *
 *   build/plain/tests/uring_tcp trip        64 bytes to and fro, ns; the ends sleep in the kernel
 *   build/plain/tests/uring_tcp trip-spin   the same, and they never sleep
 *   build/plain/tests/uring_tcp stream      128 KiB each way of one direction, GB/s
 */
#include <errno.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { MSG = 64, CHUNK = 128 * 1024, WARM = 2000, TRIPS = 30000 };
static const uint64_t stream_total = 2ull << 30;

static bool spins;

static void ring_init(struct io_uring *ring)
{
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    int err = io_uring_queue_init_params(8, ring, &p);

    if (err == -EINVAL) { /* before Linux 6.1 */
        p = (struct io_uring_params){.flags = 0};
        err = io_uring_queue_init_params(8, ring, &p);
    }
    errno = -err;
    must(err == 0, "io_uring_queue_init");
}

/* Submits what is prepared, and waits for one result. */
static int next(struct io_uring *ring)
{
    struct io_uring_cqe *cqe;
    int result, err;

    if (spins) {
        io_uring_submit(ring);
        while (io_uring_peek_cqe(ring, &cqe) != 0)
            io_uring_get_events(ring);
    } else {
        do
            err = io_uring_submit_and_wait(ring, 1);
        while (err == -EINTR);
        errno = -err;
        must(err >= 0 && io_uring_peek_cqe(ring, &cqe) == 0, "io_uring_enter");
    }
    result = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    errno = -result;
    must(result >= 0, "send or recv");
    return result;
}

static void prepare(struct io_uring *ring, int fd, char *buf, bool send)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    if (send)
        io_uring_prep_send(sqe, fd, buf, MSG, MSG_WAITALL | MSG_NOSIGNAL);
    else
        io_uring_prep_recv(sqe, fd, buf, MSG, MSG_WAITALL);
}

static void round_trip(struct io_uring *ring, int fd)
{
    static char out[MSG], in[MSG];

    prepare(ring, fd, out, true);
    prepare(ring, fd, in, false);
    for (int i = 0; i < 2; i++)
        must(next(ring) == MSG, "64 bytes");
}

static void pong(int fd)
{
    static char buf[MSG];
    struct io_uring ring;

    ring_init(&ring);
    prepare(&ring, fd, buf, false);
    while (next(&ring) == MSG) {
        prepare(&ring, fd, buf, true);
        prepare(&ring, fd, buf, false); /* after the send, which does not wait here */
        next(&ring);
    }
}

static double trip(int fd)
{
    struct io_uring ring;
    uint64_t begin;

    ring_init(&ring);
    for (int i = 0; i < WARM; i++)
        round_trip(&ring, fd);
    begin = now();
    for (int i = 0; i < TRIPS; i++)
        round_trip(&ring, fd);
    return (double)(now() - begin) / TRIPS;
}

/* Two buffers, so that one is on its way while the other is asked for. */
static void one_way(int fd, bool send)
{
    static char buf[2][CHUNK];
    struct io_uring ring;
    uint64_t done = 0, asked = 0;

    ring_init(&ring);
    while (done < stream_total) {
        while (asked < stream_total && asked - done < 2 * CHUNK) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            char *at = buf[asked / CHUNK % 2];

            if (send)
                io_uring_prep_send(sqe, fd, at, CHUNK, MSG_WAITALL | MSG_NOSIGNAL);
            else
                io_uring_prep_recv(sqe, fd, at, CHUNK, MSG_WAITALL);
            asked += CHUNK;
        }
        done += (uint64_t)next(&ring);
    }
}

static double stream(int fd)
{
    uint64_t begin = now();
    char last;

    one_way(fd, true);
    must(recv(fd, &last, 1, 0) == 1, "the end");
    return (double)stream_total / (double)(now() - begin);
}

static void serve(int fd, bool trips)
{
    if (trips) {
        pong(fd);
    } else {
        one_way(fd, false);
        must(send(fd, "", 1, MSG_NOSIGNAL) == 1, "the end");
    }
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    const bool trips = strncmp(what, "trip", 4) == 0;
    struct sockaddr_in at;
    int l, fd, status, one = 1;
    pid_t child;

    if (strcmp(what, "trip") != 0 && strcmp(what, "trip-spin") != 0 &&
        strcmp(what, "stream") != 0) {
        fputs("usage: uring_tcp trip|trip-spin|stream\n", stderr);
        return 2;
    }
    spins = strcmp(what, "trip-spin") == 0;
    l = listening(&at, 1);
    child = fork();
    must(child >= 0, "fork");
    fd = child ? connected(&at) : accept(l, NULL, NULL);
    must(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0,
         "TCP_NODELAY");
    if (child == 0) {
        serve(fd, trips);
        return 0;
    }
    printf("%.3f\n", trips ? trip(fd) : stream(fd));
    close(fd);
    must(waitpid(child, &status, 0) == child && status == 0, "the other process");
    return 0;
}
