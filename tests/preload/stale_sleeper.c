/*
 * stale_sleeper.c - a thread sleeps in poll, or in select, on a connection whose number is
 * closed and given to another, which is accepted, or connects: the other one is not its
 * business, and gets its bytes.
 */
#include "../asleep.h"
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <sys/select.h>

enum { ROUNDS = 400 };

static int number;
static bool by_select, connects;
static _Atomic int sleeper;
static _Atomic bool awake;

static void *sleep_on(void *unused)
{
    struct pollfd p = {.fd = number, .events = POLLIN};
    fd_set r;

    (void)unused;
    FD_ZERO(&r);
    FD_SET(number, &r);
    sleeper = gettid();
    if (by_select)
        must(select(number + 1, &r, NULL, NULL, NULL) == 1, "select");
    else
        must(poll(&p, 1, -1) == 1, "poll");
    awake = true;
    return NULL;
}

/* Asks for what has come, without sleeping in a receive. */
static void get(int fd, char *buf, size_t n)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    for (size_t at = 0; at < n;) {
        ssize_t r;

        must(poll(&p, 1, -1) == 1, "poll");
        r = recv(fd, buf + at, n - at, MSG_DONTWAIT);
        must(r > 0 || (r < 0 && errno == EAGAIN), "recv");
        at += r > 0 ? (size_t)r : 0;
    }
}

static void once(int l, const struct sockaddr_in *at)
{
    char ask[32] = {0}, got[32];
    time_t since = time(NULL);
    int old[2], new[2];
    pthread_t t;

    pair_at(l, at, old);
    number = old[1];
    sleeper = 0;
    awake = false;
    pthread_create(&t, NULL, sleep_on, NULL);
    if (connects) {
        until_it_sleeps(&sleeper);
        close(old[1]);
        new[1] = socket(AF_INET, SOCK_STREAM, 0);
        for (int i = 0; new[1] != number &&i < TRIES_FOR_A_NUMBER; i++) {
            close(new[1]);
            new[1] = socket(AF_INET, SOCK_STREAM, 0);
        }
        must(connect(new[1], (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
        new[0] = accept(l, NULL, NULL);
    } else {
        new[0] = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(new[0], (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
        until_it_sleeps(&sleeper);
        close(old[1]);
        new[1] = accept(l, NULL, NULL);
        for (int i = 0; new[1] != number &&i < TRIES_FOR_A_NUMBER; i++) {
            int other = new[1];

            new[1] = dup(other);
            close(other);
        }
    }
    must(new[1] == number, "the same number");
    for (int i = 0; i < ROUNDS; i++) {
        memcpy(ask, &i, sizeof(i));
        must(write(new[0], ask, sizeof(ask)) == sizeof(ask), "ask");
        get(new[1], got, sizeof(got));
        must(memcmp(got, ask, sizeof(ask)) == 0, "what was asked");
        must(write(new[1], got, sizeof(got)) == sizeof(got), "answer");
        get(new[0], got, sizeof(got));
    }
    /* The old one wakes it, and the kernel then looks at what the number is now: at its end. */
    close(new[0]);
    while (!awake && others_run(since))
        (void)send(old[0], "x", 1, MSG_NOSIGNAL);
    pthread_join(t, NULL);
    close(old[0]);
    close(new[1]);
    printf("%s, %s: %d answers\n", by_select ? "select" : "poll",
           connects ? "connected" : "accepted", ROUNDS);
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at);

    alarm(120);
    for (int i = 0; i < 4; i++) {
        by_select = i & 1;
        connects = i & 2;
        once(l, &at);
    }
    return 0;
}
