/*
 * threads.c - signals with and without SA_RESTART, a connection that ends while another
 * thread sleeps on it, and a crowd of readers.
 */
#include "../asleep.h"
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static int c, s;
static _Atomic int handled;

static void on_signal(int sig)
{
    (void)sig;
    handled++;
}

static _Atomic bool returned;
static _Atomic int reader;

static void *interrupted(void *how)
{
    char buf[16];
    ssize_t n;

    reader = gettid();
    n = how ? recv(s, buf, 4, MSG_WAITALL) : read(s, buf, sizeof(buf));
    printf("%zd %s\n", n, n < 0 ? strerrorname_np(errno) : "");
    returned = true;
    return NULL;
}

static void signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal};
    pthread_t t;
    int i;

    for (i = 0; i < 3; i++) {
        sa.sa_flags = i == 0 ? SA_RESTART : 0;
        sigaction(SIGUSR1, &sa, NULL);
        returned = false;
        handled = 0;
        reader = 0;
        pthread_create(&t, NULL, interrupted, i == 2 ? &sa : NULL);
        until_it_sleeps(&reader);
        if (i == 2) {
            must(write(c, "ab", 2) == 2, "write");
            until_taken(c, s);
            until_it_sleeps(&reader);
        }
        do {
            int before = handled;

            pthread_kill(t, SIGUSR1);
            while (handled == before && !returned)
                sched_yield();
            /* With SA_RESTART it goes on sleeping, else it returns. It may not have been in
             * the call yet. */
            until_it_sleeps(&reader);
        } while (i > 0 && !returned);
        if (i == 0)
            must(write(c, "after all", 9) == 9, "write");
        pthread_join(t, NULL);
        printf("handled: %d\n", handled > 0);
    }
}

static void ended(void)
{
    pthread_t t;

    reader = 0;
    pthread_create(&t, NULL, interrupted, NULL);
    until_it_sleeps(&reader);
    shutdown(s, SHUT_RDWR);
    pthread_join(t, NULL);
}

static void *busy(void *arg)
{
    char buf[100];
    int fd = *(int *)arg;

    while (read(fd, buf, sizeof(buf)) > 0)
        ;
    return NULL;
}

/* Four readers of one connection, and connections that come and go beside them. */
static void crowd(void)
{
    pthread_t t[4];
    int i, p[2];

    for (i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, busy, &s);
    for (i = 0; i < 50; i++) {
        must(write(c, "some bytes for somebody", 23) == 23, "write");
        tcp_pair(p);
        close(p[i & 1]);
        close(p[!(i & 1)]);
    }
    shutdown(c, SHUT_WR);
    for (i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    puts("all readers saw the end");
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    on_a_pair(signals, &c, &s);
    on_a_pair(ended, &c, &s);
    on_a_pair(crowd, &c, &s);
    return 0;
}
