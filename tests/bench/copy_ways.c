/*
 * copy_ways.c - two processors copy through a ring, by each way of copying: libc's memcpy, and what
 * rsock/copy.c has. A stream of 32 KiB pieces, and messages of 4, 16 and 128 KiB of which each
 * waits until the one before has been read.
 *
 *   build/plain/tests/copy_ways [SECONDS]       for each of them (5)
 *
 * Which caches the two processors have in common changes from second to second on a virtual
 * machine, and with it everything here. So the ways take random turns of some milliseconds, a cache
 * line goes to and fro before and after each, and a turn counts for the state that both say: near,
 * below 200 ns, or far. Prints medians; passes no judgement.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rsock/copy.h"
#include "rsock/sys.h"
#include "tests/bench/bench.h"

enum { RING = 1 << 20, BUFFER = 128 * 1024, PIECE = 32 * 1024, TURN = 4 << 20, TRIPS = 2000 };
enum { NEAR_NS = 200, TURNS = 4096 };

static void whole(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
}

static void into(void *to, const void *from, size_t n)
{
    rsk_copy(to, from, n, RSK_INTO);
}

static void out_of(void *to, const void *from, size_t n)
{
    rsk_copy(to, from, n, RSK_OUT_OF);
}

static void past(void *to, const void *from, size_t n)
{
    rsk_copy(to, from, n, RSK_PAST);
}

static const struct way {
    const char *name;
    void (*in)(void *, const void *, size_t), (*out)(void *, const void *, size_t);
} ways[] = {
    {"memcpy", whole, whole},
    {"memcpy, 2 KiB", into, into},
    {"rsk_copy", into, out_of},
    {"past the caches", past, out_of},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static struct {
    _Alignas(128) _Atomic uint64_t put;
    _Alignas(128) _Atomic uint64_t taken;
    char ring[RING + PIECE]; /* a piece may begin near the end */
} * shared;

/* What the reader is to do next. */
static const struct way *way; /* NULL: the line, to and fro */
static size_t piece;
static bool over;
static pthread_barrier_t turn;

static uint64_t other(_Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void read_all(char *buffer)
{
    for (uint64_t at = 0; at < TURN; at += piece) {
        while (other(&shared->put) - at < piece)
            sys_pause_cpu();
        way->out(buffer + at % BUFFER, shared->ring + at % RING, piece);
        atomic_store_explicit(&shared->taken, at + piece, memory_order_release);
    }
}

static void *reader(void *unused)
{
    static char buffer[BUFFER];

    (void)unused;
    pin(1);
    for (;;) {
        pthread_barrier_wait(&turn);
        if (over)
            break;
        if (way)
            read_all(buffer);
        for (uint64_t i = 1; !way && i <= TRIPS; i++) {
            while (other(&shared->put) != i)
                sys_pause_cpu();
            atomic_store_explicit(&shared->taken, i, memory_order_release);
        }
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

static void write_all(const char *buffer, size_t message)
{
    for (uint64_t at = 0; at < TURN; at += piece) {
        /* A message waits until the one before has been read, a stream for room. */
        uint64_t most = message && at % message == 0 ? 0 : RING - piece;

        while (at - other(&shared->taken) > most)
            sys_pause_cpu();
        way->in(shared->ring + at % RING, buffer + at % BUFFER, piece);
        atomic_store_explicit(&shared->put, at + piece, memory_order_release);
    }
}

/* Nanoseconds of a turn by that way, or for the trips of a line. */
static double one_turn(const struct way *w, const char *buffer, size_t message)
{
    uint64_t began;

    way = w;
    piece = message && message < PIECE ? message : PIECE;
    atomic_store(&shared->put, 0);
    atomic_store(&shared->taken, 0);
    pthread_barrier_wait(&turn);
    began = sys_now();
    if (w)
        write_all(buffer, message);
    for (uint64_t i = 1; !w && i <= TRIPS; i++) {
        atomic_store_explicit(&shared->put, i, memory_order_release);
        while (other(&shared->taken) != i)
            sys_pause_cpu();
    }
    pthread_barrier_wait(&turn);
    return (double)(sys_now() - began);
}

static void compare(const char *buffer, size_t message, unsigned seconds)
{
    static double rate[2][WAYS][TURNS];
    unsigned n[2][WAYS] = {0};
    uint64_t until = sys_now() + seconds * 1000000000ull;
    double before = one_turn(NULL, NULL, 0) / TRIPS, after;

    while (sys_now() < until) {
        int i = rand() % WAYS;
        double ns = one_turn(&ways[i], buffer, message);
        bool far = before >= NEAR_NS;

        after = one_turn(NULL, NULL, 0) / TRIPS;
        if (far == (after >= NEAR_NS) && n[far][i] < TURNS)
            rate[far][i][n[far][i]++] = TURN / ns;
        before = after;
    }
    for (int far = 0; far < 2; far++) {
        if (!n[far][0])
            continue;
        printf("%7.0zu%s %s:", message / 1024, message ? " KiB" : "stream", far ? "far " : "near");
        for (int i = 0; i < WAYS; i++) {
            qsort(rate[far][i], n[far][i], sizeof(double), by_size);
            if (n[far][i])
                printf("  %s %.1f", ways[i].name, rate[far][i][n[far][i] / 2]);
        }
        printf("  GB/s, %u turns each or so\n", n[far][0]);
    }
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 5;
    static char buffer[BUFFER];
    pthread_t other_end;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !seconds)
        return 2;
    memset(shared, 1, sizeof *shared);
    memset(buffer, 1, BUFFER);
    pthread_barrier_init(&turn, NULL, 2);
    if (pthread_create(&other_end, NULL, reader, NULL))
        return 2;
    pin(0);
    for (size_t message = 4096; message <= BUFFER; message *= message == 16384 ? 8 : 4)
        compare(buffer, message, seconds);
    compare(buffer, 0, seconds);
    over = true;
    pthread_barrier_wait(&turn);
    pthread_join(other_end, NULL);
    return 0;
}
