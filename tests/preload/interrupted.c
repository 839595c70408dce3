/*
 * interrupted.c - blocking calls that a signal ends, or does not (signal(7)): each with one signal
 * a round, which finds the thread spinning, about to sleep, or asleep. One that is lost shows as a
 * thread that sleeps although its handler has run.
 */
#include "rounds.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <time.h>

enum { ROUNDS = 1500, RESTARTS = 150 };

static int p[2], ep, lfd;
static char full[1 << 20];
static _Atomic unsigned handled;
static struct victim v;

static void handler(int sig)
{
    (void)sig;
    handled++;
}

static void install(int flags)
{
    struct sigaction sa = {.sa_handler = handler, .sa_flags = flags};

    must(sigaction(SIGUSR1, &sa, NULL) == 0, "sigaction");
}

/* ---- the calls: -errno, or what they return */

static long on_recv(void)
{
    char c;
    return recv(p[1], &c, 1, 0);
}
static long on_read(void)
{
    char c;
    return read(p[1], &c, 1);
}
static long on_recvmsg(void)
{
    char c;
    struct iovec io = {&c, 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    return recvmsg(p[1], &m, MSG_WAITALL);
}
static long on_poll(void)
{
    struct pollfd f = {.fd = p[1], .events = POLLIN};
    return poll(&f, 1, -1);
}
static long on_ppoll(void)
{
    struct pollfd f = {.fd = p[1], .events = POLLIN};
    sigset_t none;
    struct timespec ts = {100, 0};

    sigemptyset(&none);
    return ppoll(&f, 1, &ts, &none);
}
/* The signal is blocked but in the call. */
static long on_ppoll_mask(void)
{
    sigset_t usr1, old;
    long r;
    struct pollfd f = {.fd = p[1], .events = POLLIN};

    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, &old);
    r = ppoll(&f, 1, NULL, &old);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return r;
}
static long on_select(void)
{
    fd_set r;
    FD_ZERO(&r);
    FD_SET(p[1], &r);
    return select(p[1] + 1, &r, NULL, NULL, NULL);
}
static long on_pselect(void)
{
    fd_set r;
    struct timespec ts = {100, 0};
    FD_ZERO(&r);
    FD_SET(p[1], &r);
    return pselect(p[1] + 1, &r, NULL, NULL, &ts, NULL);
}
static long on_epoll_wait(void)
{
    struct epoll_event ev;
    return epoll_wait(ep, &ev, 1, -1);
}
static long on_epoll_pwait2(void)
{
    struct epoll_event ev;
    struct timespec ts = {100, 0};
    sigset_t none;

    sigemptyset(&none);
    return epoll_pwait2(ep, &ev, 1, &ts, &none);
}
static long on_accept(void)
{
    return accept(lfd, NULL, NULL);
}
/* Room may come all the same, when a stream whose receiver reads nothing goes from
 * its rail to TCP. */
static void fill(void)
{
    while (send(p[0], full, sizeof(full), MSG_DONTWAIT) > 0)
        ;
}
static long on_send(void)
{
    long r;

    do {
        fill();
        r = send(p[0], full, 1, 0);
    } while (r > 0);
    return r;
}
static long on_writev(void)
{
    struct iovec io = {full, 1};
    long r;

    do {
        fill();
        r = writev(p[0], &io, 1);
    } while (r > 0);
    return r;
}

/* ---- rounds */

static long (*call)(void);
static unsigned rounds;
static long last;
static unsigned eintr, other;

static void *victim(void *unused)
{
    (void)unused;
    v.tid = (int)syscall(SYS_gettid);
    for (unsigned i = 1; i <= rounds; i++) {
        long r;

        v.round = i;
        errno = 0;
        r = call();
        last = r < 0 ? -errno : r;
        if (last == -EINTR)
            eintr++;
        else
            other++;
        v.returned = i;
    }
    return NULL;
}

static void begin(pthread_t *t, const char *name, long (*fn)(void), unsigned n)
{
    doing = name;
    call = fn;
    rounds = n;
    eintr = other = 0;
    v.tid = 0;
    v.round = v.returned = 0;
    pthread_create(t, NULL, victim, NULL);
}

/* One signal for each call, which it must end. Every second one is sent without waiting until
 * the thread is asleep, if it can be known that it is in the call: on a rail it spins there.
 * What comes between the announcement of the round and the call is rightly lost; there may be a
 * few of those. */
static void each_ends(const char *name, long (*fn)(void), bool spins)
{
    pthread_t t;
    unsigned lost = 0;
    const char *mode = getenv("RAILSOCK_MODE");

    spins = spins && mode && !strcmp(mode, "rail");
    begin(&t, name, fn, ROUNDS);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        unsigned before;

        while (v.round < i)
            sched_yield();
        if (spins && (i & 1))
            for (volatile unsigned n = (i * 7919u) % 20000; n; n--)
                ;
        else
            until_asleep(&v, i);
        before = handled;
        hit(&v, SIGUSR1);
        while (v.returned < i) {
            if (handled == before || state_of(v.tid) != 'S' || v.returned >= i) {
                sched_yield();
                continue;
            }
            lost++;
            before = handled;
            hit(&v, SIGUSR1);
        }
    }
    pthread_join(t, NULL);
    if (lost <= 5 && eintr == ROUNDS)
        printf("%s: every signal ended a call\n", name);
    else
        printf("%s: %u signals were lost, %u EINTR, %u others, last %ld\n", name, lost, eintr,
               other, last);
}

/* Three signals for each call, which goes on and has the byte that comes then. */
static void goes_on(const char *name, long (*fn)(void))
{
    pthread_t t;

    begin(&t, name, fn, RESTARTS);
    for (unsigned i = 1; i <= RESTARTS; i++) {
        while (v.round < i)
            sched_yield();
        for (int n = 0; n < 3; n++) {
            unsigned before = handled;

            if (i & 1)
                until_asleep(&v, i);
            hit(&v, SIGUSR1);
            while (handled == before && v.returned < i)
                sched_yield();
        }
        must(write(p[0], "x", 1) == 1, "write");
        while (v.returned < i)
            sched_yield();
    }
    pthread_join(t, NULL);
    printf("%s: %u went on, %u did not\n", name, other, eintr);
}

static void timeouts(int fd, int option, long seconds)
{
    struct timeval tv = {seconds, 0};

    must(setsockopt(fd, SOL_SOCKET, option, &tv, sizeof(tv)) == 0, "setsockopt");
}

int main(int argc, char **argv)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct sockaddr_in at;

    (void)argc;
    with_spin(argv, "300");
    start_deadline();
    install(0); /* before there is a rail: it becomes the library's then */
    tcp_pair(p);
    on_rail(p);
    ep = epoll_create1(0);
    must(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &ev) == 0, "epoll_ctl");
    lfd = listener(&at);

    each_ends("recv", on_recv, true);
    each_ends("read", on_read, true);
    each_ends("recvmsg", on_recvmsg, true);
    each_ends("poll", on_poll, true);
    each_ends("ppoll", on_ppoll, true);
    each_ends("ppoll with a mask", on_ppoll_mask, false);
    each_ends("select", on_select, true);
    each_ends("pselect", on_pselect, true);
    each_ends("epoll_wait", on_epoll_wait, true);
    each_ends("epoll_pwait2", on_epoll_pwait2, true);
    each_ends("accept", on_accept, false);

    install(SA_RESTART);
    each_ends("poll, restarting", on_poll, true);
    each_ends("select, restarting", on_select, true);
    each_ends("epoll_wait, restarting", on_epoll_wait, true);
    goes_on("recv, restarting", on_recv);
    goes_on("recvmsg, restarting", on_recvmsg);
    timeouts(p[1], SO_RCVTIMEO, 100);
    each_ends("recv with SO_RCVTIMEO, restarting", on_recv, true);
    timeouts(p[1], SO_RCVTIMEO, 0);
    goes_on("read, restarting", on_read);
    on_rail(p);

    timeouts(p[0], SO_SNDTIMEO, 100);
    each_ends("send with SO_SNDTIMEO, restarting", on_send, false);
    timeouts(p[0], SO_SNDTIMEO, 0);
    install(0);
    each_ends("send", on_send, false);
    each_ends("writev", on_writev, false);
    return 0;
}
