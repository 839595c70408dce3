/*
 * send_wait.c - sending that has to wait for room, and what ends it: room, a reset, time, a signal.
 */
#include "tests/conform/forms_send.h"

#include <sys/syscall.h>

#define EACH_SFORM(id) EACH(id, struct sform, sforms, SFORMS)

static int p[2];
static size_t filled;
static int sleeper;

static void takes(void *unused)
{
    (void)unused;
    must(take(p[1], 0, filled), "take");
}

static void resets(void *unused)
{
    (void)unused;
    reset(p[1]);
}

static void shuts_here(void *unused)
{
    (void)unused;
    shutdown(p[0], SHUT_WR);
}

static void signals(void *unused)
{
    (void)unused;
    syscall(SYS_tgkill, getpid(), sleeper, SIGUSR1);
}

static _Atomic bool back;

/* The first may meet the call before anything has gone, and then it goes on: on its way to a rail
 * it sleeps earlier. */
static void signals_until_it_is_back(void *unused)
{
    (void)unused;
    while (!back) {
        signals(NULL);
        until_caught();
        asleep(sleeper);
    }
}

static void signals_then_takes(void *unused)
{
    (void)unused;
    signals(NULL);
    until_caught();
    asleep(sleeper);
    takes(NULL);
}

static ssize_t waits(const struct sform *f, void (*fn)(void *), const char *text)
{
    struct later l;
    ssize_t n;

    sleeper = my_tid();
    later(&l, fn, NULL);
    n = send_by(f, p[0], text);
    later_end(&l);
    return n;
}

static void full(void)
{
    pair(p);
    filled = 0;
    fill(p[0], &filled);
}

EACH_SFORM(for_room)
{
    char buf[10] = "";

    full();
    waits(f, takes, "after");
    must(recv(p[1], buf, 5, MSG_WAITALL) == 5, "recv");
    say_bytes("got", buf, 5);
}

EACH_SFORM(reset_meanwhile)
{
    signal(SIGPIPE, SIG_IGN);
    full();
    waits(f, resets, "never");
    send_by(f, p[0], "never");
}

EACH_SFORM(shut_meanwhile)
{
    signal(SIGPIPE, SIG_IGN);
    full();
    waits(f, shuts_here, "never");
}

EACH_SFORM(times_out)
{
    struct timeval tv = {0, 100000};

    full();
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
    send_by(f, p[0], "never");
    must(take(p[1], 0, filled), "take");
    send_by(f, p[0], "room");
}

EACH_SFORM(interrupted)
{
    full();
    catch_signal(SIGUSR1, 0);
    waits(f, signals, "never");
    say("caught %d", (int)caught);
    must(take(p[1], 0, filled), "take");
    send_by(f, p[0], "goes on");
}

EACH_SFORM(restarted)
{
    full();
    catch_signal(SIGUSR1, SA_RESTART);
    waits(f, signals_then_takes, "after");
    say("caught %d", (int)caught);
}

struct much {
    size_t n;
    int there;
};

static void takes_much(void *much)
{
    struct much *m = much;

    m->there = take(p[1], 0, m->n);
}

/* A blocking call comes back when all has gone. */
EACH_SFORM(much)
{
    static char bytes[1000000];
    struct much m = {.n = strcmp(f->name, "splice") == 0 ? 65536 : sizeof(bytes)};
    struct later l;
    ssize_t did;

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)pattern(i);
    pair(p);
    later(&l, takes_much, &m);
    errno = CLEAN;
    did = f->put(p[0], bytes, m.n);
    show("all", did, errno);
    later_end(&l);
    say("all there: %d", m.there);
}

/* A call keeps the mode and the time-out that it began with, also if its stream leaves its
 * rail meanwhile. */

static void leaves(void)
{
    int on = 1;

    must(setsockopt(p[0], SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0, "SO_OOBINLINE");
    asleep(sleeper);
}

static void nonblocking_and_leaves(void *much)
{
    nonblock(p[0], true);
    leaves();
    takes_much(much);
}

static void short_of_time_and_leaves(void *much)
{
    struct timeval tv = {0, 50000};

    must(setsockopt(p[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) == 0, "SO_SNDTIMEO");
    leaves();
    timed_out(&tv);
    takes_much(much);
}

static void all_the_same(const struct sform *f, void (*fn)(void *))
{
    static char bytes[16 << 20];
    struct much m = {.n = sizeof(bytes)};
    struct later l;
    ssize_t did;

    if (strcmp(f->name, "splice") == 0 || strcmp(f->name, "sendfile") == 0) {
        say("each of its pieces is a call of the kernel's");
        return;
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)pattern(i);
    pair(p);
    sleeper = my_tid();
    later(&l, fn, &m);
    errno = CLEAN;
    did = f->put(p[0], bytes, sizeof(bytes));
    show("all", did, errno);
    if (did >= 0 && (size_t)did < m.n)
        shutdown(p[0], SHUT_WR);
    later_end(&l);
    say("all there: %d", m.there);
}

EACH_SFORM(nonblocking_meanwhile)
{
    all_the_same(f, nonblocking_and_leaves);
}

EACH_SFORM(short_of_time_meanwhile)
{
    all_the_same(f, short_of_time_and_leaves);
}

/* What has gone before the signal is told. */
static void much_by(const struct sform *f, int sa_flags, void (*fn)(void *))
{
    static char bytes[16 << 20];
    struct later l;
    ssize_t did;
    bool some;

    if (strcmp(f->name, "splice") == 0) {
        say("a pipe does not hold as much");
        return;
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)pattern(i);
    pair(p);
    catch_signal(SIGUSR1, sa_flags);
    sleeper = my_tid();
    later(&l, fn, NULL);
    did = f->put(p[0], bytes, sizeof(bytes));
    back = true;
    later_end(&l);
    some = did > 0 && (size_t)did < sizeof(bytes);
    say("some %d, caught %d", some, sa_flags ? caught > 0 : (int)caught);
    must(take(p[1], 0, (size_t)did), "take");
    say("goes on: %zd", f->put(p[0], "x", 1));
}

EACH_SFORM(much_interrupted)
{
    much_by(f, 0, signals);
}

/* Bytes that have gone are not sent anew. */
EACH_SFORM(much_interrupted_by_a_restart)
{
    much_by(f, SA_RESTART, signals_until_it_is_back);
}
