/*
 * bench.h - what the programs of this folder share: giving up, the clock, sorting, and connections
 * on the loopback address.
 */
#ifndef BENCH_H
#define BENCH_H

#include <arpa/inet.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

static inline void must(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

/* Monotonic, ns. */
static inline uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double seconds_since(uint64_t then)
{
    return (double)(now() - then) / 1e9;
}

/* The calling thread, to that processor. */
static inline void pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* For qsort. */
static inline int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Listens on a port of the kernel's choice; at says which. */
static inline int listening(struct sockaddr_in *at, int backlog)
{
    socklen_t len = sizeof(*at);
    int l = socket(AF_INET, SOCK_STREAM, 0);

    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    must(bind(l, (struct sockaddr *)at, len) == 0 && listen(l, backlog) == 0 &&
             getsockname(l, (struct sockaddr *)at, &len) == 0,
         "listen");
    return l;
}

static inline int connected(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    must(fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    return fd;
}

/* As many descriptors as the process may have. */
static inline void most_descriptors(void)
{
    struct rlimit limit;

    must(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

#endif
