/*
 * instances.c - a server that makes an epoll instance for a while, again and again, for streams
 * that it also waits for with poll and in a second instance; and one that listens at a new port for
 * each connection. Descriptors must not pile up.
 */
#include "pair.h"

#include <dirent.h>
#include <poll.h>
#include <sys/epoll.h>

enum { ROUNDS = 40 };

static int numbers(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    must(d != NULL, "/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int instance(int fd)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
    int ep = epoll_create1(EPOLL_CLOEXEC);

    must(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll");
    return ep;
}

/* One message through each way of waiting. */
static void turn(int from, int to)
{
    struct pollfd p = {to, POLLIN, 0};
    struct epoll_event ev;
    int one = instance(to), two = instance(to);
    char b[16];

    must(write(from, "a message", 9) == 9, "write");
    must(epoll_wait(one, &ev, 1, 30000) == 1 && ev.data.fd == to, "the first instance is silent");
    must(epoll_wait(two, &ev, 1, 30000) == 1 && ev.data.fd == to, "the second instance is silent");
    must(poll(&p, 1, 30000) == 1, "poll is silent");
    must(read(to, b, sizeof(b)) == 9, "read");
    close(one);
    close(two);
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at), i, before, after, most;
    time_t begin;

    before = numbers();
    for (i = 0; i < ROUNDS; i++) {
        int p[2], j, first[2];

        pair_at(l, &at, p);
        for (j = 0; j < 2; j++)
            first[j] = instance(p[j]); /* where it boards */
        warm(p);
        for (j = 0; j < 4; j++)
            turn(p[j % 2], p[!(j % 2)]);
        for (j = 0; j < 2; j++) {
            close(first[j]);
            close(p[j]);
        }
    }
    for (i = 0; i < ROUNDS; i++) {
        int p[2];

        tcp_pair(p);
        close(p[0]);
        close(p[1]);
    }
    /* A library may close in its own time; some numbers are for all time. */
    most = before + 24;
    begin = time(NULL);
    do
        after = numbers();
    while (after > most && others_run(begin));
    printf("descriptors left open: %s\n", after > most ? "too many" : "few");
    if (after > most)
        fprintf(stderr, "%d at first, %d in the end\n", before, after);
    return 0;
}
