/*
 * told_of_room.c - who sleeps until bytes can be sent is told so although the receiver stops
 * reading just when there is room: it may be that the last of it is less than a receiver
 * tells of by itself.
 */
#include "pair.h"
#include "../asleep.h"

#include <poll.h>
#include <pthread.h>

enum { ROUNDS = 30, PATIENCE_S = 100 };

static int p[2];
static _Atomic int sleeper;

static void *waits(void *told)
{
    struct pollfd room = {.fd = p[0], .events = POLLOUT};

    sleeper = gettid();
    *(int *)told = poll(&room, 1, -1);
    return NULL;
}

static void takes(size_t n)
{
    static char bytes[65536];
    ssize_t got;

    for (; n > 0; n -= (size_t)got)
        must((got = recv(p[1], bytes, n < sizeof(bytes) ? n : sizeof(bytes), 0)) > 0, "recv");
}

int main(void)
{
    static char bytes[4096];
    int small = 65536, told = 0;

    alarm(PATIENCE_S); /* who is not told sleeps for ever */
    tcp_pair(p);
    /* So that TCP fills up as well. */
    setsockopt(p[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    for (int i = 0; i < ROUNDS; i++) {
        size_t sent = 0;
        pthread_t t;
        int one = 0;

        on_rail(p);
        for (ssize_t n; (n = send(p[0], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0;)
            sent += (size_t)n;
        sleeper = 0;
        must(pthread_create(&t, NULL, waits, &one) == 0, "pthread_create");
        until_it_sleeps(&sleeper);
        takes(sent * 5 / 16);
        until_it_sleeps(&sleeper); /* again, or it is told */
        takes(sent * 7 / 16 - sent * 5 / 16);
        pthread_join(t, NULL);
        told += one == 1;
        takes(sent - sent * 7 / 16);
    }
    printf("told in %d of %d rounds\n", told, ROUNDS);
    return 0;
}
