/*
 * pair.h - for the programs of this folder: each prints what its calls gave, so that a
 * run under the library can be compared with a run without. Nothing that differs between
 * two plain runs may be printed.
 */
#ifndef TESTS_PRELOAD_PAIR_H
#define TESTS_PRELOAD_PAIR_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* errno must not change when a call succeeds. */
#define CLEAN 4242

/* Prints the call's result, with errno's name if it failed, and whether errno moved if not. */
#define SHOW(call)                                                                  \
    do {                                                                            \
        errno = CLEAN;                                                              \
        long r_ = (long)(call);                                                     \
        int e_ = errno;                                                             \
        if (r_ == -1)                                                               \
            printf("%s = -1 %s\n", #call, strerrorname_np(e_));                     \
        else                                                                        \
            printf("%s = %ld%s\n", #call, r_, e_ == CLEAN ? "" : " (errno moved)"); \
    } while (0)

__attribute__((noreturn)) static inline void give_up(const char *what)
{
    perror(what);
    exit(2);
}

static inline void must(bool ok, const char *what)
{
    if (!ok)
        give_up(what);
}

static inline int listener(struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(*at);

    memset(at, 0, sizeof(*at));
    at->sin_family = AF_INET;
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(fd >= 0 && bind(fd, (struct sockaddr *)at, len) == 0 && listen(fd, 64) == 0, "listen");
    must(getsockname(fd, (struct sockaddr *)at, &len) == 0, "getsockname");
    return fd;
}

/* p[0] has connected to l at this address, p[1] is accepted. */
static inline void pair_at(int l, const struct sockaddr_in *at, int p[2])
{
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(p[0], (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    must(p[1] >= 0, "accept");
}

/* As much as a stream needs that wants to board, given RAILSOCK_MODE=rail and a moment. */
static inline void warm(int p[2])
{
    char bytes[64] = "some bytes that both ends of the stream have seen";
    int i, j;

    for (i = 0; i < 20; i++) {
        for (j = 0; j < 2; j++) {
            must(write(p[j], bytes, sizeof(bytes)) == sizeof(bytes), "warm write");
            must(recv(p[!j], bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "warm read");
        }
        if (getenv("PAIR_WARM"))
            usleep(2000);
    }
}

/* A connected pair that has exchanged that much. */
static inline void tcp_pair(int p[2])
{
    struct sockaddr_in at;
    int l = listener(&at);

    pair_at(l, &at, p);
    close(l);
    warm(p);
}

/* The other end sends this; wait until it has arrived, so that what is printed does not depend on
 * timing. */
static inline void deliver(int from, int to, const char *text)
{
    size_t n = strlen(text), i;
    char look[256];

    must(write(from, text, n) == (ssize_t)n, "deliver");
    for (i = 0; i < 5000; i++) {
        if (recv(to, look, sizeof(look), MSG_PEEK | MSG_DONTWAIT) >= (ssize_t)n)
            return;
        usleep(1000);
    }
    must(false, "delivery");
}

#endif
