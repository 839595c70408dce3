/*
 * many.c - what connections cost that no rail serves: memory for each that is held, and the time
 * from connect to close of one that carries a single request. Prints one JSON object. bench/cost.py
 * runs it with and without the library.
 *
 *   many held N      N connections, both ends in this process, which are 2 N sockets: bytes of the
 *                    process's memory for each socket when nothing has passed, and when SIZE bytes
 *                    have each way
 *   many checked N   the same where the connecting ends do not wait for connect, and ask for
 *                    SO_ERROR, as most servers do
 *   many request N   N times connect, request, answer, end, close, with a server of its own, which
 *                    has the library too: nanoseconds
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 64 };

static struct sockaddr_in at;
static char buf[SIZE];

/* Of the process, in bytes, the files that it shares included; page tables are not. */
static double memory(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double kib = -1, v;

    must(f != NULL, "smaps_rollup");
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "Pss: %lf kB", &v) == 1)
            kib = v;
    fclose(f);
    must(kib >= 0, "Pss");
    return kib * 1024;
}

/* As most programs do it, without MSG_WAITALL. */
static bool received(int fd)
{
    for (ssize_t have = 0, n; have < SIZE; have += n)
        if ((n = recv(fd, buf, (size_t)(SIZE - have), 0)) <= 0)
            return false;
    return true;
}

static void pass(const int *fd, int n)
{
    for (int i = 0; i < n; i++)
        must(send(fd[2 * i], buf, SIZE, 0) == SIZE && received(fd[2 * i + 1]) &&
                 send(fd[2 * i + 1], buf, SIZE, 0) == SIZE && received(fd[2 * i]),
             "pass");
}

/* By a connect that does not wait. */
static int checked(const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), err = -1;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t len = sizeof(err);

    must(fd >= 0 &&
             (connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0 || errno == EINPROGRESS),
         "connect");
    must(poll(&p, 1, -1) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0,
         "SO_ERROR");
    must(fcntl(fd, F_SETFL, 0) == 0, "F_SETFL");
    return fd;
}

static void held(int n, int (*connects)(const struct sockaddr_in *))
{
    int l = listening(&at, 1024), *fd = calloc((size_t)n * 2 + 2, sizeof(*fd));
    double before, idle, used;

    most_descriptors();
    /* The first one brings what is there once. */
    fd[0] = connects(&at);
    fd[1] = accept(l, NULL, NULL);
    pass(fd, 1);
    memset(fd, 1, ((size_t)n * 2 + 2) * sizeof(*fd));
    before = memory();
    for (int i = 0; i < n; i++) {
        fd[2 * i] = connects(&at);
        fd[2 * i + 1] = accept(l, NULL, NULL);
        must(fd[2 * i + 1] >= 0, "accept");
    }
    idle = memory();
    pass(fd, n);
    used = memory();
    printf("{\"idle\": %.1f, \"used\": %.1f}\n", (idle - before) / (2 * n),
           (used - before) / (2 * n));
    free(fd);
}

static void serve(int l)
{
    for (;;) {
        int fd = accept(l, NULL, NULL);

        if (fd < 0 || !received(fd) || send(fd, buf, SIZE, 0) != SIZE)
            _exit(1);
        close(fd);
    }
}

static int up(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The server is a program of its own, so that it has the library for itself. */
static void request(const char *self, int n)
{
    uint64_t *took = calloc((size_t)n, sizeof(*took)), since;
    size_t tenth, middle;
    int p[2];
    pid_t child;

    must(pipe(p) == 0, "pipe");
    child = fork();
    if (child == 0) {
        dup2(p[1], 1);
        execl(self, self, "serve", "0", (char *)NULL);
        _exit(1);
    }
    must(read(p[0], &at, sizeof(at)) == sizeof(at), "port");
    for (int i = 0; i < n; i++) {
        int fd;

        since = now();
        fd = connected(&at);
        must(send(fd, buf, SIZE, 0) == SIZE && received(fd), "request");
        must(recv(fd, buf, SIZE, 0) == 0, "end");
        close(fd);
        took[i] = now() - since;
    }
    close(connected(&at)); /* without a request: the server ends, and what it is at is done */
    waitpid(child, NULL, 0);
    qsort(took, (size_t)n, sizeof(*took), up);
    /* What others do on the machine only adds. */
    tenth = (size_t)n / 10;
    middle = (size_t)n / 2;
    printf("{\"tenth\": %.0f, \"median\": %.0f}\n", (double)took[tenth], (double)took[middle]);
    free(took);
}

int main(int argc, char **argv)
{
    int n = argc == 3 ? atoi(argv[2]) : -1;

    if (n > 0 && strcmp(argv[1], "held") == 0) {
        held(n, connected);
    } else if (n > 0 && strcmp(argv[1], "checked") == 0) {
        held(n, checked);
    } else if (n > 0 && strcmp(argv[1], "request") == 0) {
        request(argv[0], n);
    } else if (n == 0 && strcmp(argv[1], "serve") == 0) {
        int l = listening(&at, 1024);

        must(write(1, &at, sizeof(at)) == sizeof(at), "port");
        serve(l);
    } else {
        return 2;
    }
    return 0;
}
