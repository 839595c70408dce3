/*
 * restarted.c - a call that has done something ends for a handler, also for one that restarts
 * calls: a sendfile that nobody reads, on a rail too, whose ring stays full; recvmmsg and sendmmsg
 * that have had a first message. And they wait for no more than each of their messages would by
 * itself, which is less than poll waits for.
 */
#include "pair.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/time.h>

enum { LENGTH = 64 << 20 };

static char bytes[65536];

static void nothing(int sig)
{
    (void)sig;
}

static void signals(bool on)
{
    const struct itimerval every = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};

    must(setitimer(ITIMER_REAL, on ? &every : &never, NULL) == 0, "setitimer");
}

static void reads(int fd, size_t n)
{
    for (ssize_t r; n > 0; n -= (size_t)r) {
        r = recv(fd, bytes, n < sizeof(bytes) ? n : sizeof(bytes), 0);
        must(r > 0, "recv");
    }
}

static void sends_a_file(int p[2])
{
    int in = memfd_create("zeros", MFD_CLOEXEC);
    ssize_t n;

    must(ftruncate(in, LENGTH) == 0, "ftruncate");
    signals(true);
    n = sendfile(p[0], in, NULL, LENGTH);
    signals(false);
    printf("sendfile: %s\n", n > 0 && n < LENGTH ? "a part"
                             : n < 0             ? strerrorname_np(errno)
                                                 : "all of it");
    close(in);
    reads(p[1], n > 0 ? (size_t)n : 0);
}

static void receives_messages(int p[2])
{
    struct iovec v = {bytes, 5};
    struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}};

    must(write(p[1], "hello", 5) == 5, "write");
    signals(true);
    SHOW(recvmmsg(p[0], m, 2, MSG_WAITALL, NULL));
    signals(false);
}

/* A first one without bytes, and a second one for which there is no room. */
static void sends_messages(int p[2])
{
    struct iovec v[2] = {{bytes, 0}, {bytes, sizeof(bytes)}};
    struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &v[0], .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &v[1], .msg_iovlen = 1}}};
    struct pollfd room = {.fd = p[0], .events = POLLOUT};
    size_t sent = 0;
    ssize_t n;

    /* What the kernel moves on makes room for a while. */
    do
        while ((n = send(p[0], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
            sent += (size_t)n;
    while (poll(&room, 1, 100) == 1);
    signals(true);
    n = sendmmsg(p[0], m, 2, 0);
    signals(false);
    printf("sendmmsg: %s\n",
           n > 0 ? "ends" : strerrorname_np(errno)); /* 2: there was room after all */
    reads(p[1], sent + (n == 2 ? m[1].msg_len : 0));
}

static void messages_that_fit(int p[2])
{
    struct iovec v = {bytes, 10};
    struct mmsghdr m[3];
    struct pollfd room = {.fd = p[0], .events = POLLOUT};
    struct timeval never = {-1, 0};
    int low = 100, usual = 1;
    size_t sent = 0;
    ssize_t n;

    for (int i = 0; i < 3; i++)
        m[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
    must(setsockopt(p[0], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0, "SO_RCVLOWAT");
    must(write(p[1], bytes, 30) == 30, "write");
    while (recv(p[0], bytes, 30, MSG_PEEK | MSG_DONTWAIT) < 30)
        sched_yield();
    SHOW(recvmmsg(p[0], m, 3, 0, NULL));
    must(setsockopt(p[0], SOL_SOCKET, SO_RCVLOWAT, &usual, sizeof(usual)) == 0, "SO_RCVLOWAT");
    must(setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never)) == 0, "SO_RCVTIMEO");
    must(write(p[1], bytes, 10) == 10, "write");
    SHOW(recvmmsg(p[0], m, 3, 0, NULL));
    /* No third of the buffer is free, and some bytes are. */
    do
        while (poll(&room, 1, 0) == 1 && (n = send(p[0], bytes, 1024, MSG_DONTWAIT)) > 0)
            sent += (size_t)n;
    while (poll(&room, 1, 100) == 1);
    n = 2;
    if (send(p[0], bytes, 10, MSG_DONTWAIT) == 10) {
        n = sendmmsg(p[0], m, 2, 0);
        sent += 10 + (size_t)n * 10;
    }
    printf("sendmmsg without POLLOUT: %zd\n", n);
    reads(p[1], sent);
}

int main(int argc, char **argv)
{
    struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    int p[2];

    (void)argc;
    if (!getenv("RAILSOCK_STALL")) { /* else TCP's room ends it */
        setenv("RAILSOCK_STALL", "0", 1);
        execv("/proc/self/exe", argv);
    }
    tcp_pair(p);
    messages_that_fit(p);
    close(p[0]);
    close(p[1]);
    tcp_pair(p);
    on_rail(p);
    sigaction(SIGALRM, &act, NULL);
    for (int i = 0; i < 3; i++) {
        sends_a_file(p);
        receives_messages(p);
        sends_messages(p);
    }
    return 0;
}
