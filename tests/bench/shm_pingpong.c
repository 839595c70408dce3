/*
 * shm_pingpong.c - what the shm rail adds to the hardware: a 64-byte ping-pong and a 128 KiB
 * stream between two spinning processes, next to a bare cache line, a
 * bare line with its data in another one (the least that a byte ring can do), and two bare copies
 * through a shared buffer of the same size, all in one run. Prints; passes no judgement.
 *
 *   build/plain/tests/shm_pingpong          all of it, the best of the rounds
 *   build/plain/tests/shm_pingpong line     one limit of the hardware, the median of the rounds:
 *                                           line, line+data (ns), copy (GB/s), by memcpy for 2 KiB
 *                                           at a time; memcpy: copy for the whole 32 KiB
 *
 * (make build/plain/tests/shm_pingpong; `make bench` does, and runs the latter between
 * other programs.)
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsock/copy.h"
#include "tests/bench/bench.h"
#include "tests/unit/shm_pair.h"

enum { TRIPS = 50000, BATCH = 100, ROUNDS = 15, MSG = 64, CHUNK = 128 * 1024, PIECE = 32 * 1024 };

static const struct rsk_wire *const w = &rsk_shm_wire;
static const size_t stream_total = 256ull << 20;

/* ---- a cache line each way, or one with a cursor and one with 64 bytes */

struct lines {
    struct {
        _Atomic uint64_t n;
        char room[120];
    } line[2];
};

/* Nanoseconds each; with `batch`, also those of each BATCH of them. */
static double raw_line(struct lines *l, bool data, double *batch)
{
    enum { MASK = 65536 - 1 };
    uint8_t *to = (uint8_t *)l + 65536, *back = to + 2 * 65536, msg[MSG] = {1};
    pid_t child;
    uint64_t t0, last;

    memset(l, 0, sizeof *l);
    child = fork();
    if (child == 0) {
        pin(1);
        for (uint64_t i = 1; i <= TRIPS; i++) {
            while (atomic_load_explicit(&l->line[0].n, memory_order_acquire) != i)
                sys_pause_cpu();
            if (data) {
                memcpy(msg, to + (i * MSG & MASK), MSG);
                memcpy(back + (i * MSG & MASK), msg, MSG);
            }
            atomic_store_explicit(&l->line[1].n, i, memory_order_release);
        }
        _exit(msg[0] == 99);
    }
    pin(0);
    usleep(10000);
    t0 = last = sys_now();
    for (uint64_t i = 1; i <= TRIPS; i++) {
        if (data)
            memcpy(to + (i * MSG & MASK), msg, MSG);
        atomic_store_explicit(&l->line[0].n, i, memory_order_release);
        while (atomic_load_explicit(&l->line[1].n, memory_order_acquire) != i)
            sys_pause_cpu();
        if (data)
            memcpy(msg, back + (i * MSG & MASK), MSG);
        if (batch && i % BATCH == 0) {
            uint64_t now = sys_now();

            *batch++ = (double)(now - last) / BATCH;
            last = now;
        }
    }
    t0 = sys_now() - t0;
    waitpid(child, NULL, 0);
    return (double)t0 / TRIPS;
}

/* ---- the rail */

static void send_all(struct rsk_rail *r, const uint8_t *p, size_t n)
{
    while (n) {
        size_t k = shm_put(r, p, n < PIECE ? n : PIECE);

        if (!k)
            sys_pause_cpu();
        p += k;
        n -= k;
    }
}

static void receive_all(struct rsk_rail *r, uint8_t *p, size_t n)
{
    while (n) {
        size_t k = shm_take(r, p, n < PIECE ? n : PIECE);

        if (!k)
            sys_pause_cpu();
        p += k;
        n -= k;
    }
}

static struct rsk_rail *end_of(int fd, uint32_t ring, bool first)
{
    struct rsk_rail *r = (struct rsk_rail *)shm_rail_new(fd, ring, first);

    if (!r)
        exit(2);
    w->tx_start(r, 0);
    w->rx_start(r, 0);
    if (w->tx_open(r))
        exit(2);
    return r;
}

static double rail_trip(void)
{
    int fd = shm_memfd_new(256 * 1024);
    uint8_t msg[MSG] = {1};
    struct rsk_rail *r;
    pid_t child = fork();
    uint64_t t0;

    r = end_of(fd, 256 * 1024, child != 0);
    if (child == 0) {
        pin(1);
        for (int i = 0; i < TRIPS; i++) {
            receive_all(r, msg, MSG);
            send_all(r, msg, MSG);
        }
        _exit(0);
    }
    pin(0);
    usleep(10000);
    t0 = sys_now();
    for (int i = 0; i < TRIPS; i++) {
        send_all(r, msg, MSG);
        receive_all(r, msg, MSG);
    }
    t0 = sys_now() - t0;
    waitpid(child, NULL, 0);
    shm_rail_free(shm_of(r));
    sys_close(fd);
    return (double)t0 / TRIPS;
}

static double rail_stream(uint32_t ring)
{
    int fd = shm_memfd_new(ring);
    uint8_t *buf = calloc(1, CHUNK);
    struct rsk_rail *r;
    pid_t child = fork();
    uint64_t t0;

    memset(buf, 1, CHUNK);
    r = end_of(fd, ring, child != 0);
    if (child == 0) {
        pin(1);
        for (size_t i = 0; i < stream_total / CHUNK; i++)
            receive_all(r, buf, CHUNK);
        _exit(0);
    }
    pin(0);
    usleep(10000);
    t0 = sys_now();
    for (size_t i = 0; i < stream_total / CHUNK; i++)
        send_all(r, buf, CHUNK);
    waitpid(child, NULL, 0);
    t0 = sys_now() - t0;
    shm_rail_free(shm_of(r));
    sys_close(fd);
    free(buf);
    return (double)stream_total / (double)t0;
}

static void in_pieces(void *to, const void *from, size_t n)
{
    rsk_copy(to, from, n, RSK_INTO);
}

static void whole(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
}

/* The least that two processes can do: copy in, store a cursor, copy out, store a cursor. */
static double raw_stream(uint32_t ring, void (*copy)(void *, const void *, size_t))
{
    uint8_t *p = mmap(NULL, 4096 + ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct lines *l = (struct lines *)(void *)p;
    uint8_t *buf = malloc(CHUNK);
    size_t n = 0;
    pid_t child;
    uint64_t t0;

    memset(buf, 1, CHUNK);
    p += 4096;
    child = fork();
    if (child == 0) {
        pin(1);
        for (; n < stream_total; n += PIECE) {
            while (atomic_load_explicit(&l->line[0].n, memory_order_acquire) == n)
                sys_pause_cpu();
            copy(buf + n % CHUNK, p + n % ring, PIECE);
            atomic_store_explicit(&l->line[1].n, n + PIECE, memory_order_release);
        }
        _exit(0);
    }
    pin(0);
    usleep(10000);
    t0 = sys_now();
    for (; n < stream_total; n += PIECE) {
        while (n - atomic_load_explicit(&l->line[1].n, memory_order_acquire) >= ring)
            sys_pause_cpu();
        copy(p + n % ring, buf + n % CHUNK, PIECE);
        atomic_store_explicit(&l->line[0].n, n + PIECE, memory_order_release);
    }
    waitpid(child, NULL, 0);
    t0 = sys_now() - t0;
    munmap(l, 4096 + ring);
    free(buf);
    return (double)stream_total / (double)t0;
}

/* The best of them: what else runs on the machine only ever makes it worse. */
static double best(double *v, bool low)
{
    qsort(v, ROUNDS, sizeof *v, by_size);
    return v[low ? 0 : ROUNDS - 1];
}

/*
 * For who takes turns with programs that report a median: whether the two processors share a core,
 * or its caches, changes from second to second on a virtual machine, and with it a round trip by a
 * factor of ten; the best would be another machine's. The trips' is that of batches, as what else
 * runs here stops some of them for milliseconds.
 */
static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return v[n / 2];
}

static int one_limit(struct lines *l, const char *what)
{
    static double batch[ROUNDS][TRIPS / BATCH];
    bool by_memcpy = !strcmp(what, "memcpy"), copy = by_memcpy || !strcmp(what, "copy"),
         data = !strcmp(what, "line+data");
    double a[ROUNDS], b[ROUNDS], small, large;

    if (!copy && !data && strcmp(what, "line") != 0) {
        fprintf(stderr, "usage: shm_pingpong [line | line+data | copy | memcpy]\n");
        return 2;
    }
    for (int i = 0; i < ROUNDS; i++) {
        if (copy) {
            a[i] = raw_stream(256 * 1024, by_memcpy ? whole : in_pieces);
            b[i] = raw_stream(1 << 20, by_memcpy ? whole : in_pieces);
        } else {
            (void)raw_line(l, data, batch[i]);
        }
    }
    if (copy) {
        small = median(a, ROUNDS);
        large = median(b, ROUNDS);
        printf("%.3f GB/s, in a ring of %s\n", small > large ? small : large,
               small > large ? "256 KiB" : "1 MiB");
    } else {
        printf("%.1f ns\n", median(&batch[0][0], sizeof batch / sizeof batch[0][0]));
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct lines *l =
        mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double raw[ROUNDS], rail[ROUNDS], raw_small[ROUNDS], small[ROUNDS], raw_large[ROUNDS];
    double large[ROUNDS], two[ROUNDS], b[3];
    double base;

    if (l == MAP_FAILED)
        return 2;
    if (argc > 1)
        return one_limit(l, argv[1]);
    /* Alternating, so that what else the machine does hits all alike. */
    for (int i = 0; i < ROUNDS; i++) {
        raw[i] = raw_line(l, false, NULL);
        two[i] = raw_line(l, true, NULL);
        rail[i] = rail_trip();
        raw_small[i] = raw_stream(256 * 1024, in_pieces);
        small[i] = rail_stream(256 * 1024);
        raw_large[i] = raw_stream(1 << 20, in_pieces);
        large[i] = rail_stream(1 << 20);
    }
    for (int i = 0; i < ROUNDS && getenv("VERBOSE"); i++)
        printf("%.0f %.0f ns, %.2f %.2f, %.2f %.2f GB/s\n", raw[i], rail[i], raw_small[i], small[i],
               raw_large[i], large[i]);
    base = best(raw, true);
    b[0] = best(two, true);
    b[1] = best(rail, true);
    printf("best of %d rounds\n", ROUNDS);
    printf("round trip, cache line        %8.0f ns\n", base);
    printf("round trip, line and data     %8.0f ns  %.2f x the line\n", b[0], b[0] / base);
    printf("round trip, rail, 64 bytes    %8.0f ns  %.2f x the line, %.2f x line and data\n", b[1],
           b[1] / base, b[1] / b[0]);
    b[0] = best(raw_small, false);
    b[1] = best(small, false);
    printf("stream, raw, 256 KiB          %8.2f GB/s\n", b[0]);
    printf("stream, rail, ring 256 KiB    %8.2f GB/s  %.2f x\n", b[1], b[1] / b[0]);
    b[0] = best(raw_large, false);
    b[1] = best(large, false);
    printf("stream, raw, 1 MiB            %8.2f GB/s\n", b[0]);
    printf("stream, rail, ring 1 MiB      %8.2f GB/s  %.2f x\n", b[1], b[1] / b[0]);
    return 0;
}
