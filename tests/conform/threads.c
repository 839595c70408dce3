/*
 * threads.c - several threads on one connection, calls that are cancelled or interrupted, and a
 * descriptor that is closed under a sleeper: pthreads(7), signal(7), close(2).
 */
#include "tests/conform/kit.h"

#include "tests/asleep.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <sys/epoll.h>

static int p[2];

#define EACH_BYTES 200000

struct worker {
    pthread_t thread;
    char letter;
    _Atomic long count[2];
};

static void *writes(void *arg)
{
    struct worker *w = arg;
    char bytes[1000];

    memset(bytes, w->letter, sizeof(bytes));
    for (long left = EACH_BYTES; left > 0;) {
        ssize_t n = send(p[0], bytes, left < 1000 ? (size_t)left : 1000, 0);

        must(n > 0, "send");
        left -= n;
    }
    return NULL;
}

static void *reads(void *arg)
{
    struct worker *w = arg;
    char bytes[700];
    ssize_t n;

    while ((n = recv(p[1], bytes, sizeof(bytes), 0)) > 0)
        for (ssize_t i = 0; i < n; i++)
            w->count[bytes[i] - 'a']++;
    must(n == 0, "recv");
    return NULL;
}

CASE(two_write_two_read)
{
    struct worker w[2] = {{.letter = 'a'}, {.letter = 'b'}}, r[2] = {{.letter = 0}, {.letter = 0}};

    pair(p);
    for (int i = 0; i < 2; i++) {
        pthread_create(&r[i].thread, NULL, reads, &r[i]);
        pthread_create(&w[i].thread, NULL, writes, &w[i]);
    }
    pthread_join(w[0].thread, NULL);
    pthread_join(w[1].thread, NULL);
    SHOW(shutdown(p[0], SHUT_WR));
    pthread_join(r[0].thread, NULL);
    pthread_join(r[1].thread, NULL);
    say("a %ld, b %ld", r[0].count[0] + r[1].count[0], r[0].count[1] + r[1].count[1]);
}

static void *both_directions(void *arg)
{
    int end = *(int *)arg;

    for (size_t at = 0; at < EACH_BYTES; at += 1000)
        put(p[end], at, 1000);
    return NULL;
}

static _Atomic int fine;

static void *checks(void *arg)
{
    static _Thread_local unsigned char bytes[4096];
    int end = *(int *)arg;

    for (size_t at = 0; at < EACH_BYTES;) {
        ssize_t n = recv(p[end], bytes, sizeof(bytes), 0);

        must(n > 0, "recv");
        for (ssize_t i = 0; i < n; i++)
            must(bytes[i] == pattern(at + (size_t)i), "byte");
        at += (size_t)n;
    }
    fine++;
    return NULL;
}

CASE(full_duplex)
{
    int ends[2] = {0, 1};
    pthread_t t[4];

    pair(p);
    /* put() has one buffer: the writers take turns */
    pthread_create(&t[2], NULL, checks, &ends[0]);
    pthread_create(&t[3], NULL, checks, &ends[1]);
    pthread_create(&t[0], NULL, both_directions, &ends[0]);
    pthread_join(t[0], NULL);
    pthread_create(&t[1], NULL, both_directions, &ends[1]);
    pthread_join(t[1], NULL);
    pthread_join(t[2], NULL);
    pthread_join(t[3], NULL);
    say("fine %d", fine);
}

/* ---- cancellation */

struct sleeper {
    const char *name;
    void (*sleep)(void);
};

static void in_read(void)
{
    (void)!read(p[1], (char[1]){0}, 1);
}

static void in_recvmsg(void)
{
    struct iovec v = {(char[1]){0}, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

    (void)!recvmsg(p[1], &m, 0);
}

static void in_peek(void)
{
    recv(p[1], (char[1]){0}, 1, MSG_PEEK);
}

static void in_poll(void)
{
    poll(&(struct pollfd){p[1], POLLIN, 0}, 1, -1);
}

static void in_select(void)
{
    fd_set in;

    FD_ZERO(&in);
    FD_SET(p[1], &in);
    select(p[1] + 1, &in, NULL, NULL, NULL);
}

static void in_epoll(void)
{
    int ep = epoll_create1(0);
    struct epoll_event e = {EPOLLIN, {.u32 = 1}};

    epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &e);
    epoll_wait(ep, &e, 1, -1);
}

static void in_send(void)
{
    static char bytes[8 << 20];

    send(p[0], bytes, sizeof(bytes), 0);
}

static void in_accept(void)
{
    struct sockaddr_storage at;
    socklen_t len;

    accept(listener(&net4, &at, &len), NULL, NULL);
}

static const struct sleeper sleepers[] = {
    {"read", in_read},     {"recvmsg", in_recvmsg}, {"peek", in_peek}, {"poll", in_poll},
    {"select", in_select}, {"epoll", in_epoll},     {"send", in_send}, {"accept", in_accept},
};

#define EACH_SLEEPER(id, count) EACH(id, struct sleeper, sleepers, count)

static _Atomic int tid;
static _Atomic bool returned;

static void *sleeps(void *arg)
{
    const struct sleeper *f = arg;

    tid = my_tid();
    f->sleep();
    returned = true;
    return NULL;
}

static pthread_t begin(const struct sleeper *f)
{
    pthread_t t;

    pair(p);
    pthread_create(&t, NULL, sleeps, (void *)(uintptr_t)f);
    until_it_sleeps(&tid);
    return t;
}

EACH_SLEEPER(cancelled, COUNT(sleepers))
{
    pthread_t t = begin(f);
    void *result = NULL;

    SHOW(pthread_cancel(t));
    pthread_join(t, &result);
    say("cancelled %d, returned %d", result == PTHREAD_CANCELED, returned);
    if (f->sleep == in_send)
        return;
    deliver(p[0], p[1], "goes on");
    SHOW(read(p[1], (char[10]){0}, 10));
}

static void *is_pending(void *arg)
{
    const struct sleeper *f = arg;

    pthread_cancel(pthread_self());
    f->sleep();
    returned = true;
    return NULL;
}

/* A request that is pending acts at the next cancellation point, though there is
 * nothing to wait for. */
EACH_SLEEPER(cancelled_before, 6)
{
    void *result = NULL;
    pthread_t t;

    pair(p);
    deliver(p[0], p[1], "x");
    pthread_create(&t, NULL, is_pending, (void *)(uintptr_t)f);
    pthread_join(t, &result);
    say("cancelled %d, returned %d", result == PTHREAD_CANCELED, returned);
    SHOW(read(p[1], (char[10]){0}, 10));
}

static void *cannot(void *arg)
{
    int old;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    sleeps(arg);
    return NULL;
}

EACH_SLEEPER(cancellation_disabled, 6)
{
    void *result = PTHREAD_CANCELED;
    pthread_t t;

    pair(p);
    pthread_create(&t, NULL, cannot, (void *)(uintptr_t)f);
    until_it_sleeps(&tid);
    SHOW(pthread_cancel(t));
    SHOW_AS("send", send(p[0], "x", 1, 0));
    pthread_join(t, &result);
    say("cancelled %d, returned %d", result == PTHREAD_CANCELED, returned);
}

/* ---- a handler that does not come back, and one that uses the connection */

static sigjmp_buf out;

static void jumps(int sig)
{
    siglongjmp(out, sig);
}

static void sends_signal(void *thread)
{
    pthread_kill((pthread_t)(uintptr_t)thread, SIGUSR1);
}

EACH_SLEEPER(jumped_out_of, COUNT(sleepers))
{
    struct later l;

    pair(p);
    signal(SIGUSR1, jumps);
    later(&l, sends_signal, (void *)(uintptr_t)pthread_self());
    if (sigsetjmp(out, 1) == 0) {
        f->sleep();
        say("came back");
    } else {
        say("jumped");
    }
    later_end(&l);
    if (f->sleep == in_send)
        return;
    deliver(p[0], p[1], "goes on");
    SHOW(read(p[1], (char[10]){0}, 10));
}

static void answers(int sig)
{
    (void)sig;
    must(write(p[1], "from the handler", 16) == 16, "write");
    must(write(p[0], "!", 1) == 1, "write");
}

/* A read is interrupted by this one, which answers, and goes on. */
static void reads_under(void (*handler)(int))
{
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
    char buf[20] = "";
    struct later l;

    pair(p);
    sigaction(SIGUSR1, &a, NULL);
    later(&l, sends_signal, (void *)(uintptr_t)pthread_self());
    SHOW(read(p[1], buf, 1)); /* goes on after the handler, which sends its byte */
    later_end(&l);
    SHOW(recv(p[0], buf, 16, MSG_WAITALL));
    say_bytes("got", buf, 16);
}

CASE(handler_uses_the_connection)
{
    reads_under(answers);
}

/* A handler is jumped into by another that came over it: what it interrupted goes on
 * all the same. */
static void inner(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

static void outer(int sig)
{
    if (sigsetjmp(out, 1) == 0)
        raise(SIGUSR2);
    answers(sig);
}

CASE(handler_jumped_into)
{
    signal(SIGUSR2, inner);
    reads_under(outer);
}

/* ---- closed under a sleeper: the kernel lets the call go on */

static void closes_then_sends(void *unused)
{
    (void)unused;
    shutdown(p[1], SHUT_RDWR);
    close(p[1]);
}

CASE(shut_and_closed_under_a_reader)
{
    struct later l;

    pair(p);
    later(&l, closes_then_sends, NULL);
    SHOW(read(p[1], (char[1]){0}, 1));
    later_end(&l);
    SHOW(recv(p[0], (char[1]){0}, 1, 0));
}

static void *reads_one(void *unused)
{
    char byte = '?';

    (void)unused;
    tid = my_tid();
    must(read(p[1], &byte, 1) == 1, "read");
    must(byte == 'x', "byte");
    fine++;
    return NULL;
}

CASE(two_sleep_on_one)
{
    pthread_t t[2];

    pair(p);
    for (int i = 0; i < 2; i++) {
        tid = 0;
        pthread_create(&t[i], NULL, reads_one, NULL);
        until_it_sleeps(&tid);
    }
    SHOW(send(p[0], "x", 1, 0));
    SHOW(send(p[0], "x", 1, 0));
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    say("fine %d", fine);
}
