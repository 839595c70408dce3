/*
 * threads.c - threads of one process, each with a connection of its own or several with one, and
 * writes of many sizes, against a server that is another process with as many threads. Prints one
 * JSON object. bench/scale.py runs it, with the library.
 *
 *   threads turns T SECONDS         T threads, T connections: 64 bytes to and fro, blocking
 *   threads stream T SECONDS SIZES  T threads, T connections: writes; the server reads what there
 *                                   is. SIZES: a number of bytes, or several with commas, which
 *                                   take turns
 *   threads shared T SECONDS        T threads, one connection: each writes messages of 64 bytes, a
 *                                   lock around each
 *   threads loose T SECONDS         the same without a lock, which TCP allows: small writes stay
 *                                   whole
 *
 * rate is round trips, MB, or messages per second. `torn` counts messages that were not whole, or
 * out of their thread's order, at the server.
 */
#include "bench.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 64, ROOM = 65536, MOST = 64, SIZES = 16 };

struct message {
    uint32_t thread, number;
    uint8_t fill[SIZE - 8];
};
_Static_assert(sizeof(struct message) == SIZE, "message");

static bool to_and_fro, framed, locked;
static size_t size[SIZES];
static int n_sizes;
static struct sockaddr_in at;

/* ---- the server: a program of its own, so that it has the library for itself ---- */

/* What a connection has brought, told to its client at the end. */
struct brought {
    uint64_t bytes, torn;
};

static void look(const char *got, size_t n, struct brought *b)
{
    static _Thread_local uint32_t next[MOST];

    for (size_t i = 0; i + SIZE <= n; i += SIZE) {
        struct message m;

        memcpy(&m, got + i, SIZE);
        if (m.thread >= MOST || m.number != next[m.thread] || m.fill[0] != (uint8_t)m.thread ||
            m.fill[SIZE - 9] != (uint8_t)m.thread)
            b->torn++;
        if (m.thread < MOST)
            next[m.thread] = m.number + 1;
    }
}

static void *serve_one(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char *room = malloc(ROOM);
    struct brought b = {0};
    size_t kept = 0;
    ssize_t n;

    must(room != NULL, "malloc");
    while ((n = recv(fd, room + kept, ROOM - kept, 0)) > 0) {
        b.bytes += (uint64_t)n;
        if (to_and_fro && send(fd, room, (size_t)n, MSG_NOSIGNAL) != n)
            break;
        if (framed) {
            kept += (size_t)n;
            look(room, kept, &b);
            memmove(room, room + kept / SIZE * SIZE, kept % SIZE);
            kept %= SIZE;
        }
    }
    if (!to_and_fro)
        (void)!send(fd, &b, sizeof(b), MSG_NOSIGNAL);
    free(room);
    close(fd);
    return NULL;
}

static void serve(void)
{
    int l = listening(&at, 64), fd, on = 1;

    must(write(1, &at, sizeof(at)) == sizeof(at), "port");
    while ((fd = accept(l, NULL, NULL)) >= 0) {
        pthread_t t;

        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        must(pthread_create(&t, NULL, serve_one, (void *)(intptr_t)fd) == 0, "thread");
        pthread_detach(t);
    }
}

/* ---- the client ---- */

static _Atomic bool counting, over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct worker {
    _Alignas(128) pthread_t thread;
    int fd;
    uint32_t number;
    uint64_t done; /* round trips, bytes or messages, while it was counted */
};

static void turns(struct worker *w)
{
    char b[SIZE] = "to and fro";

    while (!over) {
        must(send(w->fd, b, SIZE, 0) == SIZE && recv(w->fd, b, SIZE, MSG_WAITALL) == SIZE, "turn");
        w->done += counting;
    }
}

static void stream(struct worker *w)
{
    char *b = calloc(1, ROOM);

    must(b != NULL, "calloc");
    for (int i = 0; !over; i = (i + 1) % n_sizes)
        for (size_t n = size[i], sent = 0; sent < n;) {
            ssize_t r = send(w->fd, b, n - sent, 0);

            must(r > 0, "write");
            sent += (size_t)r;
            w->done += counting ? (uint64_t)r : 0;
        }
    free(b);
}

static void messages(struct worker *w)
{
    struct message m = {.thread = w->number};

    memset(m.fill, (int)w->number, sizeof(m.fill));
    while (!over) {
        if (locked)
            pthread_mutex_lock(&lock);
        must(send(w->fd, &m, SIZE, 0) == SIZE, "message");
        if (locked)
            pthread_mutex_unlock(&lock);
        m.number++;
        w->done += counting;
    }
}

static void *work(void *arg)
{
    if (framed)
        messages(arg);
    else if (to_and_fro)
        turns(arg);
    else
        stream(arg);
    return NULL;
}

static void nap(double s)
{
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};

    nanosleep(&t, NULL);
}

/* The end of what this connection says; what the server has made of it. */
static struct brought end_of(int fd)
{
    struct brought b = {0};

    shutdown(fd, SHUT_WR);
    if (!to_and_fro)
        must(recv(fd, &b, sizeof(b), MSG_WAITALL) == sizeof(b), "end");
    close(fd);
    return b;
}

static void measure(int t, double seconds)
{
    struct worker w[MOST] = {{.fd = -1}};
    int connections = framed ? 1 : t, on = 1;
    uint64_t done = 0, torn = 0, since;
    double took;

    for (int i = 0; i < t; i++) {
        w[i].number = (uint32_t)i;
        w[i].fd = i < connections ? connected(&at) : w[0].fd;
        setsockopt(w[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    for (int i = 0; i < t; i++)
        must(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0, "thread");
    nap(seconds / 4); /* whatever shall board has boarded */
    counting = true;
    since = now();
    nap(seconds);
    counting = false;
    took = seconds_since(since);
    over = true;
    for (int i = 0; i < t; i++) {
        pthread_join(w[i].thread, NULL);
        done += w[i].done;
    }
    for (int i = 0; i < connections; i++)
        torn += end_of(w[i].fd).torn;
    printf("{\"rate\": %.1f, \"torn\": %llu}\n",
           (double)done / took / (to_and_fro || framed ? 1 : 1e6), (unsigned long long)torn);
}

static bool understood(int argc, char **argv)
{
    if (argc < 4)
        return false;
    to_and_fro = strcmp(argv[1], "turns") == 0;
    locked = strcmp(argv[1], "shared") == 0;
    framed = locked || strcmp(argv[1], "loose") == 0;
    if (argc == 5 && strcmp(argv[1], "stream") == 0)
        for (char *s = strtok(argv[4], ","); s && n_sizes < SIZES; s = strtok(NULL, ","))
            size[n_sizes++] = (size_t)atoi(s) < ROOM ? (size_t)atoi(s) : ROOM;
    return atoi(argv[2]) > 0 && atoi(argv[2]) <= MOST && (to_and_fro || framed || n_sizes > 0);
}

int main(int argc, char **argv)
{
    char *server[] = {argv[0], "serve", argc > 1 ? argv[1] : NULL, "1", "1", "1", NULL};
    int p[2];
    pid_t child;

    if (argc > 1 && strcmp(argv[1], "serve") == 0) {
        if (!understood(argc - 1, argv + 1))
            return 2;
        serve();
        return 1;
    }
    if (!understood(argc, argv))
        return 2;
    must(pipe(p) == 0, "pipe");
    child = fork();
    if (child == 0) {
        dup2(p[1], 1);
        execv(argv[0], server);
        _exit(1);
    }
    must(read(p[0], &at, sizeof(at)) == sizeof(at), "port");
    measure(atoi(argv[2]), atof(argv[3]));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
