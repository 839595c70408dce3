/*
 * handlers.c - handlers that use the very connection whose call they have interrupted, and handlers
 * that do not come back.
 */
#include "rounds.h"

#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

/* ---- a storm: a handler that writes, reads and polls, a thousand times a second, and a
 * ping-pong under it */

enum { PINGS = 20000 };

struct record {
    char who; /* 'm' from main, 'h' from the handler, 'e' the end */
    unsigned number;
    unsigned sum;
};

static int p[2];
static _Atomic unsigned handled;
static unsigned sent_by_handler, sent_by_main;

static unsigned sum_of(const struct record *r)
{
    return (r->number * 2654435761u) ^ (unsigned)r->who;
}

static void send_record(int fd, char who, unsigned number)
{
    struct record r = {.who = who, .number = number};

    r.sum = sum_of(&r);
    must(write(fd, &r, sizeof(r)) == sizeof(r), "a record");
}

static bool get_record(int fd, struct record *r)
{
    size_t have = 0;

    while (have < sizeof(*r)) {
        ssize_t n = read(fd, (char *)r + have, sizeof(*r) - have);

        if (n == 0)
            return false;
        if (n < 0 && errno == EINTR)
            continue;
        must(n > 0, "read");
        have += (size_t)n;
    }
    return true;
}

static void writing(int sig)
{
    struct pollfd f = {.fd = p[0], .events = POLLIN | POLLOUT};
    char c;
    int err = errno;

    (void)sig;
    handled++;
    send_record(p[0], 'h', sent_by_handler++);
    (void)poll(&f, 1, 0);
    (void)recv(p[0], &c, 1, MSG_PEEK | MSG_DONTWAIT);
    errno = err;
}

/* Sends back what main has sent, and checks both. */
static void *echo(void *unused)
{
    struct record r;
    unsigned next[2] = {0, 0};
    sigset_t all;

    (void)unused;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (get_record(p[1], &r) && r.who != 'e') {
        unsigned *n = &next[r.who == 'h'];

        if (r.sum != sum_of(&r) || r.number != *n)
            printf("record %c %u, not %u, or torn\n", r.who, r.number, *n);
        (*n)++;
        if (r.who == 'm')
            must(write(p[1], &r, sizeof(r)) == sizeof(r), "echo");
    }
    printf("%s of main's, %s of the handler's\n", next[0] == sent_by_main ? "all" : "not all",
           next[1] == sent_by_handler ? "all" : "not all");
    return NULL;
}

static void storm(int flags)
{
    struct sigaction sa = {.sa_handler = writing, .sa_flags = flags};
    struct itimerval tick = {{0, 1000}, {0, 1000}}, none = {{0, 0}, {0, 0}};
    struct record r;
    pthread_t t;
    unsigned bad = 0;

    doing = "storm";
    handled = sent_by_handler = 0;
    pthread_create(&t, NULL, echo, NULL);
    must(sigaction(SIGALRM, &sa, NULL) == 0, "sigaction");
    must(setitimer(ITIMER_REAL, &tick, NULL) == 0, "setitimer");
    for (unsigned i = 0; i < PINGS || handled < 300; sent_by_main = ++i) {
        send_record(p[0], 'm', i);
        bad += !get_record(p[0], &r) || r.number != i || r.sum != sum_of(&r);
    }
    setitimer(ITIMER_REAL, &none, NULL);
    sa.sa_handler = SIG_IGN;
    sigaction(SIGALRM, &sa, NULL);
    send_record(p[0], 'e', 0);
    pthread_join(t, NULL);
    printf("storm: %u bad answers\n", bad);
}

/* ---- handlers that jump */

enum { JUMPS = 1000 };

static struct victim v;
static sigjmp_buf out;
static volatile sig_atomic_t may_jump;
static long (*call)(void);
static unsigned jumped, came_back;

static void jumping(int sig)
{
    (void)sig;
    if (may_jump) {
        may_jump = 0;
        siglongjmp(out, 1);
    }
}

static long on_recv(void)
{
    char c;
    return recv(p[1], &c, 1, 0);
}
static long on_poll(void)
{
    struct pollfd f = {.fd = p[1], .events = POLLIN};
    return poll(&f, 1, -1);
}
static long on_select(void)
{
    fd_set r;
    FD_ZERO(&r);
    FD_SET(p[1], &r);
    return select(p[1] + 1, &r, NULL, NULL, NULL);
}
static int ep;
static long on_epoll(void)
{
    struct epoll_event ev;
    return epoll_wait(ep, &ev, 1, -1);
}
static char full[1 << 20];
/* Room may come all the same, when a stream whose receiver reads nothing goes from
 * its rail to TCP. */
static long on_send(void)
{
    do
        while (send(p[0], full, sizeof(full), MSG_DONTWAIT) > 0)
            ;
    while (send(p[0], full, 1, 0) > 0);
    return -1;
}

static void *victim(void *rounds)
{
    for (volatile unsigned i = 1; i <= (unsigned)(size_t)rounds; i++) {
        v.round = i;
        if (sigsetjmp(out, 1) == 0) {
            may_jump = 1;
            call();
            came_back++;
        } else {
            jumped++;
        }
        may_jump = 0;
        v.returned = i;
    }
    return NULL;
}

static void *victim_begins(void *rounds)
{
    v.tid = (int)syscall(SYS_gettid);
    return victim(rounds);
}

/* Jumps out of the call each time, wherever in it the signal may find the thread. */
static void jumps(const char *name, long (*fn)(void), unsigned rounds)
{
    struct sigaction sa = {.sa_handler = jumping};
    pthread_t t;

    doing = name;
    call = fn;
    jumped = came_back = 0;
    v.tid = 0;
    v.round = v.returned = 0;
    must(sigaction(SIGUSR1, &sa, NULL) == 0, "sigaction");
    pthread_create(&t, NULL, victim_begins, (void *)(size_t)rounds);
    for (unsigned i = 1; i <= rounds; i++) {
        while (v.round < i)
            sched_yield();
        for (volatile unsigned n = (i * 7919u) % 30000; n; n--)
            ;
        /* One too many may come in the next round, which is then over before we are there. */
        while (v.returned < i) {
            hit(&v, SIGUSR1);
            for (int n = 0; n < 20 && v.returned < i; n++)
                sched_yield();
        }
    }
    pthread_join(t, NULL);
    printf("%s: %u jumps, %u came back\n", name, jumped, came_back);
}

static void drain(void)
{
    struct pollfd f = {.fd = p[1], .events = POLLIN};

    while (poll(&f, 1, 200) == 1)
        must(recv(p[1], full, sizeof(full), MSG_DONTWAIT) > 0, "drain");
}

static void both_ways(const char *after)
{
    doing = after;
    deliver(p[0], p[1], "forth");
    deliver(p[1], p[0], "back");
    drain();
    must(recv(p[0], full, sizeof(full), MSG_DONTWAIT) == 4, "back");
    on_rail(p);
    printf("works after %s\n", after);
}

/* Jumps out of plain TCP before it can have boarded: then it boards all the same. */
static void boards_after_jumps(void)
{
    struct sockaddr_in at;
    int l = listener(&at);

    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(p[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    close(l);
    jumps("recv on TCP", on_recv, 200);
    jumps("poll on TCP", on_poll, 200);
    jumps("select on TCP", on_select, 200);
    both_ways("jumps on TCP");
    close(p[0]);
    close(p[1]);
}

int main(int argc, char **argv)
{
    struct epoll_event ev = {.events = EPOLLIN};

    (void)argc;
    with_spin(argv, "100");
    start_deadline();
    boards_after_jumps();

    tcp_pair(p);
    on_rail(p);
    for (int i = 0, one = 1; i < 2; i++)
        must(setsockopt(p[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "TCP_NODELAY");
    storm(SA_RESTART);
    storm(0);
    both_ways("a storm");

    ep = epoll_create1(0);
    must(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &ev) == 0, "epoll_ctl");
    jumps("recv", on_recv, JUMPS);
    both_ways("recv");
    jumps("poll", on_poll, JUMPS);
    both_ways("poll");
    jumps("select", on_select, JUMPS);
    both_ways("select");
    jumps("epoll_wait", on_epoll, JUMPS);
    both_ways("epoll_wait");
    jumps("send", on_send, JUMPS);
    drain();
    doing = "after send";
    deliver(p[0], p[1], "forth");
    deliver(p[1], p[0], "back");
    puts("works after send");
    return 0;
}
