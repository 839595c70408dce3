/*
 * first_trips.c - the first round trips of connections, from TCP to a rail and to the end: where a
 * change of track makes somebody wait for an acknowledgement, it is seen here. Nagle's algorithm is
 * on, as it is in programs that never thought of it.
 *
 *   first_trips CONNECTIONS TRIPS    20 bytes to and fro so often; then a request with the end of
 *                                    the client's half
 *
 * Prints in us: median, 99th percentile and longest of the round trips, and the same of the last
 * ones, for which the server reads on until the end.
 */
#include "bench.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 20 };

__attribute__((noreturn)) static void serve(int l, size_t trips)
{
    char b[BYTES];
    int fd;

    while ((fd = accept(l, NULL, NULL)) >= 0) {
        for (size_t k = 0; recv(fd, b, BYTES, MSG_WAITALL) == BYTES; k++)
            if (k < trips)
                must(send(fd, b, BYTES, 0) == BYTES, "send");
        must(send(fd, b, BYTES, 0) == BYTES, "send");
        close(fd);
    }
    _exit(0);
}

static void print(const char *name, double *us, size_t n)
{
    qsort(us, n, sizeof(*us), by_size);
    printf("\"%s\": [%.1f, %.1f, %.1f]", name, us[n / 2], us[n * 99 / 100], us[n - 1]);
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    size_t trips = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    struct sockaddr_in at;
    int l = listening(&at, 16);
    double *us, *last;
    char b[BYTES] = "to and fro";
    pid_t pid;

    us = n && trips ? calloc(n * trips, sizeof(*us)) : NULL;
    last = n ? calloc(n, sizeof(*last)) : NULL;
    if (!us || !last) {
        fputs("usage: first_trips CONNECTIONS TRIPS\n", stderr);
        free(us);
        free(last);
        return 2;
    }
    pid = fork();
    if (pid == 0)
        serve(l, trips);
    for (size_t i = 0; i < n; i++) {
        int fd = connected(&at);
        uint64_t begin;

        for (size_t k = 0; k < trips; k++) {
            begin = now();
            must(send(fd, b, BYTES, 0) == BYTES && recv(fd, b, BYTES, MSG_WAITALL) == BYTES,
                 "to and fro");
            us[i * trips + k] = seconds_since(begin) * 1e6;
        }
        begin = now();
        must(send(fd, b, BYTES, 0) == BYTES && shutdown(fd, SHUT_WR) == 0 &&
                 recv(fd, b, BYTES, MSG_WAITALL) == BYTES,
             "the last");
        last[i] = seconds_since(begin) * 1e6;
        close(fd);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    printf("{");
    print("trips", us, n * trips);
    printf(", ");
    print("last", last, n);
    printf("}\n");
    free(us);
    free(last);
    return 0;
}
