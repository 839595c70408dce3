/*
 * keys.c - a program that has all of the process's thread-specific keys, what the library has
 * made before or all there are: none of their values changes, and threads that poll leave no
 * descriptor behind.
 */
#include "pair.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>

enum { THREADS = 40 };

static pthread_key_t key[PTHREAD_KEYS_MAX];
static int keys, changed, strange;

static void ended(void *value)
{
    if ((char *)value < (char *)key || (char *)value >= (char *)(key + keys))
        strange++;
}

static void *polls(void *fds)
{
    struct pollfd tcp = {((int *)fds)[0], POLLIN, 0}, rail = {((int *)fds)[1], POLLIN, 0};

    for (int i = 0; i < keys; i++)
        pthread_setspecific(key[i], &key[i]);
    must(poll(&tcp, 1, 2) == 0 && poll(&rail, 1, 2) == 0, "poll");
    for (int i = 0; i < keys; i++)
        changed += pthread_getspecific(key[i]) != &key[i];
    return NULL;
}

/* Of the lowest numbers that are free, or of the library's. */
static int open_numbers(void)
{
    int n = 0;

    for (int fd = 0; fd < 2000; fd++)
        n += syscall(SYS_fcntl, fd, F_GETFD) >= 0;
    return n;
}

static void take_all(void)
{
    while (keys < PTHREAD_KEYS_MAX && pthread_key_create(&key[keys], ended) == 0)
        keys++;
}

/* Before any library's constructor. */
static void first(int argc, char **argv, char **env)
{
    (void)argv, (void)env;
    if (argc > 1)
        take_all();
}
__attribute__((section(".preinit_array"), used)) static void (*at_first)(int, char **,
                                                                         char **) = first;

int main(int argc, char **argv)
{
    int p[2], fresh[2], fds[2], before, l;
    struct sockaddr_in at;
    pthread_t t;

    take_all();
    tcp_pair(p);
    l = listener(&at);
    pair_at(l, &at, fresh);
    fds[0] = fresh[0];
    fds[1] = p[0];
    polls(fds);
    before = open_numbers();
    for (int i = 0; i < THREADS; i++) {
        must(pthread_create(&t, NULL, polls, fds) == 0, "thread");
        pthread_join(t, NULL);
    }
    printf("changed: %d, not ours: %d\n", changed, strange);
    printf("left open: %s\n", open_numbers() - before < THREADS / 2 ? "nothing" : "much");
    close(p[0]);
    close(p[1]);
    fflush(stdout);
    if (argc == 1)
        execl("/proc/self/exe", argv[0], "first", NULL);
    return argc == 1;
}
