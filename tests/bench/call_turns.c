/*
 * call_turns.c - what the library adds to a call on a connection that it tracks and that is on TCP,
 * in nanoseconds. Batches of calls take turns on one connection, through the library and straight
 * to libc's function, so that whatever else the machine does meets both. Prints one JSON object:
 * for each call the median and the quartiles of what a batch through the library took more than the
 * one beside it, and what libc's took. bench/cost.py runs it, with RAILSOCK_BOARD=never, since
 * bytes go by the library here.
 *
 *   call_turns BATCHES
 */
#include "bench.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SIZE = 64, CALLS = 150 };

static char buf[SIZE * CALLS];

struct functions {
    ssize_t (*send)(int, const void *, size_t, int);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*read)(int, void *, size_t);
};
static struct functions preloaded = {send, recv, write, read}, libc;

static int near, far;

static ssize_t call(const struct functions *f, char which)
{
    switch (which) {
    case 's':
        return f->send(near, buf, SIZE, 0);
    case 'r':
        return f->recv(near, buf, SIZE, 0);
    case 'w':
        return f->write(near, buf, SIZE);
    default:
        return f->read(near, buf, SIZE);
    }
}

/* Nanoseconds per call. What is received is there before, what is sent is taken after. */
static double batch(const struct functions *f, char which)
{
    int sends = which == 's' || which == 'w', have = 0;
    uint64_t since;

    for (int i = 0; !sends && i < CALLS; i++)
        must(libc.send(far, buf, SIZE, 0) == SIZE, "far send");
    while (!sends && have < SIZE * CALLS)
        must(ioctl(near, FIONREAD, &have) == 0, "FIONREAD");
    since = now();
    for (int i = 0; i < CALLS; i++)
        if (call(f, which) != SIZE)
            must(0, "call");
    since = now() - since;
    if (sends)
        must(libc.recv(far, buf, sizeof(buf), MSG_WAITALL) == sizeof(buf), "far recv");
    return (double)since / CALLS;
}

static void connection(void)
{
    struct sockaddr_in at;
    int l = listening(&at, 1), on = 1, room = 1 << 20;

    near = connected(&at);
    far = accept(l, NULL, NULL);
    must(far >= 0, "accept");
    for (int i = 0; i < 2; i++) {
        int fd = i ? near : far;

        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    }
}

int main(int argc, char **argv)
{
    static const struct {
        char which;
        const char *name;
    } calls[] = {{'s', "send"}, {'r', "recv"}, {'w', "write"}, {'e', "read"}};
    int n = argc == 2 ? atoi(argv[1]) : 0;
    double *more, *took;
    void *h = dlopen("libc.so.6", RTLD_NOW);

    must(n > 0, "call_turns BATCHES");
    more = calloc((size_t)n, sizeof(*more));
    took = calloc((size_t)n, sizeof(*took));
    must(h && more && took, "libc.so.6");
    *(void **)&libc.send = dlsym(h, "send");
    *(void **)&libc.recv = dlsym(h, "recv");
    *(void **)&libc.write = dlsym(h, "write");
    *(void **)&libc.read = dlsym(h, "read");
    connection();
    /* All checkpoints of the proof that are near lie behind. */
    for (int i = 0; i < 2000; i++)
        must(send(near, buf, SIZE, 0) == SIZE && recv(far, buf, SIZE, MSG_WAITALL) == SIZE &&
                 send(far, buf, SIZE, 0) == SIZE && recv(near, buf, SIZE, MSG_WAITALL) == SIZE,
             "exchange");
    printf("{");
    for (unsigned c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
        for (int i = 0; i < n; i++) {
            double first = batch(i % 2 ? &preloaded : &libc, calls[c].which);
            double second = batch(i % 2 ? &libc : &preloaded, calls[c].which);

            took[i] = i % 2 ? second : first;
            more[i] = (i % 2 ? first : second) - took[i];
        }
        qsort(more, (size_t)n, sizeof(*more), by_size);
        qsort(took, (size_t)n, sizeof(*took), by_size);
        printf("%s\"%s\": {\"more\": %.1f, \"from\": %.1f, \"to\": %.1f, \"libc\": %.1f}",
               c ? ", " : "", calls[c].name, more[n / 2], more[n / 4], more[3 * n / 4],
               took[n / 2]);
    }
    printf("}\n");
    return 0;
}
