/*
 * walks.c - random walks: calls on both ends of a connection, in orders that nobody thought of.
 * Each case makes some with calls of one kind beside those of all, each with a number of its own
 * from CONFORM_SEED (tests/conform/run -s); CONFORM_WALK=N makes only that one.
 *
 * A step is only made where all of TCP's answers are known to be equal: what README lists under
 * Limits is left out, with its reason, and so is what two plain runs differ in. What a call does at
 * the other end is there before the next: loopback is quick, and CONFORM_SETTLE (microseconds) are
 * given to a rail's threads, and as long as one of them runs. More than a socket surely takes is
 * never unread, so no call waits that need not.
 */
#include "tests/asleep.h"
#include "tests/conform/forms_ready.h"
#include "tests/conform/forms_recv.h"
#include "tests/conform/forms_send.h"
#include "tests/conform/walks.h"

#include <sys/epoll.h>

enum { WALKS = 6, STEPS = 20, SETTLE = 2000, MOST_LOOKS = 100000 };

unsigned below(struct walk *w, unsigned n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->random >> 33) % n;
}

size_t unread(const struct walk *w, int i)
{
    return w->sent[!i] - w->got[i];
}

static bool readable(int fd)
{
    struct pollfd q = {.fd = fd, .events = POLLIN};

    return poll(&q, 1, 0) == 1;
}

void has_got(struct walk *w, int i, const char *bytes, ssize_t n, bool taken)
{
    for (ssize_t k = 0; bytes && k < n; k++)
        if (bytes[k] != (char)pattern(w->got[i] + (size_t)k)) {
            say("byte %zd is wrong", k);
            break;
        }
    if (n > 0 && taken)
        w->got[i] += (size_t)n;
}

/* ---- steps: end i does something */

static void sends_n(struct walk *w, int i, size_t n)
{
    static char bytes[MOST_UNREAD];
    const struct sform *f = &sforms[below(w, SFORMS)];
    int flags = below(w, 2) ? MSG_DONTWAIT : MSG_EOR;
    ssize_t did;

    if (n > MOST_UNREAD - unread(w, !i) || w->deaf[!i])
        return;
    /* Whether the second message meets the reset that the first one draws is a matter
     * of the moment. */
    if (w->fd[!i] < 0 && strcmp(f->name, "sendmmsg") == 0)
        f = &sforms[0];
    for (size_t k = 0; k < n; k++)
        bytes[k] = (char)pattern(w->sent[i] + k);
    errno = CLEAN;
    if (f->put_with && below(w, 3) == 0)
        did = f->put_with(w->fd[i], bytes, n, flags);
    else
        did = f->put(w->fd[i], bytes, n);
    show(f->name, did, errno);
    if (did > 0)
        w->sent[i] += (size_t)did;
}

static void sends(struct walk *w, int i)
{
    sends_n(w, i, 1 + below(w, FEW));
}

static void sends_much(struct walk *w, int i)
{
    sends_n(w, i, 1 + below(w, 6000));
}

/* Bytes are compared, not printed: the stream is the pattern. */
static void receives_n(struct walk *w, int i, size_t n)
{
    static char bytes[MOST_UNREAD];
    const struct rform *f = &rforms[below(w, RFORMS)];
    ssize_t did;

    errno = CLEAN;
    if (f->get_with)
        did = f->get_with(w->fd[i], bytes, n, MSG_DONTWAIT);
    else if (strcmp(f->name, "recvmmsg2") != 0 && readable(w->fd[i]))
        did = f->get(w->fd[i], bytes, n);
    else
        did = recv(w->fd[i], bytes, n, MSG_DONTWAIT);
    show(f->name, did, errno);
    has_got(w, i, bytes, did, true);
}

static void receives(struct walk *w, int i)
{
    receives_n(w, i, 1 + below(w, 2 * FEW));
}

static void receives_much(struct walk *w, int i)
{
    receives_n(w, i, 1 + below(w, MOST_UNREAD));
}

static void receives_by_flag(struct walk *w, int i)
{
    static const int flags[] = {
        MSG_PEEK,         MSG_WAITALL, MSG_TRUNC, MSG_PEEK | MSG_TRUNC, MSG_PEEK | MSG_WAITALL,
        MSG_CMSG_CLOEXEC, MSG_ERRQUEUE};
    static char bytes[2 * FEW];
    unsigned which = below(w, COUNT(flags));
    size_t n = 1 + below(w, sizeof(bytes));
    ssize_t did;
    char what[40];

    snprintf(what, sizeof(what), "recv(%zu, %#x)", n, (unsigned)flags[which]);
    did = SHOW_AS(what, recv(w->fd[i], bytes, n, flags[which] | MSG_DONTWAIT));
    has_got(w, i, flags[which] & MSG_TRUNC ? NULL : bytes, did, !(flags[which] & MSG_PEEK));
}

static void asks(struct walk *w, int i)
{
    ready_by(&qforms[below(w, QFORMS)], w->fd[i], ALL);
}

static void counts(struct walk *w, int i)
{
    int n = -1;

    SHOW(ioctl(w->fd[i], FIONREAD, &n));
    say(" %d", n);
}

static void error(struct walk *w, int i)
{
    say_error(w->fd[i]);
}

/* ---- ends */

static void shuts_for_writing(struct walk *w, int i)
{
    SHOW(shutdown(w->fd[i], SHUT_WR));
}

static void shuts(struct walk *w, int i)
{
    static const char *const names[] = {"SHUT_RD", "SHUT_WR", "SHUT_RDWR"};
    unsigned how = below(w, 3);

    if (w->deaf[!i]) /* README, Limits */
        return;
    if (SHOW_AS(names[how], shutdown(w->fd[i], (int)how)) == 0 && how != SHUT_WR)
        w->deaf[i] = true;
}

static void closes(struct walk *w, int i)
{
    int fd = w->fd[i], null;

    if (w->inherited && unread(w, i) > 0)
        return;
    switch (below(w, 4)) {
    case 0:
        SHOW(close_range((unsigned)fd, (unsigned)fd, 0));
        break;
    case 1:
        null = open("/dev/null", O_RDONLY);
        SHOW_AS("dup2", dup2(null, fd) == fd);
        close(null);
        close(fd);
        break;
    default:
        SHOW(close(fd));
    }
    w->fd[i] = -1;
}

static void resets(struct walk *w, int i)
{
    reset(w->fd[i]);
    say("reset");
    w->fd[i] = -1;
}

/* ---- epoll */

/* Edges are for epoll.c: one too many says nothing, and a late acknowledgement is one. */
static void registers(struct walk *w, int i)
{
    static const unsigned how[] = {0, 0, EPOLLONESHOT, EPOLLEXCLUSIVE};
    static const unsigned what[] = {EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT | EPOLLRDHUP, EPOLLRDHUP,
                                    0};
    struct epoll_event e = {how[below(w, COUNT(how))] | what[below(w, COUNT(what))],
                            {.u32 = (unsigned)"ab"[i]}};
    int which = (int)below(w, 2), op = below(w, 2) ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    char text[60];

    snprintf(text, sizeof(text), "epoll_ctl(%d, %d, %#x)", which, op, e.events);
    SHOW_AS(text, epoll_ctl(w->ep[which], op, w->fd[i], &e));
}

static void unregisters(struct walk *w, int i)
{
    SHOW(epoll_ctl(w->ep[below(w, 2)], EPOLL_CTL_DEL, w->fd[i], NULL));
}

static void waits(struct walk *w, int i)
{
    struct epoll_event e[3] = {0};
    long n = SHOW(epoll_wait(w->ep[i], e, 3, 0));

    if (n == 2 && e[0].data.u32 > e[1].data.u32) {
        e[2] = e[0];
        e[0] = e[1];
        e[1] = e[2];
    }
    for (long k = 0; k < n; k++)
        say(" %c %#x", (int)e[k].data.u32, e[k].events);
}

static void asks_instance(struct walk *w, int i)
{
    struct pollfd q = {.fd = w->ep[i], .events = POLLIN};

    SHOW(poll(&q, 1, 0));
}

/* ---- walks */

static step *const always[] = {sends,    sends,         sends_much, receives,
                               receives, receives_much, asks,       counts};

static const struct kind {
    const char *name;
    step *more[12];
    unsigned count;
} kinds[] = {
    {"bytes", {receives_by_flag, receives_by_flag}, 2},
    {"ends", {shuts_for_writing, shuts_for_writing, error, asks, closes, resets}, 6},
    {"shut", {shuts, shuts, error, asks, closes, resets}, 6},
    {"epoll",
     {registers, registers, registers, unregisters, waits, waits, asks_instance, shuts_for_writing},
     8},
    {"options",
     {least, option, option, option, in_time, not_blocking, state, shuts_for_writing},
     8},
    {"urgent",
     {sends_urgent, sends_urgent, receives_urgent, owns, shuts_for_writing, polls_all},
     6},
    {"numbers",
     {another_number, over_itself, passed_back, child, wakes, registers, waits, shuts_for_writing,
      closes},
     9},
    {"around",
     {over_another, over_another, system_of, by_stdio, by_stdio, another_number, polls_all, closes,
      shuts_for_writing},
     9},
    {"others", {other_calls, other_calls, disconnects, closes, error}, 5},
    {"asleep", {sleeps, sleeps, sleeps, sleeps, receives_much, error}, 6},
    {"full", {sends_long, sends_long, sends_long, shuts_for_writing}, 4},
    {"all",
     {receives_by_flag, shuts_for_writing, registers, waits, option, not_blocking, in_time,
      another_number, passed_back, child, wakes, error},
     12},
};

void settle(void)
{
    const char *us = getenv("CONFORM_SETTLE");

    usleep(us ? (unsigned)atoi(us) : SETTLE);
    /* Whoever has been woken, and has had no processor since. */
    for (int i = 0; i < MOST_LOOKS && others_at_work(); i++)
        sched_yield();
}

static volatile sig_atomic_t told_pipe, told_urgent;

static void takes(int sig)
{
    if (sig == SIGPIPE)
        told_pipe = 1;
    else
        told_urgent = 1;
}

static void say_signals(void)
{
    if (told_pipe)
        say("SIGPIPE");
    if (told_urgent)
        say("SIGURG");
    told_pipe = told_urgent = 0;
}

static void walk(const struct kind *k, unsigned long number)
{
    struct walk w = {.random = number * 77777 + 5};
    int one = 1;
    unsigned steps;

    say("walk %lu", number);
    pair(w.fd);
    below(&w, 2);
    steps = 4 + below(&w, STEPS);
    for (int i = 0; i < 2; i++) {
        w.ep[i] = epoll_create1(EPOLL_CLOEXEC);
        /* Nobody waits for an acknowledgement. */
        must(setsockopt(w.fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "TCP_NODELAY");
    }
    while (steps-- && (w.fd[0] >= 0 || w.fd[1] >= 0)) {
        int i = (int)below(&w, 2);
        unsigned which = below(&w, (unsigned)COUNT(always) + k->count);

        if (w.fd[i] < 0)
            i = !i;
        printf("%c ", "ab"[i]);
        (which < COUNT(always) ? always[which] : k->more[which - COUNT(always)])(&w, i);
        settle();
        say_signals();
    }
    for (int n = 0; n < 2; n++) {
        int i = n;

        if (w.fd[i] < 0)
            continue;
        printf("%c ", "ab"[i]);
        ready_by(&qforms[0], w.fd[i], ALL);
        receives_much(&w, i);
        receives_much(&w, i);
        sends(&w, i);
        settle();
        close(w.fd[i]);
        w.fd[i] = -1;
        settle();
    }
    close(w.ep[0]);
    close(w.ep[1]);
}

EACH(random, struct kind, kinds, COUNT(kinds))
{
    const char *seed = getenv("CONFORM_SEED"), *one = getenv("CONFORM_WALK");
    unsigned long first = seed ? strtoul(seed, NULL, 10) * WALKS : 0;

    signal(SIGPIPE, takes);
    signal(SIGURG, takes);
    if (one) {
        walk(f, strtoul(one, NULL, 10));
        return;
    }
    for (unsigned long i = 0; i < WALKS; i++)
        walk(f, first + i);
}
