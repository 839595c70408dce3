/*
 * asynchronous.c - threads that may be cancelled at any instruction, and are while they send and
 * receive. The connection goes on afterwards: nothing of theirs is locked.
 */
#include "pair.h"

#include "../asleep.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

static int c, s;
static _Atomic unsigned long calls;
/* In this trial; no ring is full, for which the connection would leave its rail. */
static _Atomic long sent, got;
enum { AHEAD = 16384 };
static _Atomic int began, at_once;

static void asynchronous(void)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    began = 1;
}

static void *sending(void *unused)
{
    char buf[64] = "x";

    (void)unused;
    asynchronous();
    for (; send(c, buf, sizeof(buf), MSG_NOSIGNAL) >= 0; calls++) {
        sent += sizeof(buf);
        while (sent - got > AHEAD)
            sched_yield();
    }
    perror("send");
    return NULL;
}

static void *receiving(void *unused)
{
    char buf[256];
    ssize_t n;

    (void)unused;
    asynchronous();
    for (; (n = recv(s, buf, sizeof(buf), 0)) > 0; calls++)
        got += n;
    perror("recv");
    return NULL;
}

static void *polling(void *unused)
{
    struct pollfd p = {.fd = s, .events = POLLIN};
    char buf[256];
    ssize_t n;

    (void)unused;
    asynchronous();
    for (; poll(&p, 1, -1) >= 0; calls++)
        if ((n = recv(s, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
            got += n;
    perror("poll");
    return NULL;
}

/* What it calls has long returned when it is cancelled, and nothing that it does is a
 * cancellation point. */
static void *computing(void *unused)
{
    char b = 'x';

    (void)unused;
    asynchronous();
    must(send(c, &b, 1, 0) == 1, "send");
    at_once = 1;
    for (;;)
        calls++;
    return NULL;
}

/* Its last call has been deferred, and so is the cancellation that comes now. */
static void *deferred(void *unused)
{
    int old;

    (void)unused;
    asynchronous();
    must(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old) == 0, "type");
    printf("was asynchronous: %d\n", old == PTHREAD_CANCEL_ASYNCHRONOUS);
    at_once = 1;
    while (at_once)
        calls++;
    must(send(c, "x", 1, 0) == 1, "send"); /* a cancellation point */
    return NULL;
}

static sigjmp_buf out;
static _Atomic int sleeper;

static void jump(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

/* A handler jumps out of a sleep, which has been a cancellation point: libc leaves the thread an
 * asynchronous one, we do not. */
static void *jumping(void *unused)
{
    const char *mode = getenv("RAILSOCK_MODE");
    int old;
    char b;

    (void)unused;
    if (sigsetjmp(out, 1) == 0) {
        sleeper = gettid();
        must(recv(s, &b, 1, 0) < 0, "recv");
    }
    must(send(c, "x", 1, 0) == 1 && recv(s, &b, 1, 0) == 1, "pass");
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old);
    must(!mode || old == PTHREAD_CANCEL_DEFERRED, "type");
    return NULL;
}

static void jumps_over_recv(void)
{
    char b;

    if (sigsetjmp(out, 1) == 0) {
        sleeper = gettid();
        must(recv(s, &b, 1, 0) < 0, "recv");
    }
}

/* It makes no call any more. */
static void *computing_after_jump(void *unused)
{
    (void)unused;
    asynchronous();
    jumps_over_recv();
    at_once = 1;
    for (;;)
        calls++;
    return NULL;
}

/* Asks for it after the jump. */
static void *asking_after_jump(void *unused)
{
    began = 1;
    jumps_over_recv();
    return computing(unused);
}

static void stay(int sig)
{
    (void)sig;
    at_once = 1;
    for (;;)
        calls++;
}

/* A handler over a sleep has no end. */
static void *handling(void *unused)
{
    char b;

    (void)unused;
    asynchronous();
    sleeper = gettid();
    must(recv(s, &b, 1, 0) < 0, "recv");
    return NULL;
}

static void jumps_out(void)
{
    pthread_t t;

    signal(SIGUSR1, jump);
    must(pthread_create(&t, NULL, jumping, NULL) == 0, "thread");
    until_it_sleeps(&sleeper);
    pthread_kill(t, SIGUSR1);
    must(pthread_join(t, NULL) == 0, "join");
}

static void begin(pthread_t *t, void *(*fn)(void *))
{
    began = 0;
    must(pthread_create(t, NULL, fn, NULL) == 0, "thread");
    for (time_t since = time(NULL); !began;)
        must(others_run(since), "the thread");
}

static void ends(pthread_t t)
{
    void *result;

    must(pthread_join(t, &result) == 0, "join");
    must(result == PTHREAD_CANCELED, "cancelled");
}

static void connected(void)
{
    int p[2];

    tcp_pair(p);
    on_rail(p);
    c = p[0];
    s = p[1];
}

static void drain(void)
{
    char buf[4096];

    while (recv(s, buf, sizeof(buf), MSG_DONTWAIT) > 0)
        ;
}

/* At a different place each time. */
static void run_for(unsigned turns)
{
    unsigned long from = calls;

    for (time_t since = time(NULL); calls - from < turns;)
        must(others_run(since), "calls");
    for (volatile unsigned i = 0; i < turns * 37 % 1009; i++)
        ;
}

/* Of a connection on a rail, if it is to be on one: a thread that is cancelled in libc's call may
 * have sent or taken bytes that nobody counts, after which the connection stays on TCP. */
static void trials(void *(*in)(void *))
{
    enum { CONNECTIONS = 10, EACH = 20 };

    for (unsigned i = 0; i < CONNECTIONS * EACH; i++) {
        pthread_t from, to;

        if (i % EACH == 0)
            connected();
        sent = got = 0;
        begin(&to, in);
        begin(&from, sending);
        run_for(1 + i % 50);
        /* Who sends may wait for room that nobody makes any more, and the other way round. */
        must(pthread_cancel(i % 2 ? from : to) == 0, "cancel");
        ends(i % 2 ? from : to);
        must(pthread_cancel(i % 2 ? to : from) == 0, "cancel");
        ends(i % 2 ? to : from);
        drain();
        if (i % EACH == EACH - 1) {
            deliver(c, s, "still works");
            must(close(c) == 0 && close(s) == 0, "close");
        }
    }
}

/* handler: for the sleep of fn's. */
static void one(void *(*fn)(void *), void (*handler)(int))
{
    pthread_t t;

    at_once = 0;
    sleeper = 0;
    begin(&t, fn);
    if (handler) {
        signal(SIGUSR1, handler);
        until_it_sleeps(&sleeper);
        pthread_kill(t, SIGUSR1);
    }
    for (time_t since = time(NULL); !at_once;)
        must(others_run(since), "the call");
    must(pthread_cancel(t) == 0, "cancel");
    at_once = 0;
    ends(t);
}

/* That it has sent. */
static void take_one(void)
{
    char b;

    must(recv(s, &b, 1, 0) == 1, "its byte");
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    trials(receiving);
    trials(polling);
    connected();
    jumps_out();
    one(computing, NULL);
    one(deferred, NULL);
    take_one();
    one(computing_after_jump, jump);
    one(asking_after_jump, jump);
    take_one();
    one(handling, stay);
    deliver(c, s, "still works");
    printf("closed %d %d\n", close(c), close(s));
    return 0;
}
