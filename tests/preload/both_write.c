/*
 * both_write.c - both ends write much before either reads. The kernel's buffers hold it.
 */
#include "pair.h"

#include <poll.h>
#include <pthread.h>

enum { MUCH = 1200000 };

static pthread_barrier_t written;

static void *end(void *arg)
{
    int fd = *(int *)arg, n = 0, r;
    char *buf = malloc(MUCH);

    memset(buf, 'x', MUCH);
    while (n < MUCH && (r = (int)write(fd, buf + n, MUCH - (size_t)n)) > 0)
        n += r;
    pthread_barrier_wait(&written);
    must(n == MUCH, "write");
    for (n = 0; n < MUCH && (r = (int)read(fd, buf + n, MUCH - (size_t)n)) > 0;)
        n += r;
    must(n == MUCH && memchr(buf, 'x', 1), "read");
    free(buf);
    return NULL;
}

/* The same by one thread that does not block, and asks poll when it may write. */
static void alone(int p[2])
{
    static char block[100000];
    int left[2] = {MUCH, MUCH}, i, rounds;

    for (rounds = 0; rounds < 10000 && left[0] + left[1]; rounds++) {
        struct pollfd set[2] = {{p[0], left[0] ? POLLOUT : 0, 0}, {p[1], left[1] ? POLLOUT : 0, 0}};

        must(poll(set, 2, 20000) > 0, "poll: there is no room for what TCP takes");
        for (i = 0; i < 2; i++) {
            int n = left[i] < (int)sizeof(block) ? left[i] : (int)sizeof(block);
            ssize_t r = set[i].revents ? send(p[i], block, (size_t)n, MSG_DONTWAIT) : 0;

            if (r > 0)
                left[i] -= (int)r;
        }
    }
    printf("not written: %d and %d\n", left[0], left[1]);
    for (i = 0; i < 2; i++) {
        ssize_t r, n = 0;

        while (n < MUCH && (r = read(p[i], block, sizeof(block))) > 0)
            n += r;
        printf("read: %zd\n", n);
    }
}

/* Writes only when poll has said so, and never more than there is room for, so that no call ever
 * says that it would block; the other end does not read meanwhile. */
static void polite(int p[2])
{
    static char block[4096];
    struct pollfd out = {p[0], POLLOUT, 0};
    ssize_t n, total = 0;

    for (; total < MUCH; total += n) {
        must(poll(&out, 1, 20000) > 0, "poll: there is no room for what TCP takes");
        n = write(p[0], block, sizeof(block));
        must(n > 0, "write");
    }
    printf("written: %zd\n", total);
    while (total > 0 && (n = read(p[1], block, sizeof(block))) > 0)
        total -= n;
    printf("not read: %zd\n", total);
}

int main(void)
{
    int p[2], i;
    pthread_t t[2];

    pthread_barrier_init(&written, NULL, 2);
    tcp_pair(p);
    for (i = 0; i < 2; i++)
        must(pthread_create(&t[i], NULL, end, &p[i]) == 0, "pthread_create");
    for (i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    puts("both have written, then read");
    close(p[0]);
    close(p[1]);
    tcp_pair(p);
    alone(p);
    close(p[0]);
    close(p[1]);
    tcp_pair(p);
    polite(p);
    return 0;
}
