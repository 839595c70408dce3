/*
 * takes_nothing.c - a receive of no bytes waits for some as any other, and once it has waited it
 * returns 0, however that has ended: by bytes, the socket's time-out, a handler, FIN, or a reset,
 * which the next receive tells.
 */
#include "pair.h"

#include "../asleep.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static _Atomic int sleeper;
static int end, flags;
static long got;
static int error;

static void *receive(void *by_message)
{
    struct msghdr m = {0};
    char byte;

    sleeper = gettid();
    got = by_message ? recvmsg(end, &m, flags) : recv(end, &byte, 0, flags);
    error = got < 0 ? errno : 0;
    return NULL;
}

static void handler(int sig)
{
    (void)sig;
}

static void reset(int fd)
{
    struct linger at_once = {1, 0};

    must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0, "SO_LINGER");
    close(fd);
}

enum { BYTES, TIME, SIGNAL, RESTARTS, FIN, RESET, WAYS };
static const char *const names[] = {"bytes", "time", "signal", "SA_RESTART", "FIN", "reset"};

static void ends_by(int way, bool by_message)
{
    struct sigaction act = {.sa_handler = handler, .sa_flags = way == RESTARTS ? SA_RESTART : 0};
    struct timeval tv = {0, 50000};
    char bytes[16];
    pthread_t t;
    int p[2];

    tcp_pair(p);
    on_rail(p);
    end = p[1];
    if (way == TIME)
        must(setsockopt(end, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0, "SO_RCVTIMEO");
    sigaction(SIGUSR1, &act, NULL);
    sleeper = 0;
    must(pthread_create(&t, NULL, receive, by_message ? &end : NULL) == 0, "thread");
    if (way != TIME)
        until_it_sleeps(&sleeper);
    switch (way) {
    case BYTES:
        must(write(p[0], "bytes", 5) == 5, "write");
        break;
    case SIGNAL:
    case RESTARTS:
        pthread_kill(t, SIGUSR1);
        break;
    case FIN:
        close(p[0]);
        break;
    case RESET:
        reset(p[0]);
        break;
    default:
        break;
    }
    must(pthread_join(t, NULL) == 0, "join");
    printf("%s: %ld %s\n", names[way], got, error ? strerrorname_np(error) : "");
    SHOW(recv(end, bytes, sizeof(bytes), MSG_DONTWAIT));
    SHOW(recv(end, bytes, 0, MSG_DONTWAIT));
    SHOW(recv(end, bytes, sizeof(bytes), MSG_DONTWAIT));
    if (way < FIN)
        close(p[0]);
    close(p[1]);
}

int main(void)
{
    static const int all[] = {0, MSG_PEEK, MSG_WAITALL};

    for (int i = 0; i < 3; i++) {
        flags = all[i];
        for (int way = 0; way < WAYS; way++)
            ends_by(way, i != 1 && way % 2);
    }
    return 0;
}
