/*
 * cancel.c - threads that are cancelled while they sleep in a call, and at the entry of one
 * that need not sleep. The connection goes on afterwards.
 */
#include "../asleep.h"
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

static int c, s;

static void cleanup(void *what)
{
    printf("cancelled in %s\n", (const char *)what);
}

static void *reading(void *unused)
{
    char buf[16];
    ssize_t n;

    (void)unused;
    pthread_cleanup_push(cleanup, "read");
    n = read(s, buf, sizeof(buf));
    printf("read %zd\n", n);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *receiving(void *unused)
{
    char buf[16];
    ssize_t n;

    (void)unused;
    pthread_cleanup_push(cleanup, "recv");
    n = recv(s, buf, sizeof(buf), MSG_WAITALL);
    printf("recv %zd\n", n);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *filling(void *unused)
{
    static char much[1 << 20];
    int i;

    (void)unused;
    pthread_cleanup_push(cleanup, "write");
    for (i = 0; i < 100; i++)
        if (write(c, much, sizeof(much)) < 0)
            break;
    puts("everything was written");
    pthread_cleanup_pop(0);
    return NULL;
}

static void *sending(void *unused)
{
    static char much[1 << 20];
    struct iovec v = {much, sizeof(much)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    int i;

    (void)unused;
    pthread_cleanup_push(cleanup, "sendmsg");
    for (i = 0; i < 100; i++)
        if (sendmsg(c, &m, 0) < 0)
            break;
    puts("everything was sent");
    pthread_cleanup_pop(0);
    return NULL;
}

static void *scattering(void *unused)
{
    char buf[16];
    struct iovec v = {buf, sizeof(buf)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

    (void)unused;
    pthread_cleanup_push(cleanup, "recvmsg");
    printf("recvmsg %zd\n", recvmsg(s, &m, 0));
    pthread_cleanup_pop(0);
    return NULL;
}

static void *polling(void *unused)
{
    struct pollfd f = {.fd = s, .events = POLLIN};

    (void)unused;
    pthread_cleanup_push(cleanup, "poll");
    printf("poll %d\n", poll(&f, 1, -1));
    pthread_cleanup_pop(0);
    return NULL;
}

static void *selecting(void *unused)
{
    fd_set r;

    (void)unused;
    FD_ZERO(&r);
    FD_SET(s, &r);
    pthread_cleanup_push(cleanup, "select");
    printf("select %d\n", select(s + 1, &r, NULL, NULL, NULL));
    pthread_cleanup_pop(0);
    return NULL;
}

static void *epolling(void *unused)
{
    struct epoll_event ev = {.events = EPOLLIN};
    int ep = epoll_create1(0);

    (void)unused;
    must(epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev) == 0, "epoll_ctl");
    pthread_cleanup_push(cleanup, "epoll_wait");
    printf("epoll_wait %d\n", epoll_wait(ep, &ev, 1, -1));
    pthread_cleanup_pop(0);
    close(ep);
    return NULL;
}

static _Atomic int sleeper;
static bool again; /* the thread has made calls before */

static void *begin(void *fn)
{
    int p[2] = {c, s};

    if (again)
        pass(p, 0);
    sleeper = gettid();
    return (*(void *(**)(void *))fn)(NULL);
}

static void cancelled(void *(*fn)(void *))
{
    pthread_t t;
    void *result;

    sleeper = 0;
    pthread_create(&t, NULL, begin, &fn);
    until_it_sleeps(&sleeper);
    pthread_cancel(t);
    pthread_join(t, &result);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);
}

static void *at_once(void *unused)
{
    char buf[16];

    (void)unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    pthread_cleanup_push(cleanup, "a call that need not wait");
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    (void)!read(s, buf, 1);
    puts("not cancelled");
    pthread_cleanup_pop(0);
    return NULL;
}

/* Calls that need not wait, on a rail, of a thread that is cancelled when it makes them. */
static ssize_t by_read(char *buf)
{
    return read(s, buf, 1);
}
static ssize_t by_recv(char *buf)
{
    return recv(s, buf, 1, 0);
}
static ssize_t by_recvfrom(char *buf)
{
    return recvfrom(s, buf, 1, 0, NULL, NULL);
}
static ssize_t by_write(char *buf)
{
    return write(s, buf, 1);
}
static ssize_t by_send(char *buf)
{
    return send(s, buf, 1, MSG_NOSIGNAL);
}
static ssize_t by_sendto(char *buf)
{
    return sendto(s, buf, 1, 0, NULL, 0);
}

static const struct entry {
    const char *name;
    ssize_t (*call)(char *buf);
} entries[] = {
    {"read", by_read},   {"recv", by_recv}, {"recvfrom", by_recvfrom},
    {"write", by_write}, {"send", by_send}, {"sendto", by_sendto},
};

static volatile sig_atomic_t caught;

static void catch (int sig)
{
    (void)sig;
    caught++;
}

/* Nothing of the call is left: a handler is not put off, as it is in one. */
static void cleanup_entry(void *name)
{
    caught = 0;
    raise(SIGUSR2);
    printf("cancelled in %s, %d caught\n", (const char *)name, (int)caught);
}

static void *entering(void *entry)
{
    const struct entry *e = entry;
    int p[2] = {c, s};
    char buf[1] = "x";

    pass(p, 0);
    /* A thread that has slept in a call takes the short way from then on. */
    must(poll(&(struct pollfd){s, POLLIN, 0}, 1, 10) == 0, "poll");
    must(write(c, "y", 1) == 1, "write");
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    pthread_cleanup_push(cleanup_entry, (void *)e->name);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    printf("%s %zd\n", e->name, e->call(buf));
    pthread_cleanup_pop(0);
    return NULL;
}

static void at_the_entry(void)
{
    pthread_t t;
    void *result;
    int p[2];
    char buf[8];
    ssize_t got, back;

    signal(SIGUSR2, catch);
    tcp_pair(p);
    c = p[0];
    s = p[1];
    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    on_rail(p);
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        pthread_create(&t, NULL, entering, (void *)&entries[i]);
        pthread_join(t, &result);
        printf("cancelled: %d\n", result == PTHREAD_CANCELED);
        (void)poll(&(struct pollfd){s, POLLIN, 0}, 1, 1000);
        got = recv(s, buf, sizeof(buf), MSG_DONTWAIT);
        back = recv(c, buf, sizeof(buf), MSG_DONTWAIT);
        printf("%zd %zd\n", got, back);
    }
    close(c);
    close(s);
}

static size_t filled;

static void *waiting_for_room(void *unused)
{
    static char much[1 << 20];
    ssize_t n;

    (void)unused;
    pthread_cleanup_push(cleanup, "write without room");
    for (filled = 0; (n = send(c, much, sizeof(much), MSG_DONTWAIT)) > 0; filled += (size_t)n)
        ;
    n = write(c, much, 1);
    printf("write %zd\n", n);
    pthread_cleanup_pop(0);
    return NULL;
}

static void drain(void)
{
    static char much[1 << 16];

    for (ssize_t n; filled; filled -= (size_t)n)
        must((n = read(s, much, filled < sizeof(much) ? filled : sizeof(much))) > 0, "drain");
}

/* On TCP, in a thread that has made such a call before: nothing of the call is left that would keep
 * the stream there. */
static void boards_after(void *(*fn)(void *))
{
    const char *mode = getenv("RAILSOCK_MODE");
    struct sockaddr_in at;
    int l = listener(&at), p[2];

    pair_at(l, &at, p);
    close(l);
    c = p[0];
    s = p[1];
    again = true;
    cancelled(fn);
    again = false;
    drain();
    if (mode && strcmp(mode, "tcp") != 0)
        boards(p);
    deliver(c, s, "still works");
    close(c);
    close(s);
}

static void on_new_pair(void *(*fn)(void *), bool usable)
{
    int p[2];

    tcp_pair(p);
    c = p[0];
    s = p[1];
    cancelled(fn);
    if (usable)
        deliver(c, s, "still works");
    close(c);
    close(s);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    boards_after(reading);
    boards_after(waiting_for_room);
    on_new_pair(reading, true);
    on_new_pair(receiving, true);
    on_new_pair(scattering, true);
    on_new_pair(polling, true);
    on_new_pair(selecting, true);
    on_new_pair(epolling, true);
    on_new_pair(filling, false);
    on_new_pair(sending, false);
    on_new_pair(at_once, true);
    at_the_entry();
    return 0;
}
