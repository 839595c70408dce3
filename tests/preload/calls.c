/*
 * calls.c - every form of receiving and sending on a TCP connection, with good and bad
 * arguments. Built with _FORTIFY_SOURCE=2, so that the __*_chk names are called, too.
 */
#include "../asleep.h"
#include "pair.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static int c, s; /* connected, accepted */
static char buf[64];
/* Unknown to the compiler: it makes the checked variants of calls, and no warnings. */
static volatile size_t twenty = 20;
static volatile int minus_one = -1, too_many = IOV_MAX + 1;
static void *volatile nowhere;

static void show_buf(ssize_t n)
{
    printf("  [%.*s]\n", n > 0 ? (int)n : 0, buf);
    memset(buf, 0, sizeof(buf));
}

#define TAKE(call)                                 \
    do {                                           \
        errno = CLEAN;                             \
        ssize_t n_ = (call);                       \
        int e_ = errno;                            \
        printf("%s = %zd %s", #call, n_,           \
               n_ < 0        ? strerrorname_np(e_) \
               : e_ == CLEAN ? ""                  \
                             : "errno moved");     \
        show_buf(n_);                              \
    } while (0)

static void receive(void)
{
    struct iovec v[3] = {{buf, 3}, {buf + 3, 0}, {buf + 3, 20}};
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);
    struct msghdr m;
    struct mmsghdr mm[2];
    char control[128];

    puts("-- receive");
    deliver(c, s, "read");
    TAKE(read(s, buf, twenty));
    deliver(c, s, "recv");
    TAKE(recv(s, buf, twenty, 0));
    deliver(c, s, "peek");
    TAKE(recv(s, buf, 2, MSG_PEEK));
    TAKE(recv(s, buf, twenty, MSG_PEEK | MSG_DONTWAIT));
    TAKE(recv(s, buf, 4, MSG_WAITALL));
    TAKE(recv(s, buf, twenty, MSG_DONTWAIT));
    deliver(c, s, "recvfrom");
    TAKE(recvfrom(s, buf, twenty, 0, (struct sockaddr *)&from, &len));
    printf("  address length %u\n", len);
    deliver(c, s, "recvfrom2");
    TAKE(recvfrom(s, buf, twenty, 0, NULL, &len));
    deliver(c, s, "recvfrom3");
    len = (socklen_t)-1;
    TAKE(recvfrom(s, buf, twenty, 0, (struct sockaddr *)&from, &len));
    deliver(c, s, "readv and more");
    TAKE(readv(s, v, 3));
    deliver(c, s, "preadv2");
    TAKE(preadv2(s, v, 3, -1, 0));
    SHOW(preadv2(s, v, 3, 0, 0));
    SHOW(preadv2(s, v, 3, 12, 0));
    deliver(c, s, "recvmsg");
    memset(&m, 0, sizeof(m));
    m.msg_iov = v;
    m.msg_iovlen = 3;
    m.msg_name = &from;
    m.msg_namelen = sizeof(from);
    m.msg_control = control;
    m.msg_controllen = sizeof(control);
    m.msg_flags = 0x7f;
    TAKE(recvmsg(s, &m, 0));
    printf("  name %u control %zu flags %#x\n", m.msg_namelen, m.msg_controllen,
           (unsigned)m.msg_flags);
    deliver(c, s, "recvmsg2");
    memset(&m, 0, sizeof(m));
    m.msg_iov = v;
    m.msg_iovlen = 1;
    m.msg_namelen = 77;
    TAKE(recvmsg(s, &m, MSG_CMSG_CLOEXEC));
    printf("  name %u flags %#x\n", m.msg_namelen, (unsigned)m.msg_flags);
    m.msg_iovlen = 3;
    TAKE(recvmsg(s, &m, MSG_DONTWAIT));
    TAKE(recvmsg(s, &m, MSG_DONTWAIT));
    memset(mm, 0, sizeof(mm));
    mm[0].msg_hdr.msg_iov = v;
    mm[0].msg_hdr.msg_iovlen = 3;
    mm[1].msg_hdr.msg_iov = v;
    mm[1].msg_hdr.msg_iovlen = 3;
    deliver(c, s, "recvmmsg");
    SHOW(recvmmsg(s, mm, 1, 0, NULL));
    printf("  length %u [%.*s]\n", mm[0].msg_len, (int)mm[0].msg_len, buf);
    SHOW(recvmmsg(s, mm, 0, 0, NULL));

    puts("-- receive: odd arguments");
    SHOW(read(s, buf, 0));
    SHOW(readv(s, v, 0));
    SHOW(readv(s, v + 1, 1));
    SHOW(readv(s, v, minus_one));
    SHOW(readv(s, v, too_many));
    SHOW(recvmsg(s, nowhere, 0));
    m.msg_iovlen = IOV_MAX + 1;
    SHOW(recvmsg(s, &m, MSG_DONTWAIT));
    deliver(c, s, "x");
    SHOW(recv(s, buf, 0, 0));
    SHOW(read(s, nowhere, 10));
    TAKE(recv(s, buf, twenty, MSG_DONTWAIT));
    SHOW(recv(s, buf, twenty, MSG_DONTWAIT));
    SHOW(recv(s, buf, twenty, MSG_ERRQUEUE));
    SHOW(recv(s, buf, twenty, MSG_OOB));
}

static _Atomic int main_thread;

static void *later(void *unused)
{
    (void)unused;
    until_it_sleeps(&main_thread);
    must(write(c, "half", 4) == 4, "later");
    until_taken(c, s); /* that alone */
    until_it_sleeps(&main_thread);
    must(write(c, "whole", 5) == 5, "later");
    return NULL;
}

static void waiting(void)
{
    struct timeval tv = {0, 30000};
    pthread_t t;

    puts("-- waiting");
    main_thread = gettid();
    pthread_create(&t, NULL, later, NULL);
    TAKE(recv(s, buf, 9, MSG_WAITALL));
    pthread_join(t, NULL);
    pthread_create(&t, NULL, later, NULL);
    TAKE(read(s, buf, twenty));
    pthread_join(t, NULL);
    TAKE(recv(s, buf, 5, MSG_WAITALL));
    SHOW(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    TAKE(read(s, buf, twenty));
    tv.tv_usec = 0;
    SHOW(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    SHOW(fcntl(s, F_SETFL, O_NONBLOCK));
    TAKE(read(s, buf, twenty));
    SHOW(fcntl(s, F_SETFL, 0));
    SHOW(ioctl(s, FIONBIO, &(int){1}));
    TAKE(recv(s, buf, twenty, 0));
    SHOW(ioctl(s, FIONBIO, &(int){0}));
}

static void take_all(size_t n)
{
    static char all[100000];

    must(recv(s, all, n, MSG_WAITALL) == (ssize_t)n, "take_all");
    printf("  got %zu: [%.*s]\n", n, n > 60 ? 60 : (int)n, all);
}

static void transmit(void)
{
    struct iovec v[2] = {{"one ", 4}, {"two", 3}};
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    struct mmsghdr mm[2] = {{.msg_hdr = m}, {.msg_hdr = m}};
    time_t begin;
    int n;

    puts("-- send");
    SHOW(write(c, "write", 5));
    take_all(5);
    SHOW(send(c, "send", 4, MSG_NOSIGNAL));
    take_all(4);
    SHOW(send(c, "mo", 2, MSG_MORE));
    SHOW(send(c, "re", 2, MSG_DONTWAIT));
    take_all(4);
    SHOW(sendto(c, "sendto", 6, 0, (struct sockaddr *)&to, sizeof(to)));
    take_all(6);
    SHOW(sendto(c, "sendto", 6, 0, (struct sockaddr *)&to, 1000));
    SHOW(writev(c, v, 2));
    take_all(7);
    SHOW(pwritev2(c, v, 2, -1, 0));
    take_all(7);
    SHOW(pwritev2(c, v, 2, 5, 0));
    SHOW(sendmsg(c, &m, 0));
    take_all(7);
    SHOW(sendmmsg(c, mm, 2, 0));
    printf("  lengths %u %u\n", mm[0].msg_len, mm[1].msg_len);
    take_all(14);
    SHOW(sendmmsg(c, mm, 0, 0));
    SHOW(write(c, "", 0));
    SHOW(writev(c, v, 0));
    SHOW(writev(c, v, minus_one));
    SHOW(writev(c, v, too_many));
    SHOW(write(c, nowhere, 5));
    m.msg_iovlen = IOV_MAX + 1;
    SHOW(sendmsg(c, &m, 0));
    must(write(c, "queued", 6) == 6, "write");
    take_all(6);
    SHOW(ioctl(s, FIONREAD, &n));
    deliver(c, s, "count");
    SHOW(ioctl(s, FIONREAD, &n));
    printf("  %d\n", n);
    take_all(5);
    begin = time(NULL);
    do
        must(ioctl(c, SIOCOUTQ, &n) == 0, "SIOCOUTQ");
    while (n > 0 && others_run(begin));
    must(n == 0, "a queue that becomes empty");
    puts("  queue empty");
}

static void files(void)
{
    char name[] = "/tmp/preload-calls-XXXXXX";
    int fd = mkstemp(name), p[2];
    off_t off = 3;
    int i;

    puts("-- files");
    unlink(name);
    for (i = 0; i < 5000; i++)
        must(write(fd, "0123456789", 10) == 10, "file");
    SHOW(lseek(fd, 0, SEEK_SET));
    SHOW(sendfile(c, fd, &off, 7));
    take_all(7);
    printf("  offset %ld, position %ld\n", (long)off, (long)lseek(fd, 0, SEEK_CUR));
    SHOW(sendfile(c, fd, NULL, 49000));
    take_all(49000);
    printf("  position %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    SHOW(sendfile(c, fd, NULL, 49000));
    take_all(1000);
    SHOW(sendfile(c, fd, NULL, 10));
    SHOW(sendfile(c, fd, &off, 0));
    SHOW(sendfile(c, s, NULL, 10));
    SHOW(sendfile(c, -1, NULL, 10));
    close(fd);
    must(pipe(p) == 0, "pipe");
    SHOW(sendfile(c, p[0], NULL, 0));
    SHOW(write(p[1], "through a pipe", 14));
    SHOW(splice(p[0], NULL, c, NULL, 14, 0));
    take_all(14);
    deliver(c, s, "into a pipe");
    SHOW(splice(s, NULL, p[1], NULL, 100, 0));
    TAKE(read(p[0], buf, twenty));
    close(p[0]);
    close(p[1]);
}

static int pipes;

static void on_pipe(int sig)
{
    (void)sig;
    pipes++;
}

static void ends(void)
{
    puts("-- ends");
    deliver(c, s, "last");
    SHOW(shutdown(c, 17));
    SHOW(shutdown(c, SHUT_WR));
    SHOW(send(c, "x", 1, MSG_NOSIGNAL));
    signal(SIGPIPE, on_pipe);
    SHOW(write(c, "x", 1));
    printf("  SIGPIPE %d\n", pipes);
    SHOW(writev(c, &(struct iovec){"x", 1}, 1));
    printf("  SIGPIPE %d\n", pipes);
    TAKE(read(s, buf, twenty));
    TAKE(read(s, buf, twenty));
    TAKE(recv(s, buf, twenty, MSG_PEEK));
    SHOW(write(s, "back", 4));
    TAKE(recv(c, buf, 4, MSG_WAITALL));
    SHOW(close(c));
    SHOW(close(c));
    SHOW(read(c, buf, 1));
    SHOW(write(c, buf, 1));
    SHOW(recv(c, buf, 1, 0));
    SHOW(shutdown(c, SHUT_RDWR));
    SHOW(ioctl(c, FIONREAD, &pipes));
    SHOW(close(s));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    on_a_pair(receive, &c, &s);
    on_a_pair(waiting, &c, &s);
    on_a_pair(transmit, &c, &s);
    on_a_pair(files, &c, &s);
    on_a_pair(ends, &c, &s);
    return 0;
}
