/*
 * crossings.c - connections that have no accepting end, and both ends doing the same thing at once.
 */
#include "pair.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

static struct sockaddr_in bound(int fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);

    must(bind(fd, (struct sockaddr *)&at, len) == 0, "bind");
    must(getsockname(fd, (struct sockaddr *)&at, &len) == 0, "getsockname");
    return at;
}

/* A socket that is connected to itself reads what it writes. */
static void self_connect(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), i;
    struct sockaddr_in at = bound(fd);
    char b[64] = "to myself", look[64];

    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect to itself");
    for (i = 0; i < 200; i++) {
        b[10] = (char)i;
        must(write(fd, b, sizeof(b)) == sizeof(b), "write to itself");
        must(recv(fd, look, sizeof(look), MSG_WAITALL) == sizeof(look), "read from itself");
        must(memcmp(b, look, sizeof(b)) == 0, "other bytes");
    }
    SHOW(shutdown(fd, SHUT_WR));
    SHOW(read(fd, look, sizeof(look)));
    close(fd);
}

static int opening(struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    *at = bound(fd);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Both connect to each other, which takes a network that loses the first two segments. */
static void simultaneous_open(void)
{
    struct sockaddr_in at[2];
    int p[2] = {opening(&at[0]), opening(&at[1])}, i, err;
    socklen_t len = sizeof(err);

    for (i = 0; i < 2; i++)
        if (connect(p[i], (struct sockaddr *)&at[!i], sizeof(at[0])) < 0)
            must(errno == EINPROGRESS, "connect");
    for (i = 0; i < 2; i++) {
        struct pollfd w = {p[i], POLLOUT, 0};

        must(poll(&w, 1, 10000) == 1, "no connection");
        must(getsockopt(p[i], SOL_SOCKET, SO_ERROR, &err, &len) == 0, "SO_ERROR");
        printf("simultaneous open, end %d: %s\n", i, err ? strerrorname_np(err) : "connected");
        fcntl(p[i], F_SETFL, 0);
    }
    may_board = false; /* nobody is the connecting side */
    warm(p);
    deliver(p[0], p[1], "from the first");
    deliver(p[1], p[0], "from the second");
    close(p[0]);
    close(p[1]);
}

struct both {
    int fd;
    pthread_barrier_t *start;
    int how; /* 0: shutdown, then read to the end; 1: close */
};

static void *at_once(void *arg)
{
    struct both *b = arg;
    static __thread char buf[4096];
    ssize_t n = 0, r;

    pthread_barrier_wait(b->start);
    must(write(b->fd, "last words", 10) == 10, "write");
    if (b->how) {
        shutdown(b->fd, SHUT_WR);
        while ((r = read(b->fd, buf, sizeof(buf))) > 0)
            n += r;
        must(r == 0 && n == 10, "the end");
    }
    close(b->fd);
    return NULL;
}

/* Both ends, in two threads of one process, end at the same moment, again and again. */
static void ends_cross(int how)
{
    pthread_barrier_t start;
    int i, j;

    pthread_barrier_init(&start, NULL, 2);
    for (i = 0; i < 15; i++) {
        struct both b[2];
        pthread_t t[2];
        int p[2];

        tcp_pair(p);
        for (j = 0; j < 2; j++) {
            b[j] = (struct both){p[j], &start, how};
            must(pthread_create(&t[j], NULL, at_once, &b[j]) == 0, "pthread_create");
        }
        for (j = 0; j < 2; j++)
            pthread_join(t[j], NULL);
    }
    printf("ends crossed: %s\n", how ? "shutdown" : "close");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "open") == 0) {
        simultaneous_open();
        return 0;
    }
    self_connect();
    ends_cross(0);
    ends_cross(1);
    return 0;
}
