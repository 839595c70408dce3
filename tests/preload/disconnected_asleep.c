/*
 * disconnected_asleep.c - connect() to AF_UNSPEC while other threads sleep in calls on the socket:
 * what these return, and what the socket says afterwards.
 */
#include "pair.h"

#include "../asleep.h"

#include <pthread.h>

static _Atomic int sleeper;
static int end;
static ssize_t got;
static int error;

static void *receive(void *flags)
{
    char bytes[100];

    sleeper = gettid();
    got = recv(end, bytes, sizeof(bytes), flags ? MSG_WAITALL : 0);
    error = got < 0 ? errno : 0;
    return NULL;
}

static void *fill(void *unused)
{
    static char bytes[8 << 20];

    (void)unused;
    sleeper = gettid();
    got = send(end, bytes, sizeof(bytes), MSG_NOSIGNAL) >
          0; /* how many depends on what there was room for */
    error = got < 0 ? errno : 0;
    return NULL;
}

static void asleep_in(void *(*fn)(void *), bool wait_all)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    pthread_t t;
    char byte;
    int p[2];

    tcp_pair(p);
    on_rail(p);
    end = p[0];
    sleeper = 0;
    must(pthread_create(&t, NULL, fn, wait_all ? &end : NULL) == 0, "thread");
    until_it_sleeps(&sleeper);
    SHOW(connect(end, &none, sizeof(none)));
    must(pthread_join(t, NULL) == 0, "join");
    printf("%zd %s\n", got, error ? strerrorname_np(error) : "");
    SHOW(recv(end, &byte, 1, MSG_DONTWAIT));
    SHOW(send(end, "x", 1, MSG_NOSIGNAL));
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    for (int i = 0; i < 5; i++) {
        asleep_in(receive, false);
        asleep_in(receive, true);
    }
    asleep_in(fill, false);
    return 0;
}
