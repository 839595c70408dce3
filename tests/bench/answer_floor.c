/*
 * answer_floor.c - the least that an answer of nginx's can cost, whatever carries it: a library to
 * preload into nginx, whose clients send one request each and wait. From then on there are no
 * clients and there is no transport: each connection has that request again as soon as it is
 * answered, an answer's header is copied once, and its file is read once, into memory.
 *
 * After three tenths of a second it begins to count, and after two seconds it writes the answers
 * per second into the file that ANSWER_FLOOR names, and is out of the way. tools/measure has it
 * beside the rail, with wrk for the clients.
 *
 * One worker with epoll, a file for an answer, and nothing that nginx does not call for that.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "bench.h"
#include "floor.h"

enum { NUMBERS = 1024, REQUEST = 4096, ROOM = 65536 };

static struct connection {
    struct epoll_event event; /* as nginx has registered it */
    bool known;               /* its request has come */
    bool asks;                /* nginx is to be told of a request */
    bool sent;                /* it has been told, and has not read it */
} all[NUMBERS];

static char request[REQUEST], room[ROOM];
static size_t request_size;
static int most;
static uint64_t answers, began, counted;
static bool over;

static char *into;

/* nginx's workers have no environment any more. */
__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("ANSWER_FLOOR");

    into = name ? strdup(name) : NULL;
}

static struct connection *of(int fd)
{
    return fd >= 0 && fd < NUMBERS && all[fd].known && !over ? &all[fd] : NULL;
}

static void look_at_the_clock(void)
{
    uint64_t t = now();
    FILE *f;

    if (!began)
        began = t;
    if (!counted && t - began > 300000000) {
        counted = t;
        answers = 0;
    }
    if (!counted || t - counted < 2000000000)
        return;
    over = true;
    f = into ? fopen(into, "w") : NULL;
    if (!f)
        abort();
    fprintf(f, "%.0f\n", (double)answers / ((double)(t - counted) / 1e9));
    fclose(f);
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    if (event && fd >= 0 && fd < NUMBERS)
        all[fd].event = *event;
    return NEXT(epoll_ctl)(epfd, op, fd, event);
}

EXPORT int epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
    static unsigned rounds;
    int n = 0;

    if (most && !over && rounds++ % 64 == 0)
        look_at_the_clock();
    for (int fd = 0; fd <= most && n < maxevents && !over; fd++)
        if (all[fd].asks) {
            events[n].events = EPOLLIN;
            events[n++].data = all[fd].event.data;
            all[fd].asks = false;
            all[fd].sent = true;
        }
    if (n)
        return n;
    return NEXT(epoll_wait)(epfd, events, maxevents, timeout);
}

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    struct connection *c = of(fd);
    ssize_t got;

    if (c && !c->sent) {
        errno = EAGAIN;
        return -1;
    }
    if (c) {
        c->sent = false;
        if (n > request_size)
            n = request_size;
        memcpy(buf, request, n);
        return (ssize_t)n;
    }
    got = NEXT(recv)(fd, buf, n, flags);
    if (got > 4 && got <= REQUEST && memcmp(buf, "GET ", 4) == 0 && fd < NUMBERS && !over) {
        request_size = (size_t)got;
        memcpy(request, buf, request_size);
        all[fd].known = true;
        if (fd > most)
            most = fd;
    }
    return got;
}

EXPORT ssize_t writev(int fd, const struct iovec *iovec, int count)
{
    size_t sum = 0;

    if (!of(fd)) {
        return NEXT(writev)(fd, iovec, count);
    }
    for (int i = 0; i < count && sum + iovec[i].iov_len <= ROOM; i++) {
        memcpy(room + sum, iovec[i].iov_base, iovec[i].iov_len);
        sum += iovec[i].iov_len;
    }
    return (ssize_t)sum;
}

EXPORT ssize_t sendfile(int out_fd, int in_fd, off_t *offset, size_t count)
{
    struct connection *c = of(out_fd);
    ssize_t got;

    if (!c || !offset) {
        return NEXT(sendfile)(out_fd, in_fd, offset, count);
    }
    got = pread(in_fd, room, count < ROOM ? count : ROOM, *offset);
    if (got <= 0)
        return got;
    *offset += got;
    if ((size_t)got == count) {
        c->asks = true;
        answers++;
    }
    return got;
}
EXPORT __typeof__(sendfile) sendfile64 __attribute__((alias("sendfile")));

/* TCP_CORK */
EXPORT int setsockopt(int fd, int level, int optname, const void *optval, socklen_t optlen)
{

    if (of(fd))
        return 0;
    return NEXT(setsockopt)(fd, level, optname, optval, optlen);
}
