/*
 * closed_under.c - threads that go on writing to a number while another thread closes it: each byte
 * that a write took arrives once, and who comes too late gets EBADF, and no SIGPIPE.
 */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { CONNECTIONS = 200, WRITERS = 2, READERS = 3, WRITES = 300, SIZE = 16 };

static _Atomic int number = -1;
static _Atomic uint64_t taken, writes, rounds[WRITERS];
static _Atomic bool over;

static int l, said[2];
static _Atomic int accepted;
static _Atomic uint64_t arrived;

static void *read_all(void *unused)
{
    unsigned char buf[4096];

    (void)unused;
    while (accepted++ < CONNECTIONS) {
        int fd = accept(l, NULL, NULL);
        ssize_t n;

        must(fd >= 0, "accept");
        while ((n = read(fd, buf, sizeof(buf))) > 0) {
            for (ssize_t i = 0; i < n; i++)
                must(buf[i] == 0x5a, "a byte");
            arrived += (uint64_t)n;
        }
        must(n == 0, "the end");
        close(fd);
    }
    return NULL;
}

static void reader(void)
{
    pthread_t t[READERS];
    uint64_t n;

    alarm(120);
    for (int i = 0; i < READERS; i++)
        pthread_create(&t[i], NULL, read_all, NULL);
    for (int i = 0; i < READERS; i++)
        pthread_join(t[i], NULL);
    n = arrived;
    must(write(said[1], &n, sizeof(n)) == sizeof(n), "said");
    exit(0);
}

static void *write_on(void *which)
{
    unsigned char bytes[SIZE];

    memset(bytes, 0x5a, sizeof(bytes));
    while (!over) {
        int fd = number;
        ssize_t n = fd < 0  ? (sched_yield(), 0)
                    : which ? send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL)
                            : write(fd, bytes, sizeof(bytes));

        rounds[which != NULL]++;
        must(n >= 0 || errno == EBADF, "not EBADF");
        if (n > 0) {
            taken += (uint64_t)n;
            writes++;
        }
    }
    return NULL;
}

int main(void)
{
    struct sockaddr_in at;
    pthread_t t[WRITERS];
    uint64_t n;
    pid_t child;

    alarm(120);
    l = listener(&at);
    must(pipe(said) == 0, "pipe");
    child = fork();
    must(child >= 0, "fork");
    if (child == 0)
        reader();
    for (int i = 0; i < WRITERS; i++)
        pthread_create(&t[i], NULL, write_on, i ? t : NULL);
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        uint64_t before = writes;

        must(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
        number = fd;
        while (writes - before < WRITES)
            sched_yield();
        must(close(fd) == 0, "close");
        number = -1;
        for (int w = 0; w < WRITERS; w++) /* nobody means the number of before */
            for (uint64_t at = rounds[w]; rounds[w] < at + 2;)
                sched_yield();
    }
    over = true;
    for (int i = 0; i < WRITERS; i++)
        pthread_join(t[i], NULL);
    must(read(said[0], &n, sizeof(n)) == sizeof(n), "what the reader says");
    must(waitpid(child, NULL, 0) == child, "waitpid");
    if (n != taken)
        printf("%llu bytes taken, %llu arrived\n", (unsigned long long)taken,
               (unsigned long long)n);
    puts("each byte once");
    return 0;
}
