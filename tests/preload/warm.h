/*
 * warm.h - a server that answers each request, and its client in another process, until both
 * directions of their connection have left TCP, if they are to.
 */
#ifndef TESTS_PRELOAD_WARM_H
#define TESTS_PRELOAD_WARM_H

#include "pair.h"

/* One exchange; told: what the answer begins with. */
static inline void echo(int fd, char told)
{
    char b[256];

    must(recv(fd, b, sizeof b, MSG_WAITALL) == sizeof b, "recv");
    b[0] = told;
    must(write(fd, b, sizeof b) == sizeof b, "write");
}

/* Until both directions have left TCP, if they are to. */
static inline void warms(const char *name, int fd)
{
    time_t begin = time(NULL);
    int quiet = 0;

    for (int i = 0; quiet < 3; i++) {
        unsigned long long sent = tcp_sent(fd), received = tcp_received(fd);

        echo(fd, 0);
        if (mode_rail() && (tcp_sent(fd) != sent || tcp_received(fd) != received))
            quiet = 0;
        else if (i >= 300)
            quiet++;
        if (!others_run(begin)) {
            printf("%s: not on a rail\n", name);
            break;
        }
    }
    echo(fd, 1);
}

/* Where it must not board: all by TCP. */
static inline void stays(const char *name, int fd)
{
    enum { TIMES = 200 };
    unsigned long long before = tcp_received(fd);

    for (int i = 0; i < TIMES; i++)
        echo(fd, 0);
    if (tcp_received(fd) - before < TIMES * 256 - 256)
        printf("%s: by rail\n", name);
}

/* times: 0: until it is told that this is enough; else it waits each time until the server
 * sleeps again. */
static inline void asks(int fd, int times, pid_t server)
{
    char b[256], got[256] = {0};

    for (int i = 0; times ? i < times : got[0] != 1; i++) {
        for (size_t k = 0; k < sizeof b; k++)
            b[k] = (char)random();
        must(write(fd, b, sizeof b) == sizeof b, "write");
        must(recv(fd, got, sizeof got, MSG_WAITALL) == sizeof got, "recv");
        if (memcmp(b + 1, got + 1, sizeof b - 1) != 0)
            printf("another answer\n");
        if (times)
            until_process_sleeps(server);
    }
}

/* Written without waiting: how much. */
static inline long as_much_as_goes(int fd)
{
    static const char bytes[4096];
    long all = 0;
    ssize_t n;

    must(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
    while ((n = write(fd, bytes, sizeof bytes)) > 0)
        all += n;
    must(errno == EAGAIN, "write");
    return all;
}

#endif
