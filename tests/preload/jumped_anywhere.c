/*
 * jumped_anywhere.c - a handler that jumps out of a call at each of its instructions in turn: a
 * child makes the call again and again, and its parent lets the signal come one instruction later
 * each time. Nothing that the call has raised may stay behind, before a rail is wanted either: then
 * the stream boards all the same.
 */
#include "rounds.h"
#include "walk.h"

#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/select.h>

struct call {
    const char *name;
    long (*make)(void);
    bool there_is; /* a byte to be read */
    /* not while the stream is to board: a call that has sent and was not counted keeps it from
     * that */
    bool sends;
};

static int p[2], ep;
static sigjmp_buf out;

static long take_none(void)
{
    char c;
    return recv(p[1], &c, 1, MSG_DONTWAIT);
}
static long take_none_at_all(void)
{
    char c;
    return recv(p[1], &c, 1, MSG_DONTWAIT | MSG_WAITALL);
}
static long look(void)
{
    char c;
    return recv(p[1], &c, 1, MSG_PEEK);
}
static long look_by_recvmsg(void)
{
    char c;
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    return recvmsg(p[1], &m, MSG_PEEK);
}
static long how_much(void)
{
    int n;
    return ioctl(p[1], FIONREAD, &n);
}
static long by_poll(void)
{
    struct pollfd f = {.fd = p[1], .events = POLLIN};
    return poll(&f, 1, 1000);
}
static long by_select(void)
{
    struct timeval limit = {1, 0};
    fd_set r;
    FD_ZERO(&r);
    FD_SET(p[1], &r);
    return select(p[1] + 1, &r, NULL, NULL, &limit);
}
static long by_epoll(void)
{
    struct epoll_event ev;
    return epoll_wait(ep, &ev, 1, 1000);
}
static long modify(void)
{
    struct epoll_event ev = {.events = EPOLLIN};
    return epoll_ctl(ep, EPOLL_CTL_MOD, p[1], &ev);
}
static long option(void)
{
    int error;
    socklen_t len = sizeof(error);
    return getsockopt(p[1], SOL_SOCKET, SO_ERROR, &error, &len);
}

static long send_one(void)
{
    return write(p[1], "y", 1);
}

static const struct call calls[] = {
    {"recv of nothing", take_none, false, false},
    {"MSG_WAITALL", take_none_at_all, false, false},
    {"MSG_PEEK", look, true, false},
    {"recvmsg", look_by_recvmsg, true, false},
    {"FIONREAD", how_much, true, false},
    {"poll", by_poll, true, false},
    {"select", by_select, true, false},
    {"epoll_wait", by_epoll, true, false},
    {"epoll_ctl", modify, true, false},
    {"getsockopt", option, true, false},
    {"write", send_one, true, true},
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

/* Of both processes. */
static struct shared {
    const struct call *volatile call;
    volatile bool back; /* the call has returned, and was not jumped out of */
    volatile bool over; /* its parent has seen that: the next one */
} * both;

static void jumping(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

/* The parent goes on from the raise. Not before the dynamic linker, which nobody may jump out of,
 * knows the functions. */
static void make(const struct call *c)
{
    doing = c->name;
    c->make();
    both->call = c;
    for (both->over = false; !both->over;) {
        both->back = false;
        if (sigsetjmp(out, 1) == 0) {
            raise(SIGTRAP);
            c->make();
            both->back = true;
        }
    }
}

static void connected(void)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct sockaddr_in at;
    int l = listener(&at);

    pair_at(l, &at, p);
    close(l);
    ep = epoll_create1(0);
    must(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &ev) == 0, "epoll_ctl");
}

static void all(bool sends)
{
    struct epoll_event ev;
    char c = 0;

    for (unsigned i = 0; i < CALLS; i++) {
        if (calls[i].there_is && !c)
            must(write(p[0], &(char){c = 'x'}, 1) == 1, "write");
        if (sends || !calls[i].sends)
            make(&calls[i]);
    }
    doing = "after all";
    must(epoll_wait(ep, &ev, 1, -1) == 1 && recv(p[1], &c, 1, 0) == 1 && c == 'x', "the byte");
    while (recv(p[0], &c, 1, MSG_DONTWAIT) == 1)
        must(c == 'y', "what was written");
}

static int child(void)
{
    struct sigaction sa = {.sa_handler = jumping};
    char some[8];

    must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    start_deadline();
    must(sigaction(SIGUSR1, &sa, NULL) == 0, "sigaction");
    connected();
    all(false);
    on_rail(p);
    all(true);
    on_rail(p);
    deliver(p[0], p[1], "forth");
    deliver(p[1], p[0], "back");
    must(recv(p[1], some, sizeof(some), 0) == 5 && recv(p[0], some, sizeof(some), 0) == 4,
         "both ways");
    must(close(p[0]) == 0 && recv(p[1], some, 1, 0) == 0, "the end");
    puts("works after all");
    return 0;
}

/* The child is in its raise before c: what it goes on with. */
static int next(pid_t pid)
{
    const struct call *c = both->call;
    static const struct call *last;
    static struct walk w;
    static unsigned n;
    int signal;

    must(c != NULL, "a call");
    if (c != last)
        w.places = 0;
    last = c;
    signal = walk_on(&w, &n, pid, &both->back);
    if (signal >= 0)
        return signal;
    printf("%s: jumped out of everywhere\n", c->name);
    both->over = true;
    last = NULL;
    return 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (!CAN_WALK)
        return 0;
    both = shared_by_all(sizeof(*both));
    trace_child(child, next);
    return 0;
}
